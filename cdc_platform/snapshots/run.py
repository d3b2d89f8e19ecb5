"""changelog → snapshots/<source>/<db>/<table>: every batch brings each table it touches up to date.

Repeating a batch changes nothing: rows win by order, tombstones are written once per batch. A table that can't be
kept is stopped by itself, with the reason; the others go on.
"""

import logging
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.resources import lake
from cdc_platform.snapshots import target as targets
from cdc_platform.snapshots.columns import columns_of
from cdc_platform.snapshots.fold import fold, profile
from cdc_platform.tables import CHANGELOG, CHECKPOINT, SCHEMA_HISTORY, TABLE_STATE

log = logging.getLogger(__name__)

_BAD_VALUE = ("CAST_INVALID_INPUT", "CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CONVERSION_INVALID_INPUT", "INVALID_FORMAT")
_UNKNOWN = "no column list is known for it"


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of a source's snapshots."""
    watch = lake.Stopwatch()
    state = lake.ensure(spark, TABLE_STATE, TABLE_STATE.at(config.lake))
    progress = lake.for_each_batch(
        lake.stream(spark, CHANGELOG.at(config.lake), source.max_bytes_per_batch).where(F.col("source") == source.name),
        CHECKPOINT.at(config.lake, room="snapshots", source=source.name), f"snapshots {source.name}", batch_writer(config, source),
    )
    states = table_states(spark, state, source)
    stopped = sum(1 for s in states.values() if s["state"] == "stopped")
    return RoomResult(
        "snapshots", source.name, lake.input_rows(progress), lake.batches(progress), watch.seconds,
        {"changes": lake.input_rows(progress), "stopped_tables": stopped}, _table_figures(spark, config, source, states, progress),
    )


def batch_writer(config: Config, source: Source) -> Callable[[DataFrame, int], None]:
    """The foreachBatch function of one source."""

    def each(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        state = TABLE_STATE.at(config.lake)
        known = table_states(spark, state, source)
        touched = batch.groupBy("db", "table").agg(
            F.count(F.lit(1)).alias("n"), F.max(F.struct("order_key", "schema_version")).alias("newest")
        ).collect()
        for t in touched:
            before = known.get((t["db"], t["table"]), {})
            if before.get("state") == "stopped":
                continue
            now: dict[str, Any] = {"state": "live", "reason": None}
            try:
                _bring_up(spark, config, source, batch, t, batch_id)
            except TableStopped as error:
                log.error("%s", error)
                now = {"state": "stopped", "reason": error.reason}
            if now["state"] != before.get("state"):
                _note_state(spark, state, source, t, now, batch_id)

    return each


def _bring_up(spark: SparkSession, config: Config, source: Source, batch: DataFrame, touched: Any, batch_id: int) -> None:
    """Fold and merge one table's changes of one batch. Raises TableStopped."""
    db, table = touched["db"], touched["table"]
    columns = columns_of(
        source.name, db, table, _columns_json(spark, config, source, db, table, touched["newest"]["schema_version"]),
        source.tables.keys.get(f"{db}.{table}"),
    )
    target = targets.Target.of(config, source.name, db, table)
    rows = batch.where(F.col("db").eqNullSafe(F.lit(db)) & F.col("table").eqNullSafe(F.lit(table)))
    app = f"snapshots {source.name}"
    try:
        figures = profile(rows, columns)
        for count, what in ((figures.no_key, "come without a key value"), (figures.lost_moves, "change a key with a partial row image")):
            if count:
                raise TableStopped(source.name, db, table, f"{count} changes {what}")
        targets.prepare(spark, target, columns)
        folded = targets.not_buried(fold(rows, columns, figures), target, columns, figures)
        targets.bury(folded, target, columns, figures, app, batch_id)
        targets.apply(folded, target, columns, figures, app, batch_id)
    except PySparkException as error:
        if (error.getCondition() or "").split(".")[0] in _BAD_VALUE or any(c in str(error) for c in _BAD_VALUE):
            raise TableStopped(source.name, db, table, f"a value doesn't fit its column: {str(error).splitlines()[0][:300]}") from None
        raise


def _columns_json(spark: SparkSession, config: Config, source: Source, db: str, table: str, version: str | None) -> str:
    """Column list of a schema version. Raises TableStopped where the history has none."""
    found = (
        lake.read(spark, SCHEMA_HISTORY.at(config.lake))
        .where((F.col("source") == source.name) & (F.col("schema_version") == version) & (F.col("kind") == "message"))
        .select("columns").limit(1).collect()
    )
    if not found:
        raise TableStopped(source.name, db, table, _UNKNOWN)
    return found[0]["columns"]


def table_states(spark: SparkSession, path: str, source: Source) -> dict[tuple[str, str], dict[str, Any]]:
    """(db, table) → state and reason now."""
    rows = (
        lake.read(spark, path).where(F.col("source") == source.name)
        .groupBy("db", "table").agg(F.max_by(F.struct("state", "reason"), "batch").alias("s")).collect()
    )
    return {(r["db"], r["table"]): r["s"].asDict() for r in rows}


def _note_state(spark: SparkSession, path: str, source: Source, touched: Any, now: dict[str, Any], batch_id: int) -> None:
    row = [(source.name, touched["db"], touched["table"], batch_id, now["state"], now["reason"])]
    frame = spark.createDataFrame(
        row, "source STRING, db STRING, `table` STRING, batch BIGINT, state STRING, reason STRING"
    ).withColumn("at", F.current_timestamp())
    frame.write.format("delta").mode("append").save(path)


def _table_figures(
    spark: SparkSession, config: Config, source: Source, states: dict[tuple[str, str], dict[str, Any]], progress: list[dict[str, Any]]
) -> dict[str, dict[str, float | str]]:
    """Per "db.table": live rows and state; only when the run had changes."""
    out: dict[str, dict[str, float | str]] = {}
    if not lake.batches(progress):
        return out
    for (db, table), s in sorted(states.items()):
        figures: dict[str, float | str] = {"state": s["state"], "reason": s["reason"] or ""}
        path = targets.Target.of(config, source.name, db, table).snapshot
        if lake.exists(spark, path):
            figures["rows"] = lake.read(spark, path).count()
        out[f"{db}.{table}"] = figures
    return out
