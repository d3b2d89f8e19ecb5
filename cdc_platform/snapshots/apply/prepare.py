"""The snapshot of one source table: made, evolved, kept in shape."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession

from cdc_platform.errors import TableStopped
from cdc_platform.lake import delta_table, looks, metadata_commits, new_tables
from cdc_platform.lake.columns import Columns
from cdc_platform.lake.data_files import footer
from cdc_platform.lake.looks import Look
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.apply import staging
from cdc_platform.snapshots.schema import alter, features, shapes
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.target import Stale, Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta
from cdc_platform.spark.session import FEW_ROWS_AT_ONCE, ROWS_AT_ONCE
from cdc_platform.tables import KEY, Table

MANY_FILES = 12
"""Small files of a snapshot that are put together."""
_MIN_FILE, _ITS_DEFAULT = "spark.databricks.delta.optimize.minFileSize", str(1 << 30)
_MOST_ROWS, _READ_BYTES, _CELL_BYTES = 4096, 2 << 20, 16
"""Spark's default; what a task holds of a file's rows: 64 messages of 28 KB; what a cell takes, however short."""


def prepare(spark: SparkSession, target: Target, columns: list[TableColumn]) -> bool:
    """Make the snapshot, or add the columns it lacks. Returns whether it and its tombstones are known to be empty.
    Raises TableStopped where a column changed its type, Stale where the table must be made anew."""
    if (look := looks.look(target.snapshot)) is not None:
        _evolve(spark, look, target, columns)
        put_together(spark, target.snapshot)
        if target.for_any:
            features.remove(spark, target.snapshot)
        return False
    dug = delta_table.exists(target.tombstones)
    _make(spark, target, columns)
    return not dug  # not where the snapshot is made again whose folder was lost


def empty(spark: SparkSession, target: Target, columns: list[TableColumn]) -> None:
    """The snapshot without rows, its tombstones too, with today's columns. Raises TableStopped."""
    if delta_table.exists(target.tombstones):
        _empty(spark, target.tombstones, shapes.tombstones(columns))
    if not delta_table.exists(target.snapshot):
        return _make(spark, target, columns)
    _empty(spark, target.snapshot, shapes.snapshot(target.source, target.name, columns))
    if target.for_any:
        features.remove(spark, target.snapshot)
    return None


def _empty(spark: SparkSession, path: Store, table: Table) -> None:
    """Takes all rows out of a table, and gives it these columns."""
    if not metadata_commits.empty_out(path, table):
        features.allow_names(spark, path, [c.name for c in table.columns])
        delta_sql.replace(spark, path, table.ddl)
        delta_sql.configure(spark, path, {KEY: table.settings.get(KEY)})


def _make(spark: SparkSession, target: Target, columns: list[TableColumn]) -> None:
    """Raises TableStopped."""
    if staging.make(target, columns) or make(target, columns):
        return
    if target.around is not None and delta_table.exists(target.around):  # its VACUUM would remove this one's files
        outer = f"{target.name[0]}.{target.name[1]}"
        raise TableStopped(target.source, target.name, f"its folder lies in that of the table {outer}")
    table, needed = shapes.snapshot(target.source, target.name, columns), features.at_creation(c.name for c in columns)
    delta_sql.create(spark, target.snapshot, table.ddl, {**table.properties, **needed}, table.comment)


def make(target: Target, columns: list[TableColumn]) -> Look | None:
    """Make the snapshot, which isn't there, without Spark. None: a name needs what only Spark enables, or the table
    can't be made."""
    if features.needs_mapping(c.name for c in columns):
        return None
    if target.around is not None and delta_table.exists(target.around):
        return None
    return new_tables.created(target.snapshot, shapes.snapshot(target.source, target.name, columns))


class VectorUse(NamedTuple):
    """Whether changes mark rows of a snapshot in deletion vectors instead of rewriting its files: `wanted`, for it is
    large; `enabled` in the table."""

    wanted: bool
    enabled: bool


def vector_use(target: Target) -> VectorUse:
    """Of a snapshot that is there."""
    return vector_use_of(target, features.Features.of(target.snapshot))


def vector_use_of(target: Target, now: features.Features) -> VectorUse:
    """The same of a snapshot with these features."""
    return VectorUse(now.marks or (now.bytes > features.SMALL and not target.for_any), now.marks)


