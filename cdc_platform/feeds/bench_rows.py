"""What the benchmark's generators have in common: the row of shop.orders after change i, and where it stands."""

import random
from dataclasses import dataclass

from cdc_platform.feeds.workload import START_MS

CREATED = "2026-01-02 03:04:05"
CREATED_MS = 1_767_323_045_000
NOTE = "some longer text value to look like a real row " * 2
_EVENT_BYTES = 300


@dataclass(frozen=True, slots=True)
class Run:
    """What `bench_records` was asked for; `salt` is the seed's mark on every row."""

    n: int
    keys: int
    salt: str
    topic: str
    partitions: int
    schemas: bool


def salted(seed: int) -> str:
    """The seed's mark."""
    return f"n{random.Random(seed).randrange(10**6):06d}"  # noqa: S311


def cents(i: int) -> int:
    """`amount` after change i, in cents."""
    return i % 10000 * 100 + i % 100


def timestamp(i: int) -> int:
    """When change i happened, in ms since 1970."""
    return START_MS + i // 10


def file(i: int) -> str:
    """Binlog file of change i."""
    return f"mysql-bin.{999_999 + i // 1_000_000}"


def position(i: int) -> int:
    """Binlog position of change i."""
    return 4 + i % 1_000_000 * _EVENT_BYTES


def field(tag: int, data: bytes) -> bytes:
    """A length-delimited protobuf field: tag byte (field number and wire type 2), varint length, data."""
    size = len(data)
    if size < 0x80:
        return bytes((tag, size)) + data
    head = [tag]
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*head, size)) + data
