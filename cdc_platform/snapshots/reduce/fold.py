"""Changes of one table → at most one row per key: what the batch does to that key in the end.

Frames only. Input rows are CHANGELOG rows of one table; output rows have `_k0…` (typed key columns), `_deleted`,
`_whole` (columns absent from the image are NULL, not unchanged), `_cdc_order`, `_cdc_source_time` and, per column
i, `_v{i}` (typed value) and `_h{i}` (whether the image holds it).
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.snapshots.reduce.one_key import SETS_WHOLE_ROW, UNIQUE
from cdc_platform.snapshots.schema.columns import TableColumn, order_literal
from cdc_platform.spark.delta_sql import quoted


@dataclass(frozen=True, slots=True)
class Profile:
    """Figures of one table's batch that decide how it is folded and merged."""

    changes: int
    partial: int  # images that lack columns
    key_changes: int
    deletes: int
    no_key: int
    lost_moves: int  # key changes whose images don't hold the whole row
    invalid_dates: int
    low_order: Any
    high_order: Any
    truncated_at: Any  # order of the last TRUNCATE, or None
    low_key: Any  # lowest and highest first key column, typed
    high_key: Any
    told_keys: bool  # `key` tells the key of every change


def profile(rows: DataFrame, columns: list[TableColumn], *, told_keys: bool) -> Profile:
    """One pass over the batch, and one more where keys change. told_keys: `key` is told of every change."""
    keys = [c for c in columns if c.key]
    truncate = F.col("op") == "truncate"
    new = F.when(F.col("op") != "delete", F.col("after"))
    row = rows.withColumns({"_kmap": key_image(columns, told=told_keys), "_new": new})
    first_old, first_new = keys[0].value(keys[0].text("_kmap")), keys[0].value(keys[0].text("_new"))
    invalid = sum((c.invalid("_new").cast("int") for c in columns), F.lit(0))
    out = row.agg(
        F.count(F.lit(1)).alias("changes"),
        F.count_if(F.col("_new").isNotNull() & ~_holds_all(columns, F.col("_new"))).alias("partial"),
        F.count_if(_key_moves(keys)).alias("key_changes"),
        F.count_if(F.col("op") == "delete").alias("deletes"),
        F.count_if(~truncate & ~_has_key(keys)).alias("no_key"),
        F.coalesce(F.sum(invalid), F.lit(0)).alias("invalid_dates"),
        F.min("order_key").alias("low_order"),
        F.max("order_key").alias("high_order"),
        F.max(F.when(truncate, F.col("order_key"))).alias("truncated_at"),
        F.min(F.least(first_old, first_new)).alias("low_key"),
        F.max(F.greatest(first_old, first_new)).alias("high_key"),
    ).collect()[0]
    if told_keys and out["no_key"]:  # it may tell another one, by which the table was kept before
        return profile(rows, columns, told_keys=False)
    lost = row.where(lost_move(columns)).count() if out["key_changes"] else 0
    return Profile(**out.asDict(), lost_moves=lost, told_keys=told_keys)


def fold(
    rows: DataFrame, columns: list[TableColumn], figures: Profile, *, only: DataFrame | None = None, partial: bool
) -> DataFrame:
    """One row per key (see module); `only`: of these keys. partial: images may lack columns."""
    keys = [c for c in columns if c.key]
    since = alive(rows, columns, figures)
    if only is not None:
        since = since.join(F.broadcast(only), key_names(columns), "left_semi")
    if partial:
        return _typed_parts(said_last(since, key_names(columns), columns), columns)
    return _typed(_last(since, keys), columns)


def late_keys(rows: DataFrame, columns: list[TableColumn], figures: Profile, snapshot: DataFrame) -> DataFrame:
    """`_k0`, … of keys of which the snapshot has a row that isn't older than all their changes here."""
    names, keys = key_names(columns), [c for c in columns if c.key]
    first = alive(rows, columns, figures).groupBy(*names).agg(F.min("order_key").alias("_first"))
    there = [c.comparable(F.col(quoted(c.name))).alias(n) for n, c in zip(names, keys, strict=True)]
    late = first.join(snapshot.select(*there, "_cdc_order"), names).where("_cdc_order >= _first")
    return late.select(*names)


def key_names(columns: list[TableColumn]) -> list[str]:
    """`_k0`, `_k1`, … for the key columns in table order."""
    return [f"_k{i}" for i, _ in enumerate(c for c in columns if c.key)]


