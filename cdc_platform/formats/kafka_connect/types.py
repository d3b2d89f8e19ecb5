"""Kafka Connect and Debezium schema blocks → columns: MySQL type text and the converter of its values.

The type is decided by schema name, never by magnitude. Sources: Debezium's MySQL/MariaDB documentation (data
types, time.precision.mode, decimal.handling.mode, binary.handling.mode) and dtle's `driver/kafka/kafka2.go`.
Where Connect's type is poorer than MySQL's (`string`, `int64`), a hint gives the real one: the option
`columns`, or the schema parameters that `column.propagate.source.type` adds.
"""

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cdc_platform.formats.events import BadColumn
from cdc_platform.formats.kafka_connect import values as cv
from cdc_platform.formats.kafka_connect.arrays import array, is_encoded
from cdc_platform.formats.kafka_connect.dialect import CONNECT, DATA, TIME, Dialect, Typed
from cdc_platform.formats.kafka_connect.fitting import fitting
from cdc_platform.formats.kafka_connect.other_types import as_text
from cdc_platform.formats.kafka_connect.refine import AS_IT_IS, refined
from cdc_platform.formats.table_schemas.table_changes import mysql_type
from cdc_platform.formats.texts import Number, shown
from cdc_platform.mysql.types import MySqlType, labels_type, parse_type


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a row: `type_text` in MySQL's language, `convert`, the value for "not in the image"."""

    name: str
    type_text: str
    convert: cv.Convert
    unavailable: Any = None
    limits: tuple[str, ...] = ()  # names of `Limit.stated`


def _count(type_text: str, text: Callable[..., str], per_second: int | None = None) -> Callable[[dict], Typed]:
    bound = partial(text, per_second=per_second) if per_second else text
    return lambda _: (type_text, cv.each("integer", (int,), bound))


def _texts(type_text: str, text: Callable[[str], str] | None = None) -> Callable[[dict], Typed]:
    return lambda _: (type_text, cv.each("text", (str,), text))


def _struct(type_text: str, text: Callable[[dict], str]) -> Callable[[dict], Typed]:
    return lambda _: (type_text, cv.each("object", (dict,), text))


def _decimal(parameters: dict) -> Typed:
    scale = int(parameters["scale"])
    # Without a precision take MySQL's largest: the snapshot column must hold whatever comes.
    precision = int(parameters.get("connect.decimal.precision") or 65)
    kinds = (str, int, Number)
    return f"decimal({precision},{scale})", cv.each("decimal", kinds, cv.decimal_text(scale))


def _bits(parameters: dict) -> Typed:
    length = int(parameters["length"]) if "length" in parameters else None
    return f"bit({length or 64})", cv.each("base64 text", (str,), cv.bits_text(length))


def _labelled(kind: str) -> Callable[[dict], Typed]:
    # Labels that hold commas come apart here (Debezium and dtle join them bare); values stay right as texts.
    return lambda p: (labels_type(kind, str(p.get("allowed") or "").split(",")), cv.STRING)


def year_text(value: int) -> str:
    """Four digits. Debezium's binlog reader adds 1900 to the stored byte (`RowDeserializers.deserializeYear`), which
    is 0 for MySQL's year 0000; the year 1900 itself can't be stored."""
    if value == 1900:
        return "0000"
    if not 0 <= value <= 9999:
        raise ValueError(f"{value} is no year")
    return f"{value:04d}"


def timestamp_text(value: str) -> str:
    """TIMESTAMP of MySQL begins at 1970-01-01 00:00:01 UTC. What Debezium sends of the second before is its substitute
    for a zero TIMESTAMP where NULL isn't allowed (its MySQL page, "Zero values")."""
    text = cv.zoned_text(value)
    return _ZERO if text == "1970-01-01 00:00:00Z" else text


_ZERO = "0000-00-00 00:00:00"
_MILLIS, _MICROS, _NANOS = 1_000, 1_000_000, 1_000_000_000

