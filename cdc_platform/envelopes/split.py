"""Records of a batch that are no messages by themselves: parts of split messages, which are joined, wait or are torn,
and records that are no part of anything. DataFrames; which parts belong together `reassemble` decides."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.config import Source
from cdc_platform.envelopes import reassemble
from cdc_platform.envelopes.whole import ENVELOPE
from cdc_platform.formats import FORMATS
from cdc_platform.formats.protobuf.arrow import bytes_of
from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.landing import positions
from cdc_platform.landing.positions import Where
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.spark.arrow_tasks import spark_schema
from cdc_platform.tables import WAITING

_WAITING = tuple(n for n in WAITING.names if n != "batch")


def split_and_rejected(
    records: DataFrame, before: DataFrame, source: Source, paths: dict[str, Store], batch_id: int, bad_ones: bool
) -> None:
    """Writes split messages, torn ones and records that are no part of anything. records: THIN rows of a batch;
    before: parts that waited."""
    # Each write asks for some of them. On disk: of parts there may be as many bytes as a batch has.
    records = records.persist(StorageLevel.DISK_ONLY)
    here = records.where(F.col("error").isNull()).withColumn("carried", F.lit(False))
    known = before.select(*_WAITING, F.lit(True).alias("carried"))
    everything = known.unionByName(here.select(*_WAITING, "carried"))
    seams = positions.seams(paths["ledger"], source)
    verdicts = _verdicts_of(everything, source.waiting_timeout_s * 1000, seams).persist(StorageLevel.DISK_ONLY)
    try:
        found = {r["verdict"] for r in verdicts.select("verdict").distinct().collect()}
        split = (
            everything.where(F.col("total") > 1)
            .drop("carried")
            .join(F.broadcast(verdicts), ["topic", "partition", "shard", "offset"])
        )
        bad = records.where(F.col("error").isNotNull()).select(
            "topic", "partition", "offset", "landed_at", F.col("error").alias("reason"), F.lit(False).alias("carried")
        )
        if bad_ones:
            found.add("bad")
        writes = _writes(split, bad, found, source, batch_id)
        partitions = {"ledger": {"source": source.name}, "quarantine": {"source": source.name}}
        partitions["waiting"] = {"batch": str(batch_id)}
        delta_sql.run_parallel(
            [
                partial(arrow_tasks.append, rows, paths[table], (app, batch_id), **partitions.get(table, {}))
                for table, rows, app in writes
            ]
        )
    finally:
        verdicts.unpersist()
        records.unpersist()
    delta_table.delete(paths["waiting"], f"batch < {int(batch_id) - 1}")


def _writes(
    split: DataFrame, bad: DataFrame, found: set[str], source: Source, batch_id: int
) -> list[tuple[str, DataFrame, str]]:
    """Table, rows, and the name of the write. found: verdicts there are, and `bad`."""
    app = f"envelopes {source.name}"
    torn = split.where(F.col("verdict") == "torn").select(*bad.columns)
    waiting = split.where(F.col("verdict") == "waiting").select(
        F.lit(batch_id).cast("bigint").alias("batch"), *_WAITING
    )
    writes = [("ledger", _ledger_rows(_outcomes(split, bad), source, batch_id), app)]
    if "complete" in found:
        writes.append(("envelopes", _joined_rows(split), f"envelopes joined {source.name}"))
    if found & {"torn", "bad"}:
        writes.append(("quarantine", _quarantine_rows(bad.unionByName(torn), source), app))
    if "waiting" in found:
        writes.append(("waiting", waiting, app))
    return writes


def _verdicts_of(parts: DataFrame, timeout_ms: int, seams: Mapping[Where, Sequence[int]]) -> DataFrame:
    """Part rows (with `carried`) → VERDICT rows. seams: as positions.seams."""
    meta = parts.select(
        "topic",
        "partition",
        "shard",
        "offset",
        "total",
        "index",
        F.when(F.col("total") > 1, F.xxhash64("data")).otherwise(F.lit(0)).alias("digest"),
        F.unix_millis("timestamp").alias("at"),
        "carried",
        F.coalesce(F.col("seq").try_cast("bigint"), F.lit(-1)).alias("seq"),
    )

    def verdict(group: pa.Table) -> pa.Table:
        where = (group.column("topic")[0].as_py(), group.column("partition")[0].as_py()) if group.num_rows else ("", 0)
        return reassemble.classify_partition(group.cast(reassemble.META), timeout_ms, seams.get(where, ()))

    return meta.groupBy("topic", "partition").applyInArrow(verdict, spark_schema(reassemble.VERDICT))


def _joined_rows(split: DataFrame) -> DataFrame:
    """Parts with verdict `complete` → ENVELOPES rows."""
    part = F.struct("index", "data")
    grouped = (
        split.where(F.col("verdict") == "complete")
        .groupBy("topic", "partition", "shard", F.col("message").alias("offset"))
        .agg(
            F.max("offset").alias("last_offset"),
            F.count(F.lit(1)).cast("int").alias("parts"),
            *(F.min_by(c, "index").alias(c) for c in ("seq", "timestamp", "key", "headers")),
            F.max("landed_at").alias("landed_at"),
            F.sort_array(F.collect_list(part)).alias("pieces"),
        )
    )
    rows = grouped.withColumn("value", F.transform("pieces", lambda piece: piece["data"])).select(*ENVELOPE.names)
    return rows.mapInArrow(_joined, spark_schema(ENVELOPE))


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with pieces in place of `value` → ENVELOPE rows."""
    at = ENVELOPE.names.index("value")
    for batch in batches:
        columns = batch.columns
        columns[at] = joined(columns[at])
        found = zip(columns, ENVELOPE.types, strict=True)
        yield pa.RecordBatch.from_arrays([c.cast(t) for c, t in found], schema=ENVELOPE)


