"""changes → changelog, schema_history, control_events, quarantine, offset_ledger: one vocabulary for all formats.

Each batch is looked at once for its figures, then every output is written at most once (txnAppId, txnVersion).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.chain import RoomResult
from cdc_platform.changelog import ledger, order, rules
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.resources import lake
from cdc_platform.tables import (
    CHANGELOG,
    CHANGES,
    CHECKPOINT,
    CONTROL_EVENTS,
    ENVELOPES,
    LINEAGES,
    OFFSET_LEDGER,
    QUARANTINE,
    SCHEMA_HISTORY,
)

_OUTPUTS = {
    "changelog": CHANGELOG,
    "schema_history": SCHEMA_HISTORY,
    "control_events": CONTROL_EVENTS,
    "quarantine": QUARANTINE,
    "ledger": OFFSET_LEDGER,
    "lineages": LINEAGES,
}
_TXN = ("source_time", "landed_at", "txn_id", "txn_seq", "txn_last", "gtid", "binlog_file", "binlog_pos", "order_key")
_MESSAGE = ("topic", "partition", "offset")
_CONTROL = ("begin", "commit", "rollback", "heartbeat", "checkpoint")


@dataclass(frozen=True, slots=True)
class _Batch:
    """One micro-batch on its way: its events with order and outcome, and where it goes."""

    source: Source
    paths: dict[str, str]
    number: int
    events: DataFrame

    def append(self, rows: Callable[["_Batch"], DataFrame], output: str) -> None:
        lake.append(rows(self), self.paths[output], f"changelog {self.source.name}", self.number)


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of the changelog room."""
    watch = lake.Stopwatch()
    paths = {name: lake.ensure(spark, table, table.at(config.lake)) for name, table in _OUTPUTS.items()}
    if FORMATS[source.format].part is not None:
        paths["envelopes"] = ENVELOPES.at(config.lake, source=source.name)
    changes = lake.stream(
        spark, CHANGES.at(config.lake, format=source.format, source=source.name), source.max_bytes_per_batch
    )
    progress = lake.for_each_batch(
        changes,
        CHECKPOINT.at(config.lake, room="changelog", source=source.name),
        f"changelog {source.name}",
        batch_writer(source, paths),
    )
    batches = lake.batches(progress)
    metrics = ledger.figures(spark, paths["ledger"], source, batches) if batches else {}
    return RoomResult("changelog", source.name, int(metrics.get("applied", 0)), len(batches), watch.seconds, metrics)


