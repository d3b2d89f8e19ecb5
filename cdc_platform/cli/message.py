"""A Kafka message as people read it: JSON laid out, protobuf as text by the platform's own classes, else text or bytes.

Nothing is changed on the way: numbers keep all their digits, what can't be decoded is shown as the bytes it is.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cdc_platform.errors import ConfigError
from cdc_platform.units import count

if TYPE_CHECKING:
    from cdc_platform.explain.records import Address

SHOWN = 200
"""Lines of a message, unless all are asked for."""
_ADDRESS = re.compile(r"(?P<topic>[A-Za-z0-9._-]+|:load)[/:\[](?P<partition>\d+)\]?[/:@](?P<offset>\d+)")
MARK = "   <<<"
"""Stands behind the lines of the value that could not be used."""


@dataclass(frozen=True, slots=True)
class Readable:
    """kind: JSON, protobuf, text or bytes. lines: without control characters' power only after `layout.clean`."""

    kind: str
    lines: list[str]


def readable(data: bytes, format: str) -> Readable:
    """A message of a wire format as lines."""
    if format in _PROTOBUF and (lines := _protobuf(data, format)):
        return Readable("protobuf", lines)
    if (lines := _json(data)) is not None:
        return Readable("JSON", lines)
    if (text := text_of(data)) is not None:
        return Readable("text", text.splitlines() or [""])
    return Readable("bytes", list(hexdump(data)))


def text_or_bytes(data: bytes | None) -> str | bytes | None:
    """Bytes as text where they are one."""
    return data if data is None else text_of(data) or data


def as_data(raw: bytes, found: Readable) -> dict[str, Any]:
    """kind (JSON, protobuf, text, bytes), bytes (how many), text, and base64 where the bytes themselves are no text."""
    text = text_of(raw)
    told = {"kind": found.kind, "bytes": len(raw), "text": "\n".join(found.lines) if found.kind == "protobuf" else text}
    return told if text is not None and found.kind != "protobuf" else {**told, "base64": raw}


def first(lines: list[str]) -> list[str]:
    """The lines that are shown where not all are asked for, long ones up to so many characters."""
    lines = [short(line) for line in lines]
    if len(lines) <= SHOWN:
        return lines
    later = sum(line.endswith(MARK) for line in lines[SHOWN:])
    marks = f", {count(later, 'marked line')} among them" if later else ""
    return [*lines[:SHOWN], f"… {count(len(lines) - SHOWN, 'more line')}{marks} (--all)"]


def short(text: str, most: int = 2000) -> str:
    """A text, or its beginning."""
    if len(text) <= most:
        return text
    mark = MARK if text.endswith(MARK) else ""
    return f"{text[:most]}… {count(len(text) - most, 'more character')}{mark}"


def spans(addresses: list[str]) -> str:
    """Addresses of records of one partition, ascending, with those that stand together as one: `t/0/3 to 7, t/0/9`."""
    runs: list[list[int]] = []
    for offset in (parse_address(a).offset for a in addresses):
        if runs and offset == runs[-1][-1] + 1:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    where = addresses[0].rpartition("/")[0] if addresses else ""
    return ", ".join(f"{where}/{run[0]}" + (f" to {run[-1]}" if len(run) > 1 else "") for run in runs)


def parse_address(text: str) -> "Address":
    """ "topic/partition/offset" (or topic[partition]@offset) → its parts. Raises ConfigError."""
    from cdc_platform.explain.records import Address

    found = _ADDRESS.fullmatch(text)
    if not found:
        raise ConfigError("ADDRESS", f"{text!r} is none", ["topic/partition/offset"])
    return Address(found["topic"], int(found["partition"]), int(found["offset"]))


