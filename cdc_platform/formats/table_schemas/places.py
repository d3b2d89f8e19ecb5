"""Where DDL and rows stand, and which comes first."""

from typing import Any, NamedTuple


class Place(NamedTuple):
    """Kafka address; whose log `number` is a position in (None: not said); time at the source (µs)."""

    topic: str
    partition: int
    offset: int
    entry: int = 0
    lineage: str | None = None
    number: tuple[int, int] | None = None
    time: int | None = None


def of_json(told: list[Any]) -> Place:
    """A place that went through JSON."""
    topic, partition, offset, entry, lineage, number, time = told
    return Place(topic, partition, offset, entry, lineage, number and (number[0], number[1]), time)


def compare(a: Place, b: Place) -> int:
    """By position where both have one of the same log; else by Kafka's order within a partition; else by time. 0: the
    feed doesn't say."""
    same_log = a.lineage == b.lineage or a.lineage is None or b.lineage is None  # snapshots name no server
    if a.number is not None and b.number is not None and same_log and a.number != b.number:
        return -1 if a.number < b.number else 1
    if a[:2] == b[:2]:
        return (a[:4] > b[:4]) - (a[:4] < b[:4])
    if a.time is not None and b.time is not None and a.time != b.time:
        return -1 if a.time < b.time else 1
    return 0


def in_order(a: Place, b: Place) -> int:
    """As `compare`, and by Kafka's addresses where that says nothing: any order, but always the same."""
    return compare(a, b) or (a[:4] > b[:4]) - (a[:4] < b[:4])
