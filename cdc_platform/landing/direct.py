"""Kafka → landing by passes, where this process sees the lake as a folder: batch by batch, each noted before and after
in the checkpoint of Spark's own query (`v1` of KafkaSourceOffset), so that either goes on where the other stopped."""

import json
import re
import time
from pathlib import Path
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_platform.config import Config, Source
from cdc_platform.errors import KafkaUnreachable
from cdc_platform.landing import reading
from cdc_platform.landing.offsets import PartitionState
from cdc_platform.landing.reading import Range
from cdc_platform.resources import checkpoints, passes
from cdc_platform.resources.kafka import group_id, librdkafka_properties
from cdc_platform.resources.parquet import Sink
from cdc_platform.tables import LANDING, STATS

Offsets = dict[tuple[str, int], int]
"""(topic, partition) → next offset."""


class Landed(NamedTuple):
    """What was landed: records, batches with any, and where landing stands now."""

    records: int
    batches: int
    ends: Offsets


def land(
    spark: SparkSession,
    config: Config,
    source: Source,
    state: list[PartitionState],
    starts: Offsets,
    path: str,
    checkpoint: Path,
) -> Landed:
    """Up to the ends in `state`. starts: of partitions that the checkpoint doesn't know. Raises KafkaUnreachable."""
    sink = Sink(path, reading.RECORD, tuple(LANDING.properties[STATS].split(",")), ("topic", "timestamp_type"))
    records = ran = 0
    while True:
        begun, done = (checkpoints.newest(checkpoint, log) for log in ("offsets", "commits"))
        before = {**starts, **_ends(checkpoint, done)}
        if begun == done:
            ends = _planned(before, state, source.max_records_per_batch)
            if ends == before:
                return Landed(records, ran, before)
            settings = checkpoints.settings(spark, checkpoint, done, now_ms=int(time.time() * 1000))
            checkpoints.note(checkpoint, "offsets", done + 1, f"{settings}\n{_text(ends)}")
        else:
            ends = {**before, **_ends(checkpoint, begun)}
        ranges = [Range(*at, before.get(at, 0), end) for at, end in sorted(ends.items()) if end > before.get(at, 0)]
        landed = _batch(spark, config, source, sink, ranges, checkpoint, done + 1)
        checkpoints.note(checkpoint, "commits", done + 1, '{"nextBatchWatermarkMs":0}')
        records += landed
        ran += landed > 0


def _batch(
    spark: SparkSession, config: Config, source: Source, sink: Sink, ranges: list[Range], checkpoint: Path, number: int
) -> int:
    """One batch, once; its records."""
    app = checkpoints.query_id(str(checkpoint))
    if passes.done_before(sink.table, app, number):
        return 0
    properties = {**librdkafka_properties(config, source), "group.id": group_id(source)}
    rows = reading.Reading(properties, checkpoints.time_ms(checkpoint, number) * 1000)
    try:
        done = passes.run(spark, ranges, rows, reading.land, {"landing": sink})
    except PySparkException as error:
        if failed := re.search(r"KafkaFailed: ([^\n]*)", str(error)):
            raise KafkaUnreachable(source.name, properties["bootstrap.servers"], failed[1]) from None
        raise
    except BaseException as why:
        if not isinstance(why, Exception):  # a terminated Dagster run: what the server is at ends too
            spark.interruptAll()
        raise
    passes.commit(sink, done.written["landing"], app, number)
    return sum(done.told)


def _planned(before: Offsets, state: list[PartitionState], most: int) -> Offsets:
    """Where the next batch ends: at most so many offsets in all, of each partition its share, at least one."""
    ends = {(s.topic, s.partition): s.end for s in state}
    left = {at: end - before.get(at, 0) for at, end in ends.items() if end > before.get(at, 0)}
    total = sum(left.values())
    shares = {at: n if total <= most else max(1, most * n // total) for at, n in left.items()}
    return {**before, **{at: before.get(at, 0) + n for at, n in shares.items()}}


def _ends(checkpoint: Path, batch: int) -> Offsets:
    if batch < 0:
        return {}
    told = checkpoints.end(checkpoint, batch)
    return {(topic, int(p)): offset for topic, partitions in told.items() for p, offset in partitions.items()}


def _text(ends: Offsets) -> str:
    """As Spark's Kafka source has it (KafkaSourceOffset, JsonUtils.partitionOffsets)."""
    told: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(ends.items()):
        told.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(told)
