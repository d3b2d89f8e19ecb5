"""What the events of a batch are: of which epoch, and whether they were sent before (epochs.py has the rule). Asked of
what is stored only as far as it must be. No Spark here."""

from collections.abc import Callable, Iterable, Mapping

from cdc_platform.changelog.epochs import Log, Place, Run, Segment, Unknown, Where

Ask = Callable[[dict[Run, Place], list[Segment]], Mapping[Run, Unknown | None]]
"""(runs, and the highest place before each; segments of the batch so far) → what `Log.follow` takes."""

_ROUNDS = 64
"""How often a batch's runs are asked about; what is left is decided at once."""


Divide = Callable[[dict[Run, list[int]]], list[Run]]
"""(runs, and source times) → each in parts, of which the others begin with the first event after such a time."""


def decided(log: Log, runs: Iterable[Run], ask: Ask, divide: Divide) -> list[Segment]:
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
        if not begun:
            now, unknown = _parted(log, now, candidates, unknown, divide)
            now = _divided(log, now, unknown, divide)
        segments += log.follow(now, unknown)
        waiting = [r for r in waiting if r.first > until.get(r.where, -1)]
    return _joined([*segments, *log.follow(_divided(log, waiting, {}, divide), {})])


def _parted(
    log: Log,
    runs: list[Run],
    candidates: Mapping[Run, Place],
    unknown: Mapping[Run, Unknown | None],
    divide: Divide,
) -> tuple[list[Run], dict[Run, Unknown | None]]:
    """Runs that begin with a replay and go on into a time when another log had begun elsewhere, as two or more."""
    found, known = [], dict(unknown)
    for run in runs:
        first = known.get(run)
        if first is None or first.place < candidates[run] or not (times := log.begun_within(run)):
            found.append(run)
            continue
        if first.again:
            begins, *later = sorted(divide({run: times}), key=lambda r: r.first)
            if first.arrival <= begins.last:
                known[begins] = first
                found += [begins, *later]
                continue
        if first.before is not None:
            replay = run._replace(last=first.before, high=max(run.low, min(first.place, candidates[run])))
            known[replay] = None
            found.append(replay)
        found.append(run._replace(first=first.arrival, low=first.place))
    return found, known


def _divided(log: Log, runs: list[Run], unknown: Mapping[Run, Unknown | None], divide: Divide) -> list[Run]:
    """Runs that go on, divided where other logs began meanwhile."""
    over = {run: times for run in runs if run not in unknown and (times := log.begun_within(run))}
    return [*(run for run in runs if run not in over), *divide(over)] if over else runs


def _joined(segments: list[Segment]) -> list[Segment]:
    """The same with neighbours as one that are of one epoch and no replays."""
    found: list[Segment] = []
    for s in sorted(segments, key=lambda s: (s.where, s.first)):
        last = found[-1] if found else None
        if last and last.where == s.where and last.epoch == s.epoch and not (last.replay or s.replay):
            low, high, servers = min(last.low, s.low), max(last.high, s.high), last.servers | s.servers
            since, until = min(last.since, s.since), max(last.until, s.until)
            found[-1] = Segment(s.where, last.first, s.last, s.epoch, False, low, high, servers, since, until)
        else:
            found.append(s)
    return found


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
