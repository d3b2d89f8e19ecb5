"""Kafka values → canal's entries: Packet → Messages → Entry → RowChange, and what each entry is.

Facts: alibaba/canal `LogEventConvert`.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal import plain
from cdc_platform.formats.canal.columns import OUTLINE, with_columns
from cdc_platform.formats.canal.packets import MOST, serialized_entries
from cdc_platform.formats.contract import KINDS
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf.arrow import (
    counts,
    lists,
    non_empty_text,
    only,
    parse,
    present,
    ranges,
    take_or_null,
)
from cdc_platform.formats.protobuf.in_place import Texts
from cdc_platform.formats.texts import FIRST_MS, LAST_MS

KIND = {kind: number for number, kind in enumerate(KINDS)}
OPS = {pb.INSERT: "insert", pb.UPDATE: "update", pb.DELETE: "delete"}

_BODIES = {
    pb.TRANSACTIONBEGIN: ("begin", pb.TransactionBegin),
    pb.ROWDATA: ("row", pb.RowChange),
    pb.TRANSACTIONEND: ("commit", pb.TransactionEnd),
    pb.HEARTBEAT: ("heartbeat", None),
    pb.GTIDLOG: ("checkpoint", pb.Pair),
}
"""Entry type → kind of event, and the message in `storeValue`."""


@dataclass(slots=True)
class Entries:
    """All entries of a batch: index of each one's message, its place in it, header, kind (number in KINDS), and
    why, for errors and skips. `bodies[kind]`: what storeValue holds, at `body[entry]`; kind `row` has one per entry,
    empty for entries of other kinds. `silent`: messages that have no entry → (kind, reason). `heads` of the columns of
    rows: see `columns.plain_rows`; None: columns say all of themselves. `with_rows`: whose RowChange could be read and
    has rows."""

    message: np.ndarray
    place: np.ndarray
    header: pa.StructArray
    kind: np.ndarray
    bodies: dict[str, pa.RecordBatch]
    body: np.ndarray
    reason: dict[int, str]
    silent: dict[int, tuple[str, str]]
    heads: pa.StructArray | None = None
    with_rows: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))

    def mark(self, which: np.ndarray, kind: str, reason: Callable[[int], str]) -> None:
        for i in np.nonzero(which)[0].tolist():
            self.kind[i] = KIND[kind]
            self.reason[i] = reason(i)


def read(values: pa.BinaryArray) -> Entries:
    """The Kafka values of a batch → their entries."""
    found = plain.read(values)
    if found is None or found.lengths.max(initial=0) > MOST:
        return _read_parsed(values)
    message = np.repeat(np.arange(len(values)), found.lengths)
    out = _understood(found.header, found.said, message, counts(found.lengths), {})
    _check_headers(out)
    _read_bodies(out, found.stored, lambda _: (found.changes, {}, found.heads))
    _check_rows(out)
    return out


def _understood(
    header: pa.StructArray, said: np.ndarray, message: np.ndarray, place: np.ndarray, silent: dict[int, tuple[str, str]]
) -> Entries:
    """Entries of the kinds that their types say."""
    kind = np.full(len(said), KIND["error"], np.int64)
    for number, (name, _) in _BODIES.items():
        kind[said == number] = KIND[name]
    out = Entries(message, place, header, kind, {}, np.arange(len(kind)), {}, silent)
    out.mark(kind == KIND["error"], "error", lambda i: f"unknown entryType {said[i]}")
    return out


def _read_parsed(values: pa.BinaryArray) -> Entries:
    """The same by protobuf's parser, which takes whatever is no error."""
    silent: dict[int, tuple[str, str]] = {}
    raw, message, place, sound = serialized_entries(values, silent)
    empty = pc.binary_length(raw).to_numpy() == 0
    many: dict[int, int] = {}
    if empty.any():  # told once per message
        _, first, number = np.unique(message[empty], return_index=True, return_counts=True)
        kept = np.nonzero(empty)[0][first]
        keep = ~empty
        keep[kept] = True
        many = dict(zip((np.cumsum(keep) - 1)[kept].tolist(), number.tolist(), strict=True))
        raw, message, place = raw.filter(pa.array(keep)), message[keep], place[keep]
    parsed, unreadable = parse(raw, pb.Entry, sound=sound)
    # Absent is not zero: canal's classes were proto2 for long, with this default.
    said = pc.fill_null(parsed.column("entryType"), pb.ROWDATA).to_numpy()
    out = _understood(parsed.column("header"), said, message, place, silent)
    out.mark(~present(out.header), "error", lambda _: "Entry without header")
    for i, reason in {
        **{i: f"not an Entry of canal: {why}" for i, why in unreadable.items()},
        **{i: f"{n} {'entries' if n > 1 else 'entry'} without content" for i, n in many.items()},
    }.items():
        out.kind[i], out.reason[i] = KIND["error"], reason
    stored = parsed.column("storeValue")
    _check_headers(out)
    _read_bodies(out, Texts.of(stored), lambda mine: _row_changes(only(mine, stored), sound))
    _check_rows(out)
    return out


