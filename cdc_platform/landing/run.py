"""Kafka → landing/<source>: byte for byte, exactly once, in bounded batches.

The streaming checkpoint alone says where reading goes on. The ledger of landed ranges is itself a stream over the
landing table, so that it can't miss or repeat a batch either; it is brought up to date before Kafka is looked at.
"""

import json
import logging
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.errors import OffsetsLost
from cdc_platform.landing import offsets
from cdc_platform.resources import lake
from cdc_platform.resources.kafka import spark_options
from cdc_platform.tables import CHECKPOINT, LANDING, OFFSET_LEDGER, TOPICS

log = logging.getLogger(__name__)

_LEDGER_COLUMNS = ("source", "batch", "room", "topic", "partition", "from_offset", "to_offset", "outcome", "records")


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of the landing room. Raises OffsetsLost, KafkaUnreachable, ConfigError."""
    watch = lake.Stopwatch()
    path = lake.ensure(spark, LANDING, LANDING.at(config.lake, source=source.name))
    ledger = lake.ensure(spark, OFFSET_LEDGER, OFFSET_LEDGER.at(config.lake))
    topics = lake.ensure(spark, TOPICS, TOPICS.at(config.lake))
    generation = _generation(spark, ledger, source)
    _account(spark, config, source, generation)
    landed = landed_offsets(spark, ledger, source)
    state = offsets.settled_state(config, source, landed)
    lost = _losses(spark, source, state, landed, topics)
    if lost:
        generation += 1
        _note_losses(spark, source, lost, generation, ledger)
        landed = landed_offsets(spark, ledger, source)
    _note_topics(spark, source, state, topics)
    starts = _starts(state, landed) if generation else source.start
    progress = lake.into_table(
        _records(spark, config, source, starts), path,
        CHECKPOINT.at(config.lake, room="landing", source=f"{source.name}.{generation}"), f"landing {source.name}",
    )
    if _account(spark, config, source, generation):
        landed = landed_offsets(spark, ledger, source)
    _commit_group(config, source, landed)
    records = lake.input_rows(progress)
    lag = sum(max(0, s.end - landed.get((s.topic, s.partition), s.begin)) for s in state)
    return RoomResult(
        "landing", source.name, records, lake.batches(progress), watch.seconds,
        {"records": records, "lag": lag, "partitions": len(state), "lost": sum(x["to_offset"] - x["from_offset"] for x in lost)},
    )


def landed_offsets(spark: SparkSession, ledger: str, source: Source) -> dict[tuple[str, int], int]:
    """(topic, partition) → next offset to land; a partition whose loss was accepted goes on at its restart."""
    rows = (
        lake.read(spark, ledger)
        .where((F.col("source") == source.name) & F.col("outcome").isin("landed", "lost"))
        .groupBy("topic", "partition")
        .agg(F.max_by(F.col("to_offset"), F.struct("batch", "to_offset")).alias("last"))
        .collect()
    )
    return {(r["topic"], r["partition"]): r["last"] + 1 for r in rows if r["last"] >= 0}


def _records(spark: SparkSession, config: Config, source: Source, starts: str) -> DataFrame:
    """The source's Kafka records as LANDING rows, a stream."""
    reader = (
        spark.readStream.format("kafka")
        .options(**{"kafka.isolation.level": "read_committed", **spark_options(config, source)})
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .option("startingOffsets", starts)
        .option("maxOffsetsPerTrigger", source.max_records_per_batch)
    )
    return reader.load().select(
        "topic", "partition", "offset", "timestamp", F.col("timestampType").alias("timestamp_type"), "key", "value",
        "headers", F.current_timestamp().alias("landed_at"),
    )


_GENERATION = 1 << 40
"""Ledger batches of generation g are numbered from g * 2**40 on: newer always means larger."""


def _generation(spark: SparkSession, ledger: str, source: Source) -> int:
    """How often losses were accepted. Each time reading goes on with a new checkpoint: one that remembers offsets
    which no longer exist would skip the first records of a topic that was made again."""
    mine = lake.read(spark, ledger).where((F.col("source") == source.name) & (F.col("outcome") == "lost"))
    newest = mine.agg(F.max("batch").alias("b")).collect()[0]["b"]
    return 0 if newest is None else (newest + 1) // _GENERATION


