"""Rows by Kafka address that a pass is told of, packed: workers look up those near their events. They are many where a
topic was sent again: a byte or less each as the driver and all tasks have them, and unpacked where they are asked for.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_platform.changelog.epochs import Where
from cdc_platform.changelog.order_key import partitions
from cdc_platform.spark import arrow_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = 1 << 17
"""Rows of a part at most."""
_KEPT = 8
"""Parts that a worker has unpacked at a time: events of neighbours are near each other."""
_PARTS = pa.schema(
    [
        *(("topic", pa.string()), ("partition", pa.int64()), ("low", pa.int64()), ("high", pa.int64())),
        ("rows", pa.binary()),
    ]
)


class Part(NamedTuple):
    """Rows of a partition, as a Parquet file: of these offsets, and perhaps of others between them in other parts."""

    low: int
    high: int
    rows: bytes


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows (topic, partition, offset, and what else there is) by partition."""

    parts: Mapping[Where, tuple[Part, ...]]

    @classmethod
    def of(cls, rows: "DataFrame") -> "Packed":
        """Of a DataFrame: its tasks pack them."""
        packed = rows.sort("topic", "partition", "offset").mapInArrow(_packed, arrow_tasks.spark_schema(_PARTS))
        return cls._of(packed.toArrow().to_batches())

    @classmethod
    def of_table(cls, rows: pa.Table) -> "Packed":
        """Of rows that the driver has."""
        return cls._of(_packed(iter(rows.to_batches())))

    @classmethod
    def _of(cls, packed: Iterable[pa.RecordBatch]) -> "Packed":
        found: dict[Where, list[Part]] = {}
        for batch in packed:
            for row in batch.to_pylist():
                found.setdefault((row["topic"], row["partition"]), []).append(
                    Part(row["low"], row["high"], row["rows"])
                )
        return cls({where: tuple(parts) for where, parts in found.items()})

    def near(self, where: Where, low: int, high: int) -> pa.Table | None:
        """Rows of a partition without topic and partition: those of these offsets, and some of others. None: there are
        none."""
        found = [_unpacked(p.rows) for p in self.parts.get(where, ()) if p.low <= high and low <= p.high]
        return pa.concat_tables(found) if found else None

    def among(self, events: pa.RecordBatch, *names: str) -> pa.BooleanArray:
        """Which events have the offset of one of the rows, and the same in these columns."""
        found = np.zeros(events.num_rows, bool)
        columns = ("offset", *names)
        for where, here in partitions(events) if self.parts else ():
            mine = np.flatnonzero(here)
            offsets = events.column("offset").take(pa.array(mine))
            near = self.near(where, pc.min(offsets).as_py(), pc.max(offsets).as_py())
            if near is None:
                continue
            asked = _comparable(pa.Table.from_batches([events.select(columns)]).take(pa.array(mine)), columns)
            both = asked.append_column("_at", pa.array(mine)).join(
                _comparable(near, columns), list(columns), join_type="left semi", use_threads=False
            )
            found[both.column("_at").to_numpy()] = True
        return pa.array(found)


def _comparable(rows: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    """NULL isn't equal to itself in a join; no number of an address is below 0."""
    return pa.table({c: _without_null(rows.column(c)) for c in columns})


def _without_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.int64()), -1)
    return pc.fill_null(column, False if pa.types.is_boolean(column.type) else "")


@lru_cache(maxsize=_KEPT)
def _unpacked(rows: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(rows), use_threads=False)


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows, in the order of their address, as parts."""
    rows = [batch for batch in batches if batch.num_rows]
    if not rows:
        return
    for whole in pa.Table.from_batches(rows).combine_chunks().to_batches():
        for (topic, partition), here in partitions(whole):
            mine = pa.Table.from_batches([whole]).drop_columns(["topic", "partition"]).filter(pa.array(here))
            for at in range(0, mine.num_rows, _ROWS):
                yield _part(topic, partition, mine.slice(at, _ROWS))


def _part(topic: str, partition: int, rows: pa.Table) -> pa.RecordBatch:
    ends = pc.min_max(rows.column("offset")).as_py()
    others: Any = [n for n in rows.column_names if n != "offset"]  # it takes names, too
    out = pa.BufferOutputStream()
    # Offsets follow one another, and the rest is mostly the same.
    pq.write_table(
        rows, out, compression="zstd", use_dictionary=others, column_encoding={"offset": "DELTA_BINARY_PACKED"}
    )
    row = {"topic": topic, "partition": partition, "low": ends["min"], "high": ends["max"]}
    return pa.RecordBatch.from_pylist([{**row, "rows": out.getvalue().to_pybytes()}], _PARTS)
