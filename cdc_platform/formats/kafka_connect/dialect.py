"""What the writer of Kafka Connect's messages was set to, and the names of its schemas."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from cdc_platform.formats.kafka_connect import values as cv

Typed = tuple[str, cv.Convert]
"""A column's type in MySQL's language, and the converter of its values."""
CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
"""How names of schemas begin."""

TemporalMode = Literal["adaptive_time_microseconds", "adaptive", "connect", "isostring", "microseconds", "nanoseconds"]
DecimalMode = Literal["precise", "string", "double"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the writer was set to, as far as schema blocks don't say it."""

    temporal: TemporalMode = "adaptive_time_microseconds"
    decimal: DecimalMode | None = None  # None: not told, each text shows it
    binary: BinaryMode | None = None
    unavailable: str = "__debezium_unavailable_value"
    dtle: bool = False
    snapshot: bool = False  # dtle only: its snapshot and incremental writers differ
    zone: str | None = None  # dtle's DateTimeZone
    text_zone: str | None = None  # of TIMESTAMP as text without an offset; None: not told, UTC
    null_defaults: bool = True  # JsonConverter's replace.null.with.default
    text_base64: bool = False  # dtle: TEXT and JSON of incremental rows are base64
    snapshot_year: bool = False  # dtle: years 2001..2069 of snapshots are really 1901..1969
    named: Mapping[str, Callable[[dict], Typed]] | None = None  # another database's types; None: MySQL's
