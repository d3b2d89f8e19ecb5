"""JSON values of one column → the source's text. What nearly all columns hold is converted as a column; any other value
is read by itself, and it is that reader that says what is wrong with it.

The messages know six types. What they leave out (length, precision, sign, which of DATE, DATETIME and TIMESTAMP)
the option `columns` can tell; without it a type is taken that keeps every value as it came.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.kafka_connect.values import base64_text, datetime_text, fitting_base64, zoned_datetime_text
from cdc_platform.formats.texts import BAD, Number, number_text, shown
from cdc_platform.mysql.fitting import longest_bytes, padded_to
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.zones import zone as time_zone

_MIDNIGHT = " 00:00:00"
_ZERO = "0000-00-00 00:00:00"
_DIGITS = 65
_INTEGER = re.compile(rf"-?[0-9]{{1,{_DIGITS}}}", re.ASCII)
_INTEGERS = rf"^-?[0-9]{{1,{_DIGITS}}}$"
_PLAIN_NUMBERS = r"^(?:-?[1-9][0-9]*(?:\.[0-9]+)?|0(?:\.[0-9]+)?|-0\.0*[1-9][0-9]*)$"
"""Numbers that `number_text` leaves as they are, up to a length."""
_PLAIN_LENGTH = 100
_PLAIN_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)?$"
"""Base64 that comes out as it goes in: its padding complete, the bits that it doesn't need zero."""
_FEW = 8  # values that aren't worth a column's calls
_DAY_MS = 86_400_000
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_128_000_000  # 0001-01-02, 9999-12-30

Text = Callable[[Any, MySqlType, str], str]
"""(JSON value, the column's MySQL type, zone) → the source's text. Raises ValueError."""
Texts = Callable[[list[Any], MySqlType, str], pa.StringArray | None]
"""(JSON values of one column, its MySQL type, zone) → the same texts. None, or one of BAD: they need reading one by
one."""


def texts(values: list[Any], told: str, mysql_type: MySqlType, zone: str) -> pa.StringArray:
    """A column's values, None for NULL; `told`: which of the six types. Raises one of BAD."""
    kind = TYPES[told]
    if len(values) < _FEW:
        return _one_by_one(values, kind.text, mysql_type, zone)
    try:
        found = kind.texts(values, mysql_type, zone)
    except BAD:
        found = None
    return _one_by_one(values, kind.text, mysql_type, zone) if found is None else found


def _one_by_one(values: list[Any], text: Text, mysql_type: MySqlType, zone: str) -> pa.StringArray:
    return pa.array([None if v is None else text(v, mysql_type, zone) for v in values], pa.string())


def _are(values: list[Any], *types: type) -> bool:
    return set(map(type, values)) <= {*types, NoneType}


def _replace_exceptions(raw: pa.StringArray, odd: pa.BooleanArray, text: Callable[[str], str]) -> pa.StringArray:
    """Texts with the odd ones (null: not odd) put as `text` says."""
    odd = pc.fill_null(odd, False)
    found = raw.filter(odd)
    return pc.replace_with_mask(raw, odd, pa.array(map(text, found.to_pylist()), pa.string())) if len(found) else raw


def _boolean(value: Any, _type: MySqlType, _zone: str) -> str:
    if type(value) is not bool:
        raise ValueError(f"{shown(value)} is neither true nor false")
    return "1" if value else "0"


def _booleans(values: list[Any], _type: MySqlType, _zone: str) -> pa.StringArray | None:
    return pc.if_else(pa.array(values, pa.bool_()), "1", "0") if _are(values, bool) else None


def _long(value: Any, _type: MySqlType, _zone: str) -> str:
    text = str(value) if type(value) in (int, Number, str) else ""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{shown(value)} is no integer")
    return text


def _longs(values: list[Any], _type: MySqlType, _zone: str) -> pa.StringArray | None:
    if _are(values, int):
        return pa.array(values, pa.int64()).cast(pa.string())
    if not _are(values, str):
        return None
    found = pa.array(values, pa.string())
    return found if pc.all(pc.match_substring_regex(found, _INTEGERS), min_count=0).as_py() else None


def _double(value: Any, mysql_type: MySqlType, _zone: str) -> str:
    if type(value) not in (int, Number, str):
        raise ValueError(f"{shown(value)} is no number")
    try:
        return str(value) if mysql_type.family == "float" else number_text(str(value), None)
    except ArithmeticError:
        raise ValueError(f"{shown(value)} is no number") from None


def _doubles(values: list[Any], mysql_type: MySqlType, zone: str) -> pa.StringArray | None:
    if not _are(values, str):
        if not _are(values, str, int, Number):
            return None
        values = [None if v is None else str(v) for v in values]
    found = pa.array(values, pa.string())
    if mysql_type.family == "float":
        return found
    long = pc.greater(pc.binary_length(found), _PLAIN_LENGTH)
    odd = pc.or_(long, pc.invert(pc.match_substring_regex(found, _PLAIN_NUMBERS)))
    return _replace_exceptions(found, odd, lambda v: _double(v, mysql_type, zone))


def _date(value: Any, mysql_type: MySqlType, zone: str) -> str:
    if type(value) is not int:
        raise ValueError(f"{shown(value)} is no count of milliseconds")
    try:
        if mysql_type.family == "timestamp":  # MySQL's begins a second later: 0 is a zero TIMESTAMP
            return datetime_text(value, 1000) + "Z" if value else _ZERO
        text = zoned_datetime_text(value, zone)
    except ArithmeticError:
        raise ValueError(f"{value} ms are outside the years 1 to 9999") from None
    if mysql_type.family == "date":
        if not text.endswith(_MIDNIGHT) and value != _first_instant(text[:10], zone):
            raise ValueError(f"{value} is {text} in {zone}, no midnight and so no DATE (option time_zone)")
        return text[:10]
    return text


