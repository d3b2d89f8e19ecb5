"""Messages that were decoded again: what had been used of them is not used again.

A message is told anew as a whole, under its own addresses. What its first telling gave is in `changes`; what a later
one gave in place of an error is in the changelog.
"""

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changes.file_stats import KINDS
from cdc_platform.config import Source
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql

_USED = ("row", "ddl", *KINDS["control"])
_AT = ("topic", "partition", "offset", "_entry", "_row", "kind")


def marked(
    spark: SparkSession,
    events: DataFrame,
    source: Source,
    changes: Store,
    changelog: Store,
    figures: list[dict[str, Any]],
) -> DataFrame:
    """Events of a batch with a column `_used`: whether it is of a message that was decoded again, and was used before.
    figures: of the batch (order.figures_of)."""
    spans = [(f["from_offset"], f["to_offset"]) for f in figures if f["retold"]]
    if not spans:
        return events.withColumn("_used", F.lit(False))
    near = F.col("offset").between(min(low for low, _ in spans), max(high for _, high in spans))
    first = delta_sql.read(spark, changes).where(near & F.col("kind").isin(*_USED) & ~_retold())
    later = delta_sql.read(spark, changelog).where(near & (F.col("source") == source.name))
    used = _placed(first).union(_placed(later.withColumn("kind", F.lit("row")))).distinct()
    again = _places(events).join(used.withColumn("_used", F.lit(True)), list(_AT), "left")
    return again.withColumn("_used", _retold() & F.col("_used").isNotNull()).drop("_entry", "_row")


def _retold() -> Column:
    return F.coalesce("retold", F.lit(False))


def _places(rows: DataFrame) -> DataFrame:
    none = F.lit(-1)
    return rows.withColumns({"_entry": F.coalesce("entry_index", none), "_row": F.coalesce("row_index", none)})


def _placed(rows: DataFrame) -> DataFrame:
    return _places(rows).select(*_AT)
