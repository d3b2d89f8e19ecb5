"""Rows as dtle's Kafka task sends them: incremental inserts, `{"schema":…,"payload":…}`, faults included.

Written from actiontech/dtle's `driver/kafka/kafka2.go` and vendored go-mysql, sharing nothing with the decoder: it is
its oracle. dtle types columns by a parser of its own, hence names and shapes that differ from Debezium's.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from tests.formats.types_matrix import Kind

_EPOCH = datetime(1970, 1, 1)
_TIME, _DATA, _CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decimal(value: Decimal, _kind: Kind) -> str:
    """The magnitude's bytes, negated for a negative value without a byte for the sign (DecimalValueFromStringMysql)."""
    sign, digits, _ = value.as_tuple()
    magnitude = int("".join(map(str, digits)))
    if not sign:
        return _b64(magnitude.to_bytes(magnitude.bit_length() // 8 + 1, "big"))
    size = (magnitude.bit_length() + 7) // 8
    return _b64((256**size - magnitude).to_bytes(size, "big"))


def _bits(value: int, kind: Kind) -> str:
    width = int(kind.type.partition("(")[2][:-1])
    return _b64(value.to_bytes((width + 7) // 8, "little"))


def _date(value: Any, _kind: Kind) -> int:
    return 0 if isinstance(value, str) else (value - date(1970, 1, 1)).days


def _datetime(value: Any, _kind: Kind) -> int:
    return 0 if isinstance(value, str) else (value - _EPOCH) // timedelta(milliseconds=1)


def _timestamp(value: Any, _kind: Kind) -> str:
    if isinstance(value, str):
        return "0001-01-01T00:00:00Z"
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def _time(value: timedelta, kind: Kind) -> int:
    """The digits after the dot are taken for whole microseconds (TimeValue)."""
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 10**6)
    written = seconds * 10**6 + (fraction // 10 ** (6 - kind.fsp) if kind.fsp else 0)
    return -written if value < timedelta(0) else written


class _Go(float):
    """A float that is written as Go's encoding/json writes it."""


def _number(value: float, single: bool) -> str:
    """encoding/json: exponents below 1e-6 and from 1e21 on, without a zero in them; no `.0`."""
    text = next(t for t in (f"{value:.{n}g}" for n in range(1, 18)) if _same(float(t), value, single))
    size = abs(value)
    if size and not 1e-6 <= size < 1e21:
        mantissa, _, exponent = f"{Decimal(text):e}".lower().partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent):+03d}".replace("e-0", "e-")
    return f"{Decimal(text):f}"


def _same(one: float, other: float, single: bool) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.float32(one) == np.float32(other)) if single else one == other


_Shape = tuple[str, str | None, Callable[[Any, Kind], Any]]
_WHOLE: _Shape = ("int32", None, lambda v, _: v)
_BYTES: _Shape = ("bytes", None, lambda v, _: _b64(v))
_PLAIN: _Shape = ("string", None, lambda v, _: v)
_IN_BASE64: _Shape = ("string", None, lambda v, _: _b64(v.encode()))
_BARE: _Shape = ("", None, lambda v, _: _b64(v))

_SHAPES: dict[str, _Shape] = {
    "tinyint": ("int16", None, lambda v, _: v),
    "smallint": ("int16", None, lambda v, _: v),
    "smallint unsigned": _WHOLE,
    "mediumint": _WHOLE,
    "int": _WHOLE,
    "int unsigned": ("int64", None, lambda v, _: v),
    "bigint": ("int64", None, lambda v, _: v),
    "bigint unsigned": ("int64", None, lambda v, _: v - 2**64 if v >> 63 else v),
    "float": ("float64", None, lambda v, _: _Go(v)),
    "double": ("float64", None, lambda v, _: _Go(v)),
    "decimal": ("bytes", _CONNECT + "Decimal", _decimal),
    "bit(1)": ("boolean", None, lambda v, _: bool(v)),
    "bit": ("bytes", _DATA + "Bits", _bits),
    "date": ("int32", _TIME + "Date", _date),
    "datetime": ("int64", _TIME + "Timestamp", _datetime),
    "timestamp": ("string", _TIME + "ZonedTimestamp", _timestamp),
    "time": ("int64", _TIME + "MicroTime", _time),
    "year": ("int32", _TIME + "Year", lambda v, _: v),
    "enum": ("string", _DATA + "Enum", lambda v, _: v),
    "set": ("string", _DATA + "EnumSet", lambda v, _: v),
    "json": ("string", _DATA + "Json", lambda v, _: _b64(v.encode())),
    **dict.fromkeys(("char", "varchar"), _PLAIN),
    # Incremental rows hold these as Go's []byte, which encoding/json writes as base64.
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), _IN_BASE64),
    "binary": ("bytes", None, lambda v, _: _b64(v.rstrip(b"\0"))),  # as in the binlog (actiontech/dtle#776)
    **dict.fromkeys(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("geometry", "point", "polygon"), _BARE),
}


def _shape(kind: Kind) -> _Shape:
    sign = " unsigned" if "unsigned" in kind.type else ""
    return _SHAPES.get(kind.type) or _SHAPES.get(kind.base + sign) or _SHAPES[kind.base]


def insert(table: str, number: int, kind: Kind, value: Any) -> tuple[bytes, bytes]:
    """Key and value of the insert of (`id`, `c`) into `types.<table>`; None is NULL."""
    type_, name, write = _shape(kind)
    parameters = {k: v for k, v in kind.connect.parameters.items() if name and name != _TIME + "Year"}
    column: dict[str, Any] = {"type": type_, "optional": True, "field": "c"}
    column |= {"name": name, "version": 1} if name else {}
    column |= {"parameters": parameters} if parameters else {}
    id_field = {"type": "int64", "optional": False, "field": "id"}
    images = [
        {"type": "struct", "optional": True, "field": f, "name": f"t.types.{table}.Value", "fields": [id_field, column]}
        for f in ("before", "after")
    ]
    schema = {
        "type": "struct",
        "optional": False,
        "version": 1,
        "name": f"t.types.{table}.Envelope",
        "fields": [*images, {"type": "string", "optional": False, "field": "op"}],
    }
    source = {
        "version": "0.0.1", "name": "t", "server_id": 1, "ts_sec": 1790000000, "gtid": f"{'3e11fa47'}:{number + 1}",
        "file": "mysql-bin.000001", "pos": 1000 + number, "row": 0, "snapshot": False, "thread": None, "db": "types",
        "table": table, "query": None,
    }  # fmt: skip
    after = {"id": number, "c": None if value is None else write(value, kind)}
    payload = {"before": None, "after": after, "source": source, "op": "c", "ts_ms": 1790000000000}
    key_schema = {"type": "struct", "optional": False, "name": f"t.types.{table}.Key", "fields": [id_field]}
    key = {"schema": key_schema, "payload": {"id": number}}
    return _dumps(key, kind), _dumps({"schema": schema, "payload": payload}, kind)


def _dumps(value: Any, kind: Kind) -> bytes:
    """Go's encoding/json: compact; <, > and & escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    number = value["payload"].get("after", {}).get("c")
    if isinstance(number, _Go):
        text = text.replace(f'"c":{float.__repr__(number)}', f'"c":{_number(number, kind.base == "float")}')
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode()
