"""DDL brought to a snapshot's columns without rewriting what is there: by metadata alone, by Spark where rows get a
value."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Order, Step
from cdc_platform.lake import delta_table, handles, metadata_commits, new_tables
from cdc_platform.lake.columns import Columns
from cdc_platform.lake.store import Store
from cdc_platform.mysql.defaults import instead_of_null
from cdc_platform.mysql.effects import Effect
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.schema.columns import ORDER_FIELDS, TableColumn, order_literal, order_sql
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta
from cdc_platform.tables import Table
from cdc_platform.tables.columns import Column, quoted, scalar

_DONE = "cdc.ddl"
"""Property of a snapshot: the last statement that its columns follow, and whether rows lack a value that it gave. It is
set by the commit that follows it: a statement that was followed isn't once more, which would undo a swap of names."""
_LACKING = " rows"


def alter(spark: SparkSession, target: Target, steps: Iterable[Step]) -> bool:
    """Brings a snapshot's columns up to date. False: it must be built anew, as one of a table without a key (the
    digests beside it are of whole rows), or one that is for readers without column mapping. May be repeated."""
    path, steps = target.snapshot, list(steps)
    now = handles.head(path).metadata
    if ADDRESS in delta_table.fields_of(now["schemaString"]):
        return False
    ids = [_id(step, steps[:n]) for n, step in enumerate(steps)]
    told = now["configuration"].get(_DONE, "")
    last, lacking = told.removesuffix(_LACKING), told.endswith(_LACKING)
    start = ids.index(last) + 1 if last in ids else 0
    if start and lacking and not _given(spark, target, steps[start - 1], last):
        return False
    waiting: list[Effect] = []
    for id_, step in zip(ids[start:], steps[start:], strict=True):
        if target.for_any and (step.effect.renamed or step.effect.dropped):
            return False
        waiting.append(step.effect)
        if not _gives(step.effect):
            continue
        if not (_changed(path, waiting, id_ + _LACKING) and _given(spark, target, step, id_)):
            return False
        waiting = []
    return not waiting or _changed(path, waiting, ids[-1])


def _id(step: Step, before: list[Step]) -> str:
    """What a statement's effect is known by: its address, and which of the effects there it is."""
    return "/".join(map(str, (*step.address, sum(s.address == step.address for s in before))))


def _gives(effect: Effect) -> bool:
    """Whether a statement may give rows a value."""
    return any(added.fill is not None for added in effect.added) or any(t.filled for t in effect.retyped.values())


def _given(spark: SparkSession, target: Target, step: Step, id_: str) -> bool:
    """Gives rows what a statement gave them. False: it isn't told."""
    for added in (added for added in step.effect.added if added.fill is not None):
        _fill(spark, target, TableColumn(added.name, parse_type(added.type), False), str(added.fill), step.order)
    done = _fill_nulls(spark, target, step.effect, step.order)
    return done and metadata_commits.configure(target.snapshot, {_DONE: id_})


def _changed(path: Store, effects: list[Effect], followed: str) -> bool:
    """Whether a snapshot's columns are as these statements leave them, by one commit."""
    return metadata_commits.change_columns(path, partial(_follow, effects, followed))


def _follow(effects: list[Effect], followed: str, columns: Columns) -> bool:
    """Does to columns what statements do. False: a name is taken, or isn't there."""
    columns.configuration[_DONE] = followed
    for effect in effects:
        if (moves := _moves(columns.names, effect)) is None:
            return False
        if moves.renamed or moves.dropped:
            columns.map()
        for old, new in moves.renamed:
            columns.rename(old, new)
        for old in moves.dropped:
            columns.drop(old)
        _add(columns, effect)
        _reorder(columns, effect)
    return True


def add(columns: Columns, column: TableColumn, previous: str | None) -> None:
    """A new column behind another one; None: before all."""
    [field] = new_tables.fields(Table("", "", (Column(column.name, scalar(column.spark), column.comment),)))
    columns.add(field, columns.names.index(previous) + 1 if previous else 0)


def _add(columns: Columns, effect: Effect) -> None:
    for added in effect.added:
        if _find(columns.names, added.name) is not None:
            continue
        before = [c.name for c in effect.columns[: _index(effect, added.name)]]
        previous = next((n for b in reversed(before) if (n := _find(columns.names, b))), None)
        add(columns, TableColumn(added.name, parse_type(added.type), False), previous)


def _reorder(columns: Columns, effect: Effect) -> None:
    """The source's order of columns."""
    there = [n for c in effect.columns if (n := _find(columns.names, c.name)) is not None]
    for place, name in enumerate(there):
        if columns.names[place] != name:
            columns.move(name, place)


class _Moves(NamedTuple):
    """What a statement's renames and drops do to columns, one after the other. names: of each column afterwards, before
    drops."""

    renamed: list[tuple[str, str]]
    dropped: list[str]
    names: list[str]


def _moves(have: list[str], effect: Effect) -> _Moves | None:
    """None: a name is taken, or isn't there. What is done already is left out."""
    renamed, names = [], list(have)
    for old, new in effect.renamed.items():
        there, taken = _find(names, old), _find(names, new)
        if there is None and taken is not None:
            continue
        if there is None or taken is not None:
            return None
        renamed.append((there, new))
        names[names.index(there)] = new
    return _Moves(renamed, [there for old in effect.dropped if (there := _find(names, old)) is not None], names)


def _fill(
    spark: SparkSession, target: Target, column: TableColumn, fill: str, order: Order, *, only_null: bool = False
) -> None:
    """The default of a new column in rows that were there before it; only_null: where they hold nothing in it."""
    value = spark.range(1).select(column.value(F.lit(fill)).alias("v"))
    view = f"cdc_fill_{abs(hash((target.snapshot.uri(), column.name)))}"
    value.createOrReplaceTempView(view)
    try:
        null = f" AND t.{quoted(column.name)} IS NULL" if only_null else ""
        at = order_sql(dict(zip(ORDER_FIELDS, order, strict=True)))
        spark.sql(
            f"MERGE INTO {delta(target.snapshot)} AS t USING {view} AS s ON t._cdc_order < {at}{null} "
            f"WHEN MATCHED THEN UPDATE SET {quoted(column.name)} = s.v"
        )
    finally:
        spark.catalog.dropTempView(view)


def _fill_nulls(spark: SparkSession, target: Target, effect: Effect, order: Order) -> bool:
    """What rows hold that held NULL in columns which are NOT NULL since. False: it isn't told."""
    for name, types in effect.retyped.items():
        type_ = parse_type(types.after)
        if not types.filled or type_.family in ("date", "datetime"):  # zero dates are NULL here
            continue
        held = delta_sql.read(spark, target.snapshot).where(F.col(quoted(name)).isNull())
        if held.where(F.col("_cdc_order") < order_literal(dict(zip(ORDER_FIELDS, order, strict=True)))).isEmpty():
            continue
        text = instead_of_null(type_)
        if text is None:
            return False
        _fill(spark, target, TableColumn(name, type_, False), text, order, only_null=True)
    return True


def _index(effect: Effect, name: str) -> int:
    return next((i for i, c in enumerate(effect.columns) if c.name.lower() == name.lower()), len(effect.columns))


def _find(have: list[str], name: str) -> str | None:
    return next((h for h in have if h.lower() == name.lower()), None)
