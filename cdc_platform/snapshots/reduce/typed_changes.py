"""Changes of one table → the same with rows before and after in its columns. Frames only.

Input rows are CHANGELOG rows of one table, carried to its columns of today, with upcast.UNTOLD or without. Each gives
one row: the columns of CHANGE, and `before` and `after`, structs of the table's columns. A cell has what the change
itself tells: of a column that isn't told it is NULL, and the column is named in `_cdc_missing_before` or
`_cdc_missing_after`.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.snapshots.reduce.fold import overlaid
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.schema.upcast import UNTOLD
from cdc_platform.tables import IMAGES, ROW_ADDRESS

CHANGE = {
    "_cdc_op": "op",
    "_cdc_source_time": "source_time",
    "_cdc_order": "order_key",
    "_cdc_gtid": "gtid",
    "_cdc_binlog_file": "binlog_file",
    "_cdc_binlog_pos": "binlog_pos",
}
"""Columns of a typed change that are CHANGELOG's under other names."""


def of_changes(rows: DataFrame, columns: list[TableColumn], *, nulls_told: bool) -> DataFrame:
    """nulls_told: a NULL before is one; else it may say that the column isn't told, as PostgreSQL's messages do of
    columns outside the replica identity, and of a row before that has its key alone nothing else is."""
    keys, op = [c for c in columns if c.key], F.col("op")
    had, has = op.isin("update", "delete"), op.isin("insert", "read", "update")
    told = rows if nulls_told or not keys else rows.withColumn("before", _without_nulls("before", keys))
    # The key that is told is of the row before. One without a key that lacks columns tells those that changed.
    under = F.col("key") if keys else F.when(op == "update", F.col("after"))
    told = told.withColumn("_under", under).withColumn("before", _over(columns, "before", "_under"))
    if UNTOLD in rows.columns:
        told = told.withColumn("before", _without("before", UNTOLD))
    told = told.withColumn("before", F.when(had & (F.size("before") > 0), F.col("before")))
    # What an update doesn't tell of the row after is as it was: MySQL leaves nothing else out.
    after = F.when(op == "update", _over(columns, "after", "before")).otherwise(F.col("after"))
    told = told.withColumn("after", F.when(has, after))
    return (
        told.select(
            *(F.col(name).alias(own) for own, name in CHANGE.items()),
            F.struct(*ROW_ADDRESS.names).alias("_cdc_address"),
            F.when(had, _missing(columns, "before")).otherwise(_names(())).alias("_cdc_missing_before"),
            F.when(has, _missing(columns, "after")).otherwise(_names(())).alias("_cdc_missing_after"),
            *(_texts(columns, image).alias(f"_{image}") for image in IMAGES),
        )
        .select("*", *(_typed(columns, f"_{image}").alias(image) for image in IMAGES))
        .drop(*(f"_{i}" for i in IMAGES))
    )


def _over(columns: list[TableColumn], image: str, under: str) -> Column:
    """A row image, and what another one tells of columns that it lacks."""
    return F.when(_whole(columns, image), F.col(image)).otherwise(overlaid(image, under))


def _whole(columns: list[TableColumn], image: str) -> Column:
    """Whether an image has all columns, in their order, as whole ones have: a text tells it at once, where to look for
    each name takes the square of their number. MySQL takes no U+0000 in a name."""
    names = F.lit("\0".join(c.name for c in columns))
    return F.coalesce(F.concat_ws("\0", F.map_keys(F.col(image))) == names, F.lit(False))


def _without_nulls(image: str, keys: list[TableColumn]) -> Column:
    """A row image that holds nothing but its key, NULLs aside, as the key alone."""
    names = F.array(*(F.lit(c.name) for c in keys))
    rest = F.map_filter(F.col(image), lambda name, text: text.isNotNull() & ~F.array_contains(names, name))
    key = F.map_filter(F.col(image), lambda name, _: F.array_contains(names, name))
    return F.when(F.size(rest) > 0, F.col(image)).otherwise(key)


def _without(image: str, names: str) -> Column:
    """A row image without some columns."""
    rest = F.map_filter(F.col(image), lambda name, _: ~F.array_contains(F.col(names), name))
    return F.when(F.size(names) > 0, rest).otherwise(F.col(image))


def _missing(columns: list[TableColumn], image: str) -> Column:
    """Names of the columns that an image lacks."""
    there = F.coalesce(F.map_keys(F.col(image)), _names(()))
    lacks = F.array_except(_names(c.name for c in columns), there)
    return F.when(_whole(columns, image), _names(())).otherwise(lacks)


def _names(names: Iterable[str]) -> Column:
    return F.array(*(F.lit(n) for n in names)).cast("array<string>")


def _texts(columns: list[TableColumn], image: str) -> Column:
    """The texts of an image in the order of the columns; NULL: there is no image."""
    each = F.transform(_names(c.name for c in columns), lambda name: F.try_element_at(F.col(image), name))
    found = F.when(_whole(columns, image), F.map_values(F.col(image))).otherwise(each)
    return F.when(F.col(image).isNotNull(), found)


def _typed(columns: list[TableColumn], texts: str) -> Column:
    cells = (c.value(F.get(F.col(texts), F.lit(i))).alias(c.name) for i, c in enumerate(columns))
    return F.when(F.col(texts).isNotNull(), F.struct(*cells))
