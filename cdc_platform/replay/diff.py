"""The row-level difference of two snapshots of one table: of that in use, and of the replay's. Values are compared as
texts, NULL by itself, so that columns that became another type differ where their values do."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.reading.frames import BOOKKEEPING
from cdc_platform.replay.kinds import DIFFERING, KINDS, ONLY_IN_REPLAY, ONLY_IN_USE
from cdc_platform.spark.delta_sql import quoted


@dataclass(frozen=True, slots=True)
class Wrong:
    """Rows that differ. rows: `kind`, `n` (how many equal rows of a table without a key), `in_use` and `replay` (order
    of the change that wrote it last on either side), `differ` (names of the columns), `u0`, `r0`, … (texts of `columns`
    on either side). keys: by which rows are told apart; none: by all of their content."""

    rows: DataFrame
    keys: list[str]
    columns: list[str]


def of(in_use: DataFrame, replay: DataFrame, keys: list[str]) -> Wrong:
    """What differs in the columns that both have. keys: both's."""
    columns = [c for c in in_use.columns if c in replay.columns and not c.startswith(BOOKKEEPING)]
    if keys and set(keys) <= set(columns):
        return Wrong(_keyed(in_use, replay, keys, columns), keys, columns)
    return Wrong(_counted(in_use, replay, columns), [], columns)


def _keyed(in_use: DataFrame, replay: DataFrame, keys: list[str], columns: list[str]) -> DataFrame:
    u, r = _side(in_use, columns, "u"), _side(replay, columns, "r")
    at = {name: i for i, name in enumerate(columns)}
    same_key = [F.col(f"u{at[k]}").eqNullSafe(F.col(f"r{at[k]}")) for k in keys]
    both = u.join(r, reduce(Column.__and__, same_key), "full_outer")
    names = F.array(*(F.when(~_same(i), F.lit(c)) for i, c in enumerate(columns)))
    here = {"u": F.col("in_use").isNotNull(), "r": F.col("replay").isNotNull()}
    kind = F.when(~here["r"], ONLY_IN_USE).when(~here["u"], ONLY_IN_REPLAY).otherwise(DIFFERING)
    wrong = both.where(~here["u"] | ~here["r"] | reduce(or_, (~_same(i) for i in range(len(columns)))))
    differ = F.when(kind == DIFFERING, F.array_compact(names)).otherwise(F.array().cast("array<string>"))
    return wrong.withColumns({"kind": kind, "n": F.lit(1).cast("bigint"), "differ": differ})


def _counted(in_use: DataFrame, replay: DataFrame, columns: list[str]) -> DataFrame:
    """Equal rows counted."""
    u, r = (_bag(_side(f, columns, s), columns, s) for f, s in ((in_use, "u"), (replay, "r")))
    more = F.coalesce("u_n", F.lit(0)) - F.coalesce("r_n", F.lit(0))
    both = u.join(r, F.col("u_all") == F.col("r_all"), "full_outer").withColumn("_more", more).where("_more <> 0")
    kind = F.when(F.col("_more") > 0, ONLY_IN_USE).otherwise(ONLY_IN_REPLAY)
    none = F.array().cast("array<string>")
    return both.withColumns({"kind": kind, "n": F.abs("_more"), "differ": none})


def _bag(rows: DataFrame, columns: list[str], side: str) -> DataFrame:
    order = "in_use" if side == "u" else "replay"
    texts = [f"{side}{i}" for i in range(len(columns))]
    whole = F.to_json(F.array(*map(F.col, texts)), {"ignoreNullFields": "false"}).alias(f"{side}_all")
    first = [F.first(t).alias(t) for t in texts]
    return rows.groupBy(whole).agg(F.count(F.lit(1)).alias(f"{side}_n"), F.max(order).alias(order), *first)


def _side(rows: DataFrame, columns: list[str], side: str) -> DataFrame:
    types = dict(rows.dtypes)
    order = F.col("_cdc_order").alias("in_use" if side == "u" else "replay")
    return rows.select(order, *(_text(c, types[c]).alias(f"{side}{i}") for i, c in enumerate(columns)))


def _text(name: str, spark_type: str) -> Column:
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
    return {kind: found.get(kind, 0) for kind in KINDS}


def columns(wrong: Wrong) -> list[dict[str, Any]]:
    """column, rows: how many rows differ in each column; the most rows first."""
    found = (
        wrong.rows.select(F.explode("differ").alias("column")).groupBy("column").agg(F.count(F.lit(1)).alias("rows"))
    )
    told = [{"column": r["column"], "rows": int(r["rows"])} for r in found.collect()]  # a row per column
    return sorted(told, key=lambda c: (-c["rows"], c["column"]))


def samples(wrong: Wrong, at_most: int) -> list[dict[str, Any]]:
    """Some rows, by their key: kind, rows (how many more there are of equal ones), key, cells (column, in_use, replay);
    of a differing row its differing cells, else all, on the side that has it. A value None is NULL, or there is no
    row."""
    order = [F.coalesce(f"u{i}", f"r{i}") for i, c in enumerate(wrong.columns) if not wrong.keys or c in wrong.keys]
    found = wrong.rows.orderBy(*order, "kind").limit(at_most).collect() if at_most else []
    told = []
    for row in found:
        kind = row["kind"]
        here = kind != ONLY_IN_REPLAY, kind != ONLY_IN_USE
        cells = {
            c: tuple(row[f"{side}{i}"] if there else None for side, there in zip("ur", here, strict=True))
            for i, c in enumerate(wrong.columns)
        }
        shown = row["differ"] if kind == DIFFERING else [c for c in wrong.columns if c not in wrong.keys]
        key = {k: cells[k][0 if here[0] else 1] for k in wrong.keys}
        values = [{"column": c, "in_use": cells[c][0], "replay": cells[c][1]} for c in shown]
        told.append({"kind": kind, "rows": int(row["n"]), "key": key, "cells": values})
    return told
