"""Tombstones of one source table: deleted keys with the order of their delete, beside its snapshot."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake import delta_table, new_tables
from cdc_platform.snapshots.reduce.fold import Profile, key_names
from cdc_platform.snapshots.schema import shapes
from cdc_platform.snapshots.schema.columns import TableColumn, order_literal, order_sql
from cdc_platform.snapshots.target import Stale, Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta
from cdc_platform.tables.columns import sql


def graves(spark: SparkSession, target: Target, columns: list[TableColumn]) -> DataFrame:
    """The tombstones. There is no table of them before the first."""
    if delta_table.exists(target.tombstones):
        return delta_sql.read(spark, target.tombstones)
    typed = [F.lit(None).cast(sql(c.type)).alias(c.name) for c in shapes.tombstones(columns).columns]
    return spark.range(1).select(*typed).limit(0)


def ensure_tombstones(target: Target, columns: list[TableColumn]) -> None:
    """Make the table of tombstones if it isn't there."""
    new_tables.create(target.tombstones, shapes.tombstones(columns))


def write_tombstones(new: DataFrame, target: Target, columns: list[TableColumn], app: str, batch_id: int) -> None:
    """Write tombstones, at most once per (`app`, `batch_id`)."""
    ensure_tombstones(target, columns)
    delta_sql.append_once(new, target.tombstones, app, batch_id)


def tombstone_deletes(
    folded: DataFrame, target: Target, columns: list[TableColumn], figures: Profile, app: str, batch_id: int
) -> None:
    """Write tombstones of the batch's deletes and its TRUNCATE, at most once per batch."""
    if not (figures.deletes or figures.key_changes or figures.truncated_at):
        return
    names = key_names(columns)
    keys = [c.plain(F.col(n)).alias(n) for n, c in zip(names, (c for c in columns if c.key), strict=True)]
    gone = folded.where("_deleted").select(*keys, F.lit("row").alias("scope"), "_cdc_order")
    if figures.truncated_at is not None:
        stone = folded.sparkSession.range(1).select(
            *(F.lit(None).cast(c.spark).alias(n) for n, c in zip(names, (c for c in columns if c.key), strict=True)),
            F.lit("table").alias("scope"),
            order_literal(figures.truncated_at).alias("_cdc_order"),
        )
        gone = gone.unionByName(stone)
    write_tombstones(gone, target, columns, app, batch_id)


def buried(spark: SparkSession, target: Target, columns: list[TableColumn], figures: Profile) -> bool:
    """Whether anything is known to be deleted after the oldest of these changes."""
    return not _later(spark, target, columns, figures).isEmpty()


def _later(spark: SparkSession, target: Target, columns: list[TableColumn], figures: Profile) -> DataFrame:
    return graves(spark, target, columns).where(F.col("_cdc_order") > order_literal(figures.low_order))


def unlike(new: DataFrame, target: Target, columns: list[TableColumn], figures: Profile) -> bool:
    """Whether a row of these changes (`_k0`, …, order_key) was deleted after the first of them by none of them: it was
    known before, or comes with a later batch. So it is, too, where deletes of that time are forgotten."""
    if not delta_table.exists(target.tombstones):
        return False
    later = _later(new.sparkSession, target, columns, figures).localCheckpoint()
    scopes = {r["scope"] for r in later.select("scope").distinct().collect()}
    if scopes <= {"row"}:
        names = key_names(columns)
        keys = [c.comparable(F.col(n)).alias(n) for n, c in zip(names, (c for c in columns if c.key), strict=True)]
        first = new.groupBy(*names).agg(F.min("order_key").alias("_first"))
        stones = later.select(*keys, "_cdc_order").join(first, names).where("_cdc_order > _first")
        mine = new.select(*names, F.col("order_key").alias("_cdc_order"))
        return bool(scopes) and not stones.join(mine, [*names, "_cdc_order"], "left_anti").isEmpty()
    return True


def expire(spark: SparkSession, target: Target, order: Any) -> int:
    """Forget deletes up to an order (of a table with a key and tombstones); returns how many. A change from before it
    makes the table anew then: the changelog forgets nothing."""
    there = delta_sql.read(spark, target.tombstones)
    old = there.where((F.col("scope") == "row") & (F.col("_cdc_order") <= order_literal(order)))
    if "content" in there.columns or not (count := old.count()):
        return 0
    keys = (F.lit(None).cast(f.dataType).alias(f.name) for f in there.schema if f.name.startswith("_k"))
    horizon = spark.range(1).select(*keys, F.lit("expired").alias("scope"), order_literal(order).alias("_cdc_order"))
    delta_sql.append(horizon, target.tombstones)  # first: a killed run says too much then
    spark.sql(
        f"DELETE FROM {delta(target.tombstones)} WHERE (scope = 'row' AND _cdc_order <= {order_sql(order)}) "
        f"OR (scope = 'expired' AND _cdc_order < {order_sql(order)})"
    )
    return count


def not_buried(folded: DataFrame, target: Target, columns: list[TableColumn], figures: Profile) -> DataFrame:
    """Without rows that an already known later delete or TRUNCATE has removed. Most batches are newer than every
    tombstone; then nothing is joined. Raises Stale where deletes of that time are forgotten."""
    later = _later(folded.sparkSession, target, columns, figures)
    scopes = {r["scope"]: r["top"] for r in later.groupBy("scope").agg(F.max("_cdc_order").alias("top")).collect()}
    if "expired" in scopes:
        raise Stale
    if "table" in scopes:
        folded = folded.where(F.col("_deleted") | (F.col("_cdc_order") > order_literal(scopes["table"])))
    if "row" in scopes:
        names = key_names(columns)
        keys = [c.comparable(F.col(n)).alias(n) for n, c in zip(names, (c for c in columns if c.key), strict=True)]
        stones = (
            later.where("scope = 'row'")
            .select(*keys, "_cdc_order")
            .groupBy(*names)
            .agg(F.max("_cdc_order").alias("_buried"))
        )
        folded = (
            folded.join(stones, names, "left")
            .where("_deleted OR _buried IS NULL OR _cdc_order >= _buried")
            .drop("_buried")
        )
    return folded