def _first_instant(day: str, zone: str) -> int:
    """Epoch ms of midnight, or of what Java makes of a midnight that the zone skips (Asia/Shanghai, 1940-06-01): the
    clock's next time."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=time_zone(zone))  # its offset is that before the gap
    return (midnight - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _dates(values: list[Any], mysql_type: MySqlType, zone: str) -> pa.StringArray | None:
    if not _are(values, int):
        return None
    instants = pa.array(values, pa.int64())
    null = instants.is_null().to_numpy(zero_copy_only=False)
    millis = pc.fill_null(instants, 0).to_numpy()
    if len(millis) and not _FIRST_MS <= millis.min() <= millis.max() <= _LAST_MS:
        return None
    if mysql_type.family == "timestamp":
        text = pc.binary_join_element_wise(_clock(millis, null), "Z", "")
        return pc.if_else(pc.equal(instants, 0), _ZERO, text)
    local = millis + _offsets(millis, zone)
    if mysql_type.family != "date":
        return _clock(local, null)
    days, rest = np.divmod(local, _DAY_MS)
    odd = (rest != 0) & ~null
    text = pa.array(days.astype(np.int32), pa.date32(), mask=odd | null).cast(pa.string())
    if not odd.any():
        return text
    found = [_date(value, mysql_type, zone) for value in millis[odd].tolist()]
    return pc.replace_with_mask(text, pa.array(odd), pa.array(found, pa.string()))


def _clock(millis: np.ndarray, null: np.ndarray) -> pa.StringArray:
    """Milliseconds since 1970 → `2026-11-20 01:02:03.5`."""
    seconds, rest = np.divmod(millis, 1000)
    if not rest.any():
        return pa.array(seconds, pa.timestamp("s"), mask=null).cast(pa.string())
    text = pa.array(millis, pa.timestamp("ms"), mask=null).cast(pa.string())
    return pc.ascii_rtrim(pc.ascii_rtrim(text, characters="0"), characters=".")  # all have a dot and three digits


def _offsets(millis: np.ndarray, zone: str) -> np.ndarray:
    """What the zone's clock is ahead of UTC at each instant, in ms."""
    if zone == "UTC":
        return np.zeros(len(millis), np.int64)
    days, which = np.unique(millis // _DAY_MS, return_inverse=True)
    of_days = [_offset_of_day(zone, day) for day in days.tolist()]
    turned = [day is None for day in of_days]
    found = np.array([day or 0 for day in of_days], np.int64)[which]
    if any(turned):
        one_by_one = np.array(turned)[which]
        found[one_by_one] = [_offset(zone, value) for value in millis[one_by_one].tolist()]
    return found


def _offset(zone: str, millis: int) -> int:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    return (moment.astimezone(time_zone(zone)).utcoffset() or timedelta()) // timedelta(milliseconds=1)


@lru_cache(maxsize=65536)
def _offset_of_day(zone: str, day: int) -> int | None:
    """All through a day of UTC. None: the clock is turned. No zone turns it twice in a day: the least between is
    four."""
    first, last = _offset(zone, day * _DAY_MS), _offset(zone, (day + 1) * _DAY_MS - 1)
    return first if first == last else None


def _bytes(value: Any, mysql_type: MySqlType, _zone: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no base64 text")
    return fitting_base64(base64_text(value, padded_to(mysql_type)), mysql_type)


def _all_bytes(values: list[Any], mysql_type: MySqlType, _zone: str) -> pa.StringArray | None:
    if not _are(values, str):
        return None
    if longest_bytes(mysql_type) is not None:
        width = padded_to(mysql_type)
        fitted = (None if v is None else fitting_base64(base64_text(v, width), mysql_type) for v in values)
        return pa.array(list(fitted), pa.string())
    found = pa.array(values, pa.string())
    return _replace_exceptions(found, pc.invert(pc.match_substring_regex(found, _PLAIN_BASE64)), base64_text)


def _string(value: Any, _type: MySqlType, _zone: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no text")
    return value


def _strings(values: list[Any], _type: MySqlType, _zone: str) -> pa.StringArray | None:
    return pa.array(values, pa.string()) if _are(values, str) else None


class Kind(NamedTuple):
    """One of the six types: the MySQL type that keeps all its values (unsigned BIGINT; DECIMAL of any scale), its
    readers, and the families that the option may name instead."""

    default: str
    text: Text
    texts: Texts
    families: frozenset[str]


TYPES = {
    "BOOLEAN": Kind("tinyint(1)", _boolean, _booleans, frozenset(("boolean", "integer", "bit"))),
    "LONG": Kind("decimal(20,0)", _long, _longs, frozenset(("integer", "bit", "boolean", "year", "decimal"))),
    "DOUBLE": Kind("decimal(65,30)", _double, _doubles, frozenset(("decimal", "float"))),
    "DATE": Kind("datetime(3)", _date, _dates, frozenset(("date", "datetime", "timestamp"))),
    "BYTES": Kind("longblob", _bytes, _all_bytes, frozenset(("binary", "geometry"))),
    "STRING": Kind(
        "longtext",
        _string,
        _strings,
        frozenset(("text", "enum", "set", "json", "time", "year", "decimal", "integer")),
    ),
}


@lru_cache(maxsize=16)
def default_type(stated: str) -> MySqlType:
    """The type for one of the six where nothing else is known: that of its default, with digits of any number."""
    found = parse_type(TYPES[stated].default)
    return replace(found, args=found.args[:1]) if found.family == "decimal" else found