NAMED: dict[str, Callable[[dict], Typed]] = {
    CONNECT + "Decimal": _decimal,
    CONNECT + "Date": _count("date", cv.date_text),
    # How many digits of a second a TIME column has isn't told.
    # Debezium's page says microseconds for this one; Connect's class is milliseconds since midnight.
    CONNECT + "Time": _count("time", cv.time_text, _MILLIS),
    CONNECT + "Timestamp": _count("datetime(3)", cv.datetime_text, _MILLIS),
    TIME + "Date": _count("date", cv.date_text),
    TIME + "Time": _count("time", cv.time_text, _MILLIS),
    TIME + "MicroTime": _count("time", cv.time_text, _MICROS),
    TIME + "NanoTime": _count("time", cv.time_text, _NANOS),
    TIME + "Timestamp": _count("datetime(3)", cv.datetime_text, _MILLIS),
    TIME + "MicroTimestamp": _count("datetime(6)", cv.datetime_text, _MICROS),
    TIME + "NanoTimestamp": _count("datetime(6)", cv.datetime_text, _NANOS),
    TIME + "ZonedTimestamp": _texts("timestamp(6)", timestamp_text),
    TIME + "IsoDate": _texts("date", cv.iso_date_text),
    TIME + "IsoTime": _texts("time", cv.iso_time_text),
    TIME + "IsoTimestamp": _texts("datetime(6)", cv.iso_datetime_text),
    TIME + "Year": _count("year", year_text),
    DATA + "Bits": _bits,
    DATA + "Json": _texts("json"),
    DATA + "Enum": _labelled("enum"),
    DATA + "EnumSet": _labelled("set"),
    DATA + "Xml": _texts("longtext"),
    DATA + "Uuid": _texts("longtext"),
    DATA + "VariableScaleDecimal": _struct("decimal(65,30)", cv.variable_decimal_text),
    DATA + "geometry.Geometry": _struct("geometry", cv.geometry_text),
    DATA + "geometry.Point": _struct("point", cv.geometry_text),
    DATA + "FloatVector": lambda _: ("longtext", cv.each("array", (list,), cv.vector_text)),
}
"""Schema name → (its parameters → type text and converter)."""

PLAIN: dict[str, Typed] = {
    "int8": ("tinyint", cv.INTEGER),
    "int16": ("smallint", cv.INTEGER),
    "int32": ("int", cv.INTEGER),
    "int64": ("bigint", cv.INTEGER),
    "float": ("float", cv.floats_text),
    "float32": ("float", cv.floats_text),
    "double": ("double", cv.FLOAT64),
    "float64": ("double", cv.FLOAT64),
    "boolean": ("boolean", cv.BOOLEAN),
    "string": ("longtext", cv.STRING),
    "bytes": ("longblob", cv.BYTES),
    # dtle gives geometry and unknown types an empty type; an unnamed array or map comes from an SMT.
    "": ("longtext", cv.plain_texts),
    "array": ("longtext", cv.plain_texts),
    "map": ("longtext", cv.plain_texts),
}
"""Connect type without a name → type text and converter. dtle writes "float64", JsonConverter "double"."""

_CONVERTED = {
    f"{name}{kind}{end}": kind
    for name, end in (
        ("io.debezium.connector.mysql.converters.MysqlDebeziumTimeConverter.mysql.", ""),  # Flink CDC's
        ("com.darcytech.debezium.converter.", ".string"),  # holmofy/debezium-datetime-converter
    )
    for kind in ("date", "time", "datetime", "timestamp")
}
"""Schema name that a converter gives its texts → MySQL's type."""


def column(field: dict, given: str | None, dialect: Dialect, known: str | None = None) -> Column:
    """Schema field and the user's type for it (or None) → Column. `known`: the type that the schema history has, used
    where the message can carry it. Raises ValueError when the field's type or name is unknown, or when `given` can't be
    what the message carries; UnknownType for a bad `given`."""
    name, semantic = field["field"], field.get("name")
    if type(name) is not str:
        raise ValueError(f"schema field named {shown(name)}")
    parameters = field.get("parameters") or {}
    kind = field.get("type") or ""
    if typed := (dialect.named or {}).get(semantic or "") or NAMED.get(semantic or ""):
        type_text, convert = typed(parameters)
    elif kind in PLAIN and (not semantic or kind == "string" or given):
        type_text, convert = PLAIN[kind]
        if kind == "array" and not semantic:
            convert = _array(name, field.get("items") or {}, dialect, named=given is not None)
    elif kind == "struct" and given and parse_type(given).family in AS_IT_IS:
        type_text, convert = "longtext", cv.plain_texts
    else:
        why = f"unknown schema type {shown(kind)} named {shown(semantic)}; option columns can name its type"
        raise BadColumn(name, f"column {shown(name)}: {why}")
    if dialect.named is not None and given and parse_type(given).family == "text":
        return Column(name, given, as_text(convert), _unavailable(field, dialect))
    of_mysql = None if dialect.named is not None else _propagated(parameters) or _converted(semantic, dialect)
    told = given or known or of_mysql
    if told:
        try:
            type_text, convert = refined((type_text, convert), told, bool(given), dialect)
        except ValueError as e:
            raise BadColumn(name, f"column {shown(name)}: {e}") from None
    limits = stated_limits(field, type_text, kind, dialect)
    if dialect.dtle:
        convert = _repaired(semantic, parse_type(told) if told else None, convert, dialect)
    if told and type_text == told:
        convert = fitting(convert, parse_type(told), counts=kind != "string")
    return Column(name, type_text, convert, _unavailable(field, dialect), limits)


