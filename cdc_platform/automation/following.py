"""Going on after a catch-up: rounds of all stages while changes come, so that a change needn't wait for a sensor, a
queue and a process of its own.

The end of a step, no service: it ends when nothing came for `follow_s`, when another run waits for its place, and after
an hour; the sensor starts the next one. What its rounds did is told once a minute, summed up. A cut takes as long as a
sixth of a small round: one is published a minute, and whenever there is nothing else to do.
"""

import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from cdc_platform.automation import observe
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.reporting import Report
from cdc_platform.automation.stages import call, failing
from cdc_platform.automation.table_news import TELLING_S
from cdc_platform.chain import STAGES
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError, KafkaUnreachable, RunInProgress
from cdc_platform.kafka.offsets import PartitionState, kafka_state
from cdc_platform.lake import queries
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.results import StageResult

LOOK_S = 0.5
TOLD_S = 60.0
CUT_S = 60.0
LONGEST_S = 3600.0
WAITING_S = 30.0
"""So long a run may be queued before a following makes room for it: a queue looks for places every few seconds."""
BREATH_S = 0.2
"""Between two rounds, so that a command that waits for the source's lock gets it."""

NO_CUT = {"snapshots": {"cut": False}}


def follow(
    context: dg.AssetExecutionContext, naming: Naming, source: Source, report: Report
) -> Generator[Any, None, str]:
    """All stages, round by round; yields what the report tells, returns why it ended."""
    rounds = _Rounds(context, naming, source)
    try:
        why = yield from _follow(context, naming.config, source, rounds, report)
        report.add(rounds.cut())
        return why
    except dg.Failure as error:
        if isinstance(error.__cause__, RunInProgress):
            return str(error.__cause__)
        raise


def _follow(
    context: dg.AssetExecutionContext, config: Config, source: Source, rounds: "_Rounds", report: Report
) -> Generator[Any, None, str]:
    began = newest = time.monotonic()
    news = news_of(config, source)
    while time.monotonic() - began < LONGEST_S:
        if _slot_wanted(context):
            return "another run waits"
        if news():
            report.add(rounds.all())
            report.rounds += 1
            if report.due:
                yield from report.stage_events(seconds=TELLING_S)
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
    seen: list[PartitionState] = []

    def look() -> bool:
        nonlocal seen
        try:
            state = kafka_state(config, source)
        except KafkaUnreachable:
            return False
        except CdcError:
            return True
        moved, seen = state != seen, state
        return moved and queries.has_news(config, source, observe.ends_of(config, source, state))

    return look


def _slot_wanted(context: dg.AssetExecutionContext) -> bool:
    """Whether a run has been queued for long, be it for want of a place or because this one writes its source."""
    queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
    oldest = context.instance.get_run_records(queued, limit=1, ascending=True)
    age = (datetime.now(UTC) - oldest[0].create_timestamp).total_seconds() if oldest else 0
    return age > WAITING_S


class _Rounds:
    """Catch-ups of all stages, and the cuts they owe."""

    def __init__(self, context: dg.AssetExecutionContext, naming: Naming, source: Source):
        self._place = context, naming, source
        self._cut_at = time.monotonic()
        self._owed = False

    def all(self) -> list[StageResult]:
        """One round. A cut that it holds back, as in the middle of a transaction, the next one publishes."""
        cut = time.monotonic() - self._cut_at > CUT_S
        _, naming, source = self._place
        with failing(), source_lock(naming.config, source):
            found = [call(*self._place, stage, **({} if cut else NO_CUT.get(stage, {}))) for stage in STAGES]
        self._owed = not cut or bool(found[-1].metrics.get("cut_held_back"))
        if not self._owed:
            self._cut_at = time.monotonic()
        return found

    def cut(self) -> list[StageResult]:
        """The cut of the rounds that published none, if there are any."""
        if not self._owed:
            return []
        self._owed, self._cut_at = False, time.monotonic()
        return [call(*self._place, "snapshots")]
