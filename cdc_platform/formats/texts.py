"""Canonical texts of JSON values, and what a reason shows of one. Nothing is rounded, clipped or guessed."""

from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

BAD = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError, pa.ArrowException)
"""What bad bytes can raise on their way through parser and converters (msgspec's errors are ValueErrors)."""


FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Of the years 1 to 9999, in milliseconds since 1970: no reader of the tables could show other times."""
_DIGITS_LIMIT = 128  # MySQL's DECIMAL ends at 65; stops "1e999999999" from filling memory


class Number(str):
    """A JSON number that isn't an integer, as its text: told apart from a JSON string."""

    __slots__ = ()


def shown(value: Any) -> str:
    """A value for a reason text: escaped and short."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def checked_scale(scale: int) -> int:
    """Raises ValueError for a scale that no decimal has: a power of ten of it must not fill the memory."""
    if not 0 <= scale <= _DIGITS_LIMIT:
        raise ValueError(f"scale {scale} is outside 0..{_DIGITS_LIMIT}")
    return scale


def scaled_text(unscaled: int, scale: int) -> str:
    """Unscaled integer and scale → plain decimal text with exactly `scale` digits after the dot."""
    checked_scale(scale)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    cut = len(digits) - scale
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:cut]}.{digits[cut:]}" if scale else sign + digits


def number_text(value: Any, scale: int | None) -> str:
    """JSON number or decimal text, exponent or not → plain text; padded to `scale`, never rounded."""
    number = Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > _DIGITS_LIMIT:
        raise ValueError(f"{shown(value)} is no MySQL decimal")
    sign, digits, exponent = number.as_tuple()
    exponent = int(exponent)
    places = checked_scale(max(0, -exponent) if scale is None else scale)
    if abs(exponent) > 2 * _DIGITS_LIMIT:
        raise ValueError(f"{shown(value)} is no MySQL decimal")
    unscaled, rest = divmod(
        int("".join(map(str, digits))) * 10 ** max(0, exponent + places), 10 ** max(0, -exponent - places)
    )
    if rest:
        raise ValueError(f"{shown(value)} has more than {places} digits after the dot")
    return scaled_text(-unscaled if sign else unscaled, places)


def json_text(value: Any) -> str:
    """Parsed JSON → compact JSON text, numbers digit by digit as the source wrote them."""
    if type(value) is dict:
        return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if type(value) is list:
        return "[" + ",".join(map(json_text, value)) + "]"
    if type(value) is Number:
        return str(value)
    return msgspec.json.encode(value).decode()


def plain_text(value: Any) -> str:
    """A value whose type nobody told: text as is, numbers as written, true "1", objects as JSON."""
    if type(value) is bool:
        return "1" if value else "0"
    return json_text(value) if type(value) in (dict, list) else str(value)


def a_text(of: dict[str, Any], name: str) -> str | None:
    """A field of a JSON object, a text or null. Raises ValueError."""
    value = of.get(name)
    if value is not None and type(value) is not str:
        raise ValueError(f"{name} {shown(value)} is no text")
    return value


def an_object(of: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The same, an object or null."""
    value = of.get(name)
    if value is not None and type(value) is not dict:
        raise ValueError(f"{name} {shown(value)} is no object")
    return value
