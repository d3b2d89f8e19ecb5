"""Which wire format are these messages? Every registered decoder tries all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.contract import MESSAGE, Format

_HOLDS_NOTHING = ("skip", "error")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one format makes of a sample. `understood`: messages of which it used something; `parts`: records that
    are parts of a split message and weren't looked into; `refused`: messages with an error; `events`: by kind;
    `why_not`: the first error; `options`: those that the messages show, with their values."""

    format: str
    understood: int
    parts: int
    refused: int
    events: dict[str, int] = field(default_factory=dict)
    why_not: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether it used messages, and more than it refused."""
        return self.understood + self.parts > self.refused


def verdicts(messages: pa.RecordBatch, formats: Mapping[str, Format]) -> list[Verdict]:
    """MESSAGE batch (Kafka records as they lie in the topic) → one Verdict per format, the best first."""
    found = [_verdict(messages, format_) for format_ in formats.values()]
    return sorted(found, key=lambda v: (v.refused - v.understood - v.parts, v.refused, -sum(v.events.values())))


def sure(found: list[Verdict]) -> str:
    """`certain`: one format alone understands anything; `likely`: the best of several; `none`."""
    if not found or not found[0].fits:
        return "none"
    return "likely" if any(v.understood for v in found[1:]) else "certain"


def _verdict(messages: pa.RecordBatch, format_: Format) -> Verdict:
    whole, parts, errors = _whole(messages, format_)
    events = format_.decode(whole, format_.options()).select(["partition", "offset", "kind", "reason"]).to_pylist()
    if format_.context is not None:  # a row whose columns nothing in the sample tells is a row of this format
        for e in events:
            if e["kind"] == "error" and e["reason"].startswith(format_.context.waiting):
                e["kind"] = "row"
    bad = [e for e in events if e["kind"] == "error"]
    used = {(e["partition"], e["offset"]) for e in events if e["kind"] not in _HOLDS_NOTHING}
    refused = {(e["partition"], e["offset"]) for e in bad}
    kinds: dict[str, int] = {}
    for e in events:
        kinds[e["kind"]] = kinds.get(e["kind"], 0) + 1
    why = errors[0] if errors else bad[0]["reason"] if bad else None
    shown = format_.evidence(whole) if format_.evidence and used else {}
    return Verdict(format_.name, len(used - refused), parts, len(refused) + len(errors), kinds, why, shown)


def _whole(messages: pa.RecordBatch, format_: Format) -> tuple[pa.RecordBatch, int, list[Any]]:
    """Messages that are whole, number of parts of others, why records are neither."""
    if format_.part is None:
        return messages, 0, []
    parts = format_.part.parse(messages)
    good = parts.column("error").is_null()
    single = pc.and_(good, pc.equal(pc.fill_null(parts.column("total"), 0), 1))  # pyright: ignore
    data = [parts.column("data") if f.name == "value" else messages.column(f.name) for f in MESSAGE]
    whole = pa.RecordBatch.from_arrays(data, schema=MESSAGE).filter(single)
    errors = parts.column("error").drop_null().to_pylist()
    return whole, len(messages) - whole.num_rows - len(errors), errors
