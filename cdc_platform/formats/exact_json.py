"""Exact reading of JSON: numbers keep their texts, a key that stands twice is an error."""

import json
import re
from collections import Counter
from typing import Any, TypeVar

import msgspec
import numpy as np

from cdc_platform.formats.texts import Number, shown

T = TypeVar("T")


_JSON = msgspec.json.Decoder(float_hook=Number)
_SPACED = re.compile(rb'" +:')
_ENDS_IN_0 = re.compile(rb"-0[\s,}\]]")  # found in a fraction of the time of the whole of it; dates go on with a digit
_MINUS_ZERO = re.compile(rb"[:,\[]\s*-0\s*[,}\]]")
_BROKEN = re.compile("[\ud800-\udfff\ufffd]")  # lone surrogates, and what stands for bytes that are no UTF-8
_LONG = 1 << 16  # bytes; numpy counts more than that in a fifth of the time


def _distinct(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(k for k, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"JSON key {shown(twice)} stands twice in one object")
    return found


def read_json(data: bytes) -> Any:
    """Exact JSON: numbers digit by digit, no repeated keys. Raises ValueError or RecursionError.

    msgspec keeps the last of repeated keys silently. When the pairs parsed are all that the text shows, none was
    lost. Anything else takes the slow way."""
    if not data:
        raise ValueError("the value is empty")
    value = _JSON.decode(data)
    if has_minus_zero(data):
        value = json.loads(data, parse_int=_integer, parse_float=Number)
    pairs = compact_pairs(data)
    if pairs is None or (pairs != _pairs(value) and pairs != _all_pairs(value)):
        json.loads(data, object_pairs_hook=_distinct, parse_int=str, parse_float=str)
    return value


def certain_json(data: bytes) -> Any:
    """What is sure of a text that `read_json` refuses: for the names of the table that it is about, not for its values.
    Keys that stand twice in one object are left out, and values with characters that aren't text. None: no JSON."""
    try:
        text = data.decode("utf-8", "replace")
        return json.loads(text, object_pairs_hook=_certain, parse_int=_integer, parse_float=Number)
    except (ValueError, RecursionError):
        return None


def _certain(pairs: list[tuple[str, Any]]) -> dict:
    count = Counter(k for k, _ in pairs)
    return {k: v for k, v in pairs if count[k] == 1 and _is_text(k) and _is_text(v)}


def _is_text(value: Any) -> bool:
    """Whether a value has no broken text; objects have left theirs out already."""
    if type(value) is list:
        return all(map(_is_text, value))
    return type(value) is not str or _BROKEN.search(value) is None


def decoded(decoder: msgspec.json.Decoder[T], values: list[bytes | None]) -> list[T | None]:
    """Messages of a declared shape; None: not of that shape. One call of Python's for all but those."""
    found: list[T | None] = []
    rest = iter(values)
    while len(found) < len(values):
        try:
            found.extend(map(decoder.decode, rest))  # pyright: ignore[reportArgumentType] - a null is a TypeError
        except (ValueError, TypeError, RecursionError):  # msgspec's errors are ValueErrors
            found.append(None)  # what came before it is in the list; the next round goes on behind it
    return found


def has_minus_zero(data: bytes) -> bool:
    """Whether a text may hold the number -0: Go writes the float -0.0 so (dtle); msgspec takes it for the integer 0."""
    return b"-0" in data and _ENDS_IN_0.search(data) is not None and _MINUS_ZERO.search(data) is not None


def compact_pairs(data: bytes) -> int | None:
    """Pairs of all objects in a JSON text, as it shows them; None when it can't be told.

    Each pair shows as `":` in compact JSON. A text can only add such places, and its escaped quotes (`\\":`) are
    taken off again, unless a backslash stands before one (then it may end a key). No blank may stand between a quote
    and a colon."""
    places = _count(data, b'":')
    if b"\\" in data and b'\\":' in data:  # the first is told in a fraction of the other's time
        if b'\\\\":' in data:
            return None
        places -= data.count(b'\\":')
    spaced = b"\n" in data or b"\t" in data or b"\r" in data or (_count(data, b" :") and _SPACED.search(data))
    return None if spaced else places


def _count(data: bytes, two: bytes) -> int:
    """How often two bytes, not twice the same, stand side by side."""
    if len(data) < _LONG:
        return data.count(two)
    wanted = np.frombuffer(two, "<u2")[0]
    halves = (np.frombuffer(data, "<u2", (len(data) - start) // 2, start) for start in (0, 1))
    return sum(int(np.count_nonzero(half == wanted)) for half in halves)


def _integer(text: str) -> Any:
    return Number(text) if text == "-0" else int(text)


def _pairs(value: Any) -> int:
    """Pairs of an object and of the objects in its values and their lists: all of most formats' messages."""
    if type(value) is not dict:
        return 0
    pairs = len(value)
    for inner in value.values():
        if type(inner) is dict:
            pairs += len(inner)
        elif type(inner) is list:
            for row in inner:
                if type(row) is dict:
                    pairs += len(row)
    return pairs


def _all_pairs(value: Any) -> int:
    """Pairs of all objects, however deep (DataWorks' columns are on the fourth level)."""
    pairs, rest = 0, [value]
    while rest:
        inner = rest.pop()
        if type(inner) is dict:
            pairs += len(inner)
            inner = inner.values()
        elif type(inner) is not list:
            continue
        for v in inner:
            if type(v) is dict or type(v) is list:
                rest.append(v)  # noqa: PERF401 - a comprehension is a call, which costs more than these few values
    return pairs
