"""Tables that get rows with each batch kept small: many old rows as few that say the same."""

from collections.abc import Callable
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession

from cdc_platform.lake import commits, delta_table
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import Table

_WORTH = 2
"""Rows are folded if so many times fewer are left."""


def fold(
    spark: SparkSession,
    table: Table,
    path: Store,
    source: str,
    old: Callable[[DataFrame], Column],
    together: Callable[[DataFrame], DataFrame],
) -> int:
    """Rows of one source, whose lock is held, in one commit; who reads the table commit by commit sees nothing new.
    old: which of its rows are folded; together: what they become. Returns how many rows are gone."""
    if not (gone := delta_table.files(path, source=source)):
        return 0
    rows = delta_sql.rows_of(spark, path, [File(path, name) for name in gone], source=source)
    which = old(rows)
    folding, recent = rows.where(which), rows.where(~which)
    folded = together(folding)
    before, after = folding.count(), folded.count()
    if before < _WORTH * after or not after:
        return 0
    sink = delta_table.sink(path, source=source)
    kept = folded.select(*table.names).unionByName(recent.select(*table.names)).coalesce(1)
    make = partial(arrow_tasks.conformed_to, sink.schema)
    commits.replace(sink, gone, arrow_tasks.partitions(kept, make, arrow_tasks.write, {"rows": sink}).written["rows"])
    return before - after
