"""Stretches of records that their sender numbered one after the other: Arrow only, on the executors.

A sender that numbers its records (`Part.parse`: `seq`, per topic, partition and shard) lets a reader see that one never
came. Kafka's own offsets can't tell: a record that was never sent has none.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LARGEST = Decimal((1 << 63) - 1)
_MOST = 1_000
"""Of breaks in one pass: numbers with more than that are no sequence."""


class Stretch(NamedTuple):
    """Records of one lane from one offset to another, numbered `first` to `last` (None: not one after the other)."""

    topic: str
    partition: int
    shard: str
    from_offset: int
    to_offset: int
    first: int | None
    last: int | None

    def goes_on(self, after: "Stretch") -> bool:
        """Whether this one is the continuation of another. A number that comes twice in a row is a repetition."""
        if self[:3] != after[:3] or self.first is None or after.last is None:
            return False
        return self.first - after.last in (0, 1)


def stretches(messages: pa.RecordBatch, parts: pa.RecordBatch) -> list[Stretch]:
    """MESSAGE batch and its PART batch → stretches; records without a number belong to none."""
    seq = parts.column("seq")
    numbered = pc.fill_null(pc.less_equal(seq, pa.scalar(_LARGEST, seq.type)), False)
    if not pc.any(numbered).as_py():
        return []
    lanes = pa.table(
        {
            **{n: messages.column(n) for n in ("topic", "partition", "offset")},
            "shard": parts.column("shard"),
            "seq": pc.if_else(numbered, seq, None).cast(pa.int64()),
        }
    ).filter(numbered)
    order = [(n, "ascending") for n in ("topic", "partition", "shard", "offset")]
    lanes = lanes.take(pc.sort_indices(lanes, sort_keys=order)).combine_chunks()
    codes = [lanes[n].combine_chunks().dictionary_encode() for n in ("topic", "partition", "shard")]
    other = np.any([np.diff(c.indices.to_numpy()) != 0 for c in codes], axis=0)
    begins = np.flatnonzero(np.concatenate([[True], other | ~np.isin(np.diff(lanes["seq"].to_numpy()), (0, 1))]))
    ends = np.append(begins[1:], lanes.num_rows) - 1
    first, last = lanes.take(begins), lanes.take(ends)
    words = ("topic", "partition", "shard", "offset")
    columns = [*(first[n].to_pylist() for n in words), last["offset"].to_pylist()]
    return [Stretch(*row) for row in zip(*columns, first["seq"].to_pylist(), last["seq"].to_pylist(), strict=True)]


def joined(found: Iterable[Stretch]) -> list[Stretch]:
    """Those of several batches, put together where one is the continuation of another. Where there are too many
    breaks, one per lane, without numbers."""
    told: list[Stretch] = []
    for now in sorted(found, key=lambda s: s[:4]):
        if told and now.goes_on(told[-1]):
            told[-1] = told[-1]._replace(to_offset=now.to_offset, last=now.last)
        else:
            told.append(now)
    lanes = {s[:3] for s in told}
    return told if len(told) - len(lanes) <= _MOST else _unnumbered(told)


def _unnumbered(told: list[Stretch]) -> list[Stretch]:
    lanes: dict[tuple[str, int, str], Stretch] = {}
    for s in told:
        since = lanes.get(s[:3], s).from_offset
        lanes[s[:3]] = Stretch(*s[:3], since, s.to_offset, None, None)
    return list(lanes.values())
