"""Which Kafka records make one message: decided from numbers alone, without the payloads.

A message cut into `total` parts lies in consecutive records of one partition (and shard), index 0 first. Anything
else is told apart here: a part sent twice (same bytes at the same index), a message torn by a restart, a part
without its beginning. Where the vendor numbers its records without gaps, a number left out tells that the parts on
both sides belong to two messages, even when index and total would fit. Payloads are joined
afterwards, in bulk (see `run`).
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

META = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("shard", pa.string()),
        ("offset", pa.int64()),
        ("total", pa.int64()),
        ("index", pa.int64()),
        ("digest", pa.int64()),  # hash of the part's bytes
        ("at", pa.int64()),  # Kafka timestamp, milliseconds
        ("carried", pa.bool_()),  # waits since an earlier batch
        ("seq", pa.int64()),  # vendor's running number; -1: not told
    ]
)
"""Input: all records of one (topic, partition) in a batch, and the parts carried over."""

VERDICT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("shard", pa.string()),
        ("offset", pa.int64()),
        ("verdict", pa.string()),  # complete, waiting, torn, duplicate
        ("message", pa.int64()),  # complete: offset of the message's first part
        ("reason", pa.string()),  # torn: why
        ("carried", pa.bool_()),
    ]
)
"""Output: one row per part of a split message. Records that are whole by themselves get none."""


def classify_partition(records: pa.Table, timeout_ms: int, seams: Sequence[int] = ()) -> pa.Table:
    """META rows of one (topic, partition), in any order → VERDICT rows. Each shard's records by themselves; but Kafka
    time goes on with every record of the partition: a shard that fell silent sends none of its own. seams: offsets
    before which records are missing, or are another topic's."""
    now_ms = pc.max(records.column("at")).as_py()
    shard = records.column("shard")
    return pa.concat_tables(
        [VERDICT.empty_table()]
        + [classify(records.filter(pc.equal(shard, s)), timeout_ms, now_ms, seams) for s in shard.unique()]
    )


def classify(group: pa.Table, timeout_ms: int, now_ms: int, seams: Sequence[int] = ()) -> pa.Table:
    """META rows of one (topic, partition, shard), in any order → VERDICT rows. A message unfinished for more than
    `timeout_ms` of Kafka time, which stands at `now_ms`, counts as torn; so does one that reaches over a seam."""
    group = group.sort_by("offset")
    offset, total, index, digest, at, seq = (
        group.column(c).to_numpy(zero_copy_only=False) for c in ("offset", "total", "index", "digest", "at", "seq")
    )
    carried = group.column("carried").to_numpy(zero_copy_only=False)
    verdicts: dict[int, tuple[str, int | None, str | None]] = {}
    opened: list[int] = []  # positions of the open message's parts
    done: list[int] = []  # of the message completed last: its last part may come twice

    def close(verdict: str, reason: str | None = None) -> None:
        message = int(offset[opened[0]]) if verdict == "complete" else None
        verdicts.update((i, (verdict, message, reason)) for i in opened)
        if verdict == "complete":
            done[:] = opened
        opened.clear()

    def follows(i: int) -> bool:
        if total[i] != total[opened[0]] or index[i] != len(opened):
            return False
        if any(offset[opened[-1]] < at <= offset[i] for at in seams):
            return False
        told = seq[i] >= 0 and seq[opened[-1]] >= 0
        return not told or 0 <= seq[i] - seq[opened[-1]] <= 1  # 0: numbered by message, not by record

    def repeats(i: int, parts: list[int]) -> bool:
        return index[i] < len(parts) and total[i] == total[parts[0]] and digest[i] == digest[parts[int(index[i])]]

    for i in _interesting(total):
        if repeats(i, opened) or (not opened and index[i] > 0 and repeats(i, done)):
            verdicts[i] = ("duplicate", None, None)
            continue
        if opened and not follows(i):
            close(
                "torn",
                f"part {len(opened)} of {total[opened[0]]} never came; offset {offset[i]} begins or continues another",
            )
        if total[i] == 1:
            continue
        if index[i] != len(opened):
            verdicts[i] = ("torn", None, f"part {index[i]} of {total[i]} without the parts before it")
            continue
        opened.append(i)
        if len(opened) == total[i]:
            close("complete")
    if opened and now_ms - int(at[opened[0]]) > timeout_ms:
        close(
            "torn", f"unfinished for more than {timeout_ms // 1000} s: {len(opened)} of {total[opened[0]]} parts came"
        )
    if opened:
        close("waiting")
    return _verdict_table(group, verdicts, carried)


def _interesting(total: np.ndarray) -> list[int]:
    """Positions of parts of split messages and, behind each, of the record that would tear it."""
    parts = np.flatnonzero(total > 1)
    after = parts + 1
    return np.union1d(parts, after[after < len(total)]).tolist()


def _verdict_table(group: pa.Table, verdicts: dict[int, tuple[Any, ...]], carried: np.ndarray) -> pa.Table:
    at = sorted(verdicts)
    rows = group.select(["topic", "partition", "shard", "offset"]).take(pa.array(at, pa.int64()))
    columns = list(zip(*(verdicts[i] for i in at), strict=True)) or [(), (), ()]
    return pa.table(
        [
            *rows.columns,
            pa.array(columns[0], pa.string()),
            pa.array(columns[1], pa.int64()),
            pa.array(columns[2], pa.string()),
            pa.array(carried[at] if at else [], pa.bool_()),
        ],
        schema=VERDICT,
    )