def text_of(data: bytes) -> str | None:
    """Bytes as text where they are one: UTF-8 without control characters but tabs and line ends."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\t\r\n" for c in text) else None


def marked(lines: list[str], names: list[str]) -> list[str]:
    """The lines with a mark behind those that hold one of these names, as a JSON key or a quoted text."""
    quoted = [json.dumps(n, ensure_ascii=False) for n in names] + [json.dumps(n) for n in names]
    return [f"{line}{MARK}" if any(q in line for q in quoted) else line for line in lines]


def fields_in(reason: str) -> list[str]:
    """Names of columns that a reason begins with: `column 'amount': …`."""
    return re.findall(r"\b(?:column|field) '([^']+)'", reason)


def hexdump(data: bytes) -> Iterator[str]:
    """Lines of offset, 16 bytes in hex, and the same as ASCII."""
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        printable = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        yield f"{at:08x}  {part.hex(' ', 1):<47}  {printable}"


def _json(data: bytes) -> list[str] | None:
    """JSON laid out, its tokens as they are; None: it is none."""
    import msgspec

    try:
        if not data.strip().startswith((b"{", b"[")):
            return None
        return msgspec.json.format(data, indent=2).decode().splitlines()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _protobuf(data: bytes, format: str) -> list[str] | None:
    """The message as text; None where none of the format's messages is meant, or the bytes are none."""
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    for name in _PROTOBUF[format]:
        try:
            message = _kind(name).FromString(data)
            # What isn't meant may be parsed all the same: it then has fields that this message doesn't know.
            if message.ListFields() and not len(UnknownFieldSet(message)):
                return list(_lines(message, ""))
        except (DecodeError, ValueError, RecursionError):
            continue
    return None


_PROTOBUF = {
    "tencent_dts": ("tencent_dts.Envelope", "tencent_dts.Entries"),
    "canal": ("canal_protocol.Packet", "canal_entry.Entry"),
}
"""Format → messages that a Kafka value or a whole message may be."""
_HELD = {
    "Envelope.data": lambda of: "tencent_dts.Entries" if of.total <= 1 else None,
    "Packet.body": lambda _: "canal_protocol.Messages",
    "Messages.messages": lambda _: "canal_entry.Entry",
    "Entry.storeValue": lambda of: {
        1: "canal_entry.TransactionBegin",
        2: "canal_entry.RowChange",
        3: "canal_entry.TransactionEnd",
        5: "canal_entry.Pair",
    }.get(of.entryType or 2),
}
"""Field of bytes → the message in it, by the message that has the field."""


def _kind(name: str) -> Any:
    import importlib

    module, message = name.split(".")
    return getattr(importlib.import_module(f"cdc_platform.formats.pb.{module}_pb2"), message)


def _lines(message: Any, indent: str) -> Iterator[str]:
    for field, value in message.ListFields():
        for one in value if field.is_repeated else (value,):
            yield from _field(message, field, one, indent)


def _field(message: Any, field: Any, value: Any, indent: str) -> Iterator[str]:
    inner = value if field.message_type else _held(message, field, value)
    if inner is not None:
        yield f"{indent}{field.name} {{"
        yield from _lines(inner, indent + "  ")
        yield f"{indent}}}"
    elif field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        yield f"{indent}{field.name}: {known.name if known else value}"
    elif isinstance(value, bytes):
        text = text_of(value)
        yield f"{indent}{field.name}: {f'0x{value.hex()}' if text is None else json.dumps(text, ensure_ascii=False)}"
    else:
        said = partial(json.dumps, ensure_ascii=False) if isinstance(value, str) else str
        yield f"{indent}{field.name}: {said(value)}"


def _held(message: Any, field: Any, value: Any) -> Any:
    """The message that a field of bytes holds; None: it is bytes, or can't be read."""
    from google.protobuf.message import DecodeError

    told = _HELD.get(f"{message.DESCRIPTOR.name}.{field.name}")
    name = told(message) if told and isinstance(value, bytes) else None
    try:
        return _kind(name).FromString(value) if name else None
    except DecodeError:
        return None
