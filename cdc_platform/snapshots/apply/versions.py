"""Versions of rows that a batch begins and ends, written to `history/…`."""

from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake.store import Store
from cdc_platform.snapshots.reduce.fold import key_names
from cdc_platform.snapshots.reduce.versions import VERSION
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta, quoted


def going_on(found: DataFrame, path: Store, columns: list[TableColumn]) -> None:
    """Versions that a batch begins, and those of now that it ends."""
    spark, view = found.sparkSession, f"cdc_versions_{uuid4().hex}"
    telling = [c for c in columns if c.key] or columns
    same = [f"t.{quoted(c.name)} <=> s.{quoted(c.name)}" for c in telling]
    names = [quoted(n) for n in (*(c.name for c in columns), *VERSION)]
    found.createOrReplaceTempView(view)
    try:
        spark.sql(
            f"MERGE INTO {delta(path)} AS t USING {view} AS s "
            f"ON t._cdc_order_to IS NULL AND t._cdc_order = s._cdc_order AND {' AND '.join(same)} "
            "WHEN MATCHED THEN UPDATE SET t._cdc_valid_to = s._cdc_valid_to, t._cdc_order_to = s._cdc_order_to "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{n}' for n in names)})"
        )
    finally:
        spark.catalog.dropTempView(view)


def known(spark: SparkSession, path: Store, columns: list[TableColumn]) -> DataFrame:
    """Versions that are there, with `_k0`, … as keys compare."""
    keys = [c for c in columns if c.key]
    named = {n: c.comparable(F.col(quoted(c.name))) for n, c in zip(key_names(columns), keys, strict=True)}
    return delta_sql.read(spark, path).withColumns(named)
