"""A row's literals → canonical text. They look as `mysqlbinlog -v` prints them (MySQL's `log_event_print_value`):
text and times in quotes, numbers bare, DATE with colons, a negative integer with its unsigned form in brackets,
ENUM by number, BIT and SET as b'…', TIMESTAMP in seconds; TDSQL itself writes times as text.

A literal of the wrong sort (bare text, a quoted integer) is refused: it is the sign of columns that don't fit
the row, and nothing else in a message would show it.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal_common import text as canal_text
from cdc_platform.formats.protobuf.arrow import bytes_of
from cdc_platform.formats.tdsql.options import Escapes
from cdc_platform.mysql import values
from cdc_platform.mysql.fitting import longest_bytes, padded_to, texts_fit
from cdc_platform.mysql.types import MySqlType

NULLS = frozenset(("'##isnull##'", "NULL", "null"))
"""How NULL is written; an empty element is NULL too, for no value is written so. A blank one is neither."""

_PER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BITS = re.compile(r"[bB]'([01]+)'")
_HEX = re.compile(r"(?:[xX]'((?:[0-9A-Fa-f]{2})*)'|0x((?:[0-9A-Fa-f]{2})+))")
_BRACKET = re.compile(r"(-[0-9]{1,20}) ?\(([0-9]{1,20})\)")
_EPOCH = re.compile(r"([0-9]{1,11})(?:\.([0-9]{1,6}))?")
_ESCAPED = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_PLAIN = {b"\\": b"\\", b"'": b"'", b'"': b'"', b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"Z": b"\x1a"}

One = Callable[[str], str | None]
"""A literal → its text; None or ValueError: it is none of this type."""


def to_text(literals: pa.StringArray, mysql_type: MySqlType, zone: str, escapes: Escapes) -> values.Checked:
    """Literals of one column, NULLs already null → (canonical text, ok), as `mysql.values.to_text`."""
    family = mysql_type.family
    if mysql_type.name in _FORMS:
        return _each(literals, lambda text: _formed(text, mysql_type, escapes))
    if family in ("text", "json"):
        text, ok = _texts(literals, escapes)
        return text, ok & texts_fit(text, mysql_type)
    if family in ("binary", "geometry"):
        return _binaries(literals, mysql_type, escapes)
    if family in ("enum", "set"):
        return _labels(literals, mysql_type, escapes)
    read = _READ.get(family)
    text, ok = read(literals, mysql_type) if read else _unquoted(literals)
    converted, fits = values.to_text(text, mysql_type, zone)
    return converted, ok & fits


def _bools(found: pa.Array) -> np.ndarray:
    return pc.fill_null(found, True).to_numpy(zero_copy_only=False)


def _quoted(literals: pa.StringArray) -> np.ndarray:
    """Which have a quote at either end; nulls count as such."""
    offsets, data = bytes_of(literals)
    text = np.frombuffer(data if data.size else b" ", np.uint8)
    first, last = (text.take(places, mode="clip") == ord("'") for places in (offsets[:-1], offsets[1:] - 1))
    found = first & last & (np.diff(offsets) > 1)
    return found | literals.is_null().to_numpy(zero_copy_only=False) if literals.null_count else found


def _inner(literals: pa.StringArray) -> pa.StringArray:
    return pc.utf8_slice_codeunits(literals, 1, -1)


def _unquoted(literals: pa.StringArray) -> values.Checked:
    """Quotes at the ends taken off where they stand; blanks around bare ones too (FLOAT is printed with %-20g)."""
    quoted = _quoted(literals)
    if quoted.all():
        return _inner(literals), np.ones(len(literals), bool)
    bare = pc.utf8_trim_whitespace(literals)
    return pc.if_else(pa.array(quoted), _inner(literals), bare), np.ones(len(literals), bool)


def _each(literals: pa.StringArray, read: One) -> values.Checked:
    """Distinct literals one by one."""

    def safe(text: str) -> str | None:
        try:
            return read(text)
        except ValueError:
            return None

    codes = literals.dictionary_encode()
    text = pa.array(list(map(safe, codes.dictionary.to_pylist())), pa.string()).take(codes.indices)
    return text, _bools(pc.or_(text.is_valid(), literals.is_null()))


def _some(literals: pa.StringArray, which: np.ndarray, read: One, usual: pa.StringArray) -> values.Checked:
    """Some of the literals as `_each` reads them, `usual` instead of the others."""
    ok = np.ones(len(literals), bool)
    if not which.any():
        return usual, ok
    mask = pa.array(which)
    text, ok[which] = _each(literals.filter(mask), read)
    return pc.replace_with_mask(usual, mask, text), ok


def _holds(literals: pa.StringArray, text: str) -> np.ndarray:
    return pc.fill_null(pc.match_substring(literals, text), False).to_numpy(zero_copy_only=False)


def _texts(literals: pa.StringArray, escapes: Escapes) -> values.Checked:
    odd = ~_quoted(literals)
    if escapes == "backslash":
        odd |= _holds(literals, "\\")

    def read(text: str) -> str:
        return _bytes(text, escapes).decode()

    return _some(literals, odd, read, _inner(literals))


def _bytes(text: str, escapes: Escapes) -> bytes:
    """The bytes of a literal in quotes or of hex digits. Raises ValueError."""
    if found := _HEX.fullmatch(text):
        return bytes.fromhex(found[1] if found[1] is not None else found[2])
    if len(text) < 2 or text[0] != "'" or text[-1] != "'":
        raise ValueError(text)
    data = text[1:-1].encode()
    return _ESCAPED.sub(_unescaped, data) if escapes == "backslash" else data


def _unescaped(found: re.Match[bytes]) -> bytes:
    plain = bytes.fromhex(found[1].decode()) if found[1] else _PLAIN.get(found[2])
    if plain is None:
        raise ValueError(found[0])
    return plain


_FORMS = {
    "vector": r"\[.*\]",
    "inet4": r"(?:\d+\.){3}\d+",
    "inet6": r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*",
    "uuid": r"[0-9A-Fa-f-]+",
}
"""Types whose text has a form, so that their bytes (as mysqlbinlog prints them) never pass for it."""


def _formed(text: str, mysql_type: MySqlType, escapes: Escapes) -> str | None:
    """A value of such a type: text in its form, or the bytes that the server keeps. Those of a UUID aren't told: their
    order differs by the UUID's version."""
    data = _bytes(text, escapes)
    with suppress(UnicodeDecodeError):
        if re.fullmatch(_FORMS[mysql_type.name], said := data.decode(), re.ASCII):
            return said
    if mysql_type.name == "vector" and data and len(data) == 4 * (mysql_type.args or (len(data) // 4,))[0]:
        numbers = np.frombuffer(data, "<f4")
        return f"[{','.join(repr(float(str(n))) for n in numbers)}]" if np.isfinite(numbers).all() else None
    if mysql_type.name == "inet4" and len(data) == 4:
        return str(IPv4Address(data))
    if mysql_type.name == "inet6" and len(data) == 16:
        return inet6_text(data)
    return None


def inet6_text(data: bytes) -> str:
    """16 bytes as MariaDB writes them (`Inet6::to_string`): the first of the longest runs of zeros left out, if it is
    one alone, too; the last four bytes as IPv4 behind six zeros, or behind five and `ffff`."""
    words = struct.unpack(">8H", data)
    runs = [sum(1 for _ in takewhile(lambda w: w == 0, words[at:])) for at in range(8)]
    most = max(runs)
    start = runs.index(most)
    if start == 0 and (most == 6 or (most == 5 and words[5] == 0xFFFF)):
        return f"::{'ffff:' if most == 5 else ''}{IPv4Address(data[12:])}"
    shown = [f"{w:x}" for w in words]
    if most == 0:
        return ":".join(shown)
    return f"{':'.join(shown[:start])}::{':'.join(shown[start + most :])}"


def _binaries(literals: pa.StringArray, mysql_type: MySqlType, escapes: Escapes) -> values.Checked:
    def read(text: str) -> bytes:
        # Bytes beyond ASCII have no sure way through JSON text, nor has a backslash that may be an escape.
        if text[:1] == "'" and (not text.isascii() or (escapes == "raw" and "\\" in text)):
            raise ValueError(text)
        return _bytes(text, escapes)

    raw: list[bytes | None] = []
    ok, longest = np.ones(len(literals), bool), longest_bytes(mysql_type)
    for i, text in enumerate(literals.to_pylist()):
        try:
            found = None if text is None else read(text)
            ok[i] = found is None or longest is None or len(found) <= longest
            raw.append(found)
        except ValueError:
            raw.append(None)
            ok[i] = False
    return values.base64_text(pa.array(raw, pa.binary()), padded_to(mysql_type))[0], ok


def _integers(literals: pa.StringArray, mysql_type: MySqlType) -> values.Checked:
    width = _PER_BITS[mysql_type.name]

    def read(text: str) -> str | None:
        found = _BRACKET.fullmatch(text)
        if found is None:
            return text
        signed, unsigned = int(found[1]), int(found[2])
        # The unsigned form is that of the column's width or of a wider integer.
        if not any(unsigned == signed + 2**bits for bits in (8, 16, 24, 32, 64) if bits >= width):
            return None
        return str(signed % 2**width) if mysql_type.unsigned and signed >= -(2 ** (width - 1)) else str(signed)

    return _some(literals, _holds(literals, "("), read, literals)


def _bit(literals: pa.StringArray, _type: MySqlType) -> values.Checked:
    def read(text: str) -> str:
        if found := _HEX.fullmatch(text):
            return str(int(found[1] or found[2] or "0", 16))
        found = _BITS.fullmatch(text)
        return str(int(found[1], 2)) if found else text

    return _each(literals, read)


def _labels(literals: pa.StringArray, mysql_type: MySqlType, escapes: Escapes) -> values.Checked:
    """ENUM and SET: a quoted literal is the label, with escapes as text has them, any other a number."""
    quoted = _quoted(literals)
    labels, readable = _texts(pc.if_else(pa.array(quoted), literals, "''"), escapes)
    texts, as_text = canal_text.to_text(labels, mysql_type, canal_text.Dialect(labels="label"))
    as_text &= readable
    if quoted.all():
        return texts, as_text & bool(mysql_type.labels)
    numbers, _ = _bit(literals, mysql_type)
    named, as_number = canal_text.to_text(
        pc.if_else(pa.array(quoted), "0", numbers), mysql_type, canal_text.Dialect(labels="number")
    )
    return pc.if_else(pa.array(quoted), texts, named), np.where(quoted, as_text, as_number)


def _dates(literals: pa.StringArray, _type: MySqlType) -> values.Checked:
    text, ok = _unquoted(literals)
    return pc.replace_substring(text, ":", "-"), ok


def _timestamps(literals: pa.StringArray, _type: MySqlType) -> values.Checked:
    quoted = _quoted(literals)
    if quoted.all():
        return _inner(literals), quoted

    def read(text: str) -> str | None:
        if text[0] == "'":
            return text[1:-1] if len(text) > 1 and text[-1] == "'" else None
        found = _EPOCH.fullmatch(text.strip())
        if found is None:
            return None
        seconds, micros = int(found[1]), int((found[2] or "").ljust(6, "0"))
        if not seconds and not micros:
            return "0000-00-00 00:00:00"  # how MySQL stores the zero TIMESTAMP
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds, microseconds=micros)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond:06d} +00:00"

    return _each(literals, read)


_READ: dict[str, Callable[[pa.StringArray, MySqlType], values.Checked]] = {
    "integer": _integers,
    "bit": _bit,
    "date": _dates,
    "timestamp": _timestamps,
}
"""Families whose literal isn't just a text or number; the others lose their quotes."""
