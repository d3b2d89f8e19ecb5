"""Kafka → landing/<source>: byte for byte, exactly once, in bounded batches.

The checkpoint alone says where reading goes on. The ledger of landed ranges is made from the commits of the landing
table, so that it can't miss or repeat a batch either; it is brought up to date before Kafka is looked at.
"""

import logging
import time
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform.config import Config, Source
from cdc_platform.errors import KafkaUnreachable, OffsetsLost, TopicCompacted
from cdc_platform.kafka import offsets
from cdc_platform.lake import batches, checkpoints, delta_table, stores
from cdc_platform.lake.data_files import note_of
from cdc_platform.lake.store import File, Store
from cdc_platform.landing import counting, positions
from cdc_platform.landing.direct import Landed, land
from cdc_platform.landing.ended import GONE, ended
from cdc_platform.landing.ended import check as check_ended
from cdc_platform.landing.positions import GENERATION, Where, position
from cdc_platform.results import StageResult, Stopwatch
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import CHECKPOINT, LANDING, OFFSET_LEDGER, TOPICS

log = logging.getLogger(__name__)

_LEDGER_COLUMNS = (
    *("source", "batch", "room", "topic", "partition", "from_offset", "to_offset", "outcome", "records"),
    *("base", "topic_id"),
)


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the landing stage. Raises OffsetsLost, TopicCompacted, KafkaUnreachable, ConfigError."""
    watch = Stopwatch()
    path = delta_sql.ensure(LANDING, LANDING.at(stores.lake(config), source=source.name))
    ledger = delta_sql.ensure(OFFSET_LEDGER, OFFSET_LEDGER.at(stores.lake(config)))
    topics = delta_sql.ensure(TOPICS, TOPICS.at(stores.lake(config)))
    now = position(ledger, source)
    if _account(spark, config, source, now.generation):
        now = position(ledger, source)
    known = _topic_ids(topics, source)
    looked_ms = int(time.time() * 1000)
    state = offsets.stable_state(config, source, now.landed, now.bases)
    check_ended(source, ended(config, source), state, now.landed)
    again = positions.back(now, state, known)
    state = offsets.numbered(state, again.new)
    lost = _losses(source, state, now.before(known, again))
    if lost:
        _note_losses(source, lost, now.generation + 1, ledger)
        now = position(ledger, source)
    if at := {w: offset for w, offset in {**again.same, **again.new}.items() if w not in now.landed}:
        said = {"source": source.name, "batch": now.batch, "room": "landing", "outcome": "landed", "records": 0}
        delta_table.append_rows(ledger, [{**said, **row} for row in positions.noted(at, again, state)])
        now = position(ledger, source)
    state = offsets.numbered(state, now.bases)
    generation, landed, batch = now.generation, now.landed, now.batch
    if not state:  # a pattern that matches nothing (any more): no checkpoint, so no wrong start either
        return StageResult(
            "landing", source.name, 0, 0, watch.seconds, {"records": 0, "lag": 0, "partitions": 0, "lost": len(lost)}
        )
    if landed and (added := offsets.added(state, now.before(known, again), source.topics)):
        landed = _note_positions(source, added, landed, batch, ledger)  # first: what goes from here on is lost
    _note_topics(source, state, known, topics)
    if not landed:
        first = offsets.first_offsets(state, "earliest" if generation else source.start)
        landed = _note_positions(source, first, landed, batch, ledger)
    if any(s.end > landed.get((s.topic, s.partition), s.begin) for s in state):
        _check_compaction(config, source, state)
    done = _land(spark, config, source, state, landed, path, generation, looked_ms)
    if done.batches and _account(spark, config, source, generation):
        now = position(ledger, source)
        landed, batch = now.landed, now.batch
    elif not done.batches and len(state) > 1:
        checkpoints.note_look(_checkpoint(config, source, generation), looked_ms)
    there = {(s.topic, s.partition) for s in state}  # the checkpoint tells those, too, that others took the place of
    landed = _note_positions(source, {w: at for w, at in done.ends.items() if w in there}, landed, batch, ledger)
    _commit_group(config, source, landed, now.bases)
    lag = sum(max(0, s.end - landed.get((s.topic, s.partition), s.begin)) for s in state)
    return StageResult(
        "landing",
        source.name,
        done.records,
        done.batches,
        watch.seconds,
        {
            "records": done.records,
            "lag": lag,
            "partitions": len(state),
            "lost": sum(x["to_offset"] - x["from_offset"] for x in lost),
        },
    )


def _land(
    spark: SparkSession,
    config: Config,
    source: Source,
    state: list[offsets.PartitionState],
    landed: dict[Where, int],
    path: Store,
    generation: int,
    looked_ms: int,
) -> Landed:
    """What Kafka holds beyond what was landed."""
    checkpoint = _checkpoint(config, source, generation)
    starts = {(s.topic, s.partition): landed.get((s.topic, s.partition), s.begin) for s in state}
    return land(spark, config, source, state, starts, path, checkpoint, looked_ms)


def _checkpoint(config: Config, source: Source, generation: int) -> Store:
    return CHECKPOINT.at(stores.lake(config), room="landing", source=f"{source.name}.{generation}")


def looked_at(config: Config, source: Source) -> datetime | None:
    """When Kafka had been looked at last of which all has landed: by the run of the newest batch, or by one since that
    found nothing. None: the newest batch's run was ended before it had all, or an earlier version did it."""
    now = position(OFFSET_LEDGER.at(stores.lake(config)), source)
    checkpoint = _checkpoint(config, source, now.generation)
    _, done = checkpoints.newest(checkpoint)
    entry = checkpoints.begun(checkpoint, done)
    of_batch = checkpoints.looked_ms(entry) if entry is not None else None
    looked = max((at for at in (of_batch, checkpoints.last_look(checkpoint)) if at is not None), default=None)
    return None if looked is None else datetime.fromtimestamp(looked / 1000, UTC)


