"""Numbers, times and durations as people write them: `12 records`, `3 min 5 s`, `2026-11-25 20:12:31Z`."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SHOWN = 200
"""Characters of a value that people see."""
DECEIVING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 controls (terminal commands), separators of lines, bidirectional overrides (they show another text), lone
surrogates: what no text that people see has as it is."""


def duration(seconds: float) -> str:
    """0.25 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 10:
        return f"{number(round(seconds, 2 if seconds < 1 else 1))} s"
    whole = round(seconds)
    for unit, name, smaller, below in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def number(value: float | Decimal) -> str:
    """A number without needless digits: 4.0 is 4, 0.30000001 is 0.3; an integer and a decimal keep all of theirs."""
    if not isinstance(value, float):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) >= 0.01 else f"{value:.2g}"


def count(value: float | Decimal, unit: str = "") -> str:
    """A count with its digits grouped, and its unit in the right number: `1 record`, `12,000 records`."""
    told = f"{int(value):,}" if value == int(value) else f"{value:,.1f}"
    return f"{told} {unit}{'' if value == 1 else 's'}" if unit else told


def when(at: datetime) -> str:
    """A time to the second, in UTC: `2026-11-25 20:12:31Z`; one without a zone as it is."""
    if at.tzinfo is None:
        return f"{at:%Y-%m-%d %H:%M:%S}"
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def age(at: datetime, now: datetime | None = None) -> str:
    """How long ago a time was: `3 min 5 s`."""
    return duration(max(0.0, ((now or datetime.now(UTC)) - at).total_seconds()))


def quoted_value(value: str | None) -> str:
    """NULL, or the text in quotes: the empty text and a text NULL must show. A long one is cut, and says so."""
    if value is None:
        return "NULL"
    text = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}… ({len(value)} characters)"
    return json.dumps(text, ensure_ascii=False)
