"""The rule of order: a partition's own order is the truth; positions recognise replays and relate partitions.

Records of a partition are in the order in which the capture read its log, but for replays. So positions there ascend.
Where one descends, the events from there on are either stored already at their places with the same content (a replay:
they change nothing) or not. Then another log begins, an *epoch*: a failover, RESET MASTER, a restored server, a renamed
base name, a position that wrapped, a snapshot that was taken again. All of it is newer than what came before. Within an
epoch positions compare across partitions. Servers that events name only say which epoch of other partitions is the
same log: with several primaries all stand in one binlog. Rows that the platform loaded itself stand in the epoch of the
event that their load found in the server's log, which stands in place of their server. docs/design.md has the proof. No
Spark here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc_platform.changes.file_stats import ENTRIES, NO_POSITION
from cdc_platform.errors import LakeChanged
from cdc_platform.tables import LOADED

Where = tuple[str, int]
"""Topic and partition."""
NEVER = 1 << 62
"""A source time that isn't told."""
Place = tuple[int, int]
"""Number of a binlog file, position; NO_POSITION: none."""


Span = tuple[Place, Place]
"""The lowest and the highest of some places."""


class Run(NamedTuple):
    """Events of a partition from one arrival to another whose places don't descend (file_stats.Runs). since, until:
    their earliest and latest source time, ms."""

    where: Where
    first: int
    last: int
    low: Place
    high: Place
    servers: frozenset[str]
    since: int = NEVER
    until: int = -1

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> "Run":
        """As statistics of a file have it."""
        low, high = tuple(run["low"]), tuple(run["high"])
        where = (run["topic"], run["partition"])
        return cls(
            where, run["first"], run["last"], low, high, frozenset(run["lineages"]), run["since"], run.get("until", -1)
        )


class Unknown(NamedTuple):
    """The first event of a run that isn't stored at its place with its content, and the arrival of the one before it
    (None: it is the first). again: it is stored, but may be one more of its transaction."""

    arrival: int
    place: Place
    before: int | None
    again: bool = False


class Segment(NamedTuple):
    """Events of a partition from one arrival to another, their epoch, and whether all are a replay."""

    where: Where
    first: int
    last: int
    epoch: int
    replay: bool
    low: Place
    high: Place
    servers: frozenset[str]
    since: int = NEVER
    until: int = -1


@dataclass(frozen=True, slots=True)
class Partition:
    """How far a partition is: its epoch, the highest place of it there, the place and arrival of its last event,
    whether that was of a replay, which may go on, and the earliest source time (ms) of the segment that it was of."""

    epoch: int
    high: Place
    at: Place
    arrived: int
    replay: bool = False
    since: int = -1


@dataclass(slots=True)
class Epoch:
    """What is known of one log, over all partitions."""

    low: Place
    high: Place
    servers: set[str] = field(default_factory=set)
    since: int = NEVER
    until: int = -1

    def add(self, segment: Segment) -> None:
        """One more of it."""
        self.low, self.high = min(self.low, segment.low), max(self.high, segment.high)
        self.servers |= segment.servers
        self.since, self.until = min(self.since, segment.since), max(self.until, segment.until)


class Overlap(Exception):
    """Runs of a partition reach into each other's arrivals: their events are to be looked at one by one."""


