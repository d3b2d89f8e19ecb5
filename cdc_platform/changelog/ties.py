"""Changes of one key that came by several partitions at one source time, where no position orders them: looked for
while a changelog file is written, for its note. Arrow and numpy only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_platform.changelog.hashing import hashes, mixed
from cdc_platform.changelog.order_key import ORDER, PARTITIONS, TIMES_FROM

_FILE, _POS, _EVENT = (ORDER.get_field_index(f) for f in ("file", "pos", "event"))
_MANY = 1000
"""Ranges of times that are compared with each other: of more it isn't known."""


class Hashed(NamedTuple):
    """Of changes without a position: hashes of key and source time, and numbers of partitions."""

    hashes: np.ndarray
    partitions: np.ndarray

    def tied(self) -> np.ndarray:
        """Hashes that several partitions have, of these sorted by them."""
        order = np.argsort(self.hashes)
        every, by = self.hashes[order], self.partitions[order]
        return every[1:][(every[1:] == every[:-1]) & (by[1:] != by[:-1])]


def hashed(keys: list[pa.StringArray], order: np.ndarray) -> Hashed:
    """Those of some changes that have no position. order: their `order_key`s (order_key.numbers)."""
    unplaced = order[:, _FILE] < 0
    found = hashes(keys)
    found ^= _times(order).view(np.uint64)
    mixed(found)
    return Hashed(found[unplaced], _partitions(order)[unplaced])


def _times(order: np.ndarray) -> np.ndarray:
    """The source times by which changes without a position were placed; 0: none was told."""
    return np.where(order[:, _POS] >= TIMES_FROM, order[:, _POS], 0)


def _partitions(order: np.ndarray) -> np.ndarray:
    return (order[:, _EVENT] % PARTITIONS).astype(np.uint16)


@dataclass(slots=True)
class Unplaced:
    """A table's changes in a file that have no position: lowest and highest source time by partition, and hashes."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    hashed: list[Hashed] = field(default_factory=list)

    def add(self, keys: list[pa.StringArray], order: np.ndarray) -> None:
        """More changes: texts of their keys by column, and their orders."""
        unplaced = order[:, _FILE] < 0
        if not unplaced.any():
            return
        times, partitions = _times(order)[unplaced], _partitions(order)[unplaced]
        for p in np.unique(partitions).tolist():
            mine = times[partitions == p]
            low, high = self.spans.get(p, (mine[0], mine[0]))
            self.spans[p] = int(min(low, mine.min())), int(max(high, mine.max()))
        self.hashed.append(hashed(keys, order))

    def to_json(self) -> dict[str, Any]:
        """As JSON can tell it. untied: no two changes of one key came by two partitions at one time; spans: partition,
        lowest and highest time."""
        untied = len(self.spans) < 2 or not len(joined(self.hashed).tied())
        return {"untied": untied, "spans": [[p, *span] for p, span in sorted(self.spans.items())]}


def joined(some: Iterable[Hashed]) -> Hashed:
    """Several as one."""
    hashes_, partitions = zip(*some, strict=True)
    return Hashed(np.concatenate(hashes_), np.concatenate(partitions))


def untied(told: Iterable[Mapping[str, Any]]) -> bool:
    """Whether what files note of a table (`Unplaced.told`) says that no two changes of one key came by two partitions
    at one time: in none, and between two they can't, for their times are apart where their partitions differ."""
    told = list(told)
    if not all(t.get("untied") for t in told):
        return False
    spans = np.array([(i, *span) for i, t in enumerate(told) for span in t["spans"]], np.int64).reshape(-1, 4)
    if len(spans) > _MANY:
        return False
    file, partition, low, high = spans.T
    beside = (file[:, None] != file) & (partition[:, None] != partition)
    return not (beside & (low[:, None] <= high) & (low <= high[:, None])).any()
