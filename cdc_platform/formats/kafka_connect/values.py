"""Values as Kafka Connect's JsonConverter writes them → canonical text, a column at a time.

A converter takes the list of one column's JSON values (None = SQL NULL) and gives a list of texts of equal
length. It raises ValueError (or another of `texts.BAD`) when a value isn't what the schema promises: nothing is
rounded, clipped or guessed. JSON numbers with a fraction or an exponent arrive as `Number`, the exact text.
"""

import binascii
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np

from cdc_platform.formats.texts import Number, number_text, plain_text, scaled_text, shown
from cdc_platform.mysql.fitting import longest_bytes
from cdc_platform.mysql.types import MySqlType
from cdc_platform.mysql.zones import zone as time_zone

Convert = Callable[[list[Any]], list[Any]]


_EPOCH = date(1970, 1, 1)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d)?(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_ISO_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:Z|[+-]00:00)?", re.ASCII)
_ISO_TIME = re.compile(r"(\d\d:\d\d)(:\d\d)?(?:\.(\d{1,9}))?(?:Z|[+-]00:00)?", re.ASCII)
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_128_000_000  # 0001-01-02, 9999-12-30


def each(what: str, kinds: tuple[type, ...], text: Callable[[Any], str] | None) -> Convert:
    """Converter of values of the Python types `kinds` by `text` (None: they are texts already)."""
    allowed = frozenset(kinds) | {NoneType}

    def convert(values: list[Any]) -> list[Any]:
        found = set(map(type, values))
        if not found <= allowed:
            wrong = next(v for v in values if type(v) not in allowed)
            raise ValueError(f"{shown(wrong)} is no {what}")
        if text is None:
            return values
        if NoneType in found:
            return [None if v is None else text(v) for v in values]
        return list(map(text, values))

    return convert


@lru_cache(maxsize=65536)
def date_text(days: int) -> str:
    """Days since 1970-01-01 → `2026-11-20`. Raises OverflowError outside the years 1 to 9999."""
    return (_EPOCH + timedelta(days)).isoformat()


@lru_cache(maxsize=86400)
def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _micros(value: int, per_second: int) -> int:
    """A count of 1/`per_second` seconds → microseconds. MySQL has no more than six digits."""
    scaled, rest = divmod(value * 1_000_000, per_second)
    if rest:
        raise ValueError(f"{value} has digits below a microsecond")
    return scaled


def _fraction(micros: int) -> str:
    return "." + f"{micros:06d}".rstrip("0") if micros else ""


def datetime_text(value: int, per_second: int) -> str:
    """Wall clock counted from 1970 in 1/`per_second` seconds → `2026-11-20 01:02:03.5`. Floor division is
    right before 1970, where Java's remainder gives a negative fraction."""
    seconds, micros = divmod(_micros(value, per_second), 1_000_000)
    days, second = divmod(seconds, 86400)
    return f"{date_text(days)} {_clock(second)}{_fraction(micros)}"


def time_text(value: int, per_second: int) -> str:
    """Duration in 1/`per_second` seconds → `[-]HH:MM:SS[.ffffff]`, hours may pass 24 (MySQL: up to 838)."""
    seconds, micros = divmod(abs(_micros(value, per_second)), 1_000_000)
    hours, rest = divmod(seconds, 3600)
    return f"{'-' if value < 0 else ''}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}{_fraction(micros)}"


def dtle_time_text(micros: int, digits: int) -> str:
    """dtle reads the digits after the dot of TIME(`digits`) as whole microseconds: put them back in place."""
    seconds, written = divmod(abs(micros), 1_000_000)
    if written >= 10**digits:
        raise ValueError(f"{micros} holds more fraction digits than TIME({digits})")
    value = seconds * 1_000_000 + written * 10 ** (6 - digits)
    return time_text(-value if micros < 0 else value, 1_000_000)


