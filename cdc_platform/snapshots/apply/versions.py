"""Versions of rows written to `history/…`: all of a table's in one commit, or those that a batch begins and ends."""

import json
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.reduce.fold import key_names
from cdc_platform.snapshots.reduce.versions import VERSION
from cdc_platform.snapshots.schema import features, shapes
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta, quoted
from cdc_platform.tables import Name

_SHAPE = "cdc.shape"
"""Property of a history table: what it was made for, so that another one is seen to be needed."""


def shape(columns: list[TableColumn], since: list[Any]) -> str:
    """What a history is made for: columns, types, key, and what else it depends on."""
    told = [[c.name, c.spark, c.key, c.collation, c.comment] for c in columns]
    return json.dumps([since, told], ensure_ascii=True, separators=(",", ":"))


def shape_of(path: Store) -> str | None:
    """That of a history that is there; None: there is none, or it isn't whole."""
    if not delta_table.exists(path):
        return None
    return delta_table.protocol(path)[1].get(_SHAPE)


def replace(
    spark: SparkSession, path: Store, source: str, name: Name, columns: list[TableColumn], found: DataFrame, made: str
) -> None:
    """All versions of a table in place of those that are there, in one commit."""
    table = shapes.history(source, name, columns)
    if not delta_table.exists(path):
        needed = features.at_creation(c.name for c in columns)
        delta_sql.create(spark, path, table.ddl, {**table.properties, **needed}, table.comment)
    else:
        _note(spark, path, "")
        features.allow_names(spark, path, [c.name for c in columns])
    delta_sql.overwrite(found, path, table.ddl)
    _note(spark, path, made)


def _note(spark: SparkSession, path: Store, made: str) -> None:
    spark.sql(f"ALTER TABLE {delta(path)} SET TBLPROPERTIES ('{_SHAPE}' = {delta_sql.literal(made)})")


def going_on(found: DataFrame, path: Store, columns: list[TableColumn]) -> None:
    """Versions that a batch begins, and those of now that it ends."""
    spark, view = found.sparkSession, f"cdc_versions_{uuid4().hex}"
    keys = [c for c in columns if c.key]
    same = [f"t.{quoted(c.name)} <=> s.{quoted(c.name)}" for c in keys]
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