def ready_for_merge(spark: SparkSession, target: Target) -> None:
    """Enables deletion vectors where MERGE and DELETE should use them. To be called before anything is read of the
    snapshot: a frame planned before fails on rows marked since."""
    if vector_use(target) == VectorUse(wanted=True, enabled=False):
        features.mark_rows(spark, target.snapshot)


def put_together(spark: SparkSession, table: Store) -> None:
    """Makes few files of what many small batches left."""
    if len(sizes := delta_table.sizes(table)) >= MANY_FILES:
        enough = int(spark.conf.get(_MIN_FILE, _ITS_DEFAULT) or 0)
        if sum(size < enough for size in sizes) >= MANY_FILES:
            spark.sql(f"OPTIMIZE {delta(table)}").collect()


@contextmanager
def read_in_bulk(spark: SparkSession, snapshots: list[Store]) -> Iterator[None]:
    """As many rows at once as bytes allow while Spark reads nothing large but these snapshots: few where they are as
    large as messages may be, up to Spark's own 4096 where they are small (MERGE looked through 10,000,000 in two thirds
    of the time). Changes nothing where the user has a number of their own."""
    own = spark.conf.get(ROWS_AT_ONCE)
    widths = [_row_bytes(s) for s in snapshots] if own == FEW_ROWS_AT_ONCE else []
    rows = min(_MOST_ROWS, _READ_BYTES // max(w for w in widths if w)) if widths and None not in widths else 0
    if rows <= int(FEW_ROWS_AT_ONCE):
        yield
        return
    spark.conf.set(ROWS_AT_ONCE, str(rows))
    try:
        yield
    finally:
        spark.conf.set(ROWS_AT_ONCE, FEW_ROWS_AT_ONCE)


def _row_bytes(snapshot: Store) -> int | None:
    """What a row takes before compression, where a file's rows take most; None: there is no row."""
    if not delta_table.exists(snapshot) or (heaviest := delta_table.heaviest_file(snapshot)) is None:
        return None
    file, rows = heaviest
    metadata = footer(file)
    total = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return max(total // rows, _CELL_BYTES * len(metadata.schema))


def of_key(spark: SparkSession, look: Look, target: Target, columns: list[TableColumn]) -> Look | None:
    """A snapshot, if the key of these columns tells apart its rows and tombstones, too; None: they are kept by another
    key, which no statement told to change. A snapshot of an earlier version doesn't say by which: it is noted."""
    key = [c for c in columns if c.key]
    if (told := look.properties.get(KEY)) is not None:
        return look if [n.lower() for n in json.loads(told)] == [c.name.lower() for c in key] else None
    if bool(key) == (shapes.ADDRESS in look.fields):
        return None
    if delta_table.exists(target.tombstones):
        stones = [f.dataType.simpleString() for f in delta_sql.schema(target.tombstones) if f.name.startswith("_k")]
        if stones != [c.spark for c in key]:
            return None
    delta_sql.configure(spark, target.snapshot, {KEY: shapes.key_of(columns)})
    return looks.look(target.snapshot)


def _evolve(spark: SparkSession, look: Look, target: Target, columns: list[TableColumn]) -> None:
    fields = {f.name.lower(): f for f in delta_sql.schema(target.snapshot).fields}
    there = {name: f.dataType for name, f in fields.items()}
    lacking = any(c.name.lower() not in there for c in columns)
    if (lacking and not any(c.key for c in columns)) or of_key(spark, look, target, columns) is None:
        raise Stale
    for c in columns:
        kept = there.get(c.name.lower())
        if kept is not None and kept.simpleString() != c.spark:
            raise TableStopped(
                target.source,
                target.name,
                f"column {c.name!r} is kept as {kept.simpleString()} and now comes as {c.spark}",
            )
        if kept is not None and shapes.comment_of(fields[c.name.lower()]) != c.comment:
            raise Stale
    if lacking and not metadata_commits.change_columns(target.snapshot, partial(_add, columns)):
        raise Stale


def _add(wanted: list[TableColumn], columns: Columns) -> bool:
    """Those that aren't there, each behind the one before it."""
    previous: str | None = None
    for c in wanted:
        there = next((n for n in columns.names if n.lower() == c.name.lower()), None)
        if there is None:
            alter.add(columns, c, previous)
        previous = there or c.name
    return True
