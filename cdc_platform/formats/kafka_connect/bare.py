"""Columns of payloads without schema block: the user's MySQL type → the schema field that Debezium would have
sent under the connector's settings → `kafka_connect.types.column`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cdc_platform.formats.kafka_connect import untold
from cdc_platform.formats.kafka_connect.fitting import fitting
from cdc_platform.formats.kafka_connect.from_text import or_text
from cdc_platform.formats.kafka_connect.types import (
    CONNECT,
    DATA,
    TIME,
    TYPE_UNTOLD,
    Column,
    Dialect,
    column,
    stated_limits,
)
from cdc_platform.formats.kafka_connect.values import Convert, plain_texts
from cdc_platform.mysql.types import MySqlType, parse_type


def _bare_bit(real: MySqlType, _: Dialect) -> dict:
    length = (real.args or (1,))[0]
    if length == 1:
        return {"type": "boolean"}
    return {"type": "bytes", "name": DATA + "Bits", "parameters": {"length": length}}


def _bare_decimal(real: MySqlType, dialect: Dialect) -> dict:
    if dialect.decimal not in (None, "precise"):
        return {"type": dialect.decimal}
    precision, scale = (*(real.args or (10,)), 0)[:2]
    parameters = {"connect.decimal.precision": precision, "scale": scale}
    return {"type": "bytes", "name": CONNECT + "Decimal", "parameters": parameters}


def _bare(kind: str, name: str | None = None) -> Callable[[MySqlType, Dialect], dict]:
    return lambda _real, _dialect: {"type": kind, "name": name}


_BARE: dict[str, Callable[[MySqlType, Dialect], dict]] = {
    **dict.fromkeys(("text", "enum", "set"), _bare("string")),
    "integer": _bare("int64"),
    "boolean": _bare("boolean"),
    "json": _bare("string", DATA + "Json"),
    "geometry": _bare("struct", DATA + "geometry.Geometry"),
    "year": _bare("int32", TIME + "Year"),
    "timestamp": _bare("string", TIME + "ZonedTimestamp"),
    "float": lambda real, _: {"type": "float" if real.spark == "float" else "double"},
    "binary": lambda _, dialect: {"type": "bytes" if dialect.binary in (None, "bytes") else "string"},
    "bit": _bare_bit,
    "decimal": _bare_decimal,
    **dict.fromkeys(("date", "time", "datetime"), lambda real, dialect: {"name": _temporal_name(real, dialect)}),
}
"""Family of the user's type → the schema field Debezium would have sent with this dialect's settings."""


def _temporal_name(real: MySqlType, dialect: Dialect) -> str:
    family = real.family
    by_digits = "Micro" if (real.args or (0,))[0] > 3 else ""
    sub = {"microseconds": "Micro", "nanoseconds": "Nano"}.get(dialect.temporal, by_digits)
    if dialect.temporal == "connect":
        return CONNECT + {"date": "Date", "time": "Time", "datetime": "Timestamp"}[family]
    if dialect.temporal == "isostring":
        return TIME + {"date": "IsoDate", "time": "IsoTime", "datetime": "IsoTimestamp"}[family]
    if family == "time" and dialect.temporal == "adaptive_time_microseconds":
        sub = "Micro"
    return TIME + {"date": "Date", "time": f"{sub}Time", "datetime": f"{sub}Timestamp"}[family]


def bare_column(name: str, given: str | None, dialect: Dialect, *, defaulted: bool = False) -> Column:
    """Column of a message without schema. Without a type from the user: `longtext`, as written. `defaulted`: it may be
    NULL and has a default."""
    field = {"field": name, "optional": True, "default": defaulted or None}
    if given is None or parse_type(given).name == "vector":  # an array of numbers
        untold = (TYPE_UNTOLD,) if given is None and dialect.named is not None else ()
        limits = stated_limits(field, "longtext", "", dialect)
        return Column(name, "longtext", plain_texts, dialect.unavailable, (*limits, *untold))
    real = parse_type(given)
    found = column({**field, **_BARE[real.family](real, dialect)}, given, dialect)
    if real.family in _CONVERTED:
        return replace(found, convert=or_text(found.convert, real, dialect.text_zone or "UTC"))
    if real.name == "tinyint":
        return replace(found, convert=_or_truths(found.convert))
    if of_any := _UNTOLD.get(real.family, lambda *_: None)(real, dialect):
        return replace(found, convert=fitting(of_any, real))
    return found


def _or_truths(numbers: Convert) -> Convert:
    """Converter of numbers, and of `true` and `false`, as Debezium's TinyIntOneToBooleanConverter writes them."""

    def convert(values: list[Any]) -> list[Any]:
        if bool in set(map(type, values)):
            values = [int(v) if type(v) is bool else v for v in values]
        return numbers(values)

    return convert


_UNTOLD: dict[str, Callable[[MySqlType, Dialect], Convert | None]] = {
    "decimal": lambda real, dialect: untold.decimals(real) if dialect.decimal is None else None,
    "binary": lambda real, dialect: untold.binaries(real) if dialect.binary is None else None,
}
"""Family → the converter of its values where no option tells how they are written."""


_CONVERTED = ("date", "time", "datetime", "timestamp", "year")
"""Families that custom converters write as text: without a schema only the values show it."""
