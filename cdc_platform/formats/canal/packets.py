"""Kafka values → serialized entries, by protobuf's parser: Packet → Messages → Entry.

Facts: alibaba/canal `CanalMessageSerializerUtil` (a Packet with or without version and batch id). Some writers
(Volcengine DTS) send a bare Entry as Kafka value. Field 1 of a Packet is a number, of an Entry a message, so the first
byte tells them apart; read as the other one, either has none of its fields.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal.columns import OUTLINE_OF_ENTRY
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from cdc_platform.formats.protobuf.arrow import counts, lists, nested, only, parse, ranges, readable
from cdc_platform.formats.texts import shown

MOST = 1_000_000
"""Entries of a message, and its rows: no Kafka message holds as many that say something (a row takes 100 bytes),
but two bytes each are enough to fill the memory with empty ones."""

MAGIC = 17
"""`Packet.magic_number`."""

_EMPTY_PACKET = 24
"""Bytes of a Packet without entries, at most: type, version, and a batch id of ten bytes."""

_PACKET, _ENTRY = 1, 2
_FIRST_BYTES = {**dict.fromkeys(b"\x08\x10\x18\x20\x2a", _PACKET), **dict.fromkeys(b"\x0a\x1a", _ENTRY)}

_WHOLE_ENTRY = nested(OUTLINE_OF_ENTRY, {"Entry.storeValue": pb.RowChange})
_WHOLE_PACKET = nested(net.Packet, {"Packet.body": net.Messages, "Messages.messages": _WHOLE_ENTRY})
"""Kafka values with all that they hold, down to the columns of rows: if the parser takes them, it takes each part."""


def serialized_entries(
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
    magic, version, kind, compression = (
        pc.fill_null(parsed.column(n), default).to_numpy()
        for n, default in (("magic_number", MAGIC), ("version", 1), ("type", 0), ("compression", 0))
    )
    body = parsed.column("body")
    problems = {i: f"not a Packet of canal: {why}" for i, why in unreadable.items()}
    checks: tuple[tuple[np.ndarray, Callable[[int], str]], ...] = (
        (magic != MAGIC, lambda i: f"Packet with magic number {magic[i]}; canal's is {MAGIC}"),
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