def typed_keys(columns: list[TableColumn]) -> list[Column]:
    """`_k0`, … of the row that a change says it changes (`_kmap`), as keys compare."""
    keys = [c for c in columns if c.key]
    names = key_names(columns)
    return [c.comparable(c.value(c.text("_kmap"))).alias(n) for n, c in zip(names, keys, strict=True)]


def key_image(columns: list[TableColumn], *, told: bool) -> Column:
    """Where the key of the row before stands: told key, if it is of these columns' key, else the row images. told: it
    always is, so that nothing need be read but it."""
    if told:
        return F.col("key")
    own = F.when(_all(F.map_contains_key("key", F.lit(c.name)) for c in columns if c.key), F.col("key"))
    return F.coalesce(own, F.when(F.col("op") == "insert", F.col("after")), F.col("before"), F.col("after"))


def _has_key(keys: list[TableColumn]) -> Column:
    """Whether every key column has a value; a date that doesn't exist is none (it would match no row again)."""
    return _all(c.value(c.text("_kmap")).isNotNull() for c in keys)


def _key_moves(keys: list[TableColumn]) -> Column:
    """An update whose after image holds another key than the row before: other values, for 0.0 and -0.0 are one."""
    differs = F.lit(False)
    for c in keys:
        old, new = c.text("_kmap"), c.text("after")
        same = c.comparable(c.value(new)).eqNullSafe(c.comparable(c.value(old)))
        differs = differs | (new.isNotNull() & (new != old) & ~same)
    return (F.col("op") == "update") & differs


def lost_move(columns: list[TableColumn]) -> Column:
    """A key change whose images tell a part of the row: the rest is what the old key's row held."""
    return _key_moves([c for c in columns if c.key]) & ~_holds_all(columns, overlaid("after", "before"))


def _holds_all(columns: list[TableColumn], image: Column) -> Column:
    names, there = [c.name for c in columns], F.map_keys(image)
    # Whole images hold all columns in their order, which a text tells in a third of the time: MySQL takes no U+0000 in
    # a name, so no two lists give the same.
    as_listed = F.concat_ws("\0", there) == F.lit("\0".join(names))
    return as_listed | (F.size(F.array_except(F.array(*map(F.lit, names)), there)) == 0)


def _all(conditions: Any) -> Column:
    out = F.lit(True)
    for condition in conditions:
        out = out & condition
    return out


def alive(rows: DataFrame, columns: list[TableColumn], figures: Profile) -> DataFrame:
    """Steps since the last TRUNCATE of these changes."""
    since = rows.where("op <> 'truncate'")
    if figures.truncated_at is not None:
        since = since.where(F.col("order_key") > order_literal(figures.truncated_at))
    return steps(since, columns, figures.told_keys, moves=figures.key_changes > 0)


def steps(
    rows: DataFrame, columns: list[TableColumn], told_keys: bool, *, moves: bool, more: tuple[str, ...] = ()
) -> DataFrame:
    """Changes as steps on single keys: a key change is a delete of the old key and a whole row under the new one. more:
    columns of the changes that the steps have, too."""
    keys = [c for c in columns if c.key]
    row = rows.withColumn("_kmap", key_image(columns, told=told_keys)).withColumn("_deleted", F.col("op") == "delete")
    row = row.withColumn("_whole", F.col("op").isin(*SETS_WHOLE_ROW))
    if moves:
        stay = F.struct(
            F.col("_kmap").alias("kmap"),
            F.col("_deleted").alias("deleted"),
            F.col("_whole").alias("whole"),
            F.lit(False).alias("lost"),
            F.col("after").alias("after"),
        )
        old = F.struct(
            F.col("_kmap").alias("kmap"),
            F.lit(True).alias("deleted"),
            F.lit(False).alias("whole"),
            F.lit(False).alias("lost"),
            F.col("after").alias("after"),
        )
        new_key = F.map_zip_with("_kmap", "after", lambda _, k, a: F.coalesce(a, k))
        new = F.struct(
            new_key.alias("kmap"),
            F.lit(False).alias("deleted"),
            F.lit(True).alias("whole"),
            lost_move(columns).alias("lost"),
            overlaid("after", "before").alias("after"),
        )
        both = F.when(_key_moves(keys), F.array(old, new)).otherwise(F.array(stay))
        row = row.withColumn("_s", F.explode(both)).select(
            "order_key",
            "source_time",
            *UNIQUE,
            *more,
            F.col("_s.kmap").alias("_kmap"),
            F.col("_s.deleted").alias("_deleted"),
            F.col("_s.whole").alias("_whole"),
            F.col("_s.lost").alias("_lost"),
            F.col("_s.after").alias("_image"),
        )
    else:
        row = row.select(
            *("order_key", "source_time", *UNIQUE, *more, "_kmap", "_deleted", "_whole"),
            F.lit(False).alias("_lost"),
            F.col("after").alias("_image"),
        )
    return row.select("*", *typed_keys(columns)).drop("_kmap")


