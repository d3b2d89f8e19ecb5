"""changelog → snapshots/<source>/<db>/<table>: every batch brings each table it touches up to date.

Repeating a batch changes nothing: rows win by order, tombstones are written once per batch. A table that can't be
kept is stopped by itself, with the reason; the others go on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.resources import lake
from cdc_platform.snapshots import target as targets
from cdc_platform.snapshots.columns import TableColumn, columns_of
from cdc_platform.snapshots.fold import fold, profile
from cdc_platform.tables import CHANGELOG, CHECKPOINT, SCHEMA_HISTORY, TABLE_STATE

log = logging.getLogger(__name__)

_BAD_VALUE = ("CAST_INVALID_INPUT", "CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CONVERSION_INVALID_INPUT", "INVALID_FORMAT")


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of a source's snapshots."""
    watch = lake.Stopwatch()
    state = lake.ensure(spark, TABLE_STATE, TABLE_STATE.at(config.lake))
    progress = lake.for_each_batch(
        lake.stream(spark, CHANGELOG.at(config.lake), source.max_bytes_per_batch).where(F.col("source") == source.name),
        CHECKPOINT.at(config.lake, room="snapshots", source=source.name), f"snapshots {source.name}", batch_writer(config, source),
    )
    batches = lake.batches(progress)
    figures = _figures(spark, config, source, state, batches)
    changes = sum(float(f["changes"]) for f in figures.values())
    return RoomResult(
        "snapshots", source.name, int(changes), len(batches), watch.seconds,
        {"changes": changes, "tables": len(figures), "stopped_tables": sum(f["state"] == "stopped" for f in figures.values())},
        figures,
    )


def batch_writer(config: Config, source: Source) -> Callable[[DataFrame, int], None]:
    """The foreachBatch function of one source."""

    def each(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        state = TABLE_STATE.at(config.lake)
        touched = batch.groupBy("db", "table").agg(
            F.count(F.lit(1)).alias("n"), F.max(F.struct("order_key", "schema_version")).alias("newest")
        ).collect()
        if not touched:
            return
        stopped = _stopped(spark, state, source)
        lists = _column_lists(spark, config, source, {t["newest"]["schema_version"] for t in touched})
        work = [
            partial(_outcome, config, source, batch, t, lists.get(t["newest"]["schema_version"]), batch_id)
            for t in touched if (t["db"], t["table"]) not in stopped
        ]
        outcomes = [*lake.together(work), *(
            _TableOutcome(t["db"], t["table"], "stopped", stopped[t["db"], t["table"]], t["n"], 0)
            for t in touched if (t["db"], t["table"]) in stopped
        )]
        rows = [(source.name, o.db, o.table, batch_id, o.state, o.reason, o.changes, o.invalid_dates, None) for o in outcomes]
        frame = spark.createDataFrame(rows, lake.read(spark, state).schema).withColumn("at", F.current_timestamp())
        lake.append(frame, state, f"snapshots {source.name}", batch_id)

    return each


@dataclass(frozen=True, slots=True)
class _TableOutcome:
    """What one batch did to one table."""

    db: str
    table: str
    state: str
    reason: str | None
    changes: int
    invalid_dates: int


def _outcome(
    config: Config, source: Source, batch: DataFrame, touched: Any, columns_json: str | None, batch_id: int
) -> _TableOutcome:
    db, table = touched["db"], touched["table"]
    try:
        if columns_json is None:
            raise TableStopped(source.name, db, table, "no column list is known for it")
        columns = columns_of(source.name, db, table, columns_json, source.tables.keys.get(f"{db}.{table}"))
        invalid = _bring_up(config, source, batch, db, table, columns, batch_id)
    except TableStopped as error:
        log.error("%s", error)
        return _TableOutcome(db, table, "stopped", error.reason, touched["n"], 0)
    return _TableOutcome(db, table, "live", None, touched["n"], invalid)


def _bring_up(
    config: Config, source: Source, batch: DataFrame, db: str, table: str, columns: list[TableColumn], batch_id: int
) -> int:
    """Fold and merge one table's changes of one batch; returns how many dates became NULL. Raises TableStopped."""
    spark = batch.sparkSession
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
        return figures.invalid_dates
    except PySparkException as error:
        if (error.getCondition() or "").split(".")[0] in _BAD_VALUE or any(c in str(error) for c in _BAD_VALUE):
            raise TableStopped(source.name, db, table, f"a value doesn't fit its column: {str(error).splitlines()[0][:300]}") from None
        raise


def _column_lists(spark: SparkSession, config: Config, source: Source, versions: set[str]) -> dict[str, str]:
    """schema_version → column list as JSON, for the versions the history knows."""
    rows = (
        lake.read(spark, SCHEMA_HISTORY.at(config.lake))
        .where((F.col("source") == source.name) & (F.col("kind") == "message") & F.col("schema_version").isin(*(v for v in versions if v)))
        .select("schema_version", "columns").collect()
    )
    return {r["schema_version"]: r["columns"] for r in rows}


def _states(spark: SparkSession, path: str, source: Source) -> DataFrame:
    """One row per table of the source: db, table, state, reason now, and invalid_dates so far."""
    mine = lake.read(spark, path).where(F.col("source") == source.name)
    return mine.groupBy("db", "table").agg(
        F.max_by("state", "batch").alias("state"), F.max_by("reason", "batch").alias("reason"),
        F.max("batch").alias("batch"), F.sum("invalid_dates").alias("invalid_dates"),
    )


def _stopped(spark: SparkSession, path: str, source: Source) -> dict[tuple[str, str], str]:
    """(db, table) → reason, for stopped tables."""
    rows = _states(spark, path, source).where("state = 'stopped'").collect()
    return {(r["db"], r["table"]): r["reason"] for r in rows}


def _figures(
    spark: SparkSession, config: Config, source: Source, path: str, batches: list[int]
) -> dict[str, dict[str, float | str]]:
    """Per "db.table" touched by this run: live rows now, changes of the run, invalid dates so far, state, reason."""
    if not batches:
        return {}
    mine = lake.read(spark, path).where((F.col("source") == source.name) & (F.col("batch") >= min(batches)))
    run_changes = mine.groupBy("db", "table").agg(F.sum("changes").alias("changes"))
    rows = _states(spark, path, source).join(run_changes, ["db", "table"]).orderBy("db", "table").collect()

    def live_rows(row: Any) -> int:
        target = targets.Target.of(config, source.name, row["db"], row["table"])
        return lake.read(spark, target.snapshot).count() if lake.exists(spark, target.snapshot) else 0

    counted = lake.together([partial(live_rows, r) for r in rows])
    return {
        f"{r['db']}.{r['table']}": {
            "rows": n, "changes": r["changes"], "invalid_dates": r["invalid_dates"], "state": r["state"], "reason": r["reason"] or "",
        }
        for r, n in zip(rows, counted, strict=True)
    }
