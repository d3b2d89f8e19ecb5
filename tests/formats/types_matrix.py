"""Every MySQL type with its limits: what the source holds, its canonical text, and what the snapshot must hold.

Written by hand, or by Python's own types, from MySQL's manual ("Data Types", "Data Type Storage Requirements"), not by
the platform's code. `source` is a value as the demo's encoders take it; a date that doesn't exist is a text.
"""

import base64
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from cdc_platform.feeds.compare import with_digits
from cdc_platform.feeds.shop import Connect


class Value(NamedTuple):
    """`text`: canonical; `held`: in the snapshot's column, as Python's type for it."""

    source: Any
    text: str
    held: Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A MySQL type as `SHOW COLUMNS` prints it, the snapshot's type for it, how DTS and Debezium declare it. The first
    of its values is the example of docs/types.md."""

    type: str
    spark: str
    dts: str
    connect: Connect
    values: tuple[Value, ...]
    charset: str | None = None
    fsp: int = 0

    @property
    def base(self) -> str:
        return self.type.partition("(")[0]

    @property
    def name(self) -> str:
        """The type, with the charset where it isn't utf8mb4."""
        return self.type if self.charset in (None, "utf8mb4") else f"{self.type} charset {self.charset}"


def _kind(type_: str, spark: str, dts: str, connect: Connect | str, values: Iterable[Value], **more: Any) -> Kind:
    connect = Connect(connect) if isinstance(connect, str) else connect
    return Kind(type_, spark, dts, connect, tuple(values), **more)


def _ints(*numbers: int, hold: Callable[[int], Any] = int) -> list[Value]:
    return [Value(n, str(n), hold(n)) for n in numbers]


def _bits(width: int) -> Connect:
    return Connect("bytes", "io.debezium.data.Bits", {"length": str(width)})


def _decimal(precision: int, scale: int) -> Connect:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return Connect("bytes", "org.apache.kafka.connect.data.Decimal", parameters)


def _decimals(*texts: str, hold: Callable[[str], Any] = Decimal) -> list[Value]:
    return [Value(Decimal(t), t, hold(t)) for t in texts]


def _single(bits: int) -> float:
    return struct.unpack(">f", bits.to_bytes(4, "big"))[0]


def _bytes(*values: bytes) -> list[Value]:
    return [Value(v, base64.b64encode(v).decode(), v) for v in values]


def _texts(*values: str) -> list[Value]:
    return [Value(v, v, v) for v in values]


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _datetimes(fsp: int, *texts: str, mark: str = "") -> list[Value]:
    """`2026-11-20 01:02:03.120000` → Value; canonical text has no zeros at the end of the fraction, and `mark`."""
    zone = UTC if mark else None
    found = [(datetime.fromisoformat(t).replace(tzinfo=zone), _trim(t) + mark) for t in texts]
    assert all(v.microsecond % 10 ** (6 - fsp) == 0 for v, _ in found)
    return [Value(v, text, v) for v, text in found]


def _times(fsp: int, *texts: str) -> list[Value]:
    """A snapshot shows them with all digits of their column."""

    def read(text: str) -> timedelta:
        hours, minutes, seconds = text.removeprefix("-").split(":")
        value = timedelta(hours=int(hours), minutes=int(minutes)) + timedelta(
            microseconds=int(Decimal(seconds) * 10**6)
        )
        return -value if text[0] == "-" else value

    return [Value(read(t), _trim(t), with_digits(_trim(t), fsp)) for t in texts]


def _invalid(*texts: str) -> list[Value]:
    return [Value(t, t, None) for t in texts]


def _stamps(fsp: int) -> Kind:
    digits = "." + "999999"[:fsp] if fsp else ""
    zeros = "." + "0" * fsp if fsp else ""
    texts = [
        "2038-01-19 03:14:07" + digits,
        "1970-01-01 00:00:01",
        "2026-11-20 01:02:03" + ("." + "5" * fsp) * bool(fsp),
    ]
    name = f"timestamp({fsp})" if fsp else "timestamp"
    connect = Connect("string", "io.debezium.time.ZonedTimestamp")
    zero = Value("0000-00-00 00:00:00" + zeros, "0000-00-00 00:00:00", None)
    return _kind(name, "timestamp", "STRING", connect, [*_datetimes(fsp, *texts, mark="Z"), zero], fsp=fsp)


def _moments(fsp: int) -> Kind:
    digits = "." + "999999"[:fsp] if fsp else ""
    some = "." + "123456"[:fsp] if fsp else ""
    texts = ["9999-12-31 23:59:59" + digits, "0001-01-01 00:00:00", "1969-12-31 23:59:59" + some, "1582-10-10 12:00:00"]
    name = f"datetime({fsp})" if fsp else "datetime"
    connect = Connect("int64", f"io.debezium.time.{'MicroTimestamp' if fsp > 3 else 'Timestamp'}")
    invalid = _invalid("0000-00-00 00:00:00", "2026-02-30 10:00:00")
    return _kind(name, "timestamp_ntz", "STRING", connect, [*_datetimes(fsp, *texts), *invalid], fsp=fsp)


