"""Tables without a key: as many rows of equal cells as the source has, counted by full row images.

Of rows of one content there are as many as were inserted less those that were deleted after, since the last TRUNCATE.
Which of them a delete takes makes no difference. The snapshot keeps the address of the change that made each row; the
tombstones beside it keep deletes, and inserts that they took away: together every event of a content of which a row was
ever deleted. So late changes count as if they had come in order, and a change that comes again is known.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Order
from cdc_platform.errors import TableStopped
from cdc_platform.lake import delta_table, looks
from cdc_platform.snapshots.apply.prepare import ready_for_merge
from cdc_platform.snapshots.apply.tombstones import graves, write_tombstones
from cdc_platform.snapshots.reduce import row_events
from cdc_platform.snapshots.reduce.fold import overlaid
from cdc_platform.snapshots.schema.columns import BOOKKEEPING, TableColumn, not_before, order_literal, order_sql
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.snapshots.target import Stale, Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta, quoted
from cdc_platform.tables import ADDRESS_TYPE, ORDER

_BURIED, _THERE, _NEW = 0, 1, 2  # where an event is known from, the most telling first
_SIGN = "CASE WHEN scope = 'insert' THEN 1 ELSE -1 END AS sign"  # of a buried event


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Of one batch of a table."""

    deletes: int
    invalid_dates: int
    truncated_at: Any  # order of the last TRUNCATE, or None
    low_offset: int
    high_offset: int


def only_add(target: Target, low: Order | None) -> bool:
    """Whether rows that came do nothing but add themselves to a table, for all that is known to be deleted went before
    them: nothing did, or it did before `low`, the oldest of them (None: nothing tells what is older). Such a row is one
    more of its content, however many of it came and went until then, and takes no delete that found no row. By the log
    alone; False isn't certain."""
    look = looks.look(target.tombstones)
    if look is None:
        return True
    return look.live is not None and all(low is not None and _highest(add) < low for add in look.live.adds)


def _highest(add: Mapping[str, Any]) -> tuple[float, ...]:
    """An order that none in a file of tombstones is above."""
    told = json.loads(add["stats"]).get("maxValues", {}).get("_cdc_order", {})
    return tuple(n if isinstance(n := told.get(name), int) else inf for name in ORDER.names)


def bring_up(
    rows: DataFrame,
    target: Target,
    columns: list[TableColumn],
    told: dict[str, list[str]],
    app: str,
    batch_id: int,
    *,
    doubted: bool = False,
) -> tuple[int, str | None]:
    """Bring changes of one table into its snapshot. `told`: names of the columns by schema version: what such rows
    lack, their table lacked. doubted: so far the feed didn't tell all. The snapshot is there. Returns how many dates
    became NULL, and what the feed didn't tell. Raises TableStopped, Stale."""
    spark = rows.sparkSession
    figures = _batch_statistics(rows, target, columns, told)
    if figures.truncated_at is not None:
        _truncate(spark, target, columns, figures, app, batch_id)
    at, deletes = _stones(spark, target)
    if at is not None:
        rows = rows.where(F.col("order_key") > order_literal(at))
    new = _events(rows, columns)
    if not figures.deletes and not deletes:
        _merge(new.withColumn("_gone", F.lit(False)), target, columns, figures, near=True)
        return figures.invalid_dates, None
    ready_for_merge(spark, target)
    settled = _event_counts(new, target, columns, at).persist()
    try:
        _write(settled, target, columns, figures, app, batch_id)
        if not doubted and settled.where("owed > 0").isEmpty():
            return figures.invalid_dates, None
    finally:
        settled.unpersist()
    return figures.invalid_dates, _untold(_known(spark, target, columns, at))


def unlike(new: DataFrame, target: Target, low: Order) -> bool:
    """Whether anything is known to be deleted after the oldest of these events (`low`) of which they don't tell: a
    TRUNCATE, or a row of a content that they are about, after the first of these. It was known before, or comes with a
    later batch."""
    if not delta_table.exists(target.tombstones):
        return False
    later = delta_sql.read(new.sparkSession, target.tombstones).where(not_before("_cdc_order", low))
    first = new.groupBy("content").agg(F.min("order_key").alias("_first"))
    told = new.select("content", "sign", ADDRESS)
    rows = later.selectExpr("*", _SIGN).join(first, "content").where("_cdc_order >= _first")
    others = rows.join(told, told.columns, "left_anti").select("scope")
    return not others.union(later.where("scope = 'table'").select("scope")).isEmpty()


