"""The rule of order: a partition's own order is the truth; positions recognise replays and relate partitions.

Records of a partition are in the order in which the capture read its log, but for replays. So positions there ascend.
Where one descends, the events from there on are either stored already at their places with the same content (a replay:
they change nothing) or not. Then another log begins, an *epoch*: a failover, RESET MASTER, a restored server, a renamed
base name, a position that wrapped, a snapshot that was taken again. All of it is newer than what came before. Within an
epoch positions compare across partitions. Servers that events name only say which epoch of other partitions is the
same log: with several primaries all stand in one binlog. docs/design.md has the proof. No Spark here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc_platform.changes.file_stats import NO_POSITION

Where = tuple[str, int]
"""Topic and partition."""
NEVER = 1 << 62
"""A source time that isn't told."""
Place = tuple[int, int]
"""Number of a binlog file, position; NO_POSITION: none."""


Clocks = Mapping[Where, tuple[tuple[int, int], ...]]
"""As Arrivals.clocks."""


class Run(NamedTuple):
    """Events of a partition from one arrival to another whose places don't descend (file_stats.Runs). since: their
    earliest source time, ms."""

    where: Where
    first: int
    last: int
    low: Place
    high: Place
    servers: frozenset[str]
    since: int = NEVER

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> "Run":
        """As statistics of a file have it."""
        low, high = tuple(run["low"]), tuple(run["high"])
        where = (run["topic"], run["partition"])
        return cls(where, run["first"], run["last"], low, high, frozenset(run["lineages"]), run["since"])


class Unknown(NamedTuple):
    """The first event of a run that isn't stored at its place with its content, and the arrival of the one before it
    (None: it is the first)."""

    arrival: int
    place: Place
    before: int | None


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


@dataclass(frozen=True, slots=True)
class Partition:
    """How far a partition is: its epoch, the highest place of it there, the place and arrival of its last event.
    `at` below `high`: a replay is under way."""

    epoch: int
    high: Place
    at: Place
    arrived: int


@dataclass(slots=True)
class Epoch:
    """What is known of one log, over all partitions."""

    low: Place
    high: Place
    servers: set[str] = field(default_factory=set)
    since: int = NEVER


class Overlap(Exception):
    """Runs of a partition reach into each other's arrivals: their events are to be looked at one by one."""


@dataclass(slots=True)
class Log:
    """What is known of a source's order. `before`: epochs by server of events that came before any segment (lakes of
    earlier versions)."""

    partitions: dict[Where, Partition] = field(default_factory=dict)
    epochs: dict[int, Epoch] = field(default_factory=dict)
    before: dict[str | None, int] = field(default_factory=dict)

    def candidates(self, runs: Iterable[Run]) -> dict[Run, Place]:
        """Runs, in the order of arrival, that may begin with events that are stored already: those that begin behind
        what came before them in their partition; with the highest place before them. Raises Overlap."""
        found = {}
        at = {w: (p.high, p.at) for w, p in self.partitions.items()}
        arrived = {w: p.arrived for w, p in self.partitions.items()}
        for run in sorted(runs, key=lambda r: (r.where, r.first)):
            if run.first <= arrived.get(run.where, -1):
                raise Overlap(run.where)
            high, last = at.get(run.where) or (self._legacy(), self._legacy())
            if _behind(run.low, high, last):
                found[run] = high
            at[run.where] = (max(high, run.high), run.high)
            arrived[run.where] = run.last
        return found

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
        turns = sorted(of, key=lambda w: (not any(unknown.get(r) for r in of[w]), w))
        return [segment for where in turns for run in of[where] for segment in self._run(run, unknown)]

    def _run(self, run: Run, unknown: Mapping[Run, Unknown | None]) -> list[Segment]:
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
        else:
            found.append(self._forward(rest, then))
        return found

    def _new(self, run: Run) -> Partition:
        """A partition that wasn't known: its first event is of the log that its server or its place speaks for, else
        of the newest."""
        named = [n for n, e in sorted(self.epochs.items()) if not run.servers or run.servers & e.servers]
        inside = [n for n in named if self._has(n, run.low)]
        epoch = next(iter(inside), max(named or self.epochs, default=0))
        legacy = self._legacy()
        return Partition(epoch, legacy, legacy, -1)

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
            ended = mine is not None and run.low > mine.high and inside
            later = theirs.since < run.since < NEVER and run.low >= theirs.low
            if other or ended or later:
                epoch = newer
                break
        if epoch != then.epoch:
            then = Partition(epoch, run.low, run.low, 0)
        return self._note(_segment(run, epoch), then)

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
        high = max(then.high, segment.high)
        self.partitions[segment.where] = Partition(segment.epoch, high, segment.high, segment.last)
        if not segment.replay:
            known = self.epochs.setdefault(segment.epoch, Epoch(segment.low, segment.high))
            known.low, known.high = min(known.low, segment.low), max(known.high, segment.high)
            known.servers |= segment.servers
            known.since = min(known.since, segment.since)
        return segment