def _array(name: str, items: dict, dialect: Dialect, *, named: bool) -> cv.Convert:
    """Converter of an array by its items' schema; `named`: the user says what it is, so items of any are taken."""
    if not is_encoded(items):
        return cv.plain_texts
    try:
        item = column({**items, "field": name}, None, dialect)
    except BadColumn:
        if named:
            return cv.plain_texts
        raise
    return array(item.type_text, item.convert)


NULL_AS_DEFAULT, ZONE_UNTOLD, TYPE_UNTOLD = "null as default", "zone not told", "type not told"
"""`Limit.stated` of columns: dtle writes no defaults in place of NULL."""


def stated_limits(field: dict, type_text: str, kind: str, dialect: Dialect) -> tuple[str, ...]:
    """Names of the limits that a column's schema field states."""
    defaulted = field.get("optional") is True and field.get("default") is not None
    told = {
        NULL_AS_DEFAULT: defaulted and dialect.null_defaults and not dialect.dtle,
        ZONE_UNTOLD: kind == "string"
        and field.get("name") not in NAMED
        and parse_type(type_text).family == "timestamp"
        and dialect.text_zone is None,
    }
    return tuple(limit for limit, so in told.items() if so)


def _unavailable(field: dict, dialect: Dialect) -> Any:
    """The value that says that a column isn't in the image. Debezium's `UnchangedToastedPlaceholder` has one per type:
    arrays of texts hold the placeholder, arrays of numbers its bytes, arrays of UUIDs a UUID made of it."""
    text = dialect.unavailable
    kind = field.get("type") or ""
    if kind == "bytes":
        return cv.to_base64(text.encode())
    if kind == "map":
        return {text: text}
    if kind == "array":
        items = field.get("items") or {}
        return _UNAVAILABLE_ITEMS.get(items.get("name") or items.get("type"), lambda t: [t])(text)
    return text if kind in ("string", "") else None


_UNAVAILABLE_ITEMS: dict[Any, Callable[[str], list[Any]]] = {
    "bytes": lambda t: [cv.to_base64(t.encode())],
    **dict.fromkeys(("int16", "int32", "int64"), lambda t: list(t.encode())),
    DATA + "Uuid": lambda t: [str(uuid.UUID(bytes=hashlib.md5(t.encode(), usedforsecurity=False).digest(), version=3))],
}


def _propagated(parameters: dict) -> str | None:
    source = parameters.get("__debezium.source.column.type")
    if not source:
        return None
    text = mysql_type(
        str(source),
        parameters.get("__debezium.source.column.length"),
        parameters.get("__debezium.source.column.scale"),
        (),
    )
    # ENUM and SET come without labels here: the message's own `allowed` is better.
    return text if text and parse_type(text).family not in ("enum", "set") else None


def _converted(semantic: str | None, dialect: Dialect) -> str | None:
    """The type of a column that a known converter writes as text. TIMESTAMP has a zone that nothing in the message
    tells: without the option it stays text."""
    kind = _CONVERTED.get(semantic or "")
    if kind is None or (kind == "timestamp" and dialect.text_zone is None):
        return None
    return kind if kind == "date" else f"{kind}(6)"


def _repaired(semantic: str | None, real: MySqlType | None, convert: cv.Convert, dialect: Dialect) -> cv.Convert:
    """dtle's encoders differ from Debezium's; repairs that are certain, or that an option orders."""
    family, digits = (real.family, (real.args or (0,))[0]) if real else (None, 6)
    if semantic == TIME + "MicroTime" and family == "time" and digits < 6:
        return cv.each("integer", (int,), partial(cv.dtle_time_text, digits=digits))
    if semantic == TIME + "Timestamp" and dialect.zone:
        return cv.each("integer", (int,), partial(cv.zoned_datetime_text, zone=dialect.zone))
    if semantic == TIME + "ZonedTimestamp":
        return cv.each("text", (str,), _dtle_timestamp)
    if semantic == TIME + "Year" and dialect.snapshot:
        return cv.each("integer", (int,), partial(_dtle_year, shifted=dialect.snapshot_year))
    is_text = semantic == DATA + "Json" or bool(real and real.name.endswith("text"))
    if dialect.text_base64 and not dialect.snapshot and is_text:
        return cv.each("base64 text", (str,), lambda v: cv.from_base64(v).decode("utf-8"))
    return convert


def _dtle_timestamp(value: str) -> str:
    # dtle's year 1 is its zero date: MySQL's TIMESTAMP itself begins in 1970, so this can't be a real value.
    return _ZERO if value == "0001-01-01T00:00:00Z" else timestamp_text(value)


def _dtle_year(value: int, shifted: bool) -> str:
    """dtle's snapshot takes 1900 off, then reads 1..69 as 20xx. 100..255 are no MySQL years, so surely years
    from 2000 on; 2001..2069 are 1901..1969 only if this dtle has the fault: the option says so."""
    if 100 <= value <= 255:
        return year_text(value + 1900)
    return year_text(value - 100 if shifted and 2001 <= value <= 2069 else value)
