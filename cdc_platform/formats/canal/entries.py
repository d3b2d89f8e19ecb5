"""Kafka values → canal's entries: Packet → Messages → Entry → RowChange, and what each entry is.

Facts: alibaba/canal `CanalMessageSerializerUtil` (a Packet with or without version and batch id),
`LogEventConvert`. Some writers (Volcengine DTS) send a bare Entry as Kafka value. Field 1 of a Packet is a number,
of an Entry a message, so the first byte tells them apart; read as the other one, either has none of its fields.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal.columns import OUTLINE, OUTLINE_OF_ENTRY, with_columns
from cdc_platform.formats.contract import KINDS
from cdc_platform.formats.kafka_connect.values import shown
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from cdc_platform.formats.protobuf_arrow import (
    counts,
    lists,
    nested,
    only,
    parse,
    present,
    ranges,
    readable,
    take_or_null,
    told_text,
)

KIND = {kind: number for number, kind in enumerate(KINDS)}
OPS = {pb.INSERT: "insert", pb.UPDATE: "update", pb.DELETE: "delete"}

MOST = 1_000_000
"""Entries of a message, and its rows: no Kafka message holds as many that say something (a row takes 100 bytes),
but two bytes each are enough to fill the memory with empty ones."""

_EMPTY_PACKET = 24
"""Bytes of a Packet without entries, at most: type, version, and a batch id of ten bytes."""

_PACKET, _ENTRY = 1, 2
_FIRST_BYTES = {**dict.fromkeys(b"\x08\x10\x18\x20\x2a", _PACKET), **dict.fromkeys(b"\x0a\x1a", _ENTRY)}
_BODIES = {
    pb.TRANSACTIONBEGIN: ("begin", pb.TransactionBegin),
    pb.ROWDATA: ("row", pb.RowChange),
    pb.TRANSACTIONEND: ("commit", pb.TransactionEnd),
    pb.HEARTBEAT: ("heartbeat", None),
    pb.GTIDLOG: ("checkpoint", pb.Pair),
}
"""Entry type → kind of event, and the message in `storeValue`."""

_WHOLE_ENTRY = nested(OUTLINE_OF_ENTRY, {"Entry.storeValue": pb.RowChange})
_WHOLE_PACKET = nested(net.Packet, {"Packet.body": net.Messages, "Messages.messages": _WHOLE_ENTRY})
"""Kafka values with all that they hold, down to the columns of rows: if the parser takes them, it takes each part."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries of a batch: index of each one's message, its place in it, header, kind (number in KINDS), and
    why, for errors and skips. `bodies[kind]`: what storeValue holds, at `body[entry]`; kind `row` has one per entry,
    empty for entries of other kinds. `silent`: messages that have no entry → (kind, reason)."""

    message: np.ndarray
    place: np.ndarray
    header: pa.StructArray
    kind: np.ndarray
    bodies: dict[str, pa.RecordBatch]
    body: np.ndarray
    reason: dict[int, str]
    silent: dict[int, tuple[str, str]]

    def mark(self, which: np.ndarray, kind: str, reason: Callable[[int], str]) -> None:
        for i in np.nonzero(which)[0].tolist():
            self.kind[i] = KIND[kind]
            self.reason[i] = reason(i)


def read(values: pa.BinaryArray) -> Entries:
    """The Kafka values of a batch → their entries."""
    silent: dict[int, tuple[str, str]] = {}
    raw, message, place, sound = _entries(values, silent)
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
    kind = np.full(len(raw), KIND["error"], np.int64)
    for number, (name, _) in _BODIES.items():
        kind[said == number] = KIND[name]
    out = Entries(message, place, parsed.column("header"), kind, {}, np.arange(len(kind)), {}, silent)
    out.mark(kind == KIND["error"], "error", lambda i: f"unknown entryType {said[i]}")
    out.mark(~present(out.header), "error", lambda _: "Entry without header")
    for i, reason in {
        **{i: f"not an Entry of canal: {why}" for i, why in unreadable.items()},
        **{i: f"{n} {'entries' if n > 1 else 'entry'} without content" for i, n in many.items()},
    }.items():
        kind[i], out.reason[i] = KIND["error"], reason
    _check_headers(out)
    _read_bodies(out, parsed.column("storeValue"), sound)
    _check_rows(out)
    return out


def _entries(
    values: pa.BinaryArray, silent: dict[int, tuple[str, str]]
) -> tuple[pa.BinaryArray, np.ndarray, np.ndarray, bool]:
    """(serialized entries, message of each, place of each in its message, whether protobuf's parser takes all of them
    and the rows in them, but for their columns); `silent` gets the messages without."""
    first = [b[0] if b else None for b in pc.binary_slice(values, 0, 1).to_pylist()]
    shape = np.array([_FIRST_BYTES.get(b, 0) if b is not None else 0 for b in first], np.int64)
    told = {i: ("error", _no_canal(b)) for i, b in enumerate(first) if b is not None and not shape[i]}
    valid = values.is_valid().to_pylist()
    told |= {i: ("skip", "empty value" if valid[i] else "no value") for i, b in enumerate(first) if b is None}
    wholes = {_PACKET: _WHOLE_PACKET, _ENTRY: _WHOLE_ENTRY}
    sound = all(readable(only(shape == kind, values), whole) for kind, whole in wholes.items())
    bodies, problems = _bodies(values, shape == _PACKET, sound)
    parsed, unreadable = parse(bodies, net.Messages, sound=sound)
    problems |= {i: f"the Packet's body is no Messages: {why}" for i, why in unreadable.items() if i not in problems}
    items = lists(parsed.column("messages"))
    bare = shape == _ENTRY
    lengths = np.where(bare, 1, items.lengths)
    for i in np.nonzero(lengths > MOST)[0].tolist():
        problems[i] = f"{lengths[i]} entries in one message; {MOST} at most"
    lengths[list(problems)] = 0
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    for i in np.nonzero(lengths == 0)[0].tolist():
        lost = sizes[i] > _EMPTY_PACKET
        silent[i] = ("error", f"no entry in {sizes[i]} bytes") if lost else ("skip", "Packet without entries")
    silent.update(told)
    silent.update({i: ("error", why) for i, why in problems.items()})
    flat, starts = items.values, items.starts
    if bare.any():
        starts = np.where(bare, len(flat) + np.cumsum(bare) - 1, starts)
        flat = pa.concat_arrays([flat, values.filter(pa.array(bare))])
    at = ranges(starts, lengths)
    whole = len(at) == len(flat) and (at == np.arange(len(at))).all()
    flat = flat if whole else flat.take(pa.array(at))
    return flat, np.repeat(np.arange(len(lengths)), lengths), counts(lengths), sound


def _no_canal(first: int) -> str:
    if first == ord("{"):
        return "JSON, neither a Packet nor an Entry of canal; FlatMessages are the format canal_json"
    return f"neither a Packet nor an Entry of canal: it begins with 0x{first:02x}"


def _bodies(values: pa.BinaryArray, packets: np.ndarray, sound: bool) -> tuple[pa.BinaryArray, dict[int, str]]:
    """Bodies of the values that are packets, null elsewhere; and what is wrong with packets."""
    parsed, unreadable = parse(only(packets, values), net.Packet, sound=sound)
    version, kind, compression = (
        pc.fill_null(parsed.column(n), default).to_numpy()
        for n, default in (("version", 1), ("type", 0), ("compression", 0))
    )
    body = parsed.column("body")
    problems = {i: f"not a Packet of canal: {why}" for i, why in unreadable.items()}
    checks: tuple[tuple[np.ndarray, Callable[[int], str]], ...] = (
        (version != 1, lambda i: f"Packet of version {version[i]}; only 1 is known"),
        (~np.isin(compression, (0, net.NONE)), lambda i: _compressed(int(compression[i]))),
        (kind != net.MESSAGES, lambda i: _other_packet(int(kind[i]), body[i].as_py())),
    )
    for wrong, why in checks:
        for i in np.nonzero(wrong & packets)[0].tolist():
            problems.setdefault(i, why(i))
    fine = packets.copy()
    fine[list(problems)] = False
    return only(fine, body), problems


def _compressed(number: int) -> str:
    name = net.Compression.Name(number) if number in net.Compression.values() else "unknown"
    return f"Packet with compression {number} ({name}): canal never compresses, nor does its client decompress"


def _other_packet(number: int, body: bytes) -> str:
    name = net.PacketType.Name(number) if number in net.PacketType.values() else "unknown"
    if number != net.ACK:
        return f"Packet of type {number} ({name}); only {net.MESSAGES} (MESSAGES) holds entries"
    ack, unreadable = parse(pa.array([body], pa.binary()), net.Ack)
    words = "" if unreadable else f": {shown(ack.column('error_message')[0].as_py())}"
    return f"Packet of type {number} ({name}): canal tells an error{words}"


def _check_headers(entries: Entries) -> None:
    """What no header may say, whatever the entry is."""
    fine = entries.kind != KIND["error"]
    time, offset, source = (entries.header.field(n) for n in ("executeTime", "logfileOffset", "sourceType"))
    ms, start = (pc.fill_null(a, 0).to_numpy() for a in (time, offset))
    late = (ms < _FIRST_MS) | (ms > _LAST_MS)
    entries.mark(fine & late, "error", lambda i: f"executeTime {ms[i]} is outside the years 1 to 9999")
    entries.mark(fine & (start < 0), "error", lambda i: f"logfileOffset {start[i]} is negative")
    kind = pc.fill_null(source, pb.MYSQL).to_numpy()
    other = fine & ~np.isin(kind, (pb.TYPECOMPATIBLEPROTO2, pb.MYSQL))
    entries.mark(other, "error", lambda i: f"sourceType {kind[i]}; only {pb.MYSQL} (MYSQL) is understood")


def _read_bodies(entries: Entries, stored: pa.BinaryArray, sound: bool) -> None:
    for name, body in _BODIES.values():
        if body is None:
            continue
        mine = entries.kind == KIND[name]
        if name == "row":
            at = np.arange(len(mine))
            parsed, unreadable = _row_changes(only(mine, stored), sound)
        else:
            at = np.nonzero(mine)[0]
            parsed, unreadable = parse(stored.take(pa.array(at)), body)
            entries.body[at] = np.arange(len(at))
        entries.bodies[name] = parsed
        for i, why in unreadable.items():
            entries.kind[at[i]] = KIND["error"]
            entries.reason[int(at[i])] = f"storeValue is no {body.DESCRIPTOR.name}: {why}"
    nothing = (entries.kind == KIND["row"]) & (pc.binary_length(stored).to_numpy() == 0)
    entries.mark(nothing, "error", lambda _: "ROWDATA entry without storeValue")


def _row_changes(stored: pa.BinaryArray, sound: bool) -> tuple[pa.RecordBatch, dict[int, str]]:
    if sound:
        outlines, unreadable = parse(stored, OUTLINE, sound=True)
        found = None if unreadable else with_columns(outlines)
        if found is not None:
            return found, {}
    return parse(stored, pb.RowChange)


def event_type(entries: Entries) -> np.ndarray:
    """EventType of each RowChange."""
    return pc.fill_null(entries.bodies["row"].column("eventType"), pb.UPDATE).to_numpy()


def _check_rows(entries: Entries) -> None:
    """Entries with rows that contradict themselves."""
    changes = entries.bodies["row"]
    rows = lists(changes.column("rowDatas"))
    here = (entries.kind == KIND["row"]) & (rows.lengths > 0)
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
        return told_text(values, entry)
    numbers = take_or_null(values, entry)
    return pc.if_else(pc.equal(numbers, pa.scalar(0, numbers.type)), None, numbers)