def _stones(spark: SparkSession, target: Target) -> tuple[Any, bool]:
    """Order of the last TRUNCATE (None: there was none), and whether any row was deleted otherwise."""
    if not delta_table.exists(target.tombstones):
        return None, False
    order, scope = F.col("_cdc_order"), F.col("scope")
    told = delta_sql.read(spark, target.tombstones).agg(
        F.max(F.when(scope == "table", order)).alias("at"), F.count_if(scope == "delete").alias("deletes")
    )
    [found] = told.collect()
    return found["at"], found["deletes"] > 0


def _write(
    settled: DataFrame, target: Target, columns: list[TableColumn], figures: BatchStatistics, app: str, batch_id: int
) -> None:
    """settled: as `_settled` gives it. First buries what it says isn't live: what is buried already is known as such,
    so that a batch which was killed here goes on."""
    buried = settled.where(f"NOT live AND (state = {_NEW} OR state = {_THERE})")
    scope = F.when(F.col("sign") > 0, "insert").otherwise("delete")
    gone = buried.select(scope.alias("scope"), "content", ADDRESS, "_cdc_order")
    write_tombstones(gone, target, columns, f"{app} rows", batch_id)
    rows = settled.where(f"sign > 0 AND ((state = {_NEW} AND live) OR (there AND NOT live))")
    _merge(rows.withColumn("_gone", F.col("there")), target, columns, figures, near=False)


def _batch_statistics(
    rows: DataFrame, target: Target, columns: list[TableColumn], told: dict[str, list[str]]
) -> BatchStatistics:
    before, after = overlaid("before", "after"), overlaid("after", "before")
    row = rows.withColumns({"_before": before, "_after": after})
    truncate, gone, came = F.col("op") == "truncate", F.col("op").isin("update", "delete"), F.col("op") != "delete"
    names = F.array(*(F.lit(c.name) for c in columns))
    for version, known in told.items():
        there = F.array(*(F.lit(c.name) for c in columns if c.name in known)).cast("array<string>")
        names = F.when(F.col("schema_version") == version, there).otherwise(names)

    def lacks(image: str) -> Column:
        held = F.coalesce(F.map_keys(F.col(image)), F.array().cast("array<string>"))
        return F.size(F.array_except(names, held)) > 0

    # An update's before image may tell just what changed, but not nothing at all.
    partial = ~truncate & ((gone & (F.col("before").isNull() | lacks("_before"))) | (came & lacks("_after")))
    invalid = sum((c.invalid("_after").cast("int") for c in columns), F.lit(0))
    found = row.agg(
        F.count_if(gone).alias("deletes"),
        F.count_if(partial).alias("partial"),
        F.coalesce(F.sum(F.when(came & ~truncate, invalid)), F.lit(0)).alias("invalid_dates"),
        F.max(F.when(truncate, F.col("order_key"))).alias("truncated_at"),
        F.min("offset").alias("low_offset"),
        F.max("offset").alias("high_offset"),
    ).collect()[0]
    if found["partial"]:
        raise TableStopped(
            target.source,
            target.name,
            f"{found['partial']} changes tell no key and not the whole row; name a key in cdc.yaml: "
            f"tables.keys: {{'{'.'.join(target.name)}': [...]}}",
        )
    return BatchStatistics(**{f: found[f] for f in BatchStatistics.__slots__})


def _truncate(
    spark: SparkSession, target: Target, columns: list[TableColumn], figures: BatchStatistics, app: str, batch_id: int
) -> None:
    """Empties both tables. Raises Stale where something newer is in them: what an older TRUNCATE leaves of that can't
    be told from what is kept."""
    at = order_literal(figures.truncated_at)
    for rows in (delta_sql.read(spark, target.snapshot), graves(spark, target, columns)):
        if not rows.where(F.col("_cdc_order") > at).isEmpty():
            raise Stale
    spark.sql(f"DELETE FROM {delta(target.snapshot)} WHERE _cdc_order < {order_sql(figures.truncated_at)}")
    empty = [F.lit(None).cast(t).alias(n) for n, t in (("content", "binary"), (ADDRESS, ADDRESS_TYPE))]
    stone = spark.range(1).select(F.lit("table").alias("scope"), *empty, at.alias("_cdc_order"))
    write_tombstones(stone, target, columns, f"{app} truncate", batch_id)


