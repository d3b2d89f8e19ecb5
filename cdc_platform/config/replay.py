"""What a lake decodes that has no landing of its own: messages that another one landed."""

from dataclasses import dataclass

Start = tuple[str, int, int]
"""Topic, partition, and the first offset of it."""


@dataclass(frozen=True, slots=True)
class Replay:
    """lake: path or URI of the one whose messages are decoded again; until: how far, as (version, file) of the table
    that holds its whole messages (lake/batches.py, `End`). since: from where on, of partitions that aren't named from
    the first message; what was decoded before is there already."""

    lake: str
    until: tuple[int, int]
    since: tuple[Start, ...] = ()
