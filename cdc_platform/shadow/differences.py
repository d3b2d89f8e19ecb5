"""SHADOW_DIFFERENCES written: of each comparison of a table what is new, what has changed, and what has gone.

The table only grows, by one commit for each comparison of a table; of each key the row with the highest number counts.
What a comparison adds follows from what is there, so one that was killed before or behind its commit does no harm: the
next adds what it would have added, or nothing.
"""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config
from cdc_platform.config.shadow import Shadow
from cdc_platform.lake import stores
from cdc_platform.shadow.kinds import DIFFERS, ONLY_BY, ONLY_OF
from cdc_platform.shadow.point import Common
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.spark.row_diff import Sides, Wrong
from cdc_platform.tables import SHADOW_DIFFERENCES, Name, name_columns

SIDES = Sides("of", "by", ONLY_OF, ONLY_BY, DIFFERS)
_STATE = ("kind", "rows", "columns", "of_row", "by_row")
"""What of a difference may change while it is open."""


@dataclass(frozen=True, slots=True)
class OpenDifferences:
    """Open differences of a table by kind, and rows that aren't the same and can't be judged."""

    counts: dict[str, int]
    unsettled: int


def of_rows(wrong: Wrong) -> DataFrame:
    """Rows that differ as columns of SHADOW_DIFFERENCES: key, kind, rows, columns, of_row, by_row; and `settled`."""
    at = {name: i for i, name in enumerate(wrong.columns)}
    key = _texts([(n, F.coalesce(f"u{at[n]}", f"r{at[n]}")) for n in wrong.keys or wrong.columns])
    told = [F.col("differ"), *(_texts([(n, F.col(f"{side}{i}")) for n, i in at.items()]) for side in "ur")]
    of, by = (
        F.when(F.col("kind") == other, None)
        .when(F.col("kind") == DIFFERS, F.map_filter(texts, lambda name, _: F.array_contains("differ", name)))
        .otherwise(texts)
        for texts, other in zip(told[1:], (ONLY_BY, ONLY_OF), strict=True)
    )
    return wrong.rows.select(
        F.to_json(key, {"ignoreNullFields": "false"}).alias("key"),
        *("kind", F.col("n").alias("rows"), F.col("differ").alias("columns")),
        *(of.alias("of_row"), by.alias("by_row"), "settled"),
    )


def _texts(cells: list[tuple[str, Column]]) -> Column:
    return F.map_from_arrays(F.array(*(F.lit(n) for n, _ in cells)), F.array(*(c for _, c in cells)))


def note(
    spark: SparkSession, config: Config, pair: Shadow, name: Name, number: int, at: Common, now: DataFrame
) -> OpenDifferences:
    """Adds what comparison `number` of a table found to SHADOW_DIFFERENCES, which is there. now: `of_rows` of all rows
    that differ."""
    path = SHADOW_DIFFERENCES.at(stores.lake(config))
    before = open_rows(spark, config, pair, name)
    was = before.select("key", "first_seen", *(F.col(c).alias(f"was_{c}") for c in _STATE))
    both = now.withColumn("there", F.lit(True)).join(was, "key", "full_outer").persist()
    try:
        there, known = F.col("there").isNotNull(), F.col("first_seen").isNotNull()
        settled = F.coalesce("settled", F.lit(True))
        found = _counted(both, settled, there)
        other = reduce(Column.__or__, (~_comparable(c).eqNullSafe(_comparable(f"was_{c}")) for c in _STATE))
        came, gone = settled & there & (~known | other), ~there & known
        rows = both.where(came | gone)
        shown = [F.when(gone, F.col(f"was_{c}")).otherwise(F.col(c)).alias(c) for c in _STATE]
        moment = F.current_timestamp()
        parts = {"by": pair.by, "number": number, **name_columns(name), "gtid": at.gtid, "source_time": at.source_time}
        types = dict(before.dtypes)
        told = [F.lit(value).cast(types[column]).alias(column) for column, value in parts.items()]
        seen = [F.coalesce("first_seen", moment).alias("first_seen"), F.when(gone, moment).alias("closed_at")]
        arrow_tasks.append(rows.select(*told, "key", *shown, *seen, moment.alias("at")), path, source=pair.of)
        return found
    finally:
        both.unpersist()


def _counted(both: DataFrame, settled: Column, there: Column) -> OpenDifferences:
    """Open are those that are there now, and those that can't be judged and were open before."""
    known = F.col("first_seen").isNotNull()
    kind = F.when(settled & there, F.col("kind")).when(~settled & known, F.col("was_kind"))
    rows = F.when(settled & there, F.col("rows")).otherwise(F.col("was_rows"))
    late = F.when(~settled, F.col("rows")).otherwise(0)
    groups = both.groupBy(kind.alias("kind")).agg(F.sum(rows).alias("rows"), F.sum(late).alias("late")).collect()
    counts = {g["kind"]: int(g["rows"] or 0) for g in groups if g["kind"]}
    return OpenDifferences({k: counts.get(k, 0) for k in SIDES.kinds}, sum(int(g["late"] or 0) for g in groups))


def _comparable(column: str) -> Column:
    """Maps have no order, and none is equal to another in Spark."""
    return F.to_json(F.struct(F.col(column).alias("v")), {"ignoreNullFields": "false"})


def open_rows(spark: SparkSession, config: Config, pair: Shadow, name: Name | None = None) -> DataFrame:
    """Open differences of a pair, of one table or of all, as rows of SHADOW_DIFFERENCES, which is there."""
    path = SHADOW_DIFFERENCES.at(stores.lake(config))
    rows = delta_sql.read(spark, path).where((F.col("source") == pair.of) & (F.col("by") == pair.by))
    if name is not None:
        for column, value in name_columns(name).items():
            rows = rows.where(F.col(f"`{column}`").eqNullSafe(F.lit(value)))
    whole = F.struct(*(F.col(f"`{c}`") for c in rows.columns))
    newest = rows.groupBy("db", "schema", "table", "key").agg(F.max_by(whole, "number").alias("newest"))
    return newest.select("newest.*").where("closed_at IS NULL")
