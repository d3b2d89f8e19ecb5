"""Key changes whose images tell a part of the row (binlog_row_image=MINIMAL): the rest is what the row held before.

Frames only. A row's cells may have been told under several keys, one after the other, so this needs all changes of the
table: `bring_up` has a table with such a change made anew from the changelog.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.changelog.order import ADDRESS
from cdc_platform.snapshots.reduce.fold import (
    Profile,
    alive,
    key_image,
    key_names,
    lost_move,
    overlaid,
    said_last,
    typed_keys,
)
from cdc_platform.snapshots.reduce.one_key import UNIQUE
from cdc_platform.snapshots.schema.columns import TableColumn, order_literal

_AT_ONCE = 1_000_000
"""Moves filled by one round."""


def filled(rows: DataFrame, columns: list[TableColumn], figures: Profile) -> DataFrame:
    """All changes of a table, with whole `before` images of its key changes as far as earlier changes tell them.

    Each round fills the moves of rows that came under their old key by an insert or a move that is whole: a row that
    moved n times with partial images takes n rounds. Each round's rows are kept, or their plan would double. Changes
    before the last TRUNCATE are left out: it took their rows away."""
    if figures.truncated_at is not None:
        rows = rows.where((F.col("op") == "truncate") | (F.col("order_key") > order_literal(figures.truncated_at)))
    done: list[DataFrame] = []
    while True:
        now = _with(rows, done)
        # The limit bounds what Spark takes for the frame's size: a join's is the product of both sides', so without it
        # the number would double its digits each round. What it leaves out a further round finds.
        found = _held(now, columns, figures).limit(_AT_ONCE).localCheckpoint()
        if found.isEmpty():
            return now
        done.append(found)


def _with(rows: DataFrame, done: list[DataFrame]) -> DataFrame:
    if not done:
        return rows
    told = reduce(DataFrame.unionByName, done)
    whole = F.when(F.col("_held").isNotNull(), overlaid("before", "_held")).otherwise(F.col("before"))
    return rows.join(told, list(ADDRESS), "left").withColumn("before", whole).drop("_held")


def _held(rows: DataFrame, columns: list[TableColumn], figures: Profile) -> DataFrame:
    """The address of partial moves and `_held` (map column -> text): the row under the old key just before, where it is
    known from an insert or a whole move on. A column that none of these tell is NULL, as in an insert."""
    until = F.struct("order_key", *UNIQUE)
    row = rows.withColumns({"_kmap": key_image(columns, told=figures.told_keys), "_until": until})
    moves = row.where(lost_move(columns)).select(F.struct(*ADDRESS).alias("_move"), "_until", *typed_keys(columns))
    steps = alive(rows, columns, figures).join(F.broadcast(moves), key_names(columns))
    said = said_last(steps.where(until < F.col("_until")), ["_move"], columns)
    names = F.array(*(F.lit(c.name) for c in columns))
    texts = F.array(*(F.col(f"_t{i}.t") for i, _ in enumerate(columns)))
    known = said.where("_whole AND NOT _deleted AND NOT _lost")
    return known.select("_move.*", F.map_from_arrays(names, texts).alias("_held"))
