"""Texts of payloads without schema, where no option tells how the connector writes decimals and bytes: a text is read
when it can be of one way of writing only, and refused when two of them give different values."""

import re
from collections.abc import Callable
from typing import Any

from cdc_platform.formats.kafka_connect import values as cv
from cdc_platform.formats.texts import BAD, Number, number_text, shown
from cdc_platform.mysql.fitting import longest_bytes
from cdc_platform.mysql.types import MySqlType

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-[0-9]+)?", re.ASCII)
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)  # Debezium's HexConverter writes small letters


def decimals(real: MySqlType) -> cv.Convert:
    """Converter of DECIMAL in any `decimal.handling.mode`: JSON numbers, digits (`string`), base64 (`precise`).

    A sign, a dot and a length that isn't a multiple of four are never base64 of digits. MySQL writes the digits after
    the dot in full, so a text without a dot is a number only where the scale is 0. What is left, digits alone, is
    in base64 a negative number of six digits or more (its first byte is 0xD3 to 0xF7)."""
    scale = (*real.args, 0, 0)[1]
    precise = cv.decimal_text(scale)

    def text(value: Any) -> str:
        if type(value) is not str or not _NUMBER.fullmatch(value):
            return precise(value)
        if not _DIGITS.fullmatch(value) or len(value) % 4:
            return number_text(value, scale)
        return precise(value) if scale else _of_digits(value)

    def _of_digits(value: str) -> str:
        in_base64, plain = precise(value), number_text(value, 0)
        if real.unsigned or not _fits(in_base64):
            return plain
        if not _fits(plain):
            return in_base64
        told = f"{plain}, as decimal.handling.mode=string writes it, or {in_base64}, as mode precise does"
        raise ValueError(f"{shown(value)} may be {told}: option decimal_handling_mode tells which")

    def _fits(number: str) -> bool:
        return len(number.lstrip("-").lstrip("0")) <= (real.args or (10,))[0]

    return cv.each("decimal", (str, int, Number), text)


def binaries(real: MySqlType) -> cv.Convert:
    """Converter of bytes in any `binary.handling.mode`: base64 of either alphabet, hexadecimal digits."""
    longest = longest_bytes(real)
    whole = longest or 0 if real.name == "binary" else 0  # hexadecimal digits tell the zeros at its end, too

    def text(value: str) -> str:
        if not _HEX.fullmatch(value):
            return cv.base64_text(value.replace("-", "+").replace("_", "/"))
        readings = _reading(cv.base64_text, value), _reading(_of_hex, value, whole)
        found = {t for t in readings if t is not None}
        if len(found) == 1:
            return found.pop()
        why = "may be base64 or hexadecimal digits" if found else "is neither base64 nor hexadecimal digits of its type"
        raise ValueError(f"{shown(value)} {why}: option binary_handling_mode tells which")

    def _reading(read: Callable[[str], str], value: str, least: int = 0) -> str | None:
        try:
            found = read(value)
        except BAD:
            return None
        size = len(cv.from_base64(found))
        return found if least <= size and (longest is None or size <= longest) else None

    convert = cv.each("base64 or hexadecimal text", (str,), text)
    return cv.padded(convert, min(whole, 255)) if whole else convert


def _of_hex(value: str) -> str:
    return cv.to_base64(bytes.fromhex(value))