def _topic_ids(topics: Store, source: Source) -> dict[str, list[str]]:
    """Topic → ids under which it was landed, the newest last."""
    known: dict[str, list[str]] = {}
    asked = f"SELECT topic, topic_id FROM {{t}} WHERE source = '{source.name}' ORDER BY seen_at"
    for row in delta_table.ask(asked, t=topics):
        if row["topic_id"] not in ("", offsets.NO_ID):
            known.setdefault(row["topic"], []).append(row["topic_id"])
    return known


def _losses(source: Source, state: list[offsets.PartitionState], before: offsets.Before) -> list[dict[str, Any]]:
    """Accepted losses; raises OffsetsLost where the source doesn't accept them."""
    lost = offsets.losses(state, before, source.topics)
    if lost and source.on_lost_offsets == "fail":
        raise OffsetsLost(source.name, lost)
    if lost:
        log.warning("source %s: accepted the loss of %d ranges", source.name, len(lost))
    return lost


def _check_compaction(config: Config, source: Source, state: list[offsets.PartitionState]) -> None:
    """Raises TopicCompacted where the source doesn't accept that changes go."""
    try:
        found = offsets.compacted(config, source, sorted({s.topic for s in state}))
    except KafkaUnreachable as error:
        if source.on_lost_offsets == "fail":
            raise
        log.warning("source %s: whether Kafka compacts its topics isn't known: %s", source.name, error)
        return
    if found and source.on_lost_offsets == "fail":
        raise TopicCompacted(source.name, found)
    if found:
        log.warning("source %s: accepted that Kafka compacts %s", source.name, ", ".join(found))


def _note_topics(
    source: Source, state: list[offsets.PartitionState], known: dict[str, list[str]], topics: Store
) -> None:
    """Remember ids of topics that are new or were made again."""
    there = {(source.name, s.topic, s.topic_id) for s in state if s.topic_id}
    new = sorted((n, topic, id) for n, topic, id in there if id not in known.get(topic, ()))
    if new:
        seen = datetime.now(UTC)
        delta_table.append_rows(topics, [{"source": s, "topic": t, "topic_id": i, "seen_at": seen} for s, t, i in new])


