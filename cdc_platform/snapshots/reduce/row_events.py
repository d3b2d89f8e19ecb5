"""Changes of one table without a key → the rows that came and those that went. Frames only.

Two rows of the table are one and the same just where their `content`, a digest of their cells, is.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.snapshots.reduce.fold import overlaid
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.spark.delta_sql import quoted
from cdc_platform.tables import ADDRESS_TYPE, ROW_ADDRESS


def of_changes(rows: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """sign (1: a row came, -1: one went), order_key, source_time, op, _cdc_address, `_v0`, … and content. An update is
    of both."""
    before, after = overlaid("before", "after"), overlaid("after", "before")
    went = F.when(F.col("op").isin("update", "delete"), F.struct(F.lit(-1).alias("sign"), before.alias("image")))
    came = F.when(F.col("op") != "delete", F.struct(F.lit(1).alias("sign"), after.alias("image")))
    event = F.explode(F.array_compact(F.array(went, came))).alias("_e")
    changes = rows.where("op <> 'truncate'").select("order_key", "source_time", "op", *ROW_ADDRESS.names, event)
    typed = changes.withColumn("_image", F.col("_e.image")).select(
        *(F.col("_e.sign").alias("sign"), "order_key", "source_time", "op"),
        F.struct(*ROW_ADDRESS.names).cast(ADDRESS_TYPE).alias(ADDRESS),
        *(c.value(c.text("_image")).alias(f"_v{i}") for i, c in enumerate(columns)),
    )
    return typed.withColumn("content", F.expr(content((f"_v{i}" for i, _ in enumerate(columns)), columns)))


def of_table(rows: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """Rows of a Delta table that has these columns, with `_v0`, … and content."""
    rows = rows.withColumns({f"_v{i}": F.col(quoted(c.name)) for i, c in enumerate(columns)})
    return rows.withColumn("content", F.expr(content((f"_v{i}" for i, _ in enumerate(columns)), columns)))


def content(cells: Iterable[str], columns: list[TableColumn]) -> str:
    """SQL of the content of a row, of SQL of its cells."""
    texts = [
        f"base64({cell})" if c.spark == "binary" else f"CAST({cell} AS STRING)"
        for cell, c in zip(cells, columns, strict=True)
    ]
    told = (f"coalesce(concat(CAST(length({t}) AS STRING), ':', {t}), '-')" for t in texts)
    return f"unhex(sha2(concat_ws('', {', '.join(told)}), 256))"
