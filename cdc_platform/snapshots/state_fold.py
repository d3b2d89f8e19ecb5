"""TABLE_STATE kept small: of each table a row for each hour, and of what is older than two days for each day, in place
of a row for each batch. What is asked of it (state.py) stays the same."""

from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.lake import commits, delta_table, stores
from cdc_platform.lake.store import File
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import ORDER, TABLE_STATE

_AS_THEY_ARE, _BY_HOUR = timedelta(hours=1), timedelta(days=2)
_WORTH = 2
"""A source's rows are folded if so many times fewer are left."""


def fold(spark: SparkSession, config: Config, source: Source) -> int:
    """Of one source, whose lock is held; how many rows are gone. Rows of the last hour stay: a batch that is repeated
    looks for its own."""
    path = delta_sql.ensure(TABLE_STATE, TABLE_STATE.at(stores.lake(config)))
    gone = delta_table.files(path, source=source.name)
    now, at = datetime.now(UTC), F.col("at")
    rows = delta_sql.rows_of(spark, path, [File(path, name) for name in gone], source=source.name)
    unit = F.when(at < F.lit(now - _BY_HOUR), F.date_trunc("day", "at")).otherwise(F.date_trunc("hour", "at"))
    old, recent = rows.where(at < F.lit(now - _AS_THEY_ARE)), rows.where(at >= F.lit(now - _AS_THEY_ARE))
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
    made = folded.withColumns({n: F.col(f"_last.{n}") for n in ("state", "reason", "rows")}).withColumn(
        "high_order", high
    )
    before, after = old.count(), folded.count()
    if before < _WORTH * after or not after:
        return 0
    sink = delta_table.sink(path, source=source.name)
    kept = made.select(*TABLE_STATE.names).unionByName(recent.select(*TABLE_STATE.names)).coalesce(1)
    make = partial(arrow_tasks.conformed_to, sink.schema)
    commits.replace(sink, gone, arrow_tasks.partitions(kept, make, arrow_tasks.write, {"rows": sink}).written["rows"])
    return before - after
