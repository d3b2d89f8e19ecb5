"""changelog → snapshots/<source>/<db>/<table>: every batch brings each table it touches up to date.

Repeating a batch changes nothing: rows win by order, tombstones are written once per batch. A table that can't be
kept is stopped by itself, with the reason; the others go on.
"""

import json
import logging
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.resources import lake
from cdc_platform.snapshots import state
from cdc_platform.snapshots import target as targets
from cdc_platform.snapshots.columns import TableColumn, columns_of
from cdc_platform.snapshots.fold import fold, profile
from cdc_platform.tables import CHANGELOG, CHECKPOINT, SCHEMA_HISTORY, TABLE_STATE

log = logging.getLogger(__name__)

_BAD_VALUE = re.compile(
    r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|CONVERSION_INVALID_INPUT|INVALID_FORMAT)[^\]]*\][^\n]*"
)


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of a source's snapshots."""
    watch = lake.Stopwatch()
    path = lake.ensure(spark, TABLE_STATE, TABLE_STATE.at(config.lake))
    progress = lake.for_each_batch(
        lake.stream(spark, CHANGELOG.at(config.lake), source.max_bytes_per_batch).where(F.col("source") == source.name),
        CHECKPOINT.at(config.lake, room="snapshots", source=source.name),
        f"snapshots {source.name}",
        batch_writer(config, source),
    )
    batches = lake.batches(progress)
    figures = state.figures(spark, config, source, path, batches)
    changes = sum(float(f["changes"]) for f in figures.values())
    return RoomResult(
        "snapshots",
        source.name,
        int(changes),
        len(batches),
        watch.seconds,
        {
            "changes": changes,
            "tables": len(figures),
            "stopped_tables": sum(f["state"] == "stopped" for f in figures.values()),
        },
        figures,
    )