def _clocks(fsp: int) -> Kind:
    digits = "." + "999999"[:fsp] if fsp else ""
    least = "." + "1".rjust(fsp, "0") if fsp else ""
    texts = ["-838:59:59" + digits, "838:59:59" + digits, "00:00:00", "-00:00:00" + least, "24:00:01" + least]
    texts = [t for t in texts if t != "-00:00:00"]
    name = f"time({fsp})" if fsp else "time"
    return _kind(name, "string", "STRING", Connect("int64", "io.debezium.time.MicroTime"), _times(fsp, *texts), fsp=fsp)


def _varchar(charset: str, *values: str) -> Kind:
    return _kind("varchar(40)", "string", "STRING", "string", _texts(*values), charset=charset)


def _named(type_: str, labels: str, kind: str, *values: str) -> Kind:
    connect = Connect("string", f"io.debezium.data.{kind}", {"allowed": labels})
    return _kind(type_, "string", "STRING", connect, _texts(*values), charset="utf8mb4")


_ALL_BYTES = bytes(range(256))
_POINT = struct.pack("<IBIdd", 4326, 1, 1, 1.5, -2.25)
_POLYGON = struct.pack("<IBIII8d", 0, 1, 3, 1, 4, 0, 0, 4, 0, 4, 4, 0, 0)
_GEOMETRY = Connect("struct", "io.debezium.data.geometry.Geometry")
_ODD_TEXT = (
    "",
    "NULL",
    "null",
    "\\N",
    "it's",
    "'quoted'",
    '"',
    "a\\nb\\",
    "line\r\nnext\ttab",
    "\x00\x7f\u2028",
    " x ",
)
_PI = "3." + "1" * 29 + "7"

