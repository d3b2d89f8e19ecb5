"""TRUNCATE of one of the tables that `tables.routes` keeps in one snapshot: it takes its own rows only.

It is kept in the tombstones under scope `origin`, so that it holds for older rows that come later, too.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config.tables import ORIGIN
from cdc_platform.snapshots.apply.tombstones import graves, write_tombstones
from cdc_platform.snapshots.reduce.fold import Profile, key_names
from cdc_platform.snapshots.schema.columns import TableColumn, order_literal, order_sql
from cdc_platform.snapshots.target import Target
from cdc_platform.spark.delta_sql import delta, literal

Origin = tuple[str, str]
"""A source table as the origin columns tell it."""


def truncated(rows: DataFrame) -> dict[Origin, Any]:
    """Tables of a merged snapshot that changes empty: order of the last TRUNCATE of each."""
    origin = [F.try_element_at("key", F.lit(n)).alias(n) for n in ORIGIN]
    found = rows.where("op = 'truncate'").groupBy(*origin).agg(F.max("order_key").alias("at")).collect()
    return {(r[ORIGIN[0]], r[ORIGIN[1]]): r["at"] for r in found}


def since(rows: DataFrame, gone: Mapping[Origin, Any]) -> DataFrame:
    """Rows of a merged snapshot that no TRUNCATE among them has removed, without the TRUNCATEs."""
    origin = [F.coalesce(*(F.try_element_at(F.col(m), F.lit(n)) for m in ("key", "after", "before"))) for n in ORIGIN]
    for (db, table), at in gone.items():
        here = (origin[0] == db) & (origin[1] == table)
        rows = rows.where(~here | (F.col("order_key") > order_literal(at)))
    return rows


def empty(
    spark: SparkSession,
    target: Target,
    columns: list[TableColumn],
    gone: Mapping[Origin, Any],
    app: str,
    batch_id: int,
) -> None:
    """Removes what tables held before their TRUNCATE, and notes it for rows that come late."""
    if not gone:
        return
    like = graves(spark, target, columns).select(*_origin_keys(columns), "scope", "_cdc_order").schema
    stones = spark.createDataFrame([(*n, "origin", at) for n, at in gone.items()], like)
    write_tombstones(stones, target, columns, f"{app} origins", batch_id)
    each = (
        f"({ORIGIN[0]} = {literal(db)} AND {ORIGIN[1]} = {literal(table)} AND _cdc_order < {order_sql(at)})"
        for (db, table), at in gone.items()
    )
    spark.sql(f"DELETE FROM {delta(target.snapshot)} WHERE {' OR '.join(each)}")


def _origin_keys(columns: list[TableColumn]) -> list[str]:
    """The tombstones' key columns that hold the origin: it is the end of every merged key."""
    return key_names(columns)[-len(ORIGIN) :]


def not_truncated(folded: DataFrame, target: Target, columns: list[TableColumn], figures: Profile) -> DataFrame:
    """Without rows that an already known later TRUNCATE of their table has removed."""
    names = _origin_keys(columns)
    later = (
        graves(folded.sparkSession, target, columns)
        .where((F.col("scope") == "origin") & (F.col("_cdc_order") > order_literal(figures.low_order)))
        .groupBy(*names)
        .agg(F.max("_cdc_order").alias("_emptied"))
    )
    if later.isEmpty():
        return folded
    joined = folded.join(F.broadcast(later), names, "left")
    return joined.where("_deleted OR _emptied IS NULL OR _cdc_order > _emptied").drop("_emptied")
