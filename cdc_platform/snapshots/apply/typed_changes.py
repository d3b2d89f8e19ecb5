"""Changes of one table → the same with rows before and after in its columns: a frame that workers make.

Input rows are CHANGELOG rows of one table, carried to its columns of today, with upcast.UNTOLD or without. Each gives
one row: the columns of CHANGE, and `before` and `after`, structs of the table's columns. A cell has what the change
itself tells: of a column that isn't told it is NULL, and the column is named in `_cdc_missing_before` or
`_cdc_missing_after`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.mysql.types import MySqlType
from cdc_platform.snapshots.apply.cast import typed
from cdc_platform.snapshots.reduce.change_images import NAMES, Rows, Table, before_and_after
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.snapshots.schema.upcast import UNTOLD
from cdc_platform.spark import workers
from cdc_platform.tables import IMAGES, ROW_ADDRESS
from cdc_platform.tables import Table as DeltaTable
from cdc_platform.tables.columns import STRING, Array, sql

CHANGE = {
    "_cdc_op": "op",
    "_cdc_source_time": "source_time",
    "_cdc_order": "order_key",
    "_cdc_gtid": "gtid",
    "_cdc_binlog_file": "binlog_file",
    "_cdc_binlog_pos": "binlog_pos",
}
"""Columns of a typed change that are CHANGELOG's under other names."""
_IMAGE_TEXTS = tuple((image, f"_{image}") for image in IMAGES)
_TEXTS = tuple(name for _, name in _IMAGE_TEXTS)


def of_changes(rows: DataFrame, columns: list[TableColumn], made: DeltaTable, *, nulls_told: bool) -> DataFrame:
    """made: the table of these changes; nulls_told: as change_images.Table has it."""
    table = Table(tuple(c.name for c in columns), frozenset(c.name for c in columns if c.key), nulls_told)
    work = _Typing(table, tuple(c.type for c in columns), _schema(made))
    needed = (*CHANGE.values(), "key", *IMAGES, *ROW_ADDRESS.names)
    given = rows.select(*dict.fromkeys(needed), *(n for n in (UNTOLD,) if n in rows.columns))
    texts = ", ".join(f"{name} {sql(Array(STRING))}" for name in _TEXTS)
    found = given.mapInArrow(partial(_each, work), f"{made.ddl}, {texts}")
    return found.select(
        *(n for n in made.names if n not in IMAGES),
        *(F.when(F.col(t).isNull(), F.col(i)).otherwise(_typed(columns, t)).alias(i) for i, t in _IMAGE_TEXTS),
    )


def _schema(made: DeltaTable) -> pa.Schema:
    """Of what workers make: with texts of rows where Spark has to say what one of these is."""
    return pa.schema([*made.arrow(), *(pa.field(name, NAMES) for name in _TEXTS)])


def _typed(columns: list[TableColumn], texts: str) -> Column:
    return F.struct(*(c.value(F.get(F.col(texts), F.lit(i))).alias(c.name) for i, c in enumerate(columns)))


@dataclass(frozen=True, slots=True)
class _Typing:
    """The work of a task. types: of the table's columns; schema: of what is made."""

    table: Table
    types: tuple[MySqlType, ...]
    schema: pa.Schema

    def made(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Typed changes."""
        found = dict(zip(IMAGES, before_and_after(changes, self.table), strict=True))
        rows = {image: self._row(of) for image, of in found.items()}
        address = [changes.column(n) for n in ROW_ADDRESS.names]
        made = {
            **{own: changes.column(name) for own, name in CHANGE.items()},
            ADDRESS: pa.StructArray.from_arrays(address, list(ROW_ADDRESS.names)),
            **{f"_cdc_missing_{image}": of.missing for image, of in found.items()},
            **{image: row for image, (row, _) in rows.items()},
            **{f"_{image}": texts for image, (_, texts) in rows.items()},
        }
        return pa.RecordBatch.from_arrays([made[f.name].cast(f.type) for f in self.schema], schema=self.schema)

    def _row(self, of: Rows) -> tuple[pa.Array, pa.Array]:
        n, mask, row = len(of.there), pa.array(~of.there), self.schema.field(IMAGES[0]).type
        try:
            cells = [typed(t, type_, f.type) for t, type_, f in zip(of.texts, self.types, row, strict=True)]
        except ValueError:
            width = len(of.texts)
            every = pa.chunked_array(of.texts, pa.string()).combine_chunks()
            by_row = every.take(pa.array(np.arange(n * width).reshape(width, n).T.ravel()))
            offsets = pa.array(np.arange(n + 1, dtype=np.int32) * width, mask=np.append(~of.there, False))
            return pa.nulls(n, row), pa.ListArray.from_arrays(offsets, by_row)
        return pa.StructArray.from_arrays(cells, fields=list(row), mask=mask), pa.nulls(n, NAMES)


def _each(work: _Typing, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    workers.configure()
    yield from map(work.made, batches)
