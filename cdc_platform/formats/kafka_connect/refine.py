"""A column's type as its message has it, made exact by the real type that the user or the schema history told."""

from collections.abc import Callable
from functools import partial

from cdc_platform.formats.kafka_connect import untold
from cdc_platform.formats.kafka_connect import values as cv
from cdc_platform.formats.kafka_connect.dialect import Dialect, Typed
from cdc_platform.formats.kafka_connect.from_text import from_text
from cdc_platform.formats.texts import number_text, shown
from cdc_platform.mysql.types import FAMILIES, MySqlType, parse_type

_FITS = {
    "integer": {"integer", "year"},
    "float": {"float"},
    "binary": {"binary"},
    "decimal": {"decimal", "integer"},
    "boolean": {"boolean", "bit", "integer"},
    "geometry": {"geometry"},
    "text": {*FAMILIES.values()} - {"geometry"},
}
"""Family of the message's own type → families of real types it can carry; others carry only themselves."""

AS_IT_IS = frozenset(("text", "enum", "set", "json"))
_FROM_TEXT: dict[str, Callable[[MySqlType, Dialect], cv.Convert | None]] = {
    "decimal": lambda *_: cv.each("decimal text", (str,), partial(number_text, scale=None)),
    "binary": lambda real, d: _BINARY_TEXT.get(d.binary) if d.binary else untold.binaries(real),
}
_BINARY_TEXT: dict[str, cv.Convert] = {  # by "bytes" it wouldn't come as text
    "base64": cv.BYTES,
    "base64-url-safe": cv.each("base64 text", (str,), lambda v: cv.base64_text(v.replace("-", "+").replace("_", "/"))),
    "hex": cv.each("hexadecimal text", (str,), lambda v: cv.to_base64(bytes.fromhex(v))),
}


def refined(typed: Typed, told: str, by_user: bool, dialect: Dialect) -> Typed:
    """The message's own type and converter, made exact by the real type that the user or the schema told."""
    (type_text, convert), real = typed, parse_type(told)
    family = parse_type(type_text).family
    if dialect.dtle and (family, real.family) == ("text", "geometry"):
        return told, cv.BYTES  # its parser knows no geometry: a schema without type, MySQL's own bytes in base64
    if real.family not in _FITS.get(family, {family}):
        double = (family, real.family) == ("float", "decimal")  # decimal.handling.mode=double
        if by_user and not double:
            raise ValueError(f"option columns says {shown(told)}, the message has {type_text}")
        return typed
    if family == "text" and real.name == "vector":
        return typed  # Debezium's FloatVector: an array of numbers
    if (family, real.family) == ("text", "timestamp") and not by_user and dialect.text_zone is None:
        return typed  # nothing says its zone
    exact = _exact(convert, family, real, dialect)
    return (told, exact) if exact else typed


def _exact(convert: cv.Convert, family: str, real: MySqlType, dialect: Dialect) -> cv.Convert | None:
    """Converter for the real type; None: what the message has can't be read as that."""
    if family == "text" and real.family in _FROM_TEXT:
        found = _FROM_TEXT[real.family](real, dialect)
        if found is None:
            return None
        convert = found
    elif family == "text" and real.family not in AS_IT_IS:
        return from_text(real, dialect.text_zone or "UTC")
    if real.name == "binary" and real.args:
        return cv.padded(convert, min(real.args[0], 255))
    if family == "integer" and real.name == "bigint" and real.unsigned:
        return cv.UNSIGNED
    return cv.floats_text if family == "float" and real.spark == "float" else convert