def _note_losses(source: Source, lost: list[dict[str, Any]], generation: int, ledger: Store) -> None:
    """Gaps as ledger rows; to_offset is where landing goes on less one (GONE: the partition is gone)."""
    rows = [
        (
            source.name,
            generation * GENERATION - 1,
            "landing",
            x["topic"],
            x["partition"],
            x["from_offset"],
            GONE if x["restart"] is None else x["restart"] - 1,
            "lost",
            x["to_offset"] - x["from_offset"],
            x["base"],
            x["topic_id"],
        )
        for x in lost
    ]
    seen = {"lost_at": datetime.now(UTC)}
    delta_table.append_rows(ledger, [dict(zip(_LEDGER_COLUMNS, r, strict=True)) | seen for r in rows])


def _note_positions(
    source: Source,
    now: dict[Where, int],
    landed: dict[Where, int],
    batch: int,
    ledger: Store,
) -> dict[Where, int]:
    """Next offsets that no landed record tells, as ledger rows of 0 records; returns all next offsets.

    Transaction markers and aborted records take offsets but are never landed, and a partition may hold nothing yet.
    When retention removes such offsets, or the topic is made again, landed records alone wouldn't tell whether
    something unread is gone. A row written twice changes nothing.
    """
    passed = {k: offset for k, offset in sorted(now.items()) if offset != landed.get(k)}
    if passed:
        rows = [
            (source.name, batch, "landing", t, p, landed.get((t, p), offset), offset - 1, "landed", 0, None, None)
            for (t, p), offset in passed.items()
        ]
        delta_table.append_rows(ledger, [dict(zip(_LEDGER_COLUMNS, r, strict=True)) for r in rows])
    return {**landed, **passed}


def account(spark: SparkSession, config: Config, source: Source) -> None:
    """Brings the ledger of landed ranges up to date with what is in landing."""
    ledger = delta_sql.ensure(OFFSET_LEDGER, OFFSET_LEDGER.at(stores.lake(config)))
    _account(spark, config, source, position(ledger, source).generation)


def _account(spark: SparkSession, config: Config, source: Source, generation: int) -> list[int]:
    """Write `landed` ledger rows for batches that have none yet; returns their ids."""
    name = source.name
    ledger = OFFSET_LEDGER.at(stores.lake(config))
    path = LANDING.at(stores.lake(config), source=name)

    checkpoint = CHECKPOINT.at(stores.lake(config), room="ledger", source=name)

    def note(batch_id: int, counted: list[dict[str, Any]]) -> None:
        said = {"source": name, "batch": generation * GENERATION + batch_id, "room": "landing", "outcome": "landed"}
        # Of any generation: losses may be accepted between a kill and the batch's repetition. With records:
        # positions are noted under the number of a batch that need not have been accounted for.
        of = f"source = '{name}' AND outcome = 'landed' AND records > 0 AND batch % {GENERATION} = {batch_id}"
        delta_table.append_rows(ledger, [{**said, **c} for c in counted], of=of)

    def each(spark: SparkSession, files: list[File], batch_id: int) -> None:
        told = [r for f in files if (r := counting.ranges(note_of(f))) is not None]
        if len(told) < len(files):
            told = arrow_tasks.over(spark, files, counting.ADDRESSES, counting.count, {}, whole=True).told
        note(batch_id, counting.summed(told))

    return batches.for_each(spark, path, source.max_bytes_per_batch, checkpoint, each)


def _commit_group(config: Config, source: Source, landed: dict[Where, int], bases: dict[Where, int]) -> None:
    from confluent_kafka import KafkaException

    if not landed:
        return
    try:
        offsets.commit_group(config, source, landed, bases)
    except KafkaException as error:
        log.warning(
            "source %s: offsets are landed but not committed for lag tools: %s", source.name, error.args[0].str()
        )
