"""Changes that are newer than anything a snapshot holds, where all that a batch tells of it is plain (full_images.py):
rows and tombstones written by workers, and the rows marked that they take the place of.

Spark took 7 µs of CPU for each row of a first load, and as much of its heap as they are. Everything else goes the way
of merge.py, which gives the same.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.order_key import ORDER
from cdc_platform.lake import commits, delta_table
from cdc_platform.lake.data_files import Output, Sink, Written
from cdc_platform.lake.store import File, Store
from cdc_platform.mysql.types import MySqlType
from cdc_platform.snapshots.apply import prepare, replace_rows, tombstones
from cdc_platform.snapshots.apply.cast import typed
from cdc_platform.snapshots.reduce import images
from cdc_platform.snapshots.schema import features
from cdc_platform.snapshots.schema.columns import BOOKKEEPING, TableColumn
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.spark import arrow_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.snapshots.reduce.full_images import FullImages
    from cdc_platform.snapshots.target import Target

ROWS, TOMBSTONES = "rows", "tombstones"
"""Outputs of `Load`."""
_STATED = 32
"""Columns whose lowest and highest values Delta tells of what Spark writes ("delta.dataSkippingNumIndexedCols")."""

Columns = tuple[tuple[pa.Field, MySqlType | None, str], ...]
"""Of a file in order: each with its type at the source (None: it isn't cast) and where its values are."""

Given = dict[str, tuple[MySqlType | None, str]]
"""The same by name."""


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a task: changes as images.texts gives them → rows of a snapshot's file, and tombstones of deletes.
    Tells whether all texts could be read; else it leaves no files."""

    rows: Columns
    tombstones: Columns

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> bool:
        for batch in batches:
            deleted = batch.column("deleted")
            some = pc.any(deleted).as_py()
            try:
                _write(out[ROWS], batch.filter(pc.invert(deleted)) if some else batch, self.rows)
                if some:
                    gone = batch.filter(deleted)
                    scope = pa.array(["row"] * gone.num_rows)
                    _write(out[TOMBSTONES], gone.append_column("scope", scope), self.tombstones)
            except ValueError:
                for output in out.values():
                    output.discard()
                return False
        return True

    def truncated(self, order: tuple[int, ...], out: Mapping[str, Output]) -> None:
        """The tombstone of a TRUNCATE at this place."""
        keys = {given: pa.nulls(1, pa.string()) for _, _, given in self.tombstones if given.startswith("t")}
        at = pa.array([dict(zip(ORDER.names, order, strict=True))], ORDER)
        stone = {**keys, "scope": pa.array(["table"]), "_cdc_order": at}
        _write(out[TOMBSTONES], pa.RecordBatch.from_pydict(stone), self.tombstones)


def _write(out: Output, batch: pa.RecordBatch, columns: Columns) -> None:
    out.write(made(batch, columns))


def made(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """Columns of a file. Raises ValueError where Spark has to say what a text is."""
    found = [_made(batch.column(given), type_, field) for field, type_, given in columns]
    return pa.RecordBatch.from_arrays(found, schema=pa.schema([f for f, _, _ in columns]))


def _made(given: pa.Array, type_: MySqlType | None, field: pa.Field) -> pa.Array:
    if type_ is not None:
        return typed(given, type_, field.type)
    if isinstance(given, pa.StructArray):
        return pa.StructArray.from_arrays(given.flatten(), fields=list(field.type))
    return given


def load(
    spark: "SparkSession",
    plain: "FullImages",
    columns: list[TableColumn],
    target: "Target",
    app: str,
    batch_id: int,
    *,
    empty: bool,
) -> bool:
    """Brings a batch into a snapshot that holds nothing newer. It may be done again. empty: it holds nothing. False:
    Spark has to do it, for the table has something that isn't kept to here, or a text
    is Spark's to read."""
    before = commits.live(target.snapshot) if not empty else None
    if not (empty or before):
        return False
    deletes = plain.figures.deletes > 0
    if deletes:
        tombstones.ensure_tombstones(target, columns)
    rows = rows_of(delta_table.file_fields(target.snapshot), columns)
    graves = tombstones_of(delta_table.file_fields(target.tombstones), columns) if deletes else ()
    if rows is None or graves is None:
        return False
    sinks = {ROWS: sink(target.snapshot, rows)}
    sinks |= {TOMBSTONES: sink(target.tombstones, graves)} if graves else {}
    texts = partial(images.texts, plain.files, plain.table)
    done = arrow_tasks.partitions(plain.places(spark), texts, Load(rows, graves), sinks)
    if not all(done.told):
        return False
    if graves:
        commits.append_files(sinks[TOMBSTONES], done.written[TOMBSTONES], (app, batch_id))
    if not before:
        commits.append_files(sinks[ROWS], done.written[ROWS], (app, batch_id))
        return True
    ends = (plain.figures.low_key, plain.figures.high_key)
    keys = _keys(target, columns, rows, done.written)
    wanted, enabled = prepare.vector_use(target)
    enable = partial(features.mark_rows, spark, target.snapshot) if wanted and not enabled else None
    return replace_rows.replace(spark, sinks[ROWS], before, keys, ends, done.written[ROWS], mark=wanted, enable=enable)


def rows_of(fields: Mapping[str, pa.Field], columns: list[TableColumn]) -> Columns | None:
    """Columns of a snapshot's files; None: it hasn't those of the table and no others. fields: as the files have
    them."""
    keys = iter(f"t{i}" for i, _ in enumerate(c for c in columns if c.key))
    given: Given = {c.name.lower(): (c.type, next(keys) if c.key else f"x{i}") for i, c in enumerate(columns)}
    given |= {name: (None, name) for name in (*BOOKKEEPING, *(() if any(c.key for c in columns) else (ADDRESS,)))}
    if {n.lower() for n in fields} != given.keys() or len(fields) != len(given):
        return None
    if any(not f.nullable or "." in f.name for f in fields.values()):
        return None  # somebody's constraint, or what Arrow would take for a path
    return tuple((field, *given[name.lower()]) for name, field in fields.items())


def tombstones_of(fields: Mapping[str, pa.Field], columns: list[TableColumn]) -> Columns | None:
    """The same of its tombstones' files."""
    keys = [c for c in columns if c.key]
    given: Given = {f"_k{i}": (c.type, f"t{i}") for i, c in enumerate(keys)}
    given |= {name: (None, name) for name in ("scope", "_cdc_order")}
    if fields.keys() != given.keys():
        return None
    return tuple((field, *given[name]) for name, field in fields.items())


def sink(table: Store, columns: Columns) -> Sink:
    """Where files with these columns are written. Between which addresses their rows lie is told in any case: by these
    it is looked for rows that are there already."""
    schema = pa.schema([field for field, _, _ in columns])
    leaves = tuple(leaf for field in schema for leaf in _leaves(field))
    addresses = (leaf for field, _, given in columns if given == ADDRESS for leaf in _leaves(field))
    return Sink(table, schema, tuple(dict.fromkeys((*leaves[:_STATED], *addresses))), leaves)


def _leaves(field: pa.Field) -> list[str]:
    return [f"{field.name}.{f.name}" for f in field.type] if pa.types.is_struct(field.type) else [field.name]


def _keys(
    target: "Target", columns: list[TableColumn], rows: Columns, written: Mapping[str, list[Written]]
) -> replace_rows.Keys:
    """Where the keys stand that changes brought."""
    number = sum(c.key for c in columns)
    fields = {given: field for field, _, given in rows}
    schema = pa.schema([fields[f"t{i}"].remove_metadata() for i in range(number)])
    graves = tuple(f"_k{i}" for i in range(number))
    files = [(File(target.snapshot, f.path), tuple(schema.names)) for f in written[ROWS]]
    files += [(File(target.tombstones, f.path), graves) for f in written.get(TOMBSTONES, ())]
    return replace_rows.Keys(tuple(files), schema)
