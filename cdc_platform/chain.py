"""The stages in the order of the data, as plain functions of a Spark session, the configuration and one source.

Dagster's assets and the command line call these and nothing deeper. Each call is one catch-up to "now": calling
it again with no new input changes nothing.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from cdc_platform.config import Config, Source
from cdc_platform.results import StageResult
from cdc_platform.units import count

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession

    from cdc_platform.lake.store import Store
    from cdc_platform.snapshots.state import Outcome
    from cdc_platform.tables import Name


_log = logging.getLogger("cdc_platform.run")
Stage = Callable[..., StageResult]
"""(session, config, source) → what was done."""


def _looks_once(stage: Stage) -> Stage:
    """A stage that looks at each table's log once (lake/log_state.py): its source's lease is held."""

    @wraps(stage)
    def run(spark: "SparkSession", config: Config, source: Source, *rest: Any, **how: Any) -> StageResult:
        from cdc_platform.lake import log_state, stores

        with log_state.looked_at_once(stores.lake(config)):
            return stage(spark, config, source, *rest, **how)

    return run


@_looks_once
def land(spark: "SparkSession", config: Config, source: Source) -> StageResult:
    """Kafka → landing/<source>. metrics: records, bytes, lag (records still in Kafka after the run), lost.
    Raises OffsetsLost, KafkaUnreachable."""
    from cdc_platform.landing.run import run

    return run(spark, config, source)


@_looks_once
def reassemble(spark: "SparkSession", config: Config, source: Source) -> StageResult:
    """landing → envelopes/<source>; nothing to do for formats that never split.
    metrics: messages, joined (messages of several parts), waiting, torn, duplicates."""
    from cdc_platform.envelopes.run import run

    return run(spark, config, source)


@_looks_once
def decode(spark: "SparkSession", config: Config, source: Source) -> StageResult:
    """Whole messages → changes/<format>/<source>. metrics: messages, events."""
    from cdc_platform.changes.run import run

    return run(spark, config, source)


@_looks_once
def unify(spark: "SparkSession", config: Config, source: Source) -> StageResult:
    """changes → changelog, schema_history, control_events, quarantine, offset_ledger.
    metrics: applied, control, filtered, duplicates, quarantined, ddl."""
    from cdc_platform.changelog.run import run

    return run(spark, config, source)


@_looks_once
def snapshot(spark: "SparkSession", config: Config, source: Source, *, cut: bool = True) -> StageResult:
    """changelog → snapshots/<source>/<db>[/<schema>]/<table>. cut: whether to publish one; a later call does where it
    is left out. metrics: changes, stopped_tables, and of a cut its number (0: none was published) and cut_held_back;
    tables: per table rows (live rows now), changes, invalid_dates, seconds, state ("live" or "stopped"), reason."""
    from cdc_platform.snapshots.run import run

    return run(spark, config, source, cut=cut)


@_looks_once
def rebuild(spark: "SparkSession", config: Config, source: Source, *name: str) -> StageResult:
    """One table made anew from the whole changelog; heals a stopped table. Raises TableStopped."""
    from cdc_platform.snapshots.run import rebuild

    return rebuild(spark, config, source, *name)


def as_of(
    spark: "SparkSession",
    config: Config,
    source: Source,
    name: "Name",
    at: "datetime | int | tuple[int, ...]",
    to: "Store",
) -> "tuple[Name, Outcome]":
    """One table as it was at a time of the source's clock, at a place in its order, or at a cut, made at a place
    of its own; the lake stays as it is. Returns the table's name then, and what was made. Raises NotReadable,
    TableStopped."""
    from cdc_platform.snapshots.as_of import make

    return make(spark, config, source, name, at, to)


def maintain(spark: "SparkSession", config: Config, source: Source) -> StageResult:
    """Upkeep of a source's tables: small files put together, files of old versions removed, old tombstones expired.
    metrics: tables, files_before, files, mb_before, mb, expired; tables: the same per path under the lake."""
    from cdc_platform.maintenance.run import run

    return run(spark, config, source)


def retry(
    spark: "SparkSession", config: Config, source: Source, choose: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Decodes messages that quarantine holds of a source once more, from the raw bytes, and brings the tables up to
    date. choose: gives the messages (topic, partition, offset, held) once all that came is decoded. Returns them."""
    from cdc_platform.changes.run import decode_again

    def step(stage: Callable[..., Any], doing: str, *more: Any) -> None:
        _log.info("retry of %s: %s", source.name, doing)
        stage(spark, config, source, *more)

    for stage in ("envelopes", "changes", "changelog"):  # what was decoded again before isn't held any more
        step(STAGES[stage], stage)
    held = choose()
    if held:
        step(decode_again, f"{count(len(held), 'message')} once more", held)
        step(unify, "changelog")
    step(snapshot, "snapshots")  # also of a retry before that was ended behind its decoding
    return held


STAGES: dict[str, Stage] = {
    "landing": land,
    "envelopes": reassemble,
    "changes": decode,
    "changelog": unify,
    "snapshots": snapshot,
}
