"""following/<source>: the last step of a run that the sensor asked for. It goes on catching up while changes come, so
that a change needn't wait for a sensor, a queue and a process of its own.

A step, no service: it ends when nothing came for `follow_s`, when another run waits for its place, and after an hour;
the sensor starts the next one. What its rounds did is told once a minute, summed up, as materializations of the rooms.
A cut takes as long as a sixth of a small round: one is published a minute, and whenever there is nothing else to do.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import accounting, checks, delta, observe
from cdc_platform.automation.keys import (
    CHANGELOG,
    OFFSET_LEDGER,
    OWNERS,
    QUARANTINE,
    SNAPSHOTS,
    SOURCE_TAG,
    following_key,
    own_keys,
)
from cdc_platform.automation.metadata import room_metadata
from cdc_platform.automation.rooms import RETRY, call, interruptible, table_events
from cdc_platform.chain import ROOMS, RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError, KafkaUnreachable, RunInProgress

LOOK_S = 0.5
TOLD_S = 60.0
CUT_S = 60.0
LONGEST_S = 3600.0
WAITING_S = 30.0
"""So long a run may be queued before a following makes room for it: a queue looks for places every few seconds."""
BREATH_S = 0.2
"""Between two rounds, so that a command that waits for the source's lock gets it."""

NO_CUT = {"snapshots": {"cut": False}}

LEVELS = frozenset(("lag", "partitions", "waiting", "cut", "cut_held_back", "stopped_tables", "tables"))
"""Metrics that say how things are now; all others count what was done."""

_TABLES = {
    "landing": tables.LANDING,
    "envelopes": tables.ENVELOPES,
    "changes": tables.CHANGES,
    "changelog": tables.CHANGELOG,
}


def following(config: Config, source: Source) -> dg.AssetsDefinition:
    """The step of one source."""

    @dg.asset(
        key=following_key(source),
        deps=[QUARANTINE, OFFSET_LEDGER],  # not snapshots: it has no output, and Dagster would leave this step out
        group_name="following",
        kinds={"kafka", "spark", "deltalake"},
        owners=OWNERS,
        tags={"cdc/format": source.format, SOURCE_TAG: source.name},
        required_resource_keys={"spark"},
        retry_policy=RETRY,
        pool=f"source_{source.slug}",
        op_tags={"dagster/priority": "-1"},  # after snapshots and the checks
        description=f"Goes on catching up {source.name} until nothing came for {source.follow_s} s. Once a minute the "
        "rooms' assets tell what was done.",
    )
    def following_asset(context: dg.AssetExecutionContext) -> Iterator[Any]:
        with interruptible():
            report = _Report(context, config, source)
            try:
                why = yield from follow(context, config, source, report)
            except Exception:
                yield from report.told()
                raise
            yield from report.told()
            yield dg.MaterializeResult(metadata={"rounds": report.rounds, "seconds": report.seconds, "ended": why})

    return following_asset


def follow(
    context: dg.AssetExecutionContext, config: Config, source: Source, report: "_Report"
) -> Generator[Any, None, str]:
    """All rooms, round by round; yields what the report tells, returns why it ended."""
    rounds = _Rounds(context, config, source)
    try:
        why = yield from _follow(context, config, source, rounds, report)
        report.add(rounds.cut())
        return why
    except dg.Failure as error:
        if isinstance(error.__cause__, RunInProgress):
            return str(error.__cause__)
        raise


def _follow(
    context: dg.AssetExecutionContext, config: Config, source: Source, rounds: "_Rounds", report: "_Report"
) -> Generator[Any, None, str]:
    began = newest = time.monotonic()
    news = news_of(config, source)
    while time.monotonic() - began < LONGEST_S:
        if _place_wanted(context):
            return "another run waits"
        if news():
            report.add(rounds.all())
            report.rounds += 1
            if report.due:
                yield from report.told()
            newest = time.monotonic()
            time.sleep(BREATH_S)
        elif found := rounds.cut():
            report.add(found)
        elif time.monotonic() - newest > source.follow_s:
            return f"nothing new for {source.follow_s} s"
        else:
            time.sleep(LOOK_S)
    return f"after {LONGEST_S:.0f} s"


