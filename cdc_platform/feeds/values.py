"""Rows of the demo's shop: plausible ones by chance, and the extremes of every column type."""

import json
import math
import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Row = dict[str, Any]

_NAMES = ("Ada", "Zoë", "李雷", "韩梅梅", "O'Brien", "Ana 😀", "", "Ünal", "back\\slash", "👩‍👩‍👧 family")
_CITIES = ("北京", "上海", "深圳", "Paris", "")
_NOTES = (
    "",
    "call first",
    "line one\nline two\ttab",
    'say "hi"',
    "NULL",
    "\\N",
    "trailing space ",
    "naïve 🍕",
    "\u2028",
)
_INTERESTS = ("music", "sport", "food")
_WORDS = ("parcel", "écran", "快递", "🚚", "zone", "0123456789", "a\nb", "\\", '"')


def utc(ms: int, fsp: int) -> datetime:
    """Milliseconds since epoch → aware UTC datetime with `fsp` (0 or 3) digits of fraction."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms if fsp else ms // 1000 * 1000)


def day_text(value: date) -> str:
    """YYYY-MM-DD."""
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"


def moment_text(value: datetime, fsp: int) -> str:
    """YYYY-MM-DD HH:MM:SS, with so many digits of a second."""
    clock = f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}"
    return f"{day_text(value)} {clock}{_fraction(value.microsecond, fsp)}"


def clock_text(value: timedelta, fsp: int) -> str:
    """[-]HH:MM:SS, with so many digits of a second."""
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 10**6)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(micros, fsp)}"
    return f"-{clock}" if value < timedelta(0) else clock


def _fraction(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def float32(x: float) -> float:
    """The nearest 32-bit float, which is what a FLOAT column holds; infinite beyond the largest."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def float32_text(x: float) -> str:
    """The fewest digits that name this 32-bit float: 5.1, not 5.099999904632568."""
    return next(t for t in (f"{x:.{digits}g}" for digits in range(1, 10)) if float32(float(t)) == x)


_JAVA_SMALLEST = {"5e-324": "4.9E-324", "1e-45": "1.4E-45"}
"""Java takes the nearest text of at least two digits, where others take one digit."""


def java_number(text: str) -> str:
    """A float's shortest text → Java's (Double.toString): 5.0, 1.0E20."""
    size = text.removeprefix("-")
    if size in _JAVA_SMALLEST:
        return f"{text.removesuffix(size)}{_JAVA_SMALLEST[size]}"
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    power = len(figures) + exponent - 1  # of the first digit
    if figures == "0" or -3 <= power < 7:
        plain = f"{abs(Decimal(text).normalize()):f}"
        body = plain if "." in plain else f"{plain}.0"
    else:
        body = f"{figures[0]}.{figures[1:] or '0'}E{power}"
    return f"{'-' * sign}{body}"


def big_text(size: int) -> str:
    """A text of at least `size` UTF-8 bytes, barely more, with characters of 1 to 4 bytes."""
    rng, parts, done = random.Random(1), [], 0  # noqa: S311
    while done < size:
        parts.append(rng.choice(_WORDS) + str(rng.randrange(10**6)))
        done += len(parts[-1].encode())
    return "".join(parts)


def _decimal(unscaled: int, scale: int) -> Decimal:
    # Not scaleb: it rounds to the context's 28 digits.
    sign, digits = int(unscaled < 0), tuple(int(d) for d in str(abs(unscaled)))
    return Decimal((sign, digits, -scale))


def _maybe(rng: random.Random, value: Any) -> Any:
    return None if rng.random() < 0.15 else value


def customer(rng: random.Random, now_ms: int) -> Row:
    """A row of shop.customers; half of the ids lie beyond 2^63."""
    born = date(1930, 1, 1) + timedelta(days=rng.randrange(30_000))
    profile = {"n": rng.randrange(-(2**53), 2**53), "t": rng.choice(_NAMES), "a": [1, None, True, {"x": 0.5}]}
    return {
        "id": rng.randrange(2**63, 2**64) if rng.random() < 0.5 else rng.randrange(1, 10**12),
        "email": f"u{rng.randrange(10**9)}@example.org",
        "name": _maybe(rng, rng.choice(_NAMES)),
        "city": _maybe(rng, rng.choice(_CITIES)),
        "vip": rng.choice((0, 1, 1, -128, 127)),
        "visits": _maybe(rng, rng.choice((0, rng.randrange(1000), 2**32 - 1))),
        "birthday": _maybe(rng, born),
        "birth_year": _maybe(rng, rng.randrange(1901, 2156)),
        "joined": utc(now_ms - rng.randrange(10**11), 3),
        "score": _maybe(rng, float32(rng.uniform(-1000, 1000))),
        "rating": _maybe(rng, rng.uniform(-1, 1) * 10 ** rng.randrange(-20, 20)),
        "flags": _maybe(rng, rng.randrange(256)),
        "active": _maybe(rng, rng.random() < 0.5),
        "level": _maybe(rng, rng.choice(("new", "regular", "it's gold"))),
        # MySQL keeps a SET's labels in the order of their definition.
        "interests": _maybe(rng, ",".join(x for x in _INTERESTS if rng.random() < 0.5)),
        "profile": _maybe(rng, json.dumps(profile, ensure_ascii=False)),
        "avatar": _maybe(rng, rng.randbytes(rng.randrange(40))),
    }


