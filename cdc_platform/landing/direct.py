"""Kafka → landing by Arrow tasks, batch by batch, each recorded in a checkpoint before and after it. Offsets stand
there as in Spark's `KafkaSourceOffset`, version 1."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_platform.config import Config, Source
from cdc_platform.errors import KafkaUnreachable
from cdc_platform.formats import FORMATS
from cdc_platform.kafka import reader
from cdc_platform.kafka.client import group_id, librdkafka_properties
from cdc_platform.kafka.offsets import PartitionState
from cdc_platform.kafka.reader import Range
from cdc_platform.lake import checkpoints, commits
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.lake.store import Store
from cdc_platform.landing import counting, erased
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import LANDING

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
    path: Store,
    checkpoint: Store,
    looked_ms: int,
) -> Landed:
    """Up to the ends in `state`, as they were at that time. starts: of partitions that the checkpoint doesn't know, or
    knows from before others took their place for a while.
    Raises KafkaUnreachable."""
    sink = Sink(path, reader.RECORD, LANDING.stats, ("topic", "timestamp_type"))
    records = ran = 0
    begun, done = checkpoints.newest(checkpoint)
    entry = checkpoints.begun(checkpoint, done)
    known, bases = _ends(entry), {(s.topic, s.partition): s.base for s in state}
    before = {at: max(starts.get(at, 0), known.get(at, 0)) for at in {**starts, **known}}
    while True:
        if begun == done:
            ends = _planned(before, state, source.max_records_per_batch)
            if ends == before:
                return Landed(records, ran, before)
            looked = looked_ms if ends == {**before, **{(s.topic, s.partition): s.end for s in state}} else None
            settings = checkpoints.settings(spark, entry, now_ms=int(time.time() * 1000), looked_ms=looked)
            entry = checkpoints.note(checkpoint, "offsets", done + 1, f"{settings}\n{_text(ends)}")
        else:
            entry = checkpoints.begun(checkpoint, begun)
            ends = {**before, **_ends(entry)}
        ranges = [
            Range(*at, before.get(at, 0), end, bases.get(at, 0))
            for at, end in sorted(ends.items())
            if end > before.get(at, 0)
        ]
        landed = _batch(spark, config, source, sink, ranges, checkpoint, done + 1)
        checkpoints.note(checkpoint, "commits", done + 1, '{"nextBatchWatermarkMs":0}')
        records += landed
        ran += landed > 0
        begun, done, before = done + 1, done + 1, ends


def _batch(
    spark: SparkSession, config: Config, source: Source, sink: Sink, ranges: list[Range], checkpoint: Store, number: int
) -> int:
    """One batch, once; its records."""
    app = checkpoints.query_id(checkpoint)
    if commits.done_before(sink.table, app, number):
        return 0
    properties = {**librdkafka_properties(config, source), "group.id": group_id(source)}
    rows = reader.Reading(properties, checkpoints.time_ms(checkpoint, number) * 1000)
    needs = FORMATS[source.format].context
    work = partial(_write, counting.Asked.of(needs), erased.among(config, source, sink.table, ranges))
    try:
        done = arrow_tasks.run(spark, ranges, rows, work, {"landing": sink})
    except PySparkException as error:
        if failed := re.search(r"KafkaFailed: ([^\n]*)", str(error)):
            raise KafkaUnreachable(source.name, properties["bootstrap.servers"], failed[1]) from None
        raise
    except BaseException as why:
        if not isinstance(why, Exception):  # a terminated Dagster run: what the server is at ends too
            spark.interruptAll()
        raise
    commits.append_files(sink, done.written["landing"], (app, number))
    return sum(done.told)


def _planned(before: Offsets, state: list[PartitionState], most: int) -> Offsets:
    """Where the next batch ends: at most so many offsets in all, of each partition its share, at least one."""
    ends = {(s.topic, s.partition): s.end for s in state}
    left = {at: end - before.get(at, 0) for at, end in ends.items() if end > before.get(at, 0)}
    total = sum(left.values())
    shares = {at: n if total <= most else max(1, most * n // total) for at, n in left.items()}
    return {**before, **{at: before.get(at, 0) + n for at, n in shares.items()}}


def _ends(entry: str | None) -> Offsets:
    told = checkpoints.end(entry) if entry is not None else {}
    return {(topic, int(p)): offset for topic, partitions in told.items() for p, offset in partitions.items()}


def _text(ends: Offsets) -> str:
    """As Spark's Kafka source has it (KafkaSourceOffset, JsonUtils.partitionOffsets)."""
    told: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(ends.items()):
        told.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(told)


def _write(
    asked: counting.Asked,
    known: Mapping[erased.Place, Sequence[erased.Known]],
    batches: Iterator[pa.RecordBatch],
    out: Mapping[str, Output],
) -> int:
    """The work of a pass: all but bytes that were erased before (`known`) into the output `landing`, whose file has a
    note of them; tells how many."""
    notes = counting.Notes(asked)
    for batch in batches:
        out["landing"].write(erased.without_erased(batch, known))
        notes.add(batch)
    out["landing"].note = notes.to_json()
    return sum(c["records"] for c in notes.ranges)
