"""Which parts of a source messages came from, where they say so (`Context.senders`), and where each was seen first:
what the statement of one part concerns depends on the others, also on those that send no statement."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import json
import re
from collections.abc import Iterable, Set
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.tables import LOADED

MOST = 16
"""So many are told apart in a partition: a part of every message's own would otherwise be noted with every message."""
ENTRY = -1
"""`entry_index` of the event that tells a sender: no message's own."""


class Sender(NamedTuple):
    """A part of the source, by what its messages in a partition say."""

    topic: str
    partition: int
    said: str


def first(records: pa.RecordBatch, pattern: str | None, known: Set[Sender] = frozenset()) -> dict[Sender, int]:
    """Sender → the smallest offset among these records (topic, partition, offset, value), but for those known.
    pattern: RE2 with one named group, of what stands between the quotes of a JSON text; None: nobody asks."""
    if pattern is None:
        return {}
    said = pc.call_function("extract_regex", [records.column("value")], pc.ExtractRegexOptions(pattern))
    rows = records.select(["topic", "partition", "offset"]).append_column("said", said.field(0))
    rows = rows.filter(pc.and_(pc.is_valid(rows.column("said")), pc.not_equal(rows.column("topic"), LOADED)))
    by = pa.Table.from_batches([rows]).group_by(["topic", "partition", "said"]).aggregate([("offset", "min")])
    found: dict[Sender, int] = {}
    for row in sorted(by.to_pylist(), key=lambda r: r["offset_min"]):
        sender = Sender(row["topic"], row["partition"], _text(row["said"]))
        if sender.said and sender not in known:
            found.setdefault(sender, row["offset_min"])
    return found


def news(found: dict[Sender, int], known: Set[Sender]) -> dict[Sender, int]:
    """Those of `found` to be noted beside those known: not more than MOST of a partition."""
    told: dict[Sender, int] = {}
    for sender, offset in found.items():
        if sum((k.topic, k.partition) == (sender.topic, sender.partition) for k in (*known, *told)) < MOST:
            told[sender] = offset
    return told


def events(found: dict[Sender, int], pattern: str) -> list[dict[str, Any]]:
    """Rows of DDL_SEEN without a statement: `info` has the sender under the name of the pattern's group."""
    word = _word(pattern)
    return [
        {"topic": topic, "partition": partition, "offset": at, "entry_index": ENTRY, "info": [(word, said)]}
        for (topic, partition, said), at in found.items()
    ]


def of(rows: Iterable[dict[str, Any]], pattern: str) -> dict[Sender, int]:
    """The same, of rows as `Context.build` gets them: sender → where it was seen first."""
    found: dict[Sender, int] = {}
    for r in rows:
        if r["entry_index"] == ENTRY:
            sender = Sender(r["topic"], r["partition"], dict(r["info"])[_word(pattern)])
            found[sender] = min(r["offset"], found.get(sender, r["offset"]))
    return found


def _word(pattern: str) -> str:
    return next(iter(re.compile(pattern).groupindex))


def _text(written: bytes | str) -> str:
    """A text as JSON has it between quotes."""
    written = written.encode() if isinstance(written, str) else written
    try:
        return json.loads(b'"%s"' % written)
    except ValueError:
        return written.decode(errors="replace")