def order(rng: random.Random, now_ms: int, order_id: int, customer_id: int) -> Row:
    """A row of shop.orders without its amount, which the caller's next statement sets."""
    placed = utc(now_ms, 3).replace(tzinfo=None) + timedelta(microseconds=rng.randrange(1000))
    transit = timedelta(milliseconds=rng.randrange(-(838 * 3_600_000), 838 * 3_600_000))
    return {
        "id": order_id,
        "customer_id": customer_id,
        "status": "open",
        "amount": Decimal("0.00"),
        "rate": _maybe(rng, _decimal(rng.randrange(-(10**38) + 1, 10**38), 18)),
        "placed": placed,
        "packed": _maybe(rng, placed.replace(microsecond=0) + timedelta(hours=rng.randrange(50))),
        "changed": _maybe(rng, utc(now_ms, 0)),
        "due": _maybe(rng, placed.date() + timedelta(days=rng.randrange(30))),
        "transit": _maybe(rng, transit),
        "note": _maybe(rng, rng.choice(_NOTES)),
    }


def item(rng: random.Random, order_id: int, line_no: int) -> Row:
    """A row of shop.items; some prices are negative (discounts)."""
    return {
        "order_id": order_id,
        "line_no": line_no,
        "sku": f"SKU-{rng.randrange(10**6):06d}",
        "qty": rng.choice((0, 1, 2, 3, 65535)),
        "price": _decimal(rng.randrange(-100_000, 1_000_000), 2),
        "weight": _maybe(rng, rng.choice((0.1, 5.0, 1e20, rng.random()))),
        "gift": _maybe(rng, rng.choice((0, 1))),
        "remark": _maybe(rng, rng.choice(_NOTES)),
    }


def extreme_customers() -> list[Row]:
    """The largest and the smallest of every column, all NULLs, and a blob with all 256 byte values."""
    top = {
        "id": 2**64 - 1,
        "email": "😀@example.org",
        "name": "𝕏\x00é\r\n",
        "city": "深圳",
        "vip": 127,
        "visits": 2**32 - 1,
        "birthday": date(9999, 12, 31),
        "birth_year": 2155,
        "joined": datetime(2038, 1, 19, 3, 14, 7, 999_000, UTC),
        "score": 3.4028234663852886e38,
        "rating": 1.7976931348623157e308,
        "flags": 255,
        "active": True,
        "level": "it's gold",
        "interests": "music,sport,food",
        "profile": '{"n": 12345678901234567890.10, "é": ["😀", "\\u0000"]}',
        "avatar": bytes(range(256)),
    }
    low = {
        "id": 0,
        "email": "",
        "name": "",
        "city": "",
        "vip": -128,
        "visits": 0,
        "birthday": date(1000, 1, 1),
        "birth_year": 1901,
        "joined": datetime(1970, 1, 1, 0, 0, 1, 0, UTC),
        "score": 1.1754943508222875e-38,
        "rating": -2.2250738585072014e-308,
        "flags": 0,
        "active": False,
        "level": "new",
        "interests": "",
        "profile": "[]",
        "avatar": b"",
    }
    must = ("id", "email", "vip", "joined")
    nulls = {name: low[name] if name in must else None for name in low}
    return [top, low, {**nulls, "id": 2**63}]


def extreme_orders() -> list[Row]:
    """Extremes of DECIMAL, DATETIME, TIMESTAMP and TIME; their ids never collide with the shop's own."""
    end = timedelta(hours=838, minutes=59, seconds=59)
    top = {
        "id": 2**63 - 1,
        "customer_id": 2**64 - 1,
        "status": "paid",
        "amount": Decimal("9999999999.99"),
        "rate": Decimal("99999999999999999999.999999999999999999"),
        "placed": datetime(9999, 12, 31, 23, 59, 59, 999_999),
        "packed": datetime(9999, 12, 31, 23, 59, 59),
        "changed": datetime(2038, 1, 19, 3, 14, 7, 0, UTC),
        "due": date(9999, 12, 31),
        "transit": end,
        "note": "\x00\ufeff end",
    }
    low = {
        "id": -(2**63),
        "customer_id": 0,
        "status": "lost",
        "amount": Decimal("-9999999999.99"),
        "rate": Decimal("-0.000000000000000001"),
        "placed": datetime(1000, 1, 1),
        "packed": datetime(1000, 1, 1),
        "changed": datetime(1970, 1, 1, 0, 0, 1, 0, UTC),
        "due": date(1000, 1, 1),
        "transit": -end,
        "note": "",
    }
    small = {
        **low,
        "id": 0,
        "amount": Decimal("-0.01"),
        "rate": Decimal("0.000000000000000000"),
        "transit": timedelta(milliseconds=-1),
        "placed": datetime(1969, 12, 31, 23, 59, 59, 999_999),
    }
    return [top, low, small]
