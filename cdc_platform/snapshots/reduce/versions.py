"""Changes of one table → its versions of rows: what each row said, from which change on and up to which. Frames only.

Input rows are CHANGELOG rows of one table, carried to its columns of today. Output rows have the table's columns and
VERSION: `_cdc_op` (the change that made the version), `_cdc_valid_from` and `_cdc_valid_to` (commit times at the
source; NULL: it told none), `_cdc_order` and `_cdc_order_to` (places in the log; no `_cdc_order_to`: it is so now).

A row that changes twice at one place has the last of these versions only.
"""

from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_platform.snapshots.reduce import key_changes, row_events
from cdc_platform.snapshots.reduce.fold import Profile, key_names, steps
from cdc_platform.snapshots.reduce.one_key import UNIQUE
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.spark.delta_sql import quoted

VERSION = ("_cdc_op", "_cdc_valid_from", "_cdc_valid_to", "_cdc_order", "_cdc_order_to")
_BEGUN_BY = {"_cdc_order": "order_key", "_cdc_valid_from": "source_time", "_cdc_op": "op"}
"""What a version says of the change that made it."""


def of_keys(rows: DataFrame, columns: list[TableColumn], figures: Profile) -> DataFrame:
    """Versions of a table with a key, from all of its changes."""
    if figures.lost_moves:
        every = replace(figures, truncated_at=None)  # a row that moves has come since the last TRUNCATE
        rows = key_changes.filled(rows, columns, every)
    return _of_steps(typed_steps(rows, columns, figures), _truncates(rows), columns)