Ask = Callable[[dict[Run, Place], list[Segment]], Mapping[Run, Unknown | None]]
"""(runs, and the highest place before each; segments of the batch so far) → what `Log.follow` takes."""

_ROUNDS = 64
"""How often a batch's runs are asked about; what is left is decided at once."""


def decided(log: Log, runs: Iterable[Run], ask: Ask) -> list[Segment]:
    """The segments of a batch. What a run is depends on those before it in its partition, so all candidates are asked
    about, of each partition the first ones that are certain are decided, and the others asked about again. Partitions
    in which no log begins come last: they are related to those that are seen to begin elsewhere. Raises Overlap."""
    waiting = sorted(runs, key=lambda r: (r.where, r.first))
    segments: list[Segment] = []
    for turn in range(_ROUNDS + 1):
        if not (candidates := log.candidates(waiting)):
            break
        unknown = ask(candidates, segments)
        until, begun = _certain(candidates, unknown)
        if turn == _ROUNDS:
            until = {run.where: run.first for run in candidates}
        elif begun:
            until = {where: first for where, first in until.items() if where in begun}
        now = [r for r in waiting if r.first <= until.get(r.where, -1)]
        segments += log.follow(now, unknown)
        waiting = [r for r in waiting if r.first > until.get(r.where, -1)]
    return [*segments, *log.follow(waiting, {})]


def _certain(
    candidates: Mapping[Run, Place], unknown: Mapping[Run, Unknown | None]
) -> tuple[dict[Where, int], set[Where]]:
    """Up to which arrival candidates are certain, by partition; partitions of which the first one begins a log, or may.
    What of the others' events at the highest place was new isn't known while they are asked about: copies of these may
    pass for new ones."""
    until: dict[Where, int] = {}
    begun: set[Where] = set()
    over: set[Where] = set()
    for run, high in candidates.items():
        where, first = run.where, unknown[run]
        known = first is None or first.place > high
        if where not in until or (known and where not in over):
            until[where] = run.first
        if not known:
            over.add(where)
            if first is not None and first.place < high:
                begun.add(where)
    return until, begun


_NOWHERE: Place = (NO_POSITION[0] - 1, 0)
"""Before all places."""


def _behind(place: Place, high: Place, at: Place) -> bool:
    """Whether an event may be one of a replay: it lies behind what came before it, or goes on with a replay."""
    return place < at or place < high or (place == high and at < high)


def _segment(run: Run, epoch: int, *, replay: bool = False) -> Segment:
    return Segment(run.where, run.first, run.last, epoch, replay, run.low, run.high, run.servers, run.since)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Epoch and replay of every event by its arrival: per partition the arrivals with which epochs begin, ascending,
    and those, and the last ones, of replays. `before`: epochs by server of events before the first. `clocks`: per
    partition from some arrivals on, ascending, the latest source time before (ms). `by_position`: of a source whose
    positions alone order (contract.Format.order)."""

    starts: Mapping[Where, tuple[tuple[int, int], ...]]
    replays: Mapping[Where, tuple[tuple[int, int], ...]]
    before: Mapping[str | None, int]
    clocks: Clocks = field(default_factory=dict)
    by_position: bool = False

    @classmethod
    def of(
        cls, segments: Sequence[Segment], before: Mapping[str | None, int], clocks: Clocks | None = None
    ) -> "Arrivals":
        """From all segments of a source."""
        starts: dict[Where, dict[int, int]] = {}
        replays: dict[Where, list[tuple[int, int]]] = {}
        for s in sorted(segments, key=lambda s: s.first):
            starts.setdefault(s.where, {}).setdefault(s.epoch, s.first)
            if s.replay:
                replays.setdefault(s.where, []).append((s.first, s.last))
        ascending = {w: tuple(sorted((first, epoch) for epoch, first in of.items())) for w, of in starts.items()}
        return cls(ascending, {w: tuple(r) for w, r in replays.items()}, before, clocks or {})
