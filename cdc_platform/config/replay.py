"""What a lake decodes that has no landing of its own: messages that another one landed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replay:
    """lake: path or URI of the one whose messages are decoded again; until: how far, as (version, file) of the table
    that holds its whole messages (lake/batches.py, `End`)."""

    lake: str
    until: tuple[int, int]
