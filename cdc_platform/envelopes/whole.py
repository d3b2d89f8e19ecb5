"""Records that are whole messages by themselves: Arrow only, on the executors."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.envelopes import sequences
from cdc_platform.formats.batches import isolated
from cdc_platform.formats.contract import MESSAGE, PART
from cdc_platform.lake.data_files import Output
from cdc_platform.tables import ENVELOPES, LOADED

ENVELOPE = ENVELOPES.arrow(but=("erased",))
"""Rows of ENVELOPES."""


LARGE = ("data", "key", "headers")
"""What only parts of split messages are asked for once whole messages are written."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The work of a pass over landed records: those that are whole go to the output `envelopes`, if it is there."""

    format_name: str

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> dict[str, Any]:
        """split: parts of messages that came in several records; bad: records that are no part of anything;
        stretches: of records that their sender numbered."""
        split, bad, numbered = 0, 0, list[sequences.Stretch]()
        for batch in batches:
            parts = parts_of(batch, self.format_name)
            fine = pc.is_null(parts.column("error"))
            one = pc.fill_null(pc.equal(parts.column("total"), 1), False)
            bad += batch.num_rows - pc.sum(fine).as_py()
            split += pc.sum(pc.greater(parts.column("total"), 1)).as_py() or 0
            numbered += sequences.stretches(batch, parts)
            alone = pc.and_(fine, one)
            if "envelopes" in out:
                out["envelopes"].write(_envelopes(batch.filter(alone), parts.filter(alone)))
        return {"split": split, "bad": bad, "stretches": sequences.joined(numbered)}


THIN = pa.schema([*PART, *(f for f in MESSAGE if f.name != "value")])
"""A record and which part of a message it is; LARGE columns are NULL where it is whole: then it is written already."""


def header_only(format_name: str, landed: pa.RecordBatch) -> pa.RecordBatch:
    """MESSAGE batch → THIN batch, row by row."""
    parts = parts_of(landed, format_name)
    split = pc.fill_null(pc.greater(parts.column("total"), 1), False)
    columns = [(parts if n in PART.names else landed).column(n) for n in THIN.names]
    kept = [pc.if_else(split, c, None) if n in LARGE else c for n, c in zip(THIN.names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(kept, schema=THIN)


def parts_of(messages: pa.RecordBatch, format_name: str) -> pa.RecordBatch:
    """MESSAGE batch → PART batch, row by row; a reader that fails costs one message. What the platform loaded is
    whole."""
    ours = pc.equal(messages.column("topic"), LOADED)
    if not ours.true_count:
        return _parsed(messages, format_name)
    at = pa.concat_arrays([pc.indices_nonzero(pc.invert(ours)), pc.indices_nonzero(ours)])
    feed = messages.filter(pc.invert(ours))
    feed = _parsed(feed, format_name) if feed.num_rows else pa.RecordBatch.from_pylist([], PART)
    whole = pa.RecordBatch.from_pylist([{"total": 1, "index": 0}] * ours.true_count, PART)
    place = PART.get_field_index("data")
    whole = whole.set_column(place, PART.field("data"), messages.filter(ours).column("value"))
    return pa.concat_batches([feed, whole]).take(pc.array_sort_indices(at))


def _parsed(messages: pa.RecordBatch, format_name: str) -> pa.RecordBatch:
    from cdc_platform.formats import FORMATS

    part = FORMATS[format_name].part
    assert part is not None
    pieces = [pa.Table.from_batches([p]) for p in isolated(messages, part.parse, _no_part)]
    parsed = pa.concat_tables(pieces).combine_chunks()
    return pa.RecordBatch.from_arrays([parsed.column(n).combine_chunks() for n in PART.names], schema=PART)


def _no_part(_message: pa.RecordBatch, error: Exception) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"error": f"the envelope's reader failed ({type(error).__name__})"}], schema=PART
    )


def _envelopes(messages: pa.RecordBatch, parts: pa.RecordBatch) -> pa.RecordBatch:
    made = {
        "last_offset": messages.column("offset"),
        "parts": pa.array([1] * messages.num_rows, pa.int32()),
        "value": parts.column("data"),
        **{c: parts.column(c) for c in ("shard", "seq")},
    }
    columns = [made[n] if n in made else messages.column(n) for n in ENVELOPE.names]
    return pa.RecordBatch.from_arrays(columns, schema=ENVELOPE)