KINDS: tuple[Kind, ...] = (
    _kind("tinyint(4)", "tinyint", "INT8", "int16", _ints(-128, 127, 0)),
    _kind("tinyint(1)", "tinyint", "INT8", "int16", _ints(127, -128, 0, 1)),
    _kind("tinyint(3) unsigned", "smallint", "UINT8", "int16", _ints(255, 128, 127, 0)),
    _kind("smallint(6)", "smallint", "INT16", "int16", _ints(-(2**15), 2**15 - 1)),
    _kind("smallint(5) unsigned", "int", "UINT16", "int32", _ints(2**16 - 1, 2**15, 0)),
    _kind("mediumint(9)", "int", "INT32", "int32", _ints(-(2**23), 2**23 - 1)),
    _kind("mediumint(8) unsigned", "int", "UINT32", "int32", _ints(2**24 - 1, 2**23, 0)),
    _kind("int(11)", "int", "INT32", "int32", _ints(-(2**31), 2**31 - 1, -1)),
    _kind("int(10) unsigned", "bigint", "UINT32", "int64", _ints(2**32 - 1, 2**31, 0)),
    _kind("bigint(20)", "bigint", "INT64", "int64", _ints(-(2**63), 2**63 - 1, 2**53 + 1)),
    _kind("bigint(20) unsigned", "decimal(20,0)", "UINT64", _decimal(20, 0), _ints(2**64 - 1, 2**63, 0, hold=Decimal)),
    _kind("decimal(5,2)", "decimal(5,2)", "DECIMAL", _decimal(5, 2), _decimals("-0.01", "999.99", "-2.00", "0.00")),
    _kind(
        "decimal(38,0)", "decimal(38,0)", "DECIMAL", _decimal(38, 0), _decimals("1" * 38, "-" + "9" * 38, "9" * 38, "0")
    ),
    _kind(
        "decimal(38,30)",
        "decimal(38,30)",
        "DECIMAL",
        _decimal(38, 30),
        _decimals("0." + "0" * 29 + "1", "-" + "9" * 8 + "." + "9" * 30, "99999999." + "9" * 30),
    ),
    _kind(
        "decimal(39,1)",
        "string",
        "DECIMAL",
        _decimal(39, 1),
        _decimals("9" * 38 + ".9", "-" + "9" * 38 + ".9", hold=str),
    ),
    _kind(
        "decimal(65,30)",
        "string",
        "DECIMAL",
        _decimal(65, 30),
        _decimals(_PI, "-" + "9" * 35 + "." + "9" * 30, "9" * 35 + "." + "9" * 30, "0." + "0" * 30, hold=str),
    ),
    _kind(
        "float",
        "float",
        "FLOAT32",
        "float",
        [
            Value(_single(0x7F7FFFFF), "3.4028235e+38", _single(0x7F7FFFFF)),
            Value(_single(0xFF7FFFFF), "-3.4028235e+38", _single(0xFF7FFFFF)),
            Value(_single(0x00800000), "1.1754944e-38", _single(0x00800000)),
            Value(_single(1), "1e-45", _single(1)),
            Value(-0.0, "-0.0", -0.0),
            Value(_single(0x40A33333), "5.1", _single(0x40A33333)),
            Value(16777216.0, "16777216.0", 16777216.0),
        ],
    ),
    _kind(
        "double",
        "double",
        "FLOAT64",
        "double",
        [
            Value(v, repr(v), v)
            for v in (1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, 5e-324)
        ]
        + [Value(v, repr(v), v) for v in (-5e-324, -0.0, 0.0, 0.1, 1e20, 123456789.0, 1e-5)],
    ),
    _kind("bit(1)", "boolean", "INT64", "boolean", _ints(1, 0, hold=bool)),
    *(
        _kind(f"bit({n})", "decimal(20,0)", "INT64", _bits(n), _ints(2**n - 1, 2 ** (n - 1), 1, 0, hold=Decimal))
        for n in range(2, 65)
    ),
    _kind(
        "date",
        "date",
        "STRING",
        Connect("int32", "io.debezium.time.Date"),
        [
            Value(v, v.isoformat(), v)
            for v in map(
                date.fromisoformat,
                ("9999-12-31", "0001-01-01", "1000-01-01", "1582-10-10", "1969-12-31", "2024-02-29"),
            )
        ]
        + _invalid("0000-00-00", "2026-02-30", "2026-00-10"),
    ),
    *map(_moments, range(7)),
    *map(_stamps, range(7)),
    *map(_clocks, range(7)),
    _kind(
        "year(4)",
        "smallint",
        "INT64",
        Connect("int32", "io.debezium.time.Year"),
        [Value(2155, "2155", 2155), Value(1901, "1901", 1901), Value(0, "0000", 0)],
    ),
    _varchar("utf8mb4", "naïve 李雷 👩‍👩‍👧", *_ODD_TEXT),
    _varchar("gbk", "李雷 《》", "", "é", "丂狛"),
    _varchar("latin1", "naïve €", "", "ÿ ¿ Œ"),
    _kind("char(10)", "string", "STRING", "string", _texts("x", "", "é 漢 😀"), charset="utf8mb4"),
    *(
        _kind(name, "string", "STRING", "string", _texts("text 漢 😀", "", "'"), charset="utf8mb4")
        for name in ("tinytext", "text", "mediumtext", "longtext")
    ),
    _kind("binary(4)", "binary", "BYTES", "bytes", _bytes(b"\x01\x02\0\0", b"\xff\xfe\xfd\xfc", bytes(4))),
    _kind("binary(255)", "binary", "BYTES", "bytes", _bytes(_ALL_BYTES[1:], _ALL_BYTES[:255], _ALL_BYTES[:0:-1])),
    _kind("varbinary(300)", "binary", "BYTES", "bytes", _bytes(b"\x01\0\xff\0", _ALL_BYTES, b"", bytes(3))),
    *(
        _kind(name, "binary", "BYTES", "bytes", _bytes(b"\0\x80'\xff", _ALL_BYTES[1:], b"", b"ascii \\ only"))
        for name in ("tinyblob", "blob", "mediumblob", "longblob")
    ),
    _named("enum('a,b','it''s','c','say \"x\"')", 'a,b,it\'s,c,say "x"', "Enum", "a,b", "it's", "c", 'say "x"', ""),
    _named("set('it''s','b','say \"x\"')", 'it\'s,b,say "x"', "EnumSet", "it's,b", "", 'it\'s,b,say "x"', 'say "x"'),
    _named(
        "set(" + ",".join(f"'s{i}'" for i in range(64)) + ")",
        ",".join(f"s{i}" for i in range(64)),
        "EnumSet",
        "s0,s63",
        ",".join(f"s{i}" for i in range(64)),
        "",
    ),
    _kind(
        "json",
        "string",
        "BYTES",
        Connect("string", "io.debezium.data.Json"),
        _texts('{"a": [1.10, "漢"]}', "null", '""', '{"n": 12345678901234567890.10, "q": "it\'s \\"x\\" \\u0000"}'),
    ),
    _kind("geometry", "binary", "BYTES", _GEOMETRY, _bytes(_POLYGON, _POINT)),
    _kind("point", "binary", "BYTES", _GEOMETRY, _bytes(_POINT)),
    _kind("polygon", "binary", "BYTES", _GEOMETRY, _bytes(_POLYGON)),
)
