"""Bookkeeping that gets rows with each batch, kept small. What is asked of it stays the same, or is said more
carefully.

- OFFSET_LEDGER: of each partition, stage and outcome the sum of what is older than the last batches. What was lost
  stays as it is: its ranges are named.
- WATERMARKS: of what is older than two days each partition's (and the source's) last row of each hour. A message that
  is held from then on holds a table back to the hour before it, where it was to the batch before.
- SEQUENCES: stretches that go on are one.
- CUTS: of those older than `maintenance.keep_hours`, whose versions can't be read any more, the last of each hour and
  kind. Each names all tables of its source.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, stores
from cdc_platform.landing.positions import GENERATION
from cdc_platform.spark import delta_sql, folding
from cdc_platform.tables import Table

_BATCHES = 1_000
"""So many of a stage's last batches stay as they are: one that is repeated looks for its own rows."""
_BY_HOUR = timedelta(days=2)


class Fold(NamedTuple):
    """A table, which of a source's rows are folded, and what they become."""

    table: Table
    old: Callable[[DataFrame], Column]
    together: Callable[[DataFrame], DataFrame]


def fold(spark: SparkSession, config: Config, source: Source) -> int:
    """Of one source, whose lock is held; how many rows are gone."""
    gone = 0
    for one in (*_FOLDS, _of_cuts(timedelta(hours=config.maintenance.keep_hours))):
        path = one.table.at(stores.lake(config))
        if delta_table.exists(path):
            path = delta_sql.ensure(one.table, path)
            gone += folding.fold(spark, one.table, path, source.name, one.old, one.together)
    return gone


def _old_batches(rows: DataFrame, *by: str) -> Column:
    """Rows of all but the last batches."""
    last = {tuple(r[n] for n in by): r["last"] for r in rows.groupBy(*by).agg(F.max("batch").alias("last")).collect()}
    found = F.lit(False)
    for values, newest in last.items():
        same = [F.col(n) == F.lit(v) for n, v in zip(by, values, strict=True)]
        here = F.col("batch").between(0, newest - _BATCHES)
        for condition in same:
            here = here & condition
        found = found | here
    return found


def _ledger(old: DataFrame) -> DataFrame:
    by = ("source", "room", "topic", "partition", "outcome", F.floor(F.col("batch") / GENERATION).alias("_generation"))
    newest = F.max(F.struct("batch", "to_offset"))
    # Where landing goes on is what its newest row says: in lakes of earlier versions, a topic that was made again has
    # lower offsets.
    end = F.when(F.col("outcome") == "landed", newest.getField("to_offset")).otherwise(F.max("to_offset"))
    return old.groupBy(*by).agg(
        F.max("batch").alias("batch"),
        F.min("from_offset").alias("from_offset"),
        end.alias("to_offset"),
        F.sum("records").alias("records"),
        F.max("base").alias("base"),
        F.max_by("topic_id", "base").alias("topic_id"),
        F.max("lost_at").alias("lost_at"),
    )


def _watermarks(old: DataFrame) -> DataFrame:
    last = F.max_by(F.struct(*old.columns), "batch").alias("_last")
    return old.groupBy("scope", "topic", "partition", F.date_trunc("hour", "at")).agg(last).select("_last.*")


def _sequences(old: DataFrame) -> DataFrame:
    """Stretches side by side; where a number comes again, or one is missing, the next one begins."""
    lane = Window.partitionBy("topic", "partition", "shard").orderBy("batch", "from_offset")
    goes_on = (F.col("first") - F.lag("last").over(lane)).isin(0, 1)
    begins = F.coalesce(~goes_on, F.lit(True)).cast("int")
    numbered = old.withColumn("_begins", begins).withColumn("_stretch", F.sum("_begins").over(lane))
    at = F.struct("batch", "from_offset")
    return numbered.groupBy("source", "topic", "partition", "shard", "_stretch").agg(
        F.min("batch").alias("batch"),
        F.min_by("from_offset", at).alias("from_offset"),
        F.max_by("to_offset", at).alias("to_offset"),
        F.min_by("first", at).alias("first"),
        F.max_by("last", at).alias("last"),
        F.min("at").alias("at"),
    )


def _of_cuts(kept: timedelta) -> Fold:
    return Fold(tables.CUTS, lambda _: F.col("at") < F.lit(datetime.now(UTC) - kept), _cuts)


def _cuts(old: DataFrame) -> DataFrame:
    last = F.max_by(F.struct(*old.columns), "cut").alias("_last")
    return old.groupBy("kind", "folder", F.date_trunc("hour", "at")).agg(last).select("_last.*")


_FOLDS = (
    Fold(
        tables.OFFSET_LEDGER,
        lambda rows: (F.col("outcome") != "lost") & _old_batches(rows.where("batch >= 0"), "room"),
        _ledger,
    ),
    Fold(tables.WATERMARKS, lambda _: F.col("at") < F.lit(datetime.now(UTC) - _BY_HOUR), _watermarks),
    Fold(tables.SEQUENCES, _old_batches, _sequences),
)