def news_of(config: Config, source: Source) -> Callable[[], bool]:
    """A function that says whether Kafka holds anything that hasn't landed; the ledger is asked only when an end has
    moved since the last time. An unreachable Kafka has no news: the heartbeat sensor tells of it. What else is wrong
    with the topics is news: landing tells it as a run does."""
    seen: dict[delta.Partition, tuple[int, int]] = {}

    def look() -> bool:
        nonlocal seen
        try:
            ends = observe.kafka_ends(config, source)
        except KafkaUnreachable:
            return False
        except CdcError:
            return True
        moved, seen = ends != seen, ends
        return moved and delta.has_news(config, source, ends)

    return look


def added(first: RoomResult | None, second: RoomResult) -> RoomResult:
    """Two results of one room as one."""
    if first is None:
        return second
    metrics = {k: v if k in LEVELS else first.metrics.get(k, 0) + v for k, v in second.metrics.items()}
    found = dict(first.tables)
    for name, figures in second.tables.items():
        before = float(found.get(name, {}).get("changes", 0))
        found[name] = {**figures, "changes": before + float(figures.get("changes", 0))}
    return replace(
        second,
        rows=first.rows + second.rows,
        batches=first.batches + second.batches,
        seconds=first.seconds + second.seconds,
        metrics={**first.metrics, **metrics},
        tables=found,
    )


def _place_wanted(context: dg.AssetExecutionContext) -> bool:
    """Whether a run has been queued for long, be it for want of a place or because this one writes its source."""
    queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
    oldest = context.instance.get_run_records(queued, limit=1, ascending=True)
    age = (datetime.now(UTC) - oldest[0].create_timestamp).total_seconds() if oldest else 0
    return age > WAITING_S


class _Rounds:
    """Catch-ups of all rooms, and the cuts they owe."""

    def __init__(self, context: dg.AssetExecutionContext, config: Config, source: Source):
        self._place = context, config, source
        self._cut_at = time.monotonic()
        self._owed = False

    def all(self) -> list[RoomResult]:
        """One round. A cut that it holds back, as in the middle of a transaction, the next one publishes."""
        cut = time.monotonic() - self._cut_at > CUT_S
        found = [call(*self._place, room, **({} if cut else NO_CUT.get(room, {}))) for room in ROOMS]
        self._owed = not cut or bool(found[-1].metrics.get("cut_held_back"))
        if not self._owed:
            self._cut_at = time.monotonic()
        return found

    def cut(self) -> list[RoomResult]:
        """The cut of the rounds that published none, if there are any."""
        if not self._owed:
            return []
        self._owed, self._cut_at = False, time.monotonic()
        return [call(*self._place, "snapshots")]


class _Report:
    """Sums of rounds, told about once a minute: an event for each would fill Dagster's storage."""

    def __init__(self, context: dg.AssetExecutionContext, config: Config, source: Source):
        self.context, self.config, self.source = context, config, source
        self.began = self.last = time.monotonic()
        self.rounds = 0
        self.sums: dict[str, RoomResult] = {}

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 1)

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last > TOLD_S

    def add(self, found: list[RoomResult]) -> None:
        self.sums |= {r.room: added(self.sums.get(r.room), r) for r in found}

    def told(self) -> Iterator[dg.AssetMaterialization]:
        """The rooms' figures as materializations of their assets, and the checks that say whether all is well. Dagster
        stores what `log_event` was given with the next event that the step yields."""
        sums, self.sums, self.last = self.sums, {}, time.monotonic()
        if not sums:
            return
        config, instance = self.config, self.context.instance
        quarantined, no_new_rows = accounting.quarantine_now(instance, config)
        for key, result in (
            (QUARANTINE, no_new_rows),
            (OFFSET_LEDGER, checks.ledger_result(config, [self.source])),
            (SNAPSHOTS, checks.stopped_result(config)),
        ):
            event: Any = checks.evaluation(key, result)  # taken, but not in the signature
            self.context.log_event(event)
        yield dg.AssetMaterialization(QUARANTINE, metadata=quarantined)
        yield dg.AssetMaterialization(OFFSET_LEDGER, metadata=accounting.ledger_now(config))
        for key in (*own_keys(self.source), CHANGELOG):
            if key.path[0] in sums:
                yield self._room(key, sums[key.path[0]])
        yield from table_events(self.context, config, sums["snapshots"])

    def _room(self, key: dg.AssetKey, sums: RoomResult) -> dg.AssetMaterialization:
        uri = _TABLES[sums.room].at(self.config.lake, source=self.source.name, format=self.source.format)
        prefix = f"{self.source.name}/" if key == CHANGELOG else ""
        metadata = room_metadata(sums, uri, delta.row_count(uri), prefix)
        return dg.AssetMaterialization(key, metadata=metadata, tags={SOURCE_TAG: self.source.name})
