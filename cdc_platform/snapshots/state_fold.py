"""TABLE_STATE kept small: of each table a row for each hour, and of what is older than two days for each day, in place
of a row for each batch. What is asked of it (state.py) stays the same."""

from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.lake import stores
from cdc_platform.spark import delta_sql, folding
from cdc_platform.tables import ORDER, TABLE_STATE

_AS_THEY_ARE, _BY_HOUR = timedelta(hours=1), timedelta(days=2)


def fold(spark: SparkSession, config: Config, source: Source) -> int:
    """Of one source, whose lock is held; how many rows are gone. Rows of the last hour stay: a batch that is repeated
    looks for its own."""
    path = delta_sql.ensure(TABLE_STATE, TABLE_STATE.at(stores.lake(config)))
    now = datetime.now(UTC)
    old = F.col("at") < F.lit(now - _AS_THEY_ARE)
    return folding.fold(spark, TABLE_STATE, path, source.name, lambda _: old, partial(_folded, now))


def _folded(now: datetime, old: DataFrame) -> DataFrame:
    by_day = F.col("at") < F.lit(now - _BY_HOUR)
    unit = F.when(by_day, F.date_trunc("day", "at")).otherwise(F.date_trunc("hour", "at"))
    last = F.struct("rebuild", "batch", "state", "reason", "rows")
    folded = old.groupBy("source", "db", "schema", "table", unit.alias("_unit")).agg(
        F.max(last).alias("_last"),
        F.max("batch").alias("batch"),
        F.max("rebuild").alias("rebuild"),
        *(F.sum(n).alias(n) for n in ("changes", "invalid_dates", "partial")),
        F.max(F.struct(*(F.col(f"high_order.{n}") for n in ORDER.names))).alias("_high"),
        F.max("at").alias("at"),
        F.sum(F.coalesce("entries", F.lit(1))).alias("entries"),
    )
    high = F.when(F.col("_high.epoch").isNotNull(), F.col("_high"))
    told = {n: F.col(f"_last.{n}") for n in ("state", "reason", "rows")}
    return folded.withColumns(told).withColumn("high_order", high)