def going_on(new: DataFrame, last: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """Versions that new steps begin, and those that they end. last: present versions of these keys, older than all of
    the steps; there is no TRUNCATE in between."""
    names = key_names(columns)
    cells = {f"_v{i}": F.col(quoted(c.name)) for i, c in enumerate(columns)}
    before = last.select(
        *(c.comparable(F.col(quoted(c.name))).alias(n) for n, c in zip(names, _keys(columns), strict=True)),
        F.struct(
            F.col("_cdc_order").alias("order_key"), *(F.lit(None).cast("int").alias(n) for n in (*UNIQUE, "_deleted"))
        ).alias("_at"),
        *(F.col(a).alias(b) for a, b in _BEGUN_BY.items()),
        F.lit(False).alias("_deleted"),
        F.lit(True).alias("_whole"),
        *(v.alias(n) for n, v in cells.items()),
        *(F.lit(True).alias(f"_h{i}") for i, _ in enumerate(columns)),
    )
    at = new.schema["_at"].dataType
    return _of_steps(new.unionByName(before.withColumn("_at", F.col("_at").cast(at))), None, columns)


def typed_steps(rows: DataFrame, columns: list[TableColumn], figures: Profile) -> DataFrame:
    """Steps on single keys: `_k0`, …, `_at` (their place), order_key, source_time, op, `_deleted`, `_whole`, and per
    column i `_v{i}` (typed value) and `_h{i}` (whether the image has it)."""
    moves = figures.key_changes > 0
    found = steps(rows.where("op <> 'truncate'"), columns, figures.told_keys, moves=moves, more=("op",))
    return found.select(
        *key_names(columns),
        F.struct("order_key", *UNIQUE, F.col("_deleted").cast("int")).alias("_at"),
        *("order_key", "source_time", "op", "_deleted", "_whole"),
        *(c.value(c.text("_image")).alias(f"_v{i}") for i, c in enumerate(columns)),
        *(
            F.coalesce(F.map_contains_key("_image", F.lit(c.name)), F.lit(False)).alias(f"_h{i}")
            for i, c in enumerate(columns)
        ),
    )


def of_rows(rows: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """Versions of a table without a key, from all of its changes."""
    events = row_events.of_changes(rows, columns).withColumn("_known", F.lit(False))
    return _ended(_first_to_go(events, _truncates(rows)), columns, with_truncates=True)


def rows_going_on(new: DataFrame, last: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """Versions of a table without a key that new row events begin, and those of now that they end.
    last: present versions of the rows that go, as row_events.of_table gives them, older than all events of their
    content; there is no TRUNCATE in between."""
    known = last.select(
        F.lit(1).alias("sign"),
        *(F.col(a).alias(b) for a, b in _BEGUN_BY.items()),
        *(f"_v{i}" for i, _ in enumerate(columns)),
        *("content", F.lit(True).alias("_known")),
    )
    events = new.withColumn("_known", F.lit(False)).unionByName(known, allowMissingColumns=True)
    found = _first_to_go(events, None).where("NOT _known OR _next IS NOT NULL")
    return _ended(found, columns, with_truncates=False)


def _first_to_go(events: DataFrame, truncates: DataFrame | None) -> DataFrame:
    """Row events as versions with `_next` and `_emptied`: of rows of one content the one that came first goes first. A
    delete that finds no row takes none."""
    found = _with_lives(events, truncates).withColumn("_at", F.struct("order_key", ADDRESS))
    content = Window.partitionBy("content", "_life")
    run = found.withColumn("_run", F.sum("sign").over(content.orderBy("_at", "sign")))
    lowest = F.min("_run").over(content.orderBy("_at", "sign").rowsBetween(Window.unboundedPreceding, -1))
    run = run.withColumn("_low", F.least(F.lit(0), lowest)).where("sign > 0 OR _run >= _low")
    number = F.row_number().over(Window.partitionBy("content", "_life", "sign").orderBy("_at"))
    delete = F.min(F.when(F.col("sign") < 0, F.struct("order_key", "source_time")))
    paired = run.withColumn("_n", number)
    paired = paired.withColumn("_next", delete.over(Window.partitionBy("content", "_life", "_n")))
    return paired.where("sign > 0").withColumn("_deleted", F.lit(False))


def _with_lives(found: DataFrame, truncates: DataFrame | None) -> DataFrame:
    """With `_life`, how many TRUNCATEs came before, and `_emptied`, place and time of the next one."""
    if truncates is None:
        return found.withColumns({"_life": F.lit(0), "_emptied": F.lit(None).cast("struct<o: int, t: int>")})
    return (
        found.crossJoin(F.broadcast(truncates))
        .withColumns(
            {
                "_life": F.size(F.filter("_all", lambda t: t["order_key"] < F.col("order_key"))),
                "_emptied": F.array_min(F.filter("_all", lambda t: t["order_key"] > F.col("order_key"))),
            }
        )
        .drop("_all")
    )


def _of_steps(found: DataFrame, truncates: DataFrame | None, columns: list[TableColumn]) -> DataFrame:
    names = key_names(columns)
    found = _with_lives(found, truncates)
    life = Window.partitionBy(*names, "_life").orderBy("_at")
    reset = F.sum((F.col("_whole") | F.col("_deleted")).cast("int")).over(life)
    since = Window.partitionBy(*names, "_life", "_reset").orderBy("_at")
    keys = iter(names)
    told = []
    for i, c in enumerate(columns):
        cell = F.last(F.when(F.col(f"_h{i}") & ~F.col("_deleted"), F.struct(f"_v{i}")), ignorenulls=True).over(since)
        value = cell.getField(f"_v{i}")
        told.append((F.coalesce(value, c.plain(F.col(next(keys)))) if c.key else value).alias(f"_v{i}"))
    following = F.lead(F.struct("order_key", "source_time")).over(Window.partitionBy(*names).orderBy("_at"))
    made = found.withColumn("_reset", reset).select(
        *told, *("op", "source_time", "order_key", "_deleted", "_emptied"), following.alias("_next")
    )
    return _ended(made, columns, with_truncates=truncates is not None)


def _ended(made: DataFrame, columns: list[TableColumn], *, with_truncates: bool) -> DataFrame:
    """Versions with their ends. `_next`: place and time of the row's next change; `_emptied`: of the next TRUNCATE."""
    end: Column = F.col("_next")
    if with_truncates:
        first = F.col("_next").isNull() | (F.col("_emptied.order_key") < F.col("_next.order_key"))
        end = F.when(F.col("_emptied").isNotNull() & first, F.col("_emptied")).otherwise(F.col("_next"))
    made = made.withColumn("_end", end).where("NOT _deleted")
    return made.where("_end IS NULL OR _end.order_key > order_key").select(
        *(F.col(f"_v{i}").alias(c.name) for i, c in enumerate(columns)),
        F.col("op").alias("_cdc_op"),
        F.col("source_time").alias("_cdc_valid_from"),
        F.col("_end.source_time").alias("_cdc_valid_to"),
        F.col("order_key").alias("_cdc_order"),
        F.col("_end.order_key").alias("_cdc_order_to"),
    )


def _truncates(rows: DataFrame) -> DataFrame:
    """One row: `_all`, an array of place and time of each TRUNCATE."""
    return rows.where("op = 'truncate'").agg(F.collect_list(F.struct("order_key", "source_time")).alias("_all"))


def _keys(columns: list[TableColumn]) -> list[TableColumn]:
    return [c for c in columns if c.key]