def _events(rows: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """sign (1: a row came, -1: one went), content, _cdc_address, _cdc_order, _cdc_source_time, _v0, …"""
    return row_events.of_changes(rows, columns).select(
        *("sign", "content", ADDRESS),
        F.col("order_key").alias("_cdc_order"),
        F.col("source_time").alias("_cdc_source_time"),
        *(f"_v{i}" for i, _ in enumerate(columns)),
    )


def _event_counts(new: DataFrame, target: Target, columns: list[TableColumn], since: Any) -> DataFrame:
    """Every event of the contents that the new events are about, once: `sign`, cells and so on as `_events`, `state`
    (where it is known from), `there` (it is a row of the snapshot), `live` (it should be), `n` (rows of that content
    there should be), `owed` (deletes of it that found no row). Of a content that was never deleted only the new events
    are told: all of them are live. `since`: order of the last TRUNCATE, or None."""
    known = _known(new.sparkSession, target, columns, since)
    deletes = new.where("sign < 0").select("content").union(known.where(f"state = {_BURIED}").select("content"))
    concerned = new.select("content").distinct().join(deletes.distinct(), "content", "left_semi")
    every = new.withColumn("state", F.lit(_NEW)).unionByName(
        known.join(concerned, "content", "left_semi"), allowMissingColumns=True
    )
    # An event that was buried has no cells; they are only needed of those that weren't.
    best = F.min_by(F.struct(*every.columns), "state").alias("e")
    there = F.max(F.col("state") == _THERE).alias("there")
    once = every.groupBy("content", "sign", ADDRESS).agg(best, there).select("e.*", "there")
    rank = F.row_number().over(
        Window.partitionBy("content", "sign", F.col("state") == _BURIED).orderBy("state", "_cdc_order", ADDRESS)
    )
    return (
        _counted(once)
        .withColumn("rank", rank)
        .withColumn("live", F.expr(f"sign > 0 AND state <> {_BURIED} AND rank <= n"))
    )


def _counted(events: DataFrame) -> DataFrame:
    """With `n` and `owed`: all events of a content in their order; a delete that finds no row takes none."""
    of_content = Window.partitionBy("content")
    run = F.sum("sign").over(of_content.orderBy("_cdc_order", ADDRESS, "sign"))
    low = F.least(F.lit(0), F.min("run").over(of_content))
    return events.withColumn("run", run).withColumns({"owed": -low, "n": F.sum("sign").over(of_content) - low})


def _known(spark: SparkSession, target: Target, columns: list[TableColumn], since: Any) -> DataFrame:
    """What is kept of the table, as events: buried ones, without cells, and the snapshot's rows."""
    gone = graves(spark, target, columns).where("scope <> 'table'")
    if since is not None:
        gone = gone.where(F.col("_cdc_order") > order_literal(since))
    buried = gone.selectExpr(_SIGN, "content", ADDRESS, "_cdc_order", f"{_BURIED} AS state")
    there = _rows_of(delta_sql.read(spark, target.snapshot), columns).withColumn("state", F.lit(_THERE))
    return buried.unionByName(there, allowMissingColumns=True)


def _rows_of(snapshot: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """Rows of the snapshot as events."""
    cells = (f"_v{i}" for i, _ in enumerate(columns))
    rows = row_events.of_table(snapshot, columns)
    return rows.select(F.lit(1).alias("sign"), ADDRESS, "_cdc_order", "_cdc_source_time", *cells, "content")


def _untold(known: DataFrame) -> str | None:
    """Rows that were deleted before they came, of all that is known now."""
    buried = known.where(f"state = {_BURIED}").select("content").distinct()
    owed = _counted(known.join(buried, "content", "left_semi")).groupBy("content").agg(F.max("owed").alias("n"))
    if n := owed.agg(F.sum("n").alias("n")).collect()[0]["n"]:
        return f"{n} rows were deleted that have never come: does the feed hold the table's first rows?"
    return None


def _merge(
    events: DataFrame, target: Target, columns: list[TableColumn], figures: BatchStatistics, *, near: bool
) -> None:
    """Insert these rows, delete those that are `_gone`. near: the batch's own addresses are all that it concerns."""
    spark = events.sparkSession
    cells = {c.name: f"_v{i}" for i, c in enumerate(columns)} | {n: n for n in (*BOOKKEEPING, ADDRESS)}
    view = f"cdc_rows_{uuid4().hex}"
    events.select("_gone", *cells.values()).createOrReplaceTempView(view)
    span = f"AND t.{ADDRESS}.offset BETWEEN {figures.low_offset} AND {figures.high_offset} " if near else ""
    names, values = (", ".join(x) for x in (map(quoted, cells), (f"s.{v}" for v in cells.values())))
    try:
        spark.sql(
            f"MERGE INTO {delta(target.snapshot)} AS t USING {view} AS s ON t.{ADDRESS} = s.{ADDRESS} {span}"
            + ("" if near else "WHEN MATCHED AND s._gone THEN DELETE ")
            + f"WHEN NOT MATCHED AND NOT s._gone THEN INSERT ({names}) VALUES ({values})"
        )
    finally:
        spark.catalog.dropTempView(view)