def _check_headers(entries: Entries) -> None:
    """What no header may say, whatever the entry is."""
    fine = entries.kind != KIND["error"]
    time, offset, source = (entries.header.field(n) for n in ("executeTime", "logfileOffset", "sourceType"))
    ms, start = (pc.fill_null(a, 0).to_numpy() for a in (time, offset))
    late = (ms < FIRST_MS) | (ms > LAST_MS)
    entries.mark(fine & late, "error", lambda i: f"executeTime {ms[i]} is outside the years 1 to 9999")
    entries.mark(fine & (start < 0), "error", lambda i: f"logfileOffset {start[i]} is negative")
    if entries.header.type.get_field_index("version") >= 0:  # plain ones have none: theirs is known
        version = pc.fill_null(entries.header.field("version"), 1).to_numpy()
        entries.mark(
            fine & ~np.isin(version, (0, 1)), "error", lambda i: f"Header of version {version[i]}; only 1 is known"
        )
    code = entries.header.field("serverenCode")
    foreign = ~pc.fill_null(pc.is_in(code, _UTF8), True).to_numpy(zero_copy_only=False)
    entries.mark(fine & foreign, "error", lambda i: f"serverenCode {code[i].as_py()!r}; text is read as UTF-8 alone")
    kind = pc.fill_null(source, pb.MYSQL).to_numpy()
    other = fine & ~np.isin(kind, (pb.TYPECOMPATIBLEPROTO2, pb.MYSQL))
    entries.mark(other, "error", lambda i: f"sourceType {kind[i]}; only {pb.MYSQL} (MYSQL) is understood")


_UTF8 = pa.array(["", "UTF-8", "utf-8", "UTF8", "utf8", "utf8mb4"])
_RowChanges = tuple[pa.RecordBatch, dict[int, str], pa.StructArray | None]
"""One per entry, what is wrong with those that can't be read, and the heads of their columns."""


def _read_bodies(entries: Entries, stored: Texts, row_changes: Callable[[np.ndarray], _RowChanges]) -> None:
    """`row_changes`: those of the chosen entries, and empty ones of the others."""
    for name, body in _BODIES.values():
        if body is None:
            continue
        mine = entries.kind == KIND[name]
        if name == "row":
            at = np.arange(len(mine))
            parsed, unreadable, entries.heads = row_changes(mine)
        else:
            at = np.nonzero(mine)[0]
            parsed, unreadable = plain.body(stored.chosen(at), body), {}
            if parsed is None:
                parsed, unreadable = parse(stored.at(at), body)
            entries.body[at] = np.arange(len(at))
        entries.bodies[name] = parsed
        for i, why in unreadable.items():
            entries.kind[at[i]] = KIND["error"]
            entries.reason[int(at[i])] = f"storeValue is no {body.DESCRIPTOR.name}: {why}"
    nothing = (entries.kind == KIND["row"]) & (stored.lengths() == 0)
    entries.mark(nothing, "error", lambda _: "ROWDATA entry without storeValue")


def _row_changes(stored: pa.BinaryArray, sound: bool) -> _RowChanges:
    if sound:
        outlines, unreadable = parse(stored, OUTLINE, sound=True)
        found = None if unreadable else with_columns(outlines)
        if found is not None:
            return found[0], {}, found[1]
    return *parse(stored, pb.RowChange), None


def event_type(entries: Entries) -> np.ndarray:
    """EventType of each RowChange."""
    return pc.fill_null(entries.bodies["row"].column("eventType"), pb.UPDATE).to_numpy()


def _check_rows(entries: Entries) -> None:
    """Entries with rows that contradict themselves."""
    changes = entries.bodies["row"]
    rows = lists(changes.column("rowDatas"))
    entries.with_rows = here = (entries.kind == KIND["row"]) & (rows.lengths > 0)
    said = event_type(entries)
    entries.mark(
        here & ~np.isin(said, list(OPS)), "error", lambda i: f"{rows.lengths[i]} rows in an event {event_name(said[i])}"
    )
    header = pc.fill_null(entries.header.field("eventType"), 0).to_numpy()
    differ = here & (header != pb.EVENTTYPECOMPATIBLEPROTO2) & (header != said)
    entries.mark(
        differ, "error", lambda i: f"the header says {event_name(header[i])}, the RowChange {event_name(said[i])}"
    )
    for name in ("schemaName", "tableName"):
        nameless = pc.fill_null(pc.binary_length(entries.header.field(name)), 0).to_numpy() == 0
        entries.mark(here & nameless, "error", lambda _, name=name: f"rows without {name}")
    before, after = (lists(rows.values.field(n)).lengths for n in ("beforeColumns", "afterColumns"))
    images = before + after
    of = np.repeat(np.arange(len(rows.lengths)), rows.lengths)
    blank = np.bincount(of[images[ranges(rows.starts, rows.lengths)] == 0], minlength=len(here))
    entries.mark(here & (blank > 0), "error", lambda i: f"{blank[i]} of {rows.lengths[i]} rows have no columns")
    total = np.bincount(entries.message, rows.lengths * here, minlength=1)[entries.message]
    entries.mark(here & (total > MOST), "error", lambda i: f"{total[i]:.0f} rows in one message; {MOST} at most")


def event_name(number: int) -> str:
    """EventType's name and number."""
    number = int(number)
    return f"{number} ({pb.EventType.Name(number) if number in pb.EventType.values() else 'unknown'})"


def header_field(entries: Entries, name: str, entry: np.ndarray) -> pa.Array:
    """A header field of each event's entry; null where there is none. A zero or empty field isn't told."""
    values = entries.header.field(name)
    if pa.types.is_string(values.type):
        return non_empty_text(values, entry)
    numbers = take_or_null(values, entry)
    return pc.if_else(pc.equal(numbers, pa.scalar(0, numbers.type)), None, numbers)
