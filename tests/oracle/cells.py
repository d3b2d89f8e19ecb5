"""Random and extreme values of every MySQL type, as SQL parameters."""

import json
import random
import string
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from cdc_platform.feeds.compare import time_text
from cdc_platform.feeds.shop import Column

_ZERO = {"date": "0000-00-00", **dict.fromkeys(("datetime", "timestamp"), "0000-00-00 00:00:00")}
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_WORDS = (
    *(
        "",
        " ",
        "a",
        "NULL",
        "null",
        "\\N",
        "O'Brien",
        'say "hi"',
        "back\\slash",
        "100%",
        "a,b",
        "x\ty\r\nz",
        "\x00nul\x00",
    ),
    *("naïve", "##isnull##", "0", "-1", "1e5", "{}", "`tick`", "trailing\\", "'quoted'", "%s %(x)s", "\u00a0", "ÿ"),
)
_WIDE = ("北京", "快递🚚", "👩‍👩‍👧", "𝕏", "\u2028", "\ufeff", "zé", "\U0010ffff", "ß", "ﬁ")
_DOUBLES = (
    0.0,
    1.0,
    -1.0,
    0.1,
    1e20,
    1e-7,
    5e-324,
    -1.7976931348623157e308,
    1.7976931348623157e308,
    123456789.125,
    2.0**53,
)
_FLOATS = ("0", "1", "-1.5", "3.4028234e38", "-3.4028234e38", "1.17549435e-38", "0.1", "16777216", "1e10", "123456.7")
_SHAPES = {
    "point": ("POINT(1 2)", "POINT(-179.999999 89.5)", "POINT(0 0)", "POINT(1e10 -1e-10)"),
    "linestring": ("LINESTRING(0 0,1 1,2 2.5)",),
    "polygon": ("POLYGON((0 0,10 0,10 10,0 10,0 0),(5 5,7 5,7 7,5 7,5 5))",),
    "multipoint": ("MULTIPOINT(0 0,20 20,60 60)",),
    "geometrycollection": ("GEOMETRYCOLLECTION(POINT(10 10),LINESTRING(15 15,20 20))",),
}
_JSON: tuple[Any, ...] = (
    None, True, 0, -1.5, "text", [], {}, [1, "2", None, {"a": [False]}], {"ключ": "значение", "": 0},
    {"n": 12345678901234567890, "quote": "it's \"q\" \\ /", "emoji": "🍕", "nl": "a\nb"},
)  # fmt: skip


def cell(rng: random.Random, column: Column) -> Any:
    """A value that the column takes; None now and then where it may be NULL."""
    if column.nullable and rng.random() < 0.15:
        return None
    if column.base in _ZERO and not column.key and rng.random() < 0.04:
        return _ZERO[column.base]
    return _KINDS[column.base](rng, column)


def _args(column: Column) -> list[int]:
    inner = column.type.partition("(")[2].partition(")")[0]
    return [int(x) for x in inner.split(",")] if inner else []