def joined(pieces: pa.ListArray) -> pa.BinaryArray:
    """Lists of byte strings, none of them NULL → their bytes, one behind the other, as they lie in Arrow's memory
    already. (Spark's own `concat` copies what it has of a message for each piece of it.)"""
    offsets, data = bytes_of(pieces.flatten())
    ends = pieces.offsets.to_numpy() - pieces.offsets[0].as_py()
    return pa.Array.from_buffers(pa.binary(), len(pieces), [None, pa.py_buffer(offsets[ends]), data])


def _quarantine_rows(unusable: DataFrame, source: Source) -> DataFrame:
    return unusable.select(
        F.lit(source.name).alias("source"),
        F.lit(source.format).alias("format"),
        F.lit(FORMATS[source.format].version).alias("decoder_version"),
        F.lit("envelopes").alias("room"),
        "topic",
        "partition",
        "offset",
        F.lit(None).cast("int").alias("entry_index"),
        F.lit(None).cast("int").alias("row_index"),
        F.lit(None).cast("string").alias("db"),
        F.lit(None).cast("string").alias("table"),
        "reason",
        "landed_at",
        F.current_timestamp().alias("quarantined_at"),
    )


def _outcomes(split: DataFrame, bad: DataFrame) -> DataFrame:
    """One row per change of an offset's outcome: topic, partition, offset, outcome, records (+1 or -1).

    Complete parts get their outcome in the changelog, with their message; here they only leave `waiting`.
    """
    named = (
        F.when(F.col("verdict") == "torn", "quarantined")
        .when(F.col("verdict") == "complete", F.lit(None))
        .otherwise(F.col("verdict"))
    )
    taken_back = F.when(
        F.col("carried"), F.array(F.struct(F.lit("waiting").alias("outcome"), F.lit(-1).alias("records")))
    )
    now = F.when(named.isNotNull(), F.array(F.struct(named.alias("outcome"), F.lit(1).alias("records"))))
    empty = F.array().cast("array<struct<outcome: string, records: int>>")
    both = F.concat(F.coalesce(taken_back, empty), F.coalesce(now, empty))
    of_split = split.select("topic", "partition", "offset", F.explode(both).alias("o")).select(
        "topic", "partition", "offset", "o.*"
    )
    return of_split.unionByName(
        bad.select("topic", "partition", "offset", F.lit("quarantined").alias("outcome"), F.lit(1).alias("records"))
    )


def _ledger_rows(outcomes: DataFrame, source: Source, batch_id: int) -> DataFrame:
    grouped = outcomes.groupBy("topic", "partition", "outcome").agg(
        F.min("offset").alias("from_offset"),
        F.max("offset").alias("to_offset"),
        F.sum("records").cast("bigint").alias("records"),
    )
    return grouped.where("records <> 0").select(
        F.lit(source.name).alias("source"),
        F.lit(batch_id).cast("bigint").alias("batch"),
        F.lit("envelopes").alias("room"),
        "topic",
        "partition",
        "from_offset",
        "to_offset",
        "outcome",
        "records",
    )
