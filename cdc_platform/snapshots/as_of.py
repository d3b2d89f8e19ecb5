"""A table as it was at a moment, made from the changelog at a place of its own, in the columns that it had then.
Nothing of the lake changes."""

import logging
import uuid
from datetime import datetime
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Came, Order
from cdc_platform.config import Config, Source
from cdc_platform.errors import NotReadable
from cdc_platform.lake import stores
from cdc_platform.lake.store import Store
from cdc_platform.snapshots import state
from cdc_platform.snapshots.batch_tables import of_table
from cdc_platform.snapshots.rebuild import rebuild_table
from cdc_platform.snapshots.schema.columns import ORDER_FIELDS, order_literal
from cdc_platform.snapshots.schema.history import History
from cdc_platform.snapshots.schema.then import at_cut, at_time, rows_by
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHANGELOG, CUTS, Name

log = logging.getLogger("cdc_platform.run")
_SCRATCH = "_as_of"
"""Where tombstones are while a table is made."""


class _Then(NamedTuple):
    """Which changes had come, the place that the DDL had come to, and whether the last rows of a load had."""

    up_to: Column
    place: Order
    came: Came


def make(
    spark: SparkSession, config: Config, source: Source, name: Name, at: datetime | int | Order, to: Store
) -> tuple[Name, state.Outcome]:
    """A table as it was, by the name it has today, at `to`, where nothing is. at: a time of the source's clock:
    the log up to the last change of that time or before; a place: up to it; or the number of a cut.
    Returns its name then, and what was made. Raises NotReadable where nothing had come by then, TableStopped."""
    history = History(spark, config, source)
    log.info("%s: looking which changes had come by then", ".".join(name))
    if isinstance(at, int):
        then = _at_cut(config, source, at, history)
    else:
        then = _up_to(at, at) if isinstance(at, tuple) else _at_time(config, source, at, history)
    label = "that place" if isinstance(at, tuple) else at
    if then is None:
        raise NotReadable(source.name, f"had nothing at {at}", ["a later moment"])
    named = history.full.named_at(name, then.place)
    scratch = stores.lake(config).at(f"{_SCRATCH}/{uuid.uuid4().hex}")
    into = Target(source.name, named, to, scratch, source.tables.for_any_reader(*named))
    as_then = history.until(then.place, then.came)
    if not as_then.full.exists(named) or not _was_there(spark, config, source, as_then, named, then):
        raise NotReadable(source.name, f"had no table {'.'.join(named)} at {label}", ["another moment"])
    log.info("%s: it is made from the changelog", ".".join(named))
    try:
        return named, rebuild_table(spark, config, source, as_then, named, up_to=then.up_to, into=into)
    finally:
        scratch.remove(scratch.below(""))


def _was_there(spark: SparkSession, config: Config, source: Source, history: History, named: Name, then: _Then) -> bool:
    """Whether anything of a snapshot's tables had come. Where the source gives each change a number the first ones may
    stand before the message that told the columns."""
    names = sorted({n for one in history.members(named) for n in (one, *history.full.names_of(one))})
    if any(history.full.was_there(n, then.place) for n in names):
        return True
    rows = delta_sql.read(spark, CHANGELOG.at(stores.lake(config))).where(F.col("source") == source.name)
    return bool(rows.where(reduce(or_, (of_table(*n) for n in names), F.lit(False))).where(then.up_to).head(1))


def _at_time(config: Config, source: Source, at: datetime, history: History) -> _Then | None:
    """Changes up to the last one of that time or before, in the order of the log."""
    rows = rows_by(CHANGELOG.at(stores.lake(config)), source.name, at)
    if rows is None:
        return None
    return _up_to(rows, at_time(rows, at, history.statements) or rows)


def _up_to(rows: Order, place: Order) -> _Then:
    """Changes up to a place, DDL up to one at or behind it."""
    return _Then(F.col("order_key") <= _literal(rows), place, lambda order, _: order <= rows)


def _at_cut(config: Config, source: Source, number: int, history: History) -> _Then | None:
    """Changes up to the offsets of a cut."""
    cut = at_cut(CUTS.at(stores.lake(config)), source.name, number)
    if cut is None:
        return None
    come = (
        (F.col("topic") == F.lit(topic)) & (F.col("partition") == int(partition)) & (F.col("offset") <= end)
        for (topic, partition), end in ((at.rsplit("/", 1), end) for at, end in cut.ends.items())
    )
    return _Then(reduce(or_, come, F.lit(False)), cut.place(history.statements), cut.came)


def _literal(order: Order) -> Column:
    return order_literal(dict(zip(ORDER_FIELDS, order, strict=True)))
