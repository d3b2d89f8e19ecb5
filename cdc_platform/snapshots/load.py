"""The first rows of a snapshot, where all that a batch tells of it is plain (plain.py): its files written by workers.

Spark took 7 µs of CPU for each of those rows, and as much of its heap as they are. Everything else goes the way of
merge.py, which gives the same.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.mysql.types import MySqlType
from cdc_platform.resources import notes, passes
from cdc_platform.resources.parquet import Output, Sink
from cdc_platform.snapshots import images
from cdc_platform.snapshots.columns import BOOKKEEPING, TableColumn
from cdc_platform.snapshots.typed import typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.snapshots.plain import Plain
    from cdc_platform.snapshots.target import Target

_OUTPUT = "snapshot"
_STATED = 32
"""Columns whose lowest and highest values Delta tells of what Spark writes ("delta.dataSkippingNumIndexedCols")."""


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a task: changes as images.texts gives them → rows of a snapshot's file. Tells whether all texts could
    be read; else it leaves no file. columns: of the file in order, each with its type at the source (None: bookkeeping)
    and where its texts are."""

    columns: tuple[tuple[pa.Field, MySqlType | None, str], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> bool:
        for batch in batches:
            deleted = batch.column("deleted")
            alive = batch.filter(pc.invert(deleted)) if pc.any(deleted).as_py() else batch
            try:
                made = [self._made(alive.column(given), type_, field) for field, type_, given in self.columns]
            except ValueError:
                out[_OUTPUT].discard()
                return False
            out[_OUTPUT].write(pa.RecordBatch.from_arrays(made, schema=pa.schema([f for f, _, _ in self.columns])))
        return True

    def _made(self, given: pa.Array, type_: MySqlType | None, field: pa.Field) -> pa.Array:
        if type_ is not None:
            return typed(given, type_, field.type)
        if isinstance(given, pa.StructArray):
            return pa.StructArray.from_arrays(given.flatten(), fields=list(field.type))
        return given


def load(
    spark: "SparkSession", plain: "Plain", columns: list[TableColumn], target: "Target", app: str, batch_id: int
) -> bool:
    """Fills an empty snapshot, at most once per (`app`, `batch_id`). False: nothing was done, for this process doesn't
    see the table, or Spark has to say what some text is."""
    schema = notes.file_schema(target.snapshot)
    if schema is None or len(schema) != len(columns) + len(BOOKKEEPING):
        return False
    keys = iter(f"t{i}" for i, _ in enumerate(plain.table.keys))
    given = [next(keys) if c.key else f"x{i}" for i, c in enumerate(columns)]
    types = [*(c.type for c in columns), *(None for _ in BOOKKEEPING)]
    work = Load(tuple(zip(schema, types, [*given, *BOOKKEEPING], strict=True)))
    leaves = tuple(leaf for field in schema for leaf in _leaves(field))
    sink = Sink(target.snapshot, schema, leaves[:_STATED], leaves)
    rows = partial(images.texts, plain.files, plain.table)
    done = passes.partitions(plain.places(spark), rows, work, {_OUTPUT: sink})
    if not all(done.told):
        return False
    passes.commit(sink, done.written[_OUTPUT], app, batch_id)
    return True


def _leaves(field: pa.Field) -> list[str]:
    return [f"{field.name}.{f.name}" for f in field.type] if pa.types.is_struct(field.type) else [field.name]
