"""What became of the messages of a file, for the offset ledger. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RANK = ("quarantined", "applied", "filtered", "duplicate", "erased", "control")
"""A message with several outcomes counts under the first of these."""


class Messages:
    """What became of the messages of a file, event by event: the first of RANK that any of its events has."""

    def __init__(self, parts: Mapping[tuple[str, int, int], int]):
        self._parts = parts
        self._topics: dict[str, int] = {}
        self._seen: list[tuple[np.ndarray, ...]] = []

    def add(self, events: pa.RecordBatch, outcomes: pa.Array) -> None:
        """Events in the order of the file, with their outcomes."""
        topics = events.column("topic").dictionary_encode()
        known = [self._topics.setdefault(t, len(self._topics)) for t in topics.dictionary.to_pylist()]
        codes = np.array(known, np.int64)
        rank = pc.index_in(outcomes, pa.array(RANK)).to_numpy(zero_copy_only=False)
        place = codes[topics.indices.to_numpy()] * (1 << 32) + events.column("partition").to_numpy()
        self._seen.append((place, events.column("offset").to_numpy(), rank.astype(np.int8)))

    def told(self) -> dict[str, Any]:
        """As Unify tells it."""
        if not self._seen:
            return {"ledger": [], "apart": True}
        place, offset, rank = (np.concatenate(c) for c in zip(*self._seen, strict=True))
        new = np.ones(len(place), bool)
        new[1:] = (place[1:] != place[:-1]) | (offset[1:] != offset[:-1])
        starts = np.nonzero(new)[0]
        rank = np.minimum.reduceat(rank, starts)
        place, offset = place[starts], offset[starts]
        topics = list(self._topics)
        apart, ledger = True, []
        for at in np.unique(place).tolist():
            topic, partition = topics[at >> 32], at & 0xFFFFFFFF
            mine = place == at
            offsets, ranks = offset[mine], rank[mine]
            apart &= bool((np.diff(offsets) > 0).all()) or len(np.unique(offsets)) == len(offsets)
            weights = np.ones(len(offsets), np.int64)
            for i in np.nonzero(np.isin(offsets, self._long(topic, partition)))[0].tolist():
                weights[i] = self._parts[topic, partition, int(offsets[i])]
            for r in np.unique(ranks).tolist():
                these = ranks == r
                first, last = int(offsets[these].min()), int(offsets[these].max())
                ledger.append([topic, partition, RANK[r], first, last, int(weights[these].sum())])
        return {"ledger": ledger, "apart": bool(apart)}

    def _long(self, topic: str, partition: int) -> list[int]:
        return [offset for t, p, offset in self._parts if (t, p) == (topic, partition)]