def batch_writer(source: Source, paths: dict[str, str]) -> Callable[[DataFrame, int], None]:
    """The foreachBatch function of one source."""

    def each(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        figures = order.profile(batch)
        if not figures:
            return
        known, reached = _lineages(spark, paths["lineages"], source, batch_id)
        epochs = order.epochs_of(known, figures)
        events = batch.withColumn("order_key", order.order_key(epochs)).withColumn("outcome", ledger.outcome(source))
        repeats = _repeats(spark, batch, figures, epochs, reached, paths["changelog"], source)
        if repeats is not None:
            events = (
                events.join(repeats.withColumn("_again", F.lit(True)), list(order.ADDRESS), "left")
                .withColumn(
                    "outcome",
                    F.when(F.col("_again") & (F.col("kind") == "row"), "duplicate").otherwise(F.col("outcome")),
                )
                .drop("_again")
            )
        work = _writes(_Batch(source, paths, batch_id, events), figures)
        work.append(lambda: _note_lineages(spark, source, paths["lineages"], figures, epochs, batch_id))
        lake.together(work)

    return each


def _repeats(
    spark: SparkSession,
    batch: DataFrame,
    figures: list[dict[str, Any]],
    epochs: dict[str | None, int],
    reached: dict[int, tuple[int, Any]],
    changelog: str,
    source: Source,
) -> DataFrame | None:
    """Addresses of repeated row changes. The stored changelog is asked only when a batch goes back behind the
    highest position already seen, as a replay does."""
    rows = batch.where("kind = 'row'")
    found = order.repeated_here(rows)
    for f in figures:
        high = reached.get(epochs[f["lineage"]])
        if f["low"] is None or high is None or (f["low"]["file_no"], f["low"]["binlog_pos"]) > high:
            continue
        stored = lake.read(spark, changelog).where(F.col("source") == source.name)
        top = {"file_no": high[0], "binlog_pos": high[1]}
        of_lineage = rows.where(F.col("lineage").eqNullSafe(F.lit(f["lineage"])))
        again = order.repeated_before(of_lineage, stored, epochs, f["low"], top)
        found = again if found is None else found.union(again)
    return None if found is None else found.dropDuplicates()


def _writes(batch: _Batch, figures: list[dict[str, Any]]) -> list[Callable[[], None]]:
    """The batch's writes, one per output that has rows; independent of each other."""
    total = {k: sum(f[k] for f in figures) for k in ("rows", "ddl", "control", "errors", "retold")}
    versions = _new_versions(batch, {v for f in figures for v in f["versions"]})
    writes = {
        "changelog": (total["rows"], _changelog_rows),
        "schema_history": (versions or total["ddl"], partial(_schema_rows, versions=versions)),
        "control_events": (total["control"], _control_rows),
        "ledger": (True, partial(_ledger_rows, figures=figures)),
    }
    work = [partial(batch.append, rows, output) for output, (any_, rows) in writes.items() if any_]
    return [partial(_quarantine, batch, total["errors"], total["retold"]), *work]


def _said_by(source: Source, events: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """`source`, `format`, `decoder_version`, the Kafka address, then `columns`."""
    return events.select(
        F.lit(source.name).alias("source"),
        F.lit(source.format).alias("format"),
        F.lit(FORMATS[source.format].version).alias("decoder_version"),
        "topic",
        "partition",
        "offset",
        *columns,
    )


def _changelog_rows(batch: _Batch) -> DataFrame:
    rows = batch.events.where("kind = 'row' AND outcome = 'applied'").withColumn("key", rules.key(batch.source.tables))
    return _said_by(
        batch.source,
        rows,
        ("entry_index", "row_index", "db", "schema", "table", "op", "key", "before", "after", "schema_version", *_TXN),
    )


def _new_versions(batch: _Batch, stated: set[str]) -> set[str]:
    """Schema versions of this batch that the history doesn't know from earlier ones."""
    if not stated:
        return stated
    known = lake.read(batch.events.sparkSession, batch.paths["schema_history"]).where(
        (F.col("source") == batch.source.name) & (F.col("kind") == "message") & F.col("schema_version").isin(*stated)
    )
    return stated - {r["schema_version"] for r in known.select("schema_version").collect()}


def _schema_rows(batch: _Batch, versions: set[str]) -> DataFrame:
    """DDL statements, and the new column lists, each where it came first."""
    columns = ("entry_index", "kind", "db", "schema", "table", "schema_version", "columns", "ddl", "info", *_TXN)
    ddl = _said_by(batch.source, batch.events.where("kind = 'ddl'"), columns)
    if not versions:
        return ddl
    stated = batch.events.where((F.col("kind") == "schema") & F.col("schema_version").isin(*versions))
    first = stated.groupBy("schema_version").agg(F.min(F.struct("landed_at", *order.ADDRESS)).alias("_first"))
    # A list stands where the first row that it describes does: messages tell no place of their own for it.
    rows = batch.events.where((F.col("kind") == "row") & F.col("schema_version").isin(*versions))
    placed = rows.groupBy("schema_version").agg(F.min("order_key").alias("_placed"))
    new = (
        stated.join(F.broadcast(first), "schema_version")
        .join(F.broadcast(placed), "schema_version", "left")
        .where(F.struct("landed_at", *order.ADDRESS) == F.col("_first"))
        .withColumns({"kind": F.lit("message"), "order_key": F.coalesce("_placed", "order_key")})
    )
    return ddl.unionByName(_said_by(batch.source, new, columns))


def _control_rows(batch: _Batch) -> DataFrame:
    control = batch.events.where(F.col("kind").isin(*_CONTROL))
    return _said_by(batch.source, control, ("entry_index", "kind", "db", "info", *_TXN))


def _quarantine(batch: _Batch, errors: int, retold: int) -> None:
    """New rows, and what takes the place of earlier ones: one after the other, or Delta sees a conflict."""
    if errors:
        batch.append(_quarantine_rows, "quarantine")
    if retold:
        _resolve(batch)


def _quarantine_rows(batch: _Batch) -> DataFrame:
    bad = batch.events.where("outcome = 'quarantined'").withColumn("room", F.lit("changes"))
    return _said_by(
        batch.source, bad, ("room", "entry_index", "row_index", "db", "table", "reason", "landed_at")
    ).withColumn("quarantined_at", F.current_timestamp())


def _resolve(batch: _Batch) -> None:
    """Notes in quarantine whose place this batch takes: rows of its retold messages that give another reason. Once
    more changes nothing."""
    spark = batch.events.sparkSession
    view = f"cdc_retold_{uuid4().hex}"
    reasons = F.collect_set(F.when(F.col("kind") == "error", F.col("reason"))).alias("reasons")
    batch.events.where("retold").groupBy(*_MESSAGE).agg(reasons).createOrReplaceTempView(view)
    try:
        same = " AND ".join(f"q.{lake.quoted(c)} = r.{lake.quoted(c)}" for c in _MESSAGE)
        spark.sql(
            f"MERGE INTO {lake.delta(batch.paths['quarantine'])} AS q USING {view} AS r "
            f"ON q.source = {lake.literal(batch.source.name)} AND q.room = 'changes' AND q.resolved_at IS NULL "
            f"AND {same} AND NOT array_contains(r.reasons, q.reason) "
            "WHEN MATCHED THEN UPDATE SET resolved_at = current_timestamp()"
        )
    finally:
        spark.catalog.dropTempView(view)


def _ledger_rows(batch: _Batch, figures: list[dict[str, Any]]) -> DataFrame:
    split = None
    if "envelopes" in batch.paths:  # a message of several records accounts for all of them
        low, high = min(f["from_offset"] for f in figures), max(f["to_offset"] for f in figures)
        split = lake.read(batch.events.sparkSession, batch.paths["envelopes"]).where(
            F.col("offset").between(low, high) & (F.col("parts") > 1)
        )
    return ledger.rows(batch.events, split, batch.source, batch.number)


def _lineages(
    spark: SparkSession, path: str, source: Source, batch_id: int
) -> tuple[dict[str | None, int], dict[int, tuple[int, Any]]]:
    """Epochs known before this batch, and the highest position reached in each."""
    rows = (
        lake.read(spark, path)
        .where((F.col("source") == source.name) & (F.col("batch") < batch_id))
        .groupBy("lineage", "epoch")
        .agg(F.max(F.struct("high_file", "high_pos")).alias("high"))
        .collect()
    )
    reached: dict[int, tuple[int, Any]] = {}
    for r in rows:
        if r["high"]["high_file"] is not None:
            at = (r["high"]["high_file"], r["high"]["high_pos"])
            reached[r["epoch"]] = max(at, reached.get(r["epoch"], at))
    return {r["lineage"]: r["epoch"] for r in rows}, reached


def _note_lineages(
    spark: SparkSession,
    source: Source,
    path: str,
    figures: list[dict[str, Any]],
    epochs: dict[str | None, int],
    batch_id: int,
) -> None:
    rows = [
        (
            source.name,
            f["lineage"],
            epochs[f["lineage"]],
            batch_id,
            f["high"] and f["high"]["file_no"],
            f["high"] and f["high"]["binlog_pos"],
        )
        for f in figures
    ]
    frame = spark.createDataFrame(rows, lake.read(spark, path).schema)
    lake.append(frame, path, f"changelog {source.name}", batch_id)
