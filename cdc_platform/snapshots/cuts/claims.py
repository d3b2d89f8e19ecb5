"""Up to when a source and its tables may be called complete: by what their partitions tell now, or by what was told
before and stands.

It is gone back on only where something is missing that it rests on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from cdc_platform.config import Source
from cdc_platform.lake.past import Past
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import Behind, Complete, Where
from cdc_platform.snapshots.cuts import holds
from cdc_platform.snapshots.cuts.holds import Hold
from cdc_platform.snapshots.cuts.marks import Marks, complete_by, earliest
from cdc_platform.tables import Name

_LOOKED_INTO = 64
"""So many earlier publications are read, at most, of those that stand."""


class Claim(NamedTuple):
    """Up to when, whether every partition tells it, what holds it back, and what it rests on, as in Complete."""

    source_time: datetime | None
    proven: bool
    reason: str
    ends: Mapping[Where, int]


@dataclass(frozen=True)
class Claims:
    """last: what was told before."""

    path: Store
    source: Source
    marks: Marks
    last: Complete | None

    @cached_property
    def _past(self) -> Past:
        return Past(self.path, self.source.name)

    def of_source(self, held: Sequence[Hold]) -> Claim:
        """held: what no table has."""
        return self._later(held, None)

    def of_table(self, name: Name, held: Sequence[Hold], own: Sequence[Hold], source: Claim) -> Behind:
        """own: what this table lacks beside what no table has."""
        found = self._later([*held, *own], name)
        at = found.source_time and source.source_time and min(found.source_time, source.source_time)
        return Behind(at, own[0].reason, at is None or found.proven, _other(found.ends, source.ends))

    def still(self, name: Name, why: str, source: Claim) -> Behind:
        """Of a table that isn't kept up to date: it stays where it was, unless a topic has joined: of what that brings
        it has nothing."""
        if self.last is None or self.joined(self.marks.now.keys() - self.marks.backed):
            return Behind(None, why, True)
        at, ends = self.last.of(name), self.last.ends_of(name)
        return Behind(at, why, at is None or self.last.proven_of(name), _other(ends or {}, source.ends))

    def _later(self, held: Sequence[Hold], name: Name | None) -> Claim:
        """What the partitions tell, or what was told, whichever is later."""
        now, known = self._now(held), self.before(held, name)
        if known is not self.last and (topics := self.joined(self.marks.now)):
            now = now._replace(reason=now.reason or f"{', '.join(sorted(topics))} weren't read before")
        if known is None or (at := known.of(name)) is None:
            return now
        proven = known.proven_of(name)
        if now.source_time is not None and (now.source_time, now.proven) >= (at, proven):
            return now
        rests = known.ends_of(name) or {}
        ends = {w: max(now.ends.get(w, 0), rests.get(w, 0)) for w in now.ends.keys() | rests.keys()}
        why = now.reason or known.reason or ""
        return Claim(at, proven, why, ends)

    def _now(self, held: Sequence[Hold]) -> Claim:
        first = {h.where: h.offset for h in holds.first(held)}
        ends = {w: min(end, first.get(w, end)) for w, end in self.marks.ends.items()}
        return Claim(*earliest(self.marks, self._reached(held)), ends)

    def _reached(self, held: Sequence[Hold]) -> dict[Where, tuple[datetime | None, str]]:
        """Of each partition its watermark before what is held of it, and why."""
        return {h.where: (self._watermark(h), h.reason) for h in holds.first(held)}

    def _watermark(self, held: Hold) -> datetime | None:
        if held.where in self.marks.again:
            return None
        return self._past.reached(held.where, held.offset)

    def before(self, held: Sequence[Hold], name: Name | None = None) -> Complete | None:
        """The newest publication, if it is true of a table (None: of the source) without what is held, else that of
        those which are that tells the latest time."""
        first = {h.where: h.offset for h in holds.first(held)}
        times, _ = complete_by(self.marks, self._reached(held))

        def is_true(told: Complete) -> bool:
            return told.stands(name, first) and self._has_all_topics(told, name, times)

        if self.last is None or is_true(self.last):
            return self.last
        found = self._past.earlier(self.last.number, name, first)
        return next(filter(is_true, islice(found, _LOOKED_INTO)), None)

    def _has_all_topics(self, told: Complete, name: Name | None, times: Mapping[Where, datetime | None]) -> bool:
        """Whether all that was committed before its time has come by the topics that weren't read then, of which that
        of loads (LOADED) always is one."""
        at, topics = told.of(name), _topics(told)
        if at is None or topics is None:
            return True
        new = [w for w in times if w[0] not in topics and w not in self.marks.backed]
        return all((reached := times[w]) is not None and reached >= at for w in new)

    def joined(self, partitions: Iterable[Where]) -> set[str]:
        """Topics of these that the newest publication doesn't know."""
        known = self.last and _topics(self.last)
        return {topic for topic, _ in partitions} - known if known else set()


def _topics(told: Complete) -> set[str] | None:
    """Those that it rests on; None: an earlier version didn't tell."""
    return None if told.ends is None else {topic for topic, _ in told.ends}


def _other(ends: Mapping[Where, int], source: Mapping[Where, int]) -> dict[Where, int]:
    """Those that are other than the source's."""
    both = ((w, ends.get(w, 0)) for w in ends.keys() | source.keys())
    return {w: end for w, end in both if end != source.get(w, 0)}