def _integer(rng: random.Random, column: Column) -> int:
    bits = _BITS[column.base]
    low, high = (0, 2**bits - 1) if "unsigned" in column.type else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice((low, high, 0, 1, high // 2 + 1, rng.randint(low, high), rng.randint(0, 99)))


def _decimal(rng: random.Random, column: Column) -> Decimal:
    precision, scale = _args(column)
    top = 10**precision - 1
    unscaled = rng.choice((0, 1, -1, top, -top, rng.randint(-top, top), 10**scale, -(10**scale)))
    if "unsigned" in column.type:
        unscaled = abs(unscaled)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _double(rng: random.Random, column: Column) -> str:
    return repr(rng.choice((*_DOUBLES, rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300))))


def _float(rng: random.Random, column: Column) -> str:
    if _args(column):
        return f"{rng.uniform(-999, 999):.3f}"
    return rng.choice((*_FLOATS, f"{rng.uniform(-1e6, 1e6):.3f}"))


def _fraction(rng: random.Random, fsp: int) -> int:
    return rng.choice((0, 10**6 - 10 ** (6 - fsp), rng.randrange(10**fsp) * 10 ** (6 - fsp))) if fsp else 0


def _date(rng: random.Random, column: Column) -> str:
    some = date(1900, 1, 1) + timedelta(days=rng.randrange(80_000))
    return rng.choice(("0001-01-01", "9999-12-31", "1582-10-10", "1969-12-31", "2024-02-29", str(some)))


def _datetime(rng: random.Random, column: Column) -> str:
    clock = rng.choice(("00:00:00", "23:59:59", f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:01"))
    return f"{_date(rng, column)} {clock}.{_fraction(rng, column.fsp):06d}"


def _timestamp(rng: random.Random, column: Column) -> str:
    seconds = rng.choice((1, 2**31 - 1, rng.randrange(1, 2**31)))
    moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{_fraction(rng, column.fsp):06d}"


def _time(rng: random.Random, column: Column) -> str:
    end = 838 * 3600 + 59 * 60 + 59
    whole = rng.choice((0, end, -end, 1, -1, 86_400, rng.randint(-end, end)))
    micros = _fraction(rng, column.fsp) if abs(whole) < end else 0
    return time_text(timedelta(seconds=whole, microseconds=micros if whole >= 0 else -micros))


def _length(column: Column) -> int:
    limits = {"tinytext": 60, "tinyblob": 255}
    return limits.get(column.base) or (_args(column) or [400])[0]


def _text(rng: random.Random, column: Column) -> str:
    kinds: list[Callable[[], str]] = [
        lambda: rng.choice(_WORDS),
        lambda: "".join(rng.choices(string.printable, k=rng.randrange(30))),
    ]
    if column.charset == "utf8mb4":
        kinds.append(lambda: rng.choice(_WIDE) + rng.choice(_WORDS))
    elif column.charset == "gbk":
        kinds.append(lambda: rng.choice(("北京", "深圳快递", "中文,逗号")))
    elif column.charset == "latin1":
        kinds.append(lambda: rng.choice(("café", "€uro", "ÄÖÜß", "ÿþ", "œuvre")))
    text = rng.choice(kinds)()[: _length(column)]
    if column.key and text == "##isnull##":  # TDSQL's NULL, which no key is
        text = "#"
    encoding = {"latin1": "cp1252", "gbk": "gbk"}.get(column.charset or "", "utf-8")
    text = text.encode(encoding, "ignore").decode(encoding)
    # A CHAR loses blanks at its end on its way in; its reader can't see them.
    return text.rstrip(" ") if column.base == "char" else text


def _bytes(rng: random.Random, column: Column) -> bytes:
    some = rng.choice(
        (b"", bytes(range(256)), bytes(3), b"\x00\xff\n'\\\"", rng.randbytes(rng.randrange(40)), b"abc\x00\x00")
    )
    return some[: _length(column)]


class Shape(str):
    """Well-known text of a geometry, and its SRID behind a semicolon."""


def _geometry(rng: random.Random, column: Column) -> Shape:
    shapes = _SHAPES.get(column.base) or sum(_SHAPES.values(), ())
    return Shape(f"{rng.choice(shapes)};{rng.choice((0, 4326))}")


def _json(rng: random.Random, column: Column) -> str:
    value = rng.choice(_JSON)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=rng.choice(((",", ":"), (", ", ": "))))


_KINDS: dict[str, Callable[[random.Random, Column], Any]] = {
    **dict.fromkeys(_BITS, _integer),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _text),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
    **dict.fromkeys(("geometry", *_SHAPES), _geometry),
    "decimal": _decimal,
    "double": _double,
    "float": _float,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "year": lambda rng, _: rng.choice((0, 1901, 2155, rng.randint(1901, 2155))),
    "bit": lambda rng, c: rng.choice((0, 1, 2 ** _args(c)[0] - 1, rng.randrange(2 ** _args(c)[0]))),
    "enum": lambda rng, c: rng.choice(c.labels),
    "set": lambda rng, c: ",".join(x for x in c.labels if rng.random() < 0.5),
    "json": _json,
}


def placeholder(value: Any) -> str:
    """The expression that brings a parameter in."""
    return "ST_GeomFromText(%s, %s)" if isinstance(value, Shape) else "%s"


def parameters(values: list[Any]) -> list[Any]:
    """What `placeholder`s of these values take."""
    out: list[Any] = []
    for value in values:
        out += value.split(";") if isinstance(value, Shape) else [value]
    return out
