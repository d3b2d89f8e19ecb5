"""Debezium's types of other databases than MySQL, where they mean something else or only come from there.

Sources: Debezium's pages of the PostgreSQL and SQL Server connectors, "Data type mappings"; what no Delta type holds is
text, or refused with the reason.
"""

import struct
from collections.abc import Callable
from typing import Any

from cdc_platform.formats.kafka_connect import values as cv
from cdc_platform.formats.kafka_connect.dialect import DATA, TIME, Typed
from cdc_platform.formats.texts import BAD, shown

Named = dict[str, Callable[[dict], Typed]]

_INFINITE = {
    9223372036825200000: "infinity",
    -9223372036832400000: "-infinity",
    2**63 - 1: "infinity",  # time.precision.mode=nanoseconds
    -(2**63): "-infinity",
}
"""What the PostgreSQL connector sends for a TIMESTAMP that is infinite."""
_SPECIAL = frozenset(("NaN", "NAN", "Infinity", "-Infinity", "infinity", "-infinity"))


def special(value: Any) -> str | None:
    """A value that is no number and no time: its name, as PostgreSQL spells it; None: it is none."""
    if type(value) is str and value in _SPECIAL:
        return "NaN" if value == "NAN" else value
    return _INFINITE.get(value) if type(value) is int else None


def as_text(convert: cv.Convert) -> cv.Convert:
    """Converter of a column that the option `columns` makes text: it lets infinities and NaN in, as words."""

    def text(value: Any) -> str:
        try:
            return convert([value])[0]
        except BAD:
            if (word := special(value)) is None:
                raise
            return word

    return lambda values: [None if v is None else text(v) for v in values]


def _finite(typed: Typed) -> Callable[[dict], Typed]:
    type_text, convert = typed

    def checked(values: list[Any]) -> list[Any]:
        for value in values:
            if (word := special(value)) is not None:
                raise ValueError(f"{shown(word)} is no {type_text} of a Delta table; option columns can make it text")
        return convert(values)

    return lambda _: (type_text, checked)


def _texts(values: list[Any]) -> list[Any]:
    return cv.STRING(values)


def _bits(parameters: dict) -> Typed:
    """BIT(n) of up to 64 bits is a number; longer ones, and BIT VARYING, whose length isn't told, are the bytes sent
    (little-endian)."""
    length = int(parameters.get("length") or 0)
    if not 0 < length <= 64:
        return "longblob", cv.BYTES
    return f"bit({length})", cv.each("base64 text", (str,), cv.bits_text(length))


def _point(value: dict) -> str:
    """Without `wkb` from x and y."""
    if value.get("wkb") is None:
        wkb = struct.pack("<BIdd", 1, 1, float(value["x"]), float(value["y"]))
        value = {**value, "wkb": cv.to_base64(wkb)}
    return cv.geometry_text(value)


def _vector(value: list) -> str:
    return "[" + ",".join(cv.FLOAT64(value)) + "]"


def _nano(value: int) -> tuple[int, str]:
    """ns → whole seconds and the fraction's digits."""
    seconds, nanos = divmod(value, 1_000_000_000)
    digits = f"{nanos:09d}".rstrip("0")
    return seconds, f".{digits}" if digits else ""


def _nano_datetime(value: int) -> str:
    seconds, digits = _nano(value)
    return cv.datetime_text(seconds, 1) + digits


def _nano_time(value: int) -> str:
    seconds, digits = _nano(value)
    return cv.time_text(seconds, 1) + digits


def _wall_clock(value: str) -> str:
    """ISO text at Z → as the others are spelled, with all its digits."""
    return value.removesuffix("Z").replace("T", " ")


def _counted(type_text: str, text: Callable[[int], str]) -> Callable[[dict], Typed]:
    return lambda _: (type_text, cv.each("integer", (int,), text))


def _each(type_text: str, kind: type, text: Callable[[Any], str]) -> Callable[[dict], Typed]:
    return lambda _: (type_text, cv.each(kind.__name__, (kind,), text))


POSTGRESQL: Named = {
    TIME + "Timestamp": _finite(("datetime(3)", cv.each("integer", (int,), lambda v: cv.datetime_text(v, 1_000)))),
    TIME + "MicroTimestamp": _finite(
        ("datetime(6)", cv.each("integer", (int,), lambda v: cv.datetime_text(v, 1_000_000)))
    ),
    TIME + "NanoTimestamp": _finite(
        ("datetime(6)", cv.each("integer", (int,), lambda v: cv.datetime_text(v, 1_000_000_000)))
    ),
    TIME + "ZonedTimestamp": _finite(("timestamp(6)", cv.each("text", (str,), cv.zoned_text))),
    TIME + "ZonedTime": lambda _: ("longtext", _texts),
    TIME + "Interval": lambda _: ("longtext", _texts),
    TIME + "MicroDuration": _counted("bigint", str),
    TIME + "NanoDuration": _counted("bigint", str),
    DATA + "Bits": _bits,
    DATA + "DoubleVector": _each("longtext", list, _vector),
    DATA + "SparseVector": lambda _: ("json", cv.plain_texts),
    DATA + "geometry.Point": _each("point", dict, _point),
    DATA + "geometry.Geography": _each("geometry", dict, cv.geometry_text),
    DATA + "geometry.Circle": lambda _: ("json", cv.plain_texts),
    DATA + "geometry.Line": lambda _: ("json", cv.plain_texts),
}
"""Schema name → (its parameters → type text and converter), beside those of all connectors."""

SQLSERVER: Named = {
    # 100 ns are finer than Delta's microseconds, and the message doesn't tell how many digits the column has.
    TIME + "ZonedTimestamp": lambda _: ("longtext", _texts),
    TIME + "NanoTimestamp": _counted("longtext", _nano_datetime),
    TIME + "NanoTime": _counted("longtext", _nano_time),
    TIME + "IsoTimestamp": _each("longtext", str, _wall_clock),
    TIME + "IsoTime": _each("longtext", str, _wall_clock),
    DATA + "geometry.Point": _each("point", dict, _point),
    DATA + "geometry.Geography": _each("geometry", dict, cv.geometry_text),
}
"""The same of SQL Server."""
