"""How data looks to people: a table where it fits the line, rows one below the other where it doesn't; numbers, times
and durations as people write them. Nothing from the wire is trusted: no control characters reach a terminal.

Text is wrapped between words, never inside one: a word that is longer than the line (a path, a key) stays whole, so
that it can be copied.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from cdc_platform.units import DECEIVING, count, duration, number, when

_GAP = "  "
_ROOMY, _MOST_LINES = 30, 4
"""A table wraps its cells where each stays within so many lines, or has so many columns of text; else its rows stand
one below the other."""

_COUNTS = frozenset((
    "records", "rows", "changes", "events", "messages", "files", "landed", "accounted", "applied", "control",
    "filtered", "waiting", "joined", "duplicate", "duplicates", "quarantined", "lost", "missing", "extra", "changed",
    "held", "expected_rows", "actual_rows", "bytes", "value_bytes", "key_bytes", "events_per_second", "events_per_s",
    "Kafka records", "row changes",
))  # fmt: skip
"""Names of values that count something: their digits are grouped. Ports, offsets and versions aren't counted."""


class Line(NamedTuple):
    """One line of output; `strong`: a heading."""

    text: str
    strong: bool = False


class Lines(list[str]):
    """Text that is laid out already, with its tabs: shown line by line, neither wrapped nor joined."""


class Verbatim(list[Mapping[str, Any]]):
    """Rows whose values are data of a user's table: shown as they are, without grouping, units or rounding."""


def clean(text: str) -> str:
    r"""`text` safe for a terminal: control characters as \xNN, deceiving ones as \uNNNN."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found.group())
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return DECEIVING.sub(escape, text)


def render(data: Any, width: int, title: str | None = None) -> Iterator[Line]:
    """Lines of a command's data, for a screen of `width` columns.

    A dict becomes lines of name and value; a list of dicts a table, or a block of lines per row; a dict's lists of
    dicts one titled part each; text is wrapped.
    """
    if is_dataclass(data) and not isinstance(data, type):
        data = asdict(data)
    if title and data not in ("", None):
        yield Line(clean(title), strong=True)
    if isinstance(data, Lines):
        yield from (Line("\t".join(map(clean, line.split("\t"))).rstrip()) for line in data)
    elif isinstance(data, str):
        yield from (Line(line) for line in wrap(clean(data), width))
    elif isinstance(data, Sequence) and _is_rows(data):
        yield from _rows(data, width)
    elif isinstance(data, Mapping):
        yield from _mapping(data, width)
    elif isinstance(data, Sequence):
        yield from (Line(line) for v in data for line in wrap(_text(v), width))
        if not data:
            yield Line("nothing")
    else:
        yield from (Line(line) for line in wrap(_text(data), width))


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken between words; a longer word has a line of its own."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and _cells(line) + 1 + _cells(word) > width:
            lines.append(line.rstrip())
            line = word
        else:
            line = f"{line} {word}" if line or lines else word
    return [*lines, line.rstrip()]


def _cells(text: str) -> int:
    """Columns that a text takes on a screen: two for a Chinese character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _is_rows(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(r, Mapping) for r in value)
    )


def _mapping(data: Mapping[str, Any], width: int) -> Iterator[Line]:
    apart = {name: value for name, value in data.items() if _is_rows(value) or isinstance(value, Lines)}
    yield from _pairs([(str(n), _text(v, str(n))) for n, v in data.items() if n not in apart], width)
    for i, (name, value) in enumerate(apart.items()):
        if i or len(apart) < len(data):
            yield Line("")
        yield from render(value, width, str(name))


def _pairs(pairs: Iterable[tuple[str, str]], width: int) -> Iterator[Line]:
    """Lines of name and value, values below each other."""
    shown = [(clean(name), text) for name, text in pairs]
    indent = max((_cells(name) for name, _ in shown), default=0) + len(_GAP)
    for name, text in shown:
        first, *more = wrap(text, max(20, width - indent))
        yield Line(f"{_padded(name, indent)}{first}".rstrip())
        yield from (Line(" " * indent + line) for line in more)


def _rows(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[Line]:
    names = list(dict.fromkeys(n for row in rows for n in row))
    if isinstance(rows, Verbatim):
        cells = [[_verbatim(row.get(n)) for n in names] for row in rows]
    else:
        names = [n for n in names if any(row.get(n) is not None for row in rows)]
        cells = [[_text(row.get(n), n) for n in names] for row in rows]
    if widths := _widths([clean(n) for n in names], cells, width):
        yield from _table(rows, names, cells, widths)
        return
    for i, row in enumerate(cells):
        if i:
            yield Line("")
        yield from _pairs([(n, text) for n, text in zip(names, row, strict=True) if text != "-"], width)


def _table(
    rows: Sequence[Mapping[str, Any]], names: list[str], cells: list[list[str]], widths: list[int]
) -> Iterator[Line]:
    right = [_is_numeric([row[n] for row in rows if row.get(n) is not None]) for n in names]
    yield Line(_joined([clean(n) for n in names], widths, right), strong=True)
    for row in cells:
        parts = [wrap(text, w) for text, w in zip(row, widths, strict=True)]
        for i in range(max(map(len, parts))):
            yield Line(_joined([p[i] if i < len(p) else "" for p in parts], widths, right))


def _joined(texts: list[str], widths: list[int], right: list[bool]) -> str:
    return _GAP.join(map(_padded, texts, widths, right)).rstrip()


def _padded(text: str, width: int, right: bool = False) -> str:
    space = " " * (width - _cells(text))
    return space + text if right else text + space


def _is_numeric(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in values)


def _widths(names: list[str], cells: list[list[str]], width: int) -> list[int] | None:
    """Columns for each name; None where the rows don't fit as a table."""
    room = width - len(_GAP) * (len(names) - 1)
    columns = [[name, *texts] for name, texts in zip(names, zip(*cells, strict=True), strict=True)]
    natural = [max(map(_cells, column)) for column in columns]
    if sum(natural) <= room:
        return natural
    least = [max(_cells(word) for text in column for word in text.split(" ")) for column in columns]
    if sum(least) > room:
        return None
    cap = min(max(natural), room)  # the widest columns give way first
    while sum(found := [max(low, min(n, cap)) for low, n in zip(least, natural, strict=True)]) > room:
        cap -= 1
    for column, w in zip(columns, found, strict=True):
        if w < _ROOMY and max(len(wrap(text, w)) for text in column) > _MOST_LINES:
            return None
    return found


def _verbatim(value: Any) -> str:
    return "NULL" if value is None else clean(_plain(value))


def _text(value: Any, name: str = "") -> str:
    """One value on one line, by its type and its name."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | Decimal):
        return _figure(value, name)
    if isinstance(value, Mapping):
        return ", ".join(f"{clean(str(k))}={_text(v, str(k))}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple | set | frozenset):
        return ("; " if _is_rows(value) else ", ").join(map(_text, value)) or "none"
    if isinstance(value, datetime):
        return when(value)
    return "-" if value is None else clean(_plain(value))


def _figure(value: float | Decimal, name: str) -> str:
    if name == "seconds" or (name.endswith(("_s", "_seconds")) and not name.endswith("per_s")):
        return duration(float(value))
    return count(value) if name in _COUNTS else number(value)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date):  # and datetime
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
