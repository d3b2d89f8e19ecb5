"""Epoch, replay and time of every event by its arrival, as what orders events needs them. No Spark here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cdc_platform.changelog.epochs import Segment, Where

Clocks = Mapping[Where, tuple[tuple[int, int], ...]]
"""As Arrivals.clocks."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Epoch and replay of every event by its arrival: per partition the arrivals with which epochs begin, ascending,
    and those, and the last ones, of replays. `before`: epochs by server of events before the first. `clocks`: per
    partition from some arrivals on, ascending, the latest source time before (ms). `by_position`: of a source whose
    positions alone order (contract.Format.order). `numbered`: of one whose events may say their number in the
    transaction (`txn_seq`), and whether they may be the second half of a change (`event_no`); so may be inserts of
    `rekeyed` tables (`db.table`), whose key the configuration gives."""

    starts: Mapping[Where, tuple[tuple[int, int], ...]]
    replays: Mapping[Where, tuple[tuple[int, int], ...]]
    before: Mapping[str | None, int]
    clocks: Clocks = field(default_factory=dict)
    by_position: bool = False
    numbered: bool = False
    rekeyed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        segments: Sequence[Segment],
        before: Mapping[str | None, int],
        clocks: Clocks | None = None,
        *,
        numbered: bool = False,
        rekeyed: Iterable[str] = (),
    ) -> "Arrivals":
        """From all segments of a source."""
        starts: dict[Where, dict[int, int]] = {}
        replays: dict[Where, list[tuple[int, int]]] = {}
        for s in sorted(segments, key=lambda s: s.first):
            starts.setdefault(s.where, {}).setdefault(s.epoch, s.first)
            if s.replay:
                replays.setdefault(s.where, []).append((s.first, s.last))
        ascending = {w: tuple(sorted((first, epoch) for epoch, first in of.items())) for w, of in starts.items()}
        return cls(
            ascending,
            {w: tuple(r) for w, r in replays.items()},
            before,
            clocks or {},
            numbered=numbered,
            rekeyed=tuple(rekeyed),
        )
