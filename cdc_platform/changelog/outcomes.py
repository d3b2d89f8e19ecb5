"""What becomes of every message, for the offset ledger: each of its Kafka records counts under exactly one outcome.
Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.epochs import Where
from cdc_platform.changelog.packed import Packed

RANK = ("quarantined", "applied", "filtered", "duplicate", "erased", "control")
"""A message with several outcomes counts under the first of these."""

_QUARANTINED, _FILTERED, _NONE = RANK.index("quarantined"), RANK.index("filtered"), len(RANK)
_FIRST, _NEW = 8, -1
"""Added to the outcome of events that weren't decoded again: those that were say what becomes of a message. And its
outcome before, where the same files have its first telling."""

Entry = list[Any]
"""topic, partition, outcome, first and last offset, records: below 0 of an outcome that doesn't hold any more."""
_Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Offsets of messages; their outcome, and that before, as places in RANK."""
Spans = Mapping[Where, tuple[tuple[int, int], ...]]
"""Ranges of offsets by partition, both ends included."""


@dataclass(frozen=True, slots=True)
class Accounting:
    """How messages are counted. parts: `parts` of those that came in several Kafka records. shared: offsets of which
    more than one file may have events; again: messages that were decoded again, and whether quarantine had them
    (`held`): tasks tell both one by one. moved: only messages whose outcome has changed count; else those that were
    decoded again had been in quarantine, or left out, and the others are new."""

    parts: Packed = field(default_factory=lambda: Packed({}))
    shared: Spans = field(default_factory=dict)
    again: Packed = field(default_factory=lambda: Packed({}))
    moved: bool = False

    def entries(self, told: Iterable[Mapping[str, Any]]) -> list[Entry]:
        """What became of all messages: an entry per partition, outcome and sign. told: by tasks (Messages.told)."""
        told = list(told)
        found: dict[tuple[str, int, str, bool], list[int]] = {}
        shared = [message for t in told for message in t["shared"]]
        for topic, partition, outcome, first, last, records in [
            *(e for t in told for e in t["ledger"]),
            *self._of(shared),
        ]:
            key = topic, partition, outcome, records < 0
            low, high, n = found.get(key, (first, last, 0))
            found[key] = [min(low, first), max(high, last), n + records]
        return [[*key[:3], *ends] for key, ends in sorted(found.items())]

    def _of(self, shared: list[list[Any]]) -> list[Entry]:
        by: dict[Where, list[list[int]]] = {}
        for topic, partition, *message in shared:
            by.setdefault((topic, partition), []).append(message)
        return [e for where, rows in by.items() for e in self.summed(where, _each_once(*np.array(rows, np.int64).T))]

    def summed(self, where: Where, messages: _Columns) -> list[Entry]:
        """What messages of a partition come to, each of which is there once."""
        offsets, now, before = messages
        weights, now = self._records(where, offsets), now % _FIRST
        if self.moved:
            counts = now != before
        else:
            counts = np.ones(len(offsets), bool)
            left_out = (now == _FILTERED) & ~self._held(where, offsets)
            before = np.where((before == _QUARANTINED) & left_out, _FILTERED, before)
            before = np.where(before == _NEW, _NONE, before)
        out = []
        for sign, outcomes in ((1, now), (-1, before)):
            for outcome in np.unique(outcomes[counts & (outcomes < _NONE)]).tolist():
                mine = counts & (outcomes == outcome)
                ends = int(offsets[mine].min()), int(offsets[mine].max())
                out.append([*where, RANK[outcome], *ends, sign * int(weights[mine].sum())])
        return out

    def alone(self, where: Where, offsets: np.ndarray) -> np.ndarray:
        """Which messages of a partition no other task tells of. offsets: ascending."""
        bounds = np.array([b for low, high in self.shared.get(where, ()) for b in (low, high + 1)], np.int64)
        found = np.searchsorted(bounds, offsets, side="right") % 2 == 0
        found[_noted(self.again, where, offsets, "offset")[0]] = False
        return found

    def _records(self, where: Where, offsets: np.ndarray) -> np.ndarray:
        """The Kafka records of each message."""
        found = np.ones(len(offsets), np.int64)
        at, parts = _noted(self.parts, where, offsets, "parts")
        found[at] = parts
        return found

    def _held(self, where: Where, offsets: np.ndarray) -> np.ndarray:
        """Which messages quarantine had."""
        found = np.zeros(len(offsets), bool)
        at, held = _noted(self.again, where, offsets, "held")
        found[at] = held
        return found


def _noted(rows: Packed, where: Where, offsets: np.ndarray, column: str) -> tuple[np.ndarray, np.ndarray]:
    """What rows say of messages: places in `offsets`, which ascend, and values."""
    if not len(offsets) or (near := rows.near(where, int(offsets[0]), int(offsets[-1]))) is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    noted, values = near.column("offset").to_numpy(), near.column(column).to_numpy()
    at = np.minimum(np.searchsorted(offsets, noted), len(offsets) - 1)
    there = offsets[at] == noted
    return at[there], values[there]


class Messages:
    """What becomes of the messages of a task's files, event by event: the first of RANK that any of its events has."""

    def __init__(self, accounting: Accounting):
        self._accounting = accounting
        self._topics: dict[str, int] = {}
        self._seen: list[tuple[np.ndarray, ...]] = []

    def add(self, events: pa.RecordBatch, outcomes: pa.Array, before: pa.Array | None = None) -> None:
        """Events with their outcomes. before: what had become of them, if outcomes are moved."""
        topics = events.column("topic").dictionary_encode()
        known = [self._topics.setdefault(t, len(self._topics)) for t in topics.dictionary.to_pylist()]
        place = np.array(known, np.int64)[topics.indices.to_numpy()] * (1 << 32) + events.column("partition").to_numpy()
        now, was = _ranks(outcomes), _ranks(before) if before is not None else None
        if was is None:
            again = _redecoded(events)
            now, was = now + np.where(again, 0, _FIRST).astype(np.int8), np.where(again, _QUARANTINED, _NEW)
        self._seen.append((place, events.column("offset").to_numpy(), now, was.astype(np.int8)))

    def to_json(self) -> dict[str, Any]:
        """ledger: entries; shared: topic, partition, offset, outcome and outcome before of messages that other tasks
        may have events of, too."""
        ledger: list[Entry] = []
        shared: list[list[Any]] = []
        for where, messages in self._by_partition():
            alone = self._accounting.alone(where, messages[0])
            if alone.any():
                ledger += self._accounting.summed(where, _those(messages, alone))
            shared += [[*where, *row] for row in np.column_stack(_those(messages, ~alone)).tolist()]
        return {"ledger": ledger, "shared": shared}

    def _by_partition(self) -> Iterator[tuple[Where, _Columns]]:
        if not self._seen:
            return
        place, *columns = (np.concatenate(c) for c in zip(*self._seen, strict=True))
        topics = list(self._topics)
        for at in np.unique(place).tolist():
            mine = place == at
            yield (topics[at >> 32], at & 0xFFFFFFFF), _each_once(*(c[mine] for c in columns))


