"""A table that is kept beside a snapshot: what it was made for, and all of its rows put in place in one commit."""

import json
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake import delta_table, handles
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.schema import features
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta
from cdc_platform.tables import MADE_FOR, Table


def shape(columns: list[TableColumn], since: list[Any]) -> str:
    """What it is made for: columns, types, key, and what else it depends on."""
    return json.dumps([since, list(map(_column_fields, columns))], ensure_ascii=True, separators=(",", ":"))


def _column_fields(c: TableColumn) -> list[Any]:
    return [c.name, c.spark, c.key, c.collation, c.comment]


def as_made(made: str, columns: list[TableColumn], older: list[TableColumn]) -> list[TableColumn]:
    """The columns of a table that has more than these, from among older ones, too; as they are where it isn't so."""
    _, there = json.loads(made)
    known = {json.dumps(_column_fields(c)): c for c in older}
    found = [known.get(json.dumps(of)) for of in there]
    has_all = all(_column_fields(c) in there for c in columns)
    return [c for c in found if c] if has_all and all(found) else columns


def shape_of(path: Store) -> str | None:
    """That of a table that is there; None: there is none. Empty: it lacks changes."""
    from deltalake.exceptions import TableNotFoundError

    with suppress(TableNotFoundError):
        return handles.head(path).metadata["configuration"].get(MADE_FOR)
    return None


def replace(
    spark: SparkSession, path: Store, table: Table, columns: list[TableColumn], found: DataFrame, made: str
) -> None:
    """All rows of a table in place of those that are there, in one commit. made: its `shape` from then on."""
    if not delta_table.exists(path):
        needed = features.at_creation(c.name for c in columns)
        delta_sql.create(spark, path, table.ddl, {**table.properties, **needed}, table.comment)
    else:
        not_whole(spark, path)
        features.allow_names(spark, path, [c.name for c in columns])
    delta_sql.overwrite(found, path, table.ddl)
    _note(spark, path, made)


def not_whole(spark: SparkSession, path: Store) -> None:
    """Notes that a table lacks changes, so that the next run makes it anew."""
    if shape_of(path):
        _note(spark, path, "")


def _note(spark: SparkSession, path: Store, made: str) -> None:
    spark.sql(f"ALTER TABLE {delta(path)} SET TBLPROPERTIES ('{MADE_FOR}' = {delta_sql.literal(made)})")