@dataclass(slots=True)
class Log:
    """What is known of a source's order. `before`: epochs by server of events that came before any segment (lakes of
    earlier versions). `spans`: of each partition the places of its epochs. `latest`: source times (ms) that partitions
    had reached before a batch. `starts`: arrivals at which segments of a partition begin, and their epochs."""

    partitions: dict[Where, Partition] = field(default_factory=dict)
    epochs: dict[int, Epoch] = field(default_factory=dict)
    before: dict[str | None, int] = field(default_factory=dict)
    spans: dict[Where, dict[int, Span]] = field(default_factory=dict)
    latest: dict[Where, int] = field(default_factory=dict)
    starts: dict[Where, list[tuple[int, int]]] = field(default_factory=dict)

    def candidates(self, runs: Iterable[Run]) -> dict[Run, Place]:
        """Runs, in the order of arrival, that may begin with events that are stored already: those that begin behind
        what came before them in their partition, and those of an earlier time that begin where an earlier log was; with
        the highest place before them, of the latter one beyond their own: an earlier log doesn't go on. Raises
        Overlap."""
        found = {}
        at = {w: (p.high, p.at, p.replay) for w, p in self.partitions.items()}
        arrived = {w: p.arrived for w, p in self.partitions.items()}
        came: dict[Where, list[Run]] = {}
        logs: dict[Where, list[Run]] = {}  # those before the last descent
        for run in sorted(runs, key=lambda r: (r.where, r.first)):
            if loaded(run.where):
                continue  # told once, by the platform itself
            if run.first <= arrived.get(run.where, -1):
                raise Overlap(run.where)
            high, last, replay = at.get(run.where) or (self._legacy(), self._legacy(), False)
            before = came.setdefault(run.where, [])
            if run.low < last:
                logs[run.where] = before[:]
            behind = _behind(run.low, high, last, replay=replay)
            earlier = replay or run.since < self._since(run.where, before)
            beyond = run.low > last or (run.low == last and earlier)
            back = not behind and beyond and self._back(run, logs.get(run.where, []))
            if behind:
                found[run] = high
            elif back:
                found[run] = _beyond(max(high, run.high))
            at[run.where] = (high if back else max(high, run.high), run.high, run in found)
            arrived[run.where] = run.last
            before.append(run)
        return found

    def _since(self, where: Where, before: list[Run]) -> int:
        """The earliest source time of what came last in a partition; -1: it isn't known."""
        then = self.partitions.get(where)
        since = before[-1].since if before else then.since if then else -1
        return since if since < NEVER else -1

    def _back(self, run: Run, before: list[Run]) -> bool:
        """Whether a run that is not of a later time than what came may begin in an earlier log, whose places may be
        ahead of this one's. before: runs of the batch that came before this log."""
        latest = max(self.latest.get(run.where, -1), *(r.since for r in before if r.since < NEVER), -1)
        if run.low <= NO_POSITION or run.since > latest:
            return False
        then = self.partitions.get(run.where)
        spans = [s for n, s in self.spans.get(run.where, {}).items() if then is None or n != then.epoch]
        return any(low <= run.low <= high for low, high in [*spans, *((r.low, r.high) for r in before)])

    def _legacy(self) -> Place:
        """Where a partition that isn't known yet may have been."""
        return max((e.high for e in self.epochs.values()), default=_NOWHERE) if self.before else _NOWHERE

    def follow(self, runs: Iterable[Run], unknown: Mapping[Run, Unknown | None]) -> list[Segment]:
        """Goes on with the events of a batch. `unknown`: of every candidate the first event that isn't stored; None:
        all are. Returns their segments."""
        of: dict[Where, list[Run]] = {}
        for run in sorted(runs, key=lambda r: (r.where, r.first)):
            of.setdefault(run.where, []).append(run)
        # Partitions in which another log is seen to begin come first: the others are related to that.
        turns = sorted(of, key=lambda w: (loaded(w), not any(unknown.get(r) for r in of[w]), w))
        return [segment for where in turns for run in of[where] for segment in self._run(run, unknown)]

    def _run(self, run: Run, unknown: Mapping[Run, Unknown | None]) -> list[Segment]:
        if loaded(run.where):
            segment = _segment(run, self._proven(run))
            self.partitions[run.where] = Partition(segment.epoch, segment.high, segment.high, segment.last)
            return [segment]  # which tells nothing of how the feed's partitions are related
        then = self.partitions.get(run.where) or self._new(run)
        if run not in unknown:
            return [self._forward(run, then)]
        if (first := unknown[run]) is None:
            return [self._note(_segment(run, then.epoch, replay=True), then)]
        found = []
        if first.before is not None:  # what lies between them couldn't be read, or isn't whole yet
            again = run._replace(last=first.before, high=max(run.low, min(first.place, then.high)))
            found.append(self._note(_segment(again, then.epoch, replay=True), then))
        rest = run._replace(first=first.arrival, low=first.place)
        then = self.partitions.get(run.where, then)
        if first.place < then.high:
            epoch = self._next(rest, then.epoch)
            found.append(self._note(_segment(rest, epoch), Partition(epoch, rest.low, rest.low, 0)))
        elif first.again:  # of the same transaction, so of the same log
            found.append(self._note(_segment(rest, then.epoch), then))
        else:
            found.append(self._forward(rest, then))
        return found

    def _proven(self, run: Run) -> int:
        """The epoch of loaded rows: that of the events that were found in the server's log. Raises LakeChanged."""
        found = set()
        for event in run.servers:
            topic, partition, offset, entry = event.rsplit("/", 3)
            where, arrived = (topic, int(partition)), int(offset) * ENTRIES + min(int(entry), ENTRIES - 1)
            known = sorted(self.starts.get(where, ()))
            before = [epoch for first, epoch in known if first <= arrived] or [epoch for _, epoch in known[:1]]
            found |= {before[-1]} if before else {p.epoch for w, p in self.partitions.items() if w == where}
        if len(found) != 1:
            raise LakeChanged(
                f"{run.where[0]}/{run.where[1]}", f"what orders its rows isn't there: {sorted(run.servers)}"
            )
        return found.pop()

    def _new(self, run: Run) -> Partition:
        """A partition that wasn't known: its first event is of the log that its server, time or place speaks for, else
        of the newest."""
        named = [n for n, e in sorted(self.epochs.items()) if not run.servers or run.servers & e.servers]
        timely = self._timely(run, named or sorted(self.epochs))
        inside = [n for n in named if n in timely and self._has(n, run.low)]
        epoch = next(iter(inside), max(timely, default=0))
        legacy = self._legacy()
        return Partition(epoch, legacy, legacy, -1)

    def _timely(self, run: Run, epochs: list[int]) -> list[int]:
        """Of some epochs, ascending, those that a run may be of by its time: the newest that had begun by then, such as
        began at that time, and the next one, too, if all that is known of those is earlier, and all of that one, which
        is later, stands behind the run."""
        if run.since == NEVER or not epochs:
            return epochs
        last = max(sum(self.epochs[n].since < run.since for n in epochs) - 1, 0)
        found = [n for i, n in enumerate(epochs) if i == last or (i > last and self.epochs[n].since == run.since)]
        known = max(self.epochs[n].until for n in found)
        between = self.epochs[found[0]].since < run.since > known
        after = epochs.index(found[-1]) + 1
        return [*found, *(n for n in epochs[after : after + 1] if between and run.low <= self.epochs[n].low)]

    def _forward(self, run: Run, then: Partition) -> Segment:
        """A run that goes on. It may be of a newer log, whose places happen to be higher: if its server was never seen
        in the partition's, the partition's ended before it, or it is of a time when the newer one had begun."""
        epoch = then.epoch
        mine = self.epochs.get(epoch)
        for newer in sorted((n for n in self.epochs if n > epoch), reverse=True):
            theirs = self.epochs[newer]
            if run.servers and not run.servers & theirs.servers:
                continue
            other = bool(run.servers) and mine is not None and not run.servers & mine.servers
            inside = self._has(newer, run.low) or (newer == max(self.epochs) and run.low >= theirs.low)
            before = run.since < theirs.since < NEVER
            ended = mine is not None and run.low > mine.high and inside and not before
            later = theirs.since < run.since < NEVER and run.low >= theirs.low
            if other or ended or later:
                epoch = newer
                break
        if epoch != then.epoch:
            then = Partition(epoch, run.low, run.low, 0)
        return self._note(_segment(run, epoch), then)

    def begun_within(self, run: Run) -> list[int]:
        """Source times at which logs began elsewhere while a run went on that may be theirs from there on."""
        if loaded(run.where):
            return []
        then = self.partitions.get(run.where)
        newer = (e for n, e in self.epochs.items() if then is None or n > then.epoch)
        alike = (e for e in newer if not run.servers or not e.servers or run.servers & e.servers)
        return sorted(e.since for e in alike if run.since <= e.since < run.until)

    def _next(self, run: Run, epoch: int) -> int:
        """The epoch that begins with a run: one that another partition saw begin, or a new one."""
        newer = [n for n in sorted(self.epochs) if n > epoch]
        newer = [
            n for n in newer if not run.servers or not self.epochs[n].servers or run.servers & self.epochs[n].servers
        ]
        inside = [n for n in newer if self._has(n, run.low)]
        return next(iter(inside), max(newer, default=max(self.epochs, default=epoch) + 1))

    def _has(self, epoch: int, place: Place) -> bool:
        return self.epochs[epoch].low <= place <= self.epochs[epoch].high

    def _note(self, segment: Segment, then: Partition) -> Segment:
        high = then.high if segment.replay else max(then.high, segment.high)  # a replay may be of an earlier log
        self.partitions[segment.where] = Partition(
            segment.epoch, high, segment.high, segment.last, segment.replay, segment.since
        )
        self.starts.setdefault(segment.where, []).append((segment.first, segment.epoch))
        if not segment.replay:
            if segment.since < NEVER:
                self.latest[segment.where] = max(segment.since, self.latest.get(segment.where, -1))
            self.reach(segment)
            self.epochs.setdefault(segment.epoch, Epoch(segment.low, segment.high)).add(segment)
        return segment

    def reach(self, segment: Segment) -> None:
        """Adds a segment to the places of its partition's epoch."""
        spans = self.spans.setdefault(segment.where, {})
        low, high = spans.get(segment.epoch, (segment.low, segment.high))
        spans[segment.epoch] = min(low, segment.low), max(high, segment.high)


def loaded(where: Where) -> bool:
    """Whether it is no partition of Kafka's, but rows that the platform loaded."""
    return where[0] == LOADED


_NOWHERE: Place = (NO_POSITION[0] - 1, 0)
"""Before all places."""


def _behind(place: Place, high: Place, at: Place, *, replay: bool) -> bool:
    """Whether an event may be one of a replay: it lies behind what came before it, or goes on with a replay."""
    return place < at or place < high or (place == high and (at < high or replay))


def _beyond(place: Place) -> Place:
    return place[0], place[1] + 1


def _segment(run: Run, epoch: int, *, replay: bool = False) -> Segment:
    return Segment(run.where, run.first, run.last, epoch, replay, run.low, run.high, run.servers, run.since, run.until)