def overlaid(image: str, under: str) -> Column:
    """A row image and, where it lacks columns, what the other one says of them. An explicit NULL is told."""
    over, below = (F.coalesce(F.col(c), F.expr("CAST(map() AS MAP<STRING, STRING>)")) for c in (image, under))
    untold = F.map_filter(below, lambda k, _: ~F.map_contains_key(over, k))
    return F.map_concat(untold, over)


def _last(steps: DataFrame, keys: list[TableColumn]) -> DataFrame:
    """The step with the highest order per key. A maximum over numbers and a join beat max_by over whole rows."""
    names = [f"_k{i}" for i, _ in enumerate(keys)]
    tagged = steps.withColumn("_at", F.struct("order_key", *UNIQUE, F.col("_deleted").cast("int")))
    newest = tagged.groupBy(*names).agg(F.max("_at").alias("_at"))
    return tagged.join(newest, [*names, "_at"], "left_semi")


def _typed(steps: DataFrame, columns: list[TableColumn]) -> DataFrame:
    values = [F.when(~F.col("_deleted"), c.value(c.text("_image"))).alias(f"_v{i}") for i, c in enumerate(columns)]
    return steps.select(
        *[n for n in steps.columns if n.startswith("_k")],
        "_deleted",
        F.lit(True).alias("_whole"),
        F.col("order_key").alias("_cdc_order"),
        F.col("source_time").alias("_cdc_source_time"),
        *values,
    )


def said_last(steps: DataFrame, by: list[str], columns: list[TableColumn]) -> DataFrame:
    """Images that lack columns: per column i the newest text said since the last whole row or delete, as `_t{i}`
    (struct of the text; NULL where none is said), with `by`, `_deleted`, `_whole` (there is such a row or delete),
    `_lost` (it is a `lost_move`), `_cdc_order`, `_cdc_source_time`."""
    at = F.struct("order_key", *UNIQUE, F.col("_deleted").cast("int").alias("_d"))
    tagged = steps.withColumn("_at", at)
    resets = tagged.groupBy(*by).agg(F.max(F.when(F.col("_whole") | F.col("_deleted"), F.col("_at"))).alias("_reset"))
    join = [tagged[n].eqNullSafe(resets[n]) for n in by]
    since = tagged.join(resets, join).select(tagged["*"], "_reset").where("_reset IS NULL OR _at >= _reset")
    said = since.where("NOT _deleted OR _at = _reset")
    per_column = []
    for i, c in enumerate(columns):
        holds = ~F.col("_deleted") & F.map_contains_key(F.col("_image"), F.lit(c.name))
        per_column.append(
            F.max_by(F.when(holds, F.struct(c.text("_image").alias("t"))), F.when(holds, F.col("_at"))).alias(f"_t{i}")
        )
    return said.groupBy(*by).agg(
        F.max_by("_deleted", "_at").alias("_deleted"),
        F.max(F.col("_reset").isNotNull()).alias("_whole"),
        F.max("_lost").alias("_lost"),
        F.max("order_key").alias("_cdc_order"),
        F.max_by("source_time", "_at").alias("_cdc_source_time"),
        *per_column,
    )


def _typed_parts(said: DataFrame, columns: list[TableColumn]) -> DataFrame:
    return said.select(
        *key_names(columns),
        "_deleted",
        "_whole",
        "_cdc_order",
        "_cdc_source_time",
        *(c.value(F.col(f"_t{i}.t")).alias(f"_v{i}") for i, c in enumerate(columns)),
        *(F.col(f"_t{i}").isNotNull().alias(f"_h{i}") for i, _ in enumerate(columns)),
    )
