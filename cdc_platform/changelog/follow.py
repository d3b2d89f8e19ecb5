"""The order of a batch's events: what is known of the source's log, the batch's runs, and which of them are replays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform.changelog import erased_events, log_epochs, replays
from cdc_platform.changelog.arrivals import Arrivals, Clocks
from cdc_platform.changelog.decide import decided
from cdc_platform.changelog.epochs import Log, Overlap, Place, Run, Segment, Unknown, Where
from cdc_platform.changelog.erased_events import Erased
from cdc_platform.changes.file_stats import ENTRIES, NO_POSITION
from cdc_platform.config import Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake.store import File, Store


@dataclass(frozen=True, slots=True)
class Followed:
    """A batch's order. reached: the highest place before it, where positions alone order; None: none told one."""

    arrivals: Arrivals
    reached: Place | None


def follow(
    spark: SparkSession,
    source: Source,
    paths: dict[str, Store],
    changes: Store,
    files: list[File],
    statistics: list[dict[str, Any]],
    batch: int,
) -> Followed:
    """The order of a batch. Its segments are noted before anything is written by it: a batch that is done again has
    the same."""
    by_position = FORMATS[source.format].order == "position"
    log, before = log_epochs.known(paths, source, batch)
    reached = max((e.high for e in log.epochs.values()), default=None)
    again = any(g.get("retold") for note in statistics for g in note["groups"])
    known = log_epochs.clocks(paths["epochs"], source, batch, every=again)
    log.latest = {where: at[-1][1] for where, at in known.items()}
    if (segments := log_epochs.noted(paths["epochs"], source, batch)) is None:
        erased = cache(partial(erased_events.known, paths["erasures"], source))
        of = partial(_segments, spark, log, changes, files, before=before, erased=erased)
        segments = (_spans if by_position else of)(statistics)
        log_epochs.note(paths["epochs"], source, batch, segments, _latest(statistics))
    clocks = _clocks(known, statistics)
    if by_position:
        return Followed(Arrivals({}, {}, log.before, clocks, by_position=True), reached)
    return Followed(_arrivals(source, [*before, *segments], log, clocks), reached)


def arrivals(paths: dict[str, Store], source: Source, statistics: list[dict[str, Any]]) -> Arrivals:
    """The order of all events so far. statistics: of all files of `changes`."""
    log, segments = log_epochs.known(paths, source, None)
    first = [{"groups": [g for g in note["groups"] if not g.get("retold")]} for note in statistics]
    clocks = _merged(_clocks({}, first), log_epochs.clocks(paths["epochs"], source, None, every=True))
    if FORMATS[source.format].order == "position":
        return Arrivals({}, {}, log.before, clocks, by_position=True)
    return _arrivals(source, segments, log, clocks)


def _arrivals(source: Source, segments: list[Segment], log: Log, clocks: Clocks) -> Arrivals:
    numbered = FORMATS[source.format].transactions == "counts"
    return Arrivals.of(segments, log.before, clocks, numbered=numbered, rekeyed=source.tables.keys)


def _latest(statistics: list[dict[str, Any]]) -> dict[Where, int]:
    """The latest source time (ms) of each partition in a batch."""
    found: dict[Where, int] = {}
    for g in (g for note in statistics for g in note["groups"]):
        if (until := g.get("until")) is not None:
            where = g["topic"], g["partition"]
            found[where] = max(until, found.get(where, until))
    return found


def _clocks(before: dict[Where, list[tuple[int, int]]], statistics: list[dict[str, Any]]) -> Clocks:
    """What was known, and the latest source time before each file of a batch, from its first arrival on."""
    found = {where: [*at] for where, at in before.items()}
    firsts: dict[Where, list[tuple[int, int]]] = {}
    for note in statistics:
        latest = _latest([note])
        for where in latest:
            mine = [g["from_offset"] for g in note["groups"] if (g["topic"], g["partition"]) == where]
            firsts.setdefault(where, []).append((min(mine) * ENTRIES, latest[where]))
    for where, files in firsts.items():
        at = found.setdefault(where, [(-1, 0)])
        newest = at[-1][1]
        for first, latest in sorted(files):
            if first > at[-1][0]:
                at.append((first, newest))
            newest = max(newest, latest)
    return {where: tuple(at) for where, at in found.items()}


def _merged(one: Clocks, other: Mapping[Where, Sequence[tuple[int, int]]]) -> Clocks:
    """What both know: times don't go back."""
    every = {where: sorted([*one.get(where, ()), *other.get(where, ())]) for where in one.keys() | other.keys()}
    return {
        w: tuple(zip((a for a, _ in at), accumulate((t for _, t in at), max), strict=True)) for w, at in every.items()
    }


def _segments(
    spark: SparkSession,
    log: Log,
    changes: Store,
    files: list[File],
    statistics: list[dict[str, Any]],
    *,
    before: list[Segment],
    erased: Callable[[], list[Erased]],
) -> list[Segment]:
    runs = [note.get("runs") for note in statistics]
    found = [Run.of(run) for of in runs for run in of or ()]
    arrived = {where: p.arrived for where, p in log.partitions.items()}

    def ask(candidates: dict[Run, Place], so_far: list[Segment]) -> Mapping[Run, Unknown | None]:
        return replays.unknown(spark, changes, files, candidates, [*before, *so_far], arrived, erased())

    try:
        if any(of is None for of in runs):
            raise Overlap
        log.candidates(found)
    except Overlap:
        found = replays.runs_of(spark, files, arrived)
    return decided(log, found, ask, partial(replays.divided, spark, files))


def _spans(statistics: list[dict[str, Any]]) -> list[Segment]:
    """Of each partition the lowest and the highest position of its row changes."""
    spans: dict[tuple[str, int], Segment] = {}
    for g in (g for note in statistics for g in note["groups"]):
        if g["kind"] != "row":
            continue
        where, low, high = (g["topic"], g["partition"]), NO_POSITION, NO_POSITION
        if g["file"] is not None and g["low_pos"] is not None:
            low, high = (g["file"], int(g["low_pos"])), (g["file"], int(g["high_pos"]))
        first, last = g["from_offset"] * ENTRIES, (g["to_offset"] + 1) * ENTRIES - 1
        s = spans.get(where, Segment(where, first, last, 0, False, low, high, frozenset()))
        first, last = min(s.first, first), max(s.last, last)
        spans[where] = s._replace(first=first, last=last, low=min(s.low, low), high=max(s.high, high))
    return [spans[where] for where in sorted(spans)]