def zoned_datetime_text(millis: int, zone: str) -> str:
    """Epoch ms of a wall clock in `zone` (dtle's DateTimeZone) → the wall clock.

    At the ends of the years 1 and 9999 the instant may lie outside them, while the wall clock doesn't: the offset is
    that of a day further in, where no zone turns its clocks."""
    inside = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(millis, _FIRST_MS), _LAST_MS))
    offset = inside.astimezone(time_zone(zone)).utcoffset() or timedelta()
    return datetime_text(millis + offset // timedelta(milliseconds=1), 1000)


def _iso_fraction(digits: str | None) -> str:
    if digits and digits[6:].strip("0"):
        raise ValueError(f"fraction .{digits} has digits below a microsecond")
    kept = (digits or "")[:6].rstrip("0")
    return f".{kept}" if kept else ""


def iso_datetime_text(value: str) -> str:
    """`2026-11-20T01:02:03.500Z` as wall clock (isostring mode: the Z is empty) → `2026-11-20 01:02:03.5`."""
    found = _ISO.fullmatch(value)
    if not found or found[5] not in (None, "Z", "+00:00"):
        raise ValueError(f"{shown(value)} is no ISO timestamp at Z")
    return f"{found[1]} {found[2]}{found[3] or ':00'}{_iso_fraction(found[4])}"


def zoned_text(value: str) -> str:
    """ISO-8601 instant with its offset → UTC with `Z`. `io.debezium.time.ZonedTimestamp`."""
    found = _ISO.fullmatch(value)
    if not found or not found[5]:
        raise ValueError(f"{shown(value)} is no ISO-8601 timestamp with an offset")
    day, minute, second, offset = found[1], found[2], found[3] or ":00", found[5]
    if offset not in ("Z", "+00:00", "-00:00"):
        moved = datetime.fromisoformat(f"{day} {minute}{second}")
        way = -1 if offset[0] == "+" else 1
        moved += way * timedelta(hours=int(offset[1:3]), minutes=int(offset[4:6]))
        day, minute, second = moved.date().isoformat(), f"{moved:%H:%M}", f"{moved:%S}".rjust(3, ":")
    return f"{day} {minute}{second}{_iso_fraction(found[4])}Z"


def iso_date_text(value: str) -> str:
    """`2017-09-15Z` (`io.debezium.time.IsoDate`) → `2017-09-15`."""
    found = _ISO_DATE.fullmatch(value)
    if not found:
        raise ValueError(f"{shown(value)} is no ISO date")
    return found[1]


def iso_time_text(value: str) -> str:
    """`04:05:11.789Z` (`io.debezium.time.IsoTime`) → `04:05:11.789`."""
    found = _ISO_TIME.fullmatch(value)
    if not found:
        raise ValueError(f"{shown(value)} is no ISO time")
    return f"{found[1]}{found[2] or ':00'}{_iso_fraction(found[3])}"


def from_base64(value: str) -> bytes:
    """Standard base64, strictly: no other characters, padding complete. Raises ValueError."""
    return binascii.a2b_base64(value, strict_mode=True)


def to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def base64_text(value: str, width: int = 0) -> str:
    """Checked base64, its bytes followed by zeros up to `width`."""
    return to_base64(from_base64(value).ljust(width, b"\0"))


def fitting_base64(text: str, mysql_type: MySqlType) -> str:
    """Checked base64 of no more bytes than BINARY(n) or VARBINARY(n) has. Raises ValueError."""
    longest = longest_bytes(mysql_type)
    if longest is not None and (size := len(text) * 3 // 4 - text.count("=", -2)) > longest:
        raise ValueError(f"{size} bytes are more than {mysql_type.name}({longest}) has")
    return text


def decimal_text(scale: int) -> Callable[[Any], str]:
    """Connect's Decimal: base64 of big-endian two's complement (BASE64), or a JSON number (NUMERIC)."""

    def text(value: Any) -> str:
        if type(value) is not str:
            return number_text(value, scale)
        data = from_base64(value)
        if not data:
            raise ValueError("a Decimal of no bytes")
        return scaled_text(int.from_bytes(data, "big", signed=True), scale)

    return text


def padded(convert: Convert, width: int) -> Convert:
    """Converter of BINARY(`width`), which always holds that many bytes: the binlog leaves zeros at the end out, and
    dtle doesn't put them back (actiontech/dtle#776)."""

    def convert_padded(values: list[Any]) -> list[Any]:
        return [None if v is None else base64_text(v, width) for v in convert(values)]

    return convert_padded


def variable_decimal_text(value: dict) -> str:
    """`io.debezium.data.VariableScaleDecimal`: struct of its own scale and the unscaled bytes."""
    return decimal_text(int(value["scale"]))(value["value"])


def bits_text(length: int | None) -> Callable[[str], str]:
    """`io.debezium.data.Bits` is LITTLE-endian, unlike Decimal."""

    def text(value: str) -> str:
        number = int.from_bytes(from_base64(value), "little")
        if length is not None and number.bit_length() > length:
            raise ValueError(f"{number} doesn't fit into {length} bits")
        return str(number)

    return text


def double_text(value: Any) -> str:
    number = float(value)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{shown(value)} is outside a double's range")
    return repr(number)


def floats_text(values: list[Any]) -> list[Any]:
    """float32 column: some versions widen 5.1 to 5.099999904632568; the same 32 bits, shown as 5.1."""
    double = FLOAT64(values)
    with np.errstate(over="ignore"):
        singles = np.array([0.0 if v is None else float(v) for v in double], np.float32)
    if not np.isfinite(singles).all():
        raise ValueError("a number outside a 32-bit float's range")
    # numpy finds the fewest digits, and Python writes them: numpy turns to exponents earlier.
    return [None if v is None else repr(float(str(s))) for v, s in zip(double, singles, strict=True)]


def geometry_text(value: dict) -> str:
    """Struct {wkb, srid} → base64 of MySQL's own bytes: 4-byte little-endian SRID, then WKB."""
    return to_base64((value.get("srid") or 0).to_bytes(4, "little") + from_base64(value["wkb"]))


def vector_text(value: list) -> str:
    """`io.debezium.data.FloatVector` → JSON array of shortest 32-bit numbers."""
    return "[" + ",".join(floats_text(value)) + "]"


def unsigned_text(value: int | str) -> str:
    """int64 of a BIGINT UNSIGNED (bigint.unsigned.handling.mode=long, dtle): wraps above 2^63-1. Without schemas it may
    be a Decimal in base64, too (mode precise)."""
    if isinstance(value, str):
        return decimal_text(0)(value)
    return str(value + (1 << 64) if value < 0 else value)


INTEGER = each("integer", (int,), str)
UNSIGNED = each("integer", (int, str), unsigned_text)
FLOAT64 = each("number", (int, Number), double_text)
BOOLEAN = each("boolean", (bool,), plain_text)
STRING = each("text", (str,), None)
BYTES = each("base64 text", (str,), base64_text)
_PLAIN = each("value", (str, int, Number, bool, dict, list), plain_text)


def plain_texts(values: list[Any]) -> list[Any]:
    """A column nobody gave a type: see `plain_text`."""
    return values if set(map(type, values)) <= _TEXTS else _PLAIN(values)


_TEXTS = {str, NoneType}
