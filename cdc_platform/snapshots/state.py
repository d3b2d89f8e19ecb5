"""What became of each table, batch by batch: live or stopped, and why; its figures."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.resources import lake
from cdc_platform.snapshots.target import Target

Tables = dict[tuple[str, str], dict[str, Any]]
"""(db, table) → state, reason, batch, rebuild, invalid_dates, partial, high_order; entries: how many outcomes were ever
noted; touched, changes: whether the batches asked for brought changes, and how many."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one batch did to one table. state: live, stopped, dropped or stale. high_order: of its newest change."""

    db: str
    table: str
    state: str
    reason: str | None
    changes: int
    invalid_dates: int
    partial: int = 0
    high_order: Any = None


def now(spark: SparkSession, path: str, source: Source, since: int | None = None) -> Tables:
    """The present state of every table of the source. since: the first batch that `touched` and `changes` are of; None:
    of none."""
    return {(r["db"], r["table"]): r.asDict() for r in _latest(spark, path, source, since).collect()}


def rows(
    spark: SparkSession,
    path: str,
    source: Source,
    outcomes: list[Outcome],
    before: Tables,
    batch_id: int,
    *,
    anew: bool = False,
) -> DataFrame:
    """Outcomes as TABLE_STATE rows; `anew`: of a rebuild, which counts above all batches before it."""
    out = [
        (
            source.name,
            o.db,
            o.table,
            batch_id,
            o.state,
            o.reason,
            o.changes,
            o.invalid_dates,
            o.partial,
            o.high_order,
            before.get((o.db, o.table), {}).get("rebuild", 0) + anew,
            None,
        )
        for o in outcomes
    ]
    return spark.createDataFrame(out, lake.read(spark, path).schema).withColumn("at", F.current_timestamp())


def figures(spark: SparkSession, config: Config, source: Source, touched: Tables) -> dict[str, dict[str, float | str]]:
    """Per "db.table": live rows now, changes of the run, invalid dates so far, state, reason."""

    def live_rows(name: tuple[str, str]) -> int:
        snapshot = Target.of(config, source.name, *name).snapshot
        return lake.read(spark, snapshot).count() if lake.exists(spark, snapshot) else 0

    names = sorted(touched)
    counted = lake.together([partial(live_rows, n) for n in names])
    return {
        ".".join(name): {
            "rows": n,
            "changes": touched[name]["changes"],
            "invalid_dates": touched[name]["invalid_dates"],
            "state": touched[name]["state"],
            "reason": touched[name]["reason"] or "",
        }
        for name, n in zip(names, counted, strict=True)
    }


def _latest(spark: SparkSession, path: str, source: Source, since: int | None) -> DataFrame:
    at = F.struct("rebuild", "batch")
    asked = F.lit(False) if since is None else F.col("batch") >= since
    return (
        lake.read(spark, path)
        .where(F.col("source") == source.name)
        .groupBy("db", "table")
        .agg(
            F.max_by("state", at).alias("state"),
            F.max_by("reason", at).alias("reason"),
            F.max("batch").alias("batch"),
            F.max("rebuild").alias("rebuild"),
            F.sum("invalid_dates").alias("invalid_dates"),
            F.sum("partial").alias("partial"),
            F.max("high_order").alias("high_order"),
            F.count(F.lit(1)).alias("entries"),
            F.max(asked).alias("touched"),
            F.sum(F.when(asked, F.col("changes")).otherwise(0)).alias("changes"),
        )
    )