def _those(messages: _Columns, which: np.ndarray) -> _Columns:
    offsets, now, before = messages
    return offsets[which], now[which], before[which]


def _each_once(offsets: np.ndarray, now: np.ndarray, before: np.ndarray) -> _Columns:
    """Messages in the order of their offsets, by their events."""
    if (np.diff(offsets) < 0).any():
        order = np.argsort(offsets, kind="stable")
        offsets, now, before = offsets[order], now[order], before[order]
    starts = np.flatnonzero(np.append(True, np.diff(offsets) > 0))
    return offsets[starts], np.minimum.reduceat(now, starts), np.minimum.reduceat(before, starts)


def _ranks(outcomes: pa.Array) -> np.ndarray:
    return pc.index_in(outcomes, pa.array(RANK)).to_numpy(zero_copy_only=False).astype(np.int8)


def _redecoded(events: pa.RecordBatch) -> np.ndarray:
    if "retold" not in events.schema.names:
        return np.zeros(events.num_rows, bool)
    return pc.fill_null(events.column("retold"), False).to_numpy(zero_copy_only=False)


def overlaps(notes: Iterable[Mapping[str, Any]]) -> Spans:
    """Offsets that more than one file reaches over, but for what was decoded again. notes: of files
    (changes/file_stats.py)."""
    turns: dict[Where, list[tuple[int, int]]] = {}
    for note in notes:
        mine: dict[Where, tuple[int, int]] = {}
        for g in note["groups"]:
            if not g.get("retold"):
                at = g["topic"], g["partition"]
                low, high = mine.get(at, (g["from_offset"], g["to_offset"]))
                mine[at] = min(low, g["from_offset"]), max(high, g["to_offset"])
        for where, (first, last) in mine.items():
            turns.setdefault(where, []).extend(((first, 1), (last + 1, -1)))
    return {where: found for where, of in turns.items() if (found := tuple(_twice(sorted(of))))}


def _twice(turns: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    open_, since = 0, 0
    for at, step in turns:
        if open_ < 2 <= open_ + step:
            since = at
        elif open_ >= 2 > open_ + step and since < at:
            yield since, at - 1
        open_ += step
