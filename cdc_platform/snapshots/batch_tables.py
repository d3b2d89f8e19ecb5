"""Which tables some changes concern."""

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Order
from cdc_platform.tables import Name, as_name, name_columns, name_of

_NAME = ("db", "schema", "table")


@dataclass(frozen=True, slots=True)
class AffectedTable:
    """A table of a batch: its changes, and the versions of its columns that they tell, newest first (a TRUNCATE
    tells none)."""

    name: Name
    changes: int
    versions: list[str]
    low: Order  # of the oldest change
    newest: Order  # of the newest one that tells a version; where none does as `low`
    told_keys: bool  # `key` tells the key of every change


def affected_by(changes: DataFrame) -> list[AffectedTable]:
    """The tables of some changes."""
    by_version = changes.groupBy(*_NAME, "schema_version").agg(
        F.count(F.lit(1)).alias("n"),
        F.max("order_key").alias("newest"),
        F.min("order_key").alias("low"),
        F.bool_and(F.col("key").isNotNull() | (F.col("op") == "truncate")).alias("told_keys"),
    )
    found = (
        by_version.groupBy(*_NAME)
        .agg(
            F.sum("n").alias("n"),
            F.min("low").alias("low"),
            F.max(F.when(F.col("schema_version").isNotNull(), F.col("newest"))).alias("newest"),
            F.bool_and("told_keys").alias("told_keys"),
            F.sort_array(F.collect_list(F.struct("newest", "schema_version")), False).alias("v"),
        )
        .collect()
    )
    return [
        AffectedTable(
            name_of(r.asDict()),
            r["n"],
            [v["schema_version"] for v in r["v"] if v["schema_version"]],
            tuple(int(x) for x in r["low"]),
            tuple(int(x) for x in r["newest"] or r["low"]),
            r["told_keys"],
        )
        for r in found
    ]


def affected_of(notes_: list[Any]) -> list[AffectedTable]:
    """The same from what changelog files note of themselves (changelog/file_stats.py)."""
    versions: dict[Name, dict[str | None, dict[str, Any]]] = {}
    for g in (g for note in notes_ for g in note):
        known = versions.setdefault(name_of(g), {})
        so_far = known.setdefault(g["schema_version"], g)
        known[g["schema_version"]] = {
            "n": g["n"] + (so_far["n"] if so_far is not g else 0),
            "low": min(g["low"], so_far["low"]),
            "newest": max(g["newest"], so_far["newest"]),
            "told_keys": g["told_keys"] and so_far["told_keys"],
        }
    return [
        AffectedTable(
            name,
            sum(v["n"] for v in known.values()),
            sorted((v for v in known if v), key=lambda v: (known[v]["newest"], v), reverse=True),
            tuple(min(v["low"] for v in known.values())),
            tuple(max((of["newest"] for v, of in known.items() if v), default=min(v["low"] for v in known.values()))),
            all(v["told_keys"] for v in known.values()),
        )
        for name, known in versions.items()
    ]


def of_table(*name: str) -> Column:
    """Whether a change is one of this table."""
    parts = {**name_columns(as_name(*name)), "schema": name[1] if len(name) == 3 else ""}
    has = {n: F.coalesce(F.col(n), F.lit("")) if n == "schema" else F.col(n) for n in parts}
    return reduce(and_, (has[n].eqNullSafe(F.lit(part)) for n, part in parts.items()))


def names_in(changes: DataFrame) -> list[Name]:
    """The names that changes have."""
    return sorted({name_of(r.asDict()) for r in changes.select(*_NAME).distinct().collect()})
