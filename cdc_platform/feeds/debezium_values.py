"""Cells as Debezium's JsonConverter writes them, by Connect's schema name and type."""

import base64
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from cdc_platform.feeds.debezium_schemas import POINT
from cdc_platform.feeds.shop import Column
from cdc_platform.feeds.values import float32_text, java_number

_EPOCH_DATE, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1)
_MS, _US = timedelta(milliseconds=1), timedelta(microseconds=1)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decimal(value: Decimal | int, scale: int) -> str:
    """java.math.BigDecimal.unscaledValue().toByteArray(): big-endian two's complement, as short as can be."""
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** (scale + exponent) * (-1 if sign else 1)
    bits = unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()
    return _base64(unscaled.to_bytes(bits // 8 + 1, "big", signed=True))


def _zoned(value: datetime) -> str:
    moment = value.astimezone(UTC)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _geometry(value: bytes) -> dict[str, Any]:
    """MySQL's own bytes: the SRID in four bytes, then WKB. An SRID of zero is none."""
    return {"wkb": _base64(value[4:]), "srid": int.from_bytes(value[:4], "little") or None}


def _point(value: bytes) -> dict[str, Any]:
    x, y = struct.unpack("<dd", value[9:25])
    return {"x": x, "y": y, **_geometry(value)}


def _existing(encode: Callable[[Any], Any], zero: Any) -> Callable[[Column], Callable[[Any], Any]]:
    """A date that doesn't exist is NULL, or the epoch where the column is NOT NULL (Debezium, "Temporal types")."""
    return lambda c: lambda v: encode(v) if not isinstance(v, str) else None if c.nullable else zero


_BY_NAME: dict[str, Callable[[Column], Callable[[Any], Any]]] = {
    "org.apache.kafka.connect.data.Decimal": lambda c: (
        lambda v, scale=int(c.connect.parameters["scale"]): _decimal(v, scale)
    ),
    # Bits are little-endian, unlike everything else in the protocol.
    "io.debezium.data.Bits": lambda c: (
        lambda v, size=(int(c.connect.parameters["length"]) + 7) // 8: _base64(v.to_bytes(size, "little"))
    ),
    # The binlog reader adds 1900 to the stored byte, which is 0 for the year 0000 (RowDeserializers.deserializeYear).
    "io.debezium.time.Year": lambda _: lambda v: v or 1900,
    "io.debezium.time.Date": _existing(lambda v: (v - _EPOCH_DATE).days, 0),
    "io.debezium.time.MicroTime": lambda _: lambda v: v // _US,
    "io.debezium.time.Timestamp": _existing(lambda v: (v - _EPOCH) // _MS, 0),
    "io.debezium.time.MicroTimestamp": _existing(lambda v: (v - _EPOCH) // _US, 0),
    "io.debezium.time.ZonedTimestamp": _existing(_zoned, "1970-01-01T00:00:00Z"),
    POINT: lambda _: _point,
    "io.debezium.data.geometry.Geometry": lambda _: _geometry,
}
_BY_TYPE: dict[str, Callable[[Any], Any]] = {
    "bytes": _base64,
    "boolean": bool,
    # JsonConverter writes a Connect float32 as a Java float: 5.1, not 5.099999904632568.
    "float": lambda v: msgspec.Raw(java_number(float32_text(v)).encode()),
    "double": lambda v: msgspec.Raw(java_number(repr(v)).encode()),
}


def encoder(column: Column) -> Callable[[Any], Any]:
    """Non-null Python value → JSON payload value, by semantic name, else by Connect type, else as it is."""
    if column.type.startswith("binary("):  # the connector puts back the zeros that the binlog leaves out
        width = int(column.type[7:-1])
        return lambda v: _base64(v.ljust(width, b"\0"))
    if column.type.partition("(")[0] in ("date", "datetime", "timestamp"):
        encode = _BY_NAME[column.connect.name or ""](column)
        # A date that has a zero in it is NULL where the column may be NULL (Debezium's page, "Zero values").
        return lambda v: None if isinstance(v, str) else encode(v)
    if column.connect.name in _BY_NAME:
        return _BY_NAME[column.connect.name](column)
    return _BY_TYPE.get(column.connect.type, lambda v: v)
