"""Folded rows brought into a snapshot: MERGE, each row only if it is newer than the one that is there."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.snapshots.reduce.fold import Profile, key_names
from cdc_platform.snapshots.schema.columns import BOOKKEEPING, TableColumn, order_sql
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta, literal, quoted

_RANGE_TYPES = frozenset(("tinyint", "smallint", "int", "bigint", "date", "string"))
"""Key types whose lowest and highest value of a batch prune files. MERGE prunes on nothing but literals."""


def apply(
    folded: DataFrame,
    target: Target,
    columns: list[TableColumn],
    figures: Profile,
    batch_id: int,
    *,
    empty: bool = False,
) -> None:
    """Bring folded rows into the snapshot, each only if it is newer than the row that is there. empty: none is."""
    spark = folded.sparkSession
    if figures.truncated_at is not None and not empty:
        spark.sql(f"DELETE FROM {delta(target.snapshot)} WHERE _cdc_order < {order_sql(figures.truncated_at)}")
    if empty:
        fresh = folded.where("NOT _deleted").select(
            *(F.expr(v).alias(c.name) for v, c in zip(_values(columns, ""), columns, strict=True)), *BOOKKEEPING
        )
        delta_sql.append(fresh, target.snapshot)  # done again by a repeated batch, that finds the rows and merges
        return
    view = f"cdc_fold_{abs(hash((target.snapshot, batch_id)))}"
    folded.createOrReplaceTempView(view)
    try:
        spark.sql(_merge_sql(view, target, columns, figures))
    finally:
        spark.catalog.dropTempView(view)


def _merge_sql(view: str, target: Target, columns: list[TableColumn], figures: Profile) -> str:
    keys = [c for c in columns if c.key]
    on = [f"t.{quoted(c.name)}{f' COLLATE {c.collation}' if c.collation else ''} = s._k{i}" for i, c in enumerate(keys)]
    if keys[0].spark in _RANGE_TYPES and keys[0].collation is None and figures.low_key is not None:
        low, high = (_key_literal(k, keys[0].spark) for k in (figures.low_key, figures.high_key))
        on.append(f"t.{quoted(keys[0].name)} BETWEEN {low} AND {high}")
    cells = [(c.name, v, f"s._h{i}") for i, (v, c) in enumerate(zip(_values(columns, "s."), columns, strict=True))]
    bookkeeping = [(n, f"s.{n}") for n in BOOKKEEPING]
    updated = [
        f"t.{quoted(name)} = " + (f"IF(s._whole OR {held}, {value}, t.{quoted(name)})" if figures.partial else value)
        for name, value, held in cells
    ] + [f"t.{n} = {v}" for n, v in bookkeeping]
    names = [quoted(name) for name, _, _ in cells] + [n for n, _ in bookkeeping]
    values = [value for _, value, _ in cells] + [v for _, v in bookkeeping]
    newer = f"s._cdc_order {'>=' if figures.partial else '>'} t._cdc_order"  # a row folded anew may end where it did
    return (
        f"MERGE INTO {delta(target.snapshot)} AS t USING {view} AS s ON {' AND '.join(on)} "
        + (f"WHEN MATCHED AND {newer} AND s._deleted THEN DELETE " if figures.deletes or figures.key_changes else "")
        + f"WHEN MATCHED AND {newer} THEN UPDATE SET {', '.join(updated)} "
        + f"WHEN NOT MATCHED AND NOT s._deleted THEN INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"
    )


def _values(columns: list[TableColumn], of: str) -> list[str]:
    """SQL of each column's value in folded rows; a partial image need not hold the key's, and what keys compare by need
    not be how they are spelled."""
    keys = iter(f"{of}{k}" for k in key_names(columns))
    told = [(c, f"{of}_v{i}", next(keys) if c.key else "") for i, c in enumerate(columns)]
    return [_value(c, v, k) for c, v, k in told]


def _value(column: TableColumn, value: str, key: str) -> str:
    if column.collation:
        return f"coalesce({value}, {key} COLLATE UTF8_BINARY)"
    return f"coalesce({value}, {key})" if key and column.type.family == "float" else key or value  # 0.0 is -0.0


def _key_literal(value: Any, spark_type: str) -> str:
    return f"CAST({literal(str(value))} AS {spark_type})"
