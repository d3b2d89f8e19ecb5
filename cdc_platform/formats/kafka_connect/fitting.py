"""Canonical texts of a column that can't be of its real type are refused: they are the sign of columns that don't fit
the row."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cdc_platform.formats.kafka_connect.values import Convert, fitting_base64
from cdc_platform.formats.texts import shown
from cdc_platform.mysql.fitting import decimals_fit, longest_bytes, longest_text
from cdc_platform.mysql.types import MySqlType
from cdc_platform.mysql.values import integer_range

Check = Callable[[list[Any], MySqlType], None]


def fitting(convert: Convert, real: MySqlType, *, counts: bool = False) -> Convert:
    """The converter of a column whose real type is known; it raises ValueError for texts that aren't of it. `counts`:
    its values are numbers, whose unit may be another one than the one they were taken for."""
    check = _CHECKS.get(real.family) or (_CLOCKS.get(real.family) if counts else None)
    if check is None or not (real.args or real.labels or real.family in _ALWAYS):
        return convert

    def checked(values: list[Any]) -> list[Any]:
        texts = convert(values)
        check(texts, real)
        return texts

    return checked


def _size(texts: list[Any]) -> int:
    return max(map(len, filter(None, texts)), default=0)


def _text(texts: list[Any], real: MySqlType) -> None:
    longest = longest_text(real)
    if longest is not None and _size(texts) > longest:
        wrong = next(t for t in texts if t and len(t) > longest)
        raise ValueError(f"{shown(wrong)} is longer than {real.name}({longest})")


def _integer(texts: list[Any], real: MySqlType) -> None:
    low, high = integer_range(real)
    if _size(texts) < len(str(high)) and low < 0:
        return
    for text in filter(None, texts):
        if not low <= int(text) <= high:
            raise ValueError(f"{text} is outside {low} to {high}")


def _decimal(texts: list[Any], real: MySqlType) -> None:
    ok = decimals_fit(pa.array(texts, pa.string()), real)
    if not ok.all():
        raise ValueError(f"{texts[int(ok.argmin())]} has more digits than decimal{real.args}")


def _labels(texts: list[Any], real: MySqlType) -> None:
    known = {*real.labels, ""}
    for text in set(texts) - known - {None} if real.labels else ():
        if real.family == "enum" or not {*text.split(",")} <= known:
            raise ValueError(f"{shown(text)} is no label of its {real.family}")


def _binary(texts: list[Any], real: MySqlType) -> None:
    longest = longest_bytes(real)
    if longest is not None and _size(texts) > longest * 4 // 3:  # no shorter text holds more
        for text in filter(None, texts):
            fitting_base64(text, real)


def _clock(texts: list[Any], real: MySqlType) -> None:
    """Digits of a second that the column can't have."""
    longest = (real.args or (0,))[0]
    for text in [t for t in texts if t and "." in t]:
        if len(text.rstrip("Z").partition(".")[2].rstrip("0")) > longest:
            raise ValueError(f"{shown(text)} has more digits of a second than {real.name}({longest})")


_CHECKS: dict[str, Check] = {
    "text": _text,
    "integer": _integer,
    "decimal": _decimal,
    "enum": _labels,
    "set": _labels,
    "binary": _binary,
}
_CLOCKS: dict[str, Check] = dict.fromkeys(("time", "datetime"), _clock)
_ALWAYS = frozenset(("integer", *_CLOCKS))
"""Families that have bounds without any argument."""