def _losses(
    spark: SparkSession, source: Source, state: list[offsets.PartitionState], landed: dict[tuple[str, int], int], topics: str
) -> list[dict[str, Any]]:
    """Accepted losses; raises OffsetsLost where the source doesn't accept them."""
    rows = lake.read(spark, topics).where(F.col("source") == source.name).collect()
    known: dict[str, set[str]] = {}
    for row in rows:
        known.setdefault(row["topic"], set()).add(row["topic_id"])
    lost = offsets.losses(state, landed, known)
    if lost and source.on_lost_offsets == "fail":
        raise OffsetsLost(source.name, lost)
    if lost:
        log.warning("source %s: accepted the loss of %d ranges", source.name, len(lost))
    return lost


def _starts(state: list[offsets.PartitionState], landed: dict[tuple[str, int], int]) -> str:
    """Starting offsets of a fresh checkpoint, as Spark's Kafka source takes them."""
    starts: dict[str, dict[str, int]] = {}
    for s in state:
        starts.setdefault(s.topic, {})[str(s.partition)] = landed.get((s.topic, s.partition), s.begin)
    return json.dumps(starts)


def _note_topics(spark: SparkSession, source: Source, state: list[offsets.PartitionState], topics: str) -> None:
    """Remember ids of topics that are new or were made again."""
    known = lake.read(spark, topics).where(F.col("source") == source.name).select("topic", "topic_id")
    now = spark.createDataFrame(
        sorted({(s.topic, s.topic_id) for s in state}), "topic STRING, topic_id STRING"
    ).join(known, ["topic", "topic_id"], "left_anti")
    if now.isEmpty():
        return
    rows = now.select(F.lit(source.name).alias("source"), "topic", "topic_id", F.current_timestamp().alias("seen_at"))
    rows.write.format("delta").mode("append").save(topics)


def _note_losses(spark: SparkSession, source: Source, lost: list[dict[str, Any]], generation: int, ledger: str) -> None:
    """Gaps as ledger rows; to_offset is where landing goes on less one (-1: the partition is gone)."""
    rows = [
        (source.name, generation * _GENERATION - 1, "landing", x["topic"], x["partition"], x["from_offset"],
         -1 if x["restart"] is None else x["restart"] - 1, "lost", x["to_offset"] - x["from_offset"])
        for x in lost
    ]
    columns = spark.read.format("delta").load(ledger).schema
    lake.append(spark.createDataFrame(rows, columns), ledger, f"losses {source.name}", generation)


def _account(spark: SparkSession, config: Config, source: Source, generation: int) -> int:
    """Write `landed` ledger rows for batches that have none yet; returns how many batches."""
    name = source.name
    ledger = OFFSET_LEDGER.at(config.lake)
    path = LANDING.at(config.lake, source=name)

    def each(batch: DataFrame, batch_id: int) -> None:
        counted = batch.groupBy("topic", "partition").agg(
            F.min("offset").alias("from_offset"), F.max("offset").alias("to_offset"), F.count(F.lit(1)).alias("records")
        )
        rows = counted.select(
            F.lit(name).alias("source"), F.lit(generation * _GENERATION + batch_id).cast("bigint").alias("batch"), F.lit("landing").alias("room"),
            "topic", "partition", "from_offset", "to_offset", F.lit("landed").alias("outcome"), "records",
        ).select(*_LEDGER_COLUMNS)
        lake.append(rows, ledger, f"ledger landing {name}", batch_id)

    progress = lake.for_each_batch(
        lake.stream(spark, path, source.max_bytes_per_batch).select("topic", "partition", "offset"),
        CHECKPOINT.at(config.lake, room="ledger", source=name), f"ledger {name}", each,
    )
    return lake.batches(progress)


def _commit_group(config: Config, source: Source, landed: dict[tuple[str, int], int]) -> None:
    from confluent_kafka import KafkaException

    if not landed:
        return
    try:
        offsets.commit_group(config, source, landed)
    except KafkaException as error:
        log.warning("source %s: offsets are landed but not committed for lag tools: %s", source.name, error.args[0].str())