def batch_writer(config: Config, source: Source) -> Callable[[DataFrame, int], None]:
    """The foreachBatch function of one source."""

    def each(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        path = TABLE_STATE.at(config.lake)
        touched = _touched(batch)
        if not touched:
            return
        before = state.now(spark, path, source)
        lists = _column_lists(spark, config, source, touched)
        doing = _Work(config, source, batch, batch_id, f"snapshots {source.name}")
        outcomes = lake.together(
            [partial(_outcome, doing, t, _columns_of(t, lists), before.get((t.db, t.table))) for t in touched]
        )
        lake.append(state.rows(spark, path, source, outcomes, before, batch_id), path, doing.app, batch_id)

    return each


def rebuild(spark: SparkSession, config: Config, source: Source, db: str, table: str) -> RoomResult:
    """Make one table anew from the whole changelog; a stopped table that this heals is followed again. Raises
    TableStopped where it can't be kept (the snapshot is then empty and stays stopped)."""
    watch = lake.Stopwatch()
    path = lake.ensure(spark, TABLE_STATE, TABLE_STATE.at(config.lake))
    rows = lake.read(spark, CHANGELOG.at(config.lake)).where(F.col("source") == source.name).where(_of_table(db, table))
    touched = _touched(rows)
    if not touched:
        raise TableStopped(source.name, db, table, "the changelog holds no change of it")
    before = state.now(spark, path, source)
    last = before.get((db, table))
    batch_id = last["batch"] if last else 0
    lists = _column_lists(spark, config, source, touched)
    app = f"rebuild {uuid.uuid4().hex}"
    work = _Work(config, source, rows, batch_id, app, anew=True)
    outcome = _outcome(work, touched[0], _columns_of(touched[0], lists), None)
    lake.append(state.rows(spark, path, source, [outcome], before, batch_id, anew=True), path, app, 0)
    if outcome.state == "stopped":
        raise TableStopped(source.name, db, table, str(outcome.reason))
    return RoomResult("snapshots", source.name, outcome.changes, 1, watch.seconds, {"changes": outcome.changes})


@dataclass(frozen=True, slots=True)
class _Touched:
    """A table of a batch: its changes, and the versions of its columns that they tell, newest first (a TRUNCATE
    tells none)."""

    db: str
    table: str
    changes: int
    versions: list[str]


def _touched(changes: DataFrame) -> list[_Touched]:
    by_version = changes.groupBy("db", "table", "schema_version").agg(
        F.count(F.lit(1)).alias("n"), F.max("order_key").alias("newest")
    )
    found = (
        by_version.groupBy("db", "table")
        .agg(
            F.sum("n").alias("n"), F.sort_array(F.collect_list(F.struct("newest", "schema_version")), False).alias("v")
        )
        .collect()
    )
    return [
        _Touched(r["db"], r["table"], r["n"], [v["schema_version"] for v in r["v"] if v["schema_version"]])
        for r in found
    ]


def _of_table(db: str, table: str) -> Column:
    return F.col("db").eqNullSafe(F.lit(db)) & F.col("table").eqNullSafe(F.lit(table))


@dataclass(frozen=True, slots=True)
class _Work:
    """Changes of one source to bring into its tables. `app` and `batch_id` name the write: it happens once.
    anew: the table is made from these changes alone."""

    config: Config
    source: Source
    changes: DataFrame
    batch_id: int
    app: str
    anew: bool = False


def _outcome(work: _Work, touched: _Touched, columns_json: str | None, before: Any) -> state.Outcome:
    """Bring one table up to date, unless it is stopped."""
    source, db, table = work.source, touched.db, touched.table
    if before and before["state"] == "stopped":
        return state.Outcome(db, table, "stopped", before["reason"], touched.changes, 0)
    try:
        if columns_json is None and not touched.versions:
            columns_json = _newest_list(work.changes.sparkSession, work.config, source, db, table)
        if columns_json is None:
            raise TableStopped(source.name, db, table, "no column list is known for it")
        columns = columns_of(source.name, db, table, columns_json, source.tables.keys.get(f"{db}.{table}"))
        invalid = _bring_up(work, db, table, columns)
    except TableStopped as error:
        log.error("%s", error)
        return state.Outcome(db, table, "stopped", error.reason, touched.changes, 0)
    return state.Outcome(db, table, "live", None, touched.changes, invalid)


def _bring_up(work: _Work, db: str, table: str, columns: list[TableColumn]) -> int:
    """Fold and merge one table's changes; returns how many dates became NULL. Raises TableStopped."""
    spark, source = work.changes.sparkSession, work.source
    target = targets.Target.of(work.config, source.name, db, table)
    rows = work.changes.where(_of_table(db, table))
    folded: DataFrame | None = None
    try:
        figures = profile(rows, columns)
        for count, what in (
            (figures.no_key, "come without a key value"),
            (figures.lost_moves, "change a key with a partial row image"),
        ):
            if count:
                raise TableStopped(source.name, db, table, f"{count} changes {what}")
        targets.prepare(spark, target, columns, anew=work.anew)
        folded = targets.not_buried(fold(rows, columns, figures), target, columns, figures)
        targets.bury(folded, target, columns, figures, work.app, work.batch_id)
        targets.apply(folded, target, columns, figures, work.app, work.batch_id)
        return figures.invalid_dates
    except (PySparkException, Py4JError) as error:
        misfit = _misfit(error) or (folded is not None and _misfit_of(folded))
        if misfit:
            raise TableStopped(source.name, db, table, f"a value doesn't fit its column: {misfit!r}") from None
        raise


def _misfit(error: Exception) -> str | None:
    """What Spark says of a value that doesn't fit its type; None where something else went wrong. A failed write is
    a Java error that names the value as its cause only."""
    found = _BAD_VALUE.search(str(error))
    return found[0][:300] if found else None


def _misfit_of(folded: DataFrame) -> str | None:
    """The same by a query of its own: a failed write on Spark Connect need not tell its cause."""
    try:
        folded.agg(F.max(F.xxhash64(*(c for c in folded.columns if c.startswith("_v"))))).collect()
    except PySparkException as error:
        return _misfit(error)
    return None


def _column_lists(spark: SparkSession, config: Config, source: Source, touched: list[_Touched]) -> dict[str, str]:
    """schema_version → column list as JSON, for the versions the history knows."""
    versions = sorted({v for t in touched for v in t.versions})
    rows = (
        lake.read(spark, SCHEMA_HISTORY.at(config.lake))
        .where((F.col("source") == source.name) & (F.col("kind") == "message"))
        .where(F.col("schema_version").isin(*versions))
        .select("schema_version", "columns")
        .collect()
    )
    return {r["schema_version"]: r["columns"] for r in rows}


def _columns_of(touched: _Touched, lists: dict[str, str]) -> str | None:
    """The newest column list of a batch, and what only older changes in it have: their cells are kept also where
    the newest change tells a part of the row, and a batch gives what its changes one by one would."""
    known = [json.loads(lists[v]) for v in touched.versions if v in lists]
    if not known or touched.versions[0] not in lists:
        return None
    columns = known[0]
    names = {c["name"].lower() for c in columns}
    for older in known[1:]:
        more = [c for c in older if c["name"].lower() not in names]
        columns += [{**c, "key": False} for c in more]
        names.update(c["name"].lower() for c in more)
    return json.dumps(columns, ensure_ascii=False)


def _newest_list(spark: SparkSession, config: Config, source: Source, db: str, table: str) -> str | None:
    """The newest column list the history knows of a table, for batches that hold nothing but its TRUNCATE."""
    known = lake.read(spark, SCHEMA_HISTORY.at(config.lake)).where(
        (F.col("source") == source.name) & (F.col("kind") == "message")
    )
    return (
        known.where(_of_table(db, table))
        .agg(F.max_by("columns", F.struct("landed_at", "order_key")).alias("c"))
        .collect()[0]["c"]
    )
