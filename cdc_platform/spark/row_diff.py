"""The row-level difference of two snapshots of one table. Values are compared as texts, NULL by itself, so that columns
that became another type differ where their values do."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.spark.delta_sql import quoted
from cdc_platform.tables import BOOKKEEPING


@dataclass(frozen=True, slots=True)
class Sides:
    """What the two are called, in data that is shown, and the kinds of rows that differ."""

    left: str
    right: str
    only_left: str
    only_right: str
    differing: str

    @property
    def kinds(self) -> tuple[str, str, str]:
        """Each of them."""
        return self.only_left, self.only_right, self.differing


@dataclass(frozen=True, slots=True)
class Wrong:
    """Rows that differ. rows: `kind`, `n` (how many equal rows of a table without a key), `u_order` and `r_order`
    (order of the change that wrote it last, left and right), `differ` (names of the columns), `u0`, `r0`, … (texts of
    `columns` left and right). keys: by which rows are told apart; none: by all of their content."""

    sides: Sides
    rows: DataFrame
    keys: list[str]
    columns: list[str]


def of(left: DataFrame, right: DataFrame, keys: list[str], sides: Sides) -> Wrong:
    """What differs in the columns that both have, but for bookkeeping. keys: both's."""
    columns = [c for c in left.columns if c in right.columns and (c in keys or not c.startswith(BOOKKEEPING))]
    if keys and set(keys) <= set(columns):
        return Wrong(sides, _keyed(left, right, keys, columns, sides), keys, columns)
    return Wrong(sides, _counted(left, right, columns, sides), [], columns)


def _keyed(left: DataFrame, right: DataFrame, keys: list[str], columns: list[str], sides: Sides) -> DataFrame:
    u, r = _side(left, columns, "u"), _side(right, columns, "r")
    at = {name: i for i, name in enumerate(columns)}
    same_key = [F.col(f"u{at[k]}").eqNullSafe(F.col(f"r{at[k]}")) for k in keys]
    both = u.join(r, reduce(Column.__and__, same_key), "full_outer")
    names = F.array(*(F.when(~_same(i), F.lit(c)) for i, c in enumerate(columns)))
    here = {"u": F.col("u_order").isNotNull(), "r": F.col("r_order").isNotNull()}
    kind = F.when(~here["r"], sides.only_left).when(~here["u"], sides.only_right).otherwise(sides.differing)
    wrong = both.where(~here["u"] | ~here["r"] | reduce(or_, (~_same(i) for i in range(len(columns)))))
    differ = F.when(kind == sides.differing, F.array_compact(names)).otherwise(F.array().cast("array<string>"))
    return wrong.withColumns({"kind": kind, "n": F.lit(1).cast("bigint"), "differ": differ})


def _counted(left: DataFrame, right: DataFrame, columns: list[str], sides: Sides) -> DataFrame:
    """Equal rows counted."""
    u, r = (_bag(_side(f, columns, s), columns, s) for f, s in ((left, "u"), (right, "r")))
    more = F.coalesce("u_n", F.lit(0)) - F.coalesce("r_n", F.lit(0))
    both = u.join(r, F.col("u_all") == F.col("r_all"), "full_outer").withColumn("_more", more).where("_more <> 0")
    kind = F.when(F.col("_more") > 0, sides.only_left).otherwise(sides.only_right)
    none = F.array().cast("array<string>")
    return both.withColumns({"kind": kind, "n": F.abs("_more"), "differ": none})


def _bag(rows: DataFrame, columns: list[str], side: str) -> DataFrame:
    texts = [f"{side}{i}" for i in range(len(columns))]
    whole = F.to_json(F.array(*map(F.col, texts)), {"ignoreNullFields": "false"}).alias(f"{side}_all")
    first = [F.first(t).alias(t) for t in texts]
    return rows.groupBy(whole).agg(
        F.count(F.lit(1)).alias(f"{side}_n"), F.max(f"{side}_order").alias(f"{side}_order"), *first
    )


def _side(rows: DataFrame, columns: list[str], side: str) -> DataFrame:
    types = dict(rows.dtypes)
    order = F.col("_cdc_order").alias(f"{side}_order")
    return rows.select(order, *(text(c, types[c]).alias(f"{side}{i}") for i, c in enumerate(columns)))


def text(name: str, spark_type: str) -> Column:
    """A column's values as they are compared."""
    value = F.col(quoted(name))
    if spark_type == "binary":
        return F.base64(value)
    if spark_type.startswith(("array", "map", "struct")):
        return F.to_json(value)
    return value.cast("string")


def _same(i: int) -> Column:
    return F.col(f"u{i}").eqNullSafe(F.col(f"r{i}"))


def counts(wrong: Wrong) -> dict[str, int]:
    """Rows of each kind."""
    found = {r["kind"]: int(r["n"]) for r in wrong.rows.groupBy("kind").agg(F.sum("n").alias("n")).collect()}
    return {kind: found.get(kind, 0) for kind in wrong.sides.kinds}


def columns(wrong: Wrong) -> list[dict[str, Any]]:
    """column, rows: how many rows differ in each column; the most rows first."""
    found = (
        wrong.rows.select(F.explode("differ").alias("column")).groupBy("column").agg(F.count(F.lit(1)).alias("rows"))
    )
    told = [{"column": r["column"], "rows": int(r["rows"])} for r in found.collect()]  # a row per column
    return sorted(told, key=lambda c: (-c["rows"], c["column"]))


def samples(wrong: Wrong, at_most: int) -> list[dict[str, Any]]:
    """Some rows, by their key: kind, rows (how many more there are of equal ones), key, cells (column, and either side
    under its name); of a differing row its differing cells, else all, on the side that has it. A value None is NULL, or
    there is no row."""
    order = [F.coalesce(f"u{i}", f"r{i}") for i, c in enumerate(wrong.columns) if not wrong.keys or c in wrong.keys]
    sides = wrong.sides
    found = wrong.rows.orderBy(*order, "kind").limit(at_most).collect() if at_most else []
    told = []
    for row in found:
        kind = row["kind"]
        here = kind != sides.only_right, kind != sides.only_left
        cells = {
            c: tuple(row[f"{side}{i}"] if there else None for side, there in zip("ur", here, strict=True))
            for i, c in enumerate(wrong.columns)
        }
        shown = row["differ"] if kind == sides.differing else [c for c in wrong.columns if c not in wrong.keys]
        key = {k: cells[k][0 if here[0] else 1] for k in wrong.keys}
        values = [{"column": c, sides.left: cells[c][0], sides.right: cells[c][1]} for c in shown]
        told.append({"kind": kind, "rows": int(row["n"]), "key": key, "cells": values})
    return told
