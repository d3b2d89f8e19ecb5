"""A snapshot made anew from the whole changelog: after DDL that changes more than its columns' names, for tables that
batches left stale, and when asked for."""

import json
import logging
import uuid
from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Order, Upcast
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import stores
from cdc_platform.snapshots import partitions, routing, state
from cdc_platform.snapshots.apply import staging
from cdc_platform.snapshots.batch_tables import AffectedTable, affected_by, names_in, of_table
from cdc_platform.snapshots.schema import upcast
from cdc_platform.snapshots.schema.columns import ORDER_FIELDS, order_literal
from cdc_platform.snapshots.schema.history import History
from cdc_platform.snapshots.schema.upcast_files import listed
from cdc_platform.snapshots.table_batch import Work, column_lists, emptied, merged_list, outcome, with_older
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import Rows
from cdc_platform.tables import CHANGELOG, TABLE_STATE, Name

log = logging.getLogger(__name__)


def rebuild_table(
    spark: SparkSession,
    config: Config,
    source: Source,
    history: History,
    name: Name,
    *,
    needs_rows: bool = False,
    up_to: Column | None = None,
    into: Target | None = None,
    made: Callable[[], None] = lambda: None,
) -> state.Outcome:
    """One of the snapshots made from the whole changelog. up_to: from some of its rows, of which `history` tells what
    was known then; into: at another place than its own; made: is called when all rows are there, before they are put in
    place. Raises TableStopped where it can't be: then the place is as it was."""
    found = every_change(spark, config, source, history, name, up_to)
    if not found.touched:
        if needs_rows:
            raise TableStopped(source.name, name, "the changelog holds no change of it")
        return _truncated(spark, config, source, history, name, into)
    app, came = f"rebuild {uuid.uuid4().hex}", partitions.came(config, source)
    place = staging.beside(into or Target.of(config, source.name, *name))
    with staging.discarded_on_failure(place):
        work = Work(config, source, Rows.of(found.rows), 0, app, found.lists, anew=True, came=came, into={name: place})
        done = outcome(work, found.touched, found.columns, None)
        if done.state != "live":
            raise TableStopped(source.name, name, str(done.reason))
        made()
        staging.swap_in(spark, place)
    return done


class Changes(NamedTuple):
    """All changes of a snapshot as rows of today. touched: what they are (None: there is none); columns: the column
    list; lists: those that rows name."""

    rows: DataFrame
    touched: AffectedTable | None
    columns: str | None
    lists: dict[str, str]


def every_change(
    spark: SparkSession,
    config: Config,
    source: Source,
    history: History,
    name: Name,
    up_to: Column | None = None,
    *,
    untold: bool = False,
) -> Changes:
    """The whole changelog of one of the snapshots, as `anew` takes it. untold: with upcast.UNTOLD, where DDL made
    something else of rows. Raises TableStopped where rows can't be carried to today's columns."""
    rows = delta_sql.read(spark, CHANGELOG.at(stores.lake(config))).where(F.col("source") == source.name)
    rows = rows if up_to is None else rows.where(up_to)
    names = _names_of(source, history, rows, name)
    spans = {n: history.full.upcasts(n) for n in names} if history.any_ddl else {}
    rows = rows.where(reduce(or_, (of_table(*n) for n in names), F.lit(False)))
    stopped = not_upcast(rows, spans, source)
    columns = {n: text for c in spans.values() for x in c if (n := x.today) and (text := history.full.columns(n))}
    rows = upcast.upcast(rows, spans, listed(columns), untold=untold)
    touched = [t for t in affected_by(rows) if source.tables.routed(*t.name) == name]
    lists = column_lists(config, source, touched)
    told = {t.name: columns_now(history, t, lists) for t in touched}
    found = routing.Routed(Rows.of(rows), touched, told, stopped)
    if source.tables.routes:
        found = routing.route(found, source, {name: history.lists(name)})
    if name in found.stopped:
        raise TableStopped(source.name, name, found.stopped[name])
    return Changes(found.rows.df, found.touched[0] if found.touched else None, found.told.get(name), lists)


def columns_now(history: History, touched: AffectedTable, lists: dict[str, str]) -> str | None:
    """The column list of a table that is made anew of all its changes: as the history has it, with the key of its
    newest change where no statement stands behind that. The history keeps a list that messages come back to where it
    came first."""
    of_rows = merged_list(touched, lists)
    if not history.any_ddl:
        return of_rows
    told = history.full.columns(touched.name)
    if not (told and of_rows) or _keys(told) == _keys(of_rows):
        return told
    return with_older([of_rows, told]) if history.full.is_as_now(touched.name, touched.newest) else told


def _keys(columns: str) -> set[str]:
    return {c["name"].lower() for c in json.loads(columns) if c["key"]}


def _names_of(source: Source, history: History, rows: DataFrame, name: Name) -> list[Name]:
    """Every name under which rows of a snapshot may stand in the changelog."""
    if not source.tables.merged(*name):
        return history.full.names_of(name) if history.any_ddl else [name]
    stored = names_in(rows)
    return [
        n for n in stored if any(c.today and source.tables.routed(*c.today) == name for c in history.full.upcasts(n))
    ]


def _truncated(
    spark: SparkSession, config: Config, source: Source, history: History, name: Name, into: Target | None
) -> state.Outcome:
    """A snapshot whose tables have no rows any more. Raises TableStopped."""
    columns, exists = history.full.columns(name), history.full.exists(name)
    if source.tables.merged(*name):
        members = history.members(name)
        lists = history.lists(name) or {m: c for m in members if (c := history.full.last_listed(m))}
        columns, exists = routing.merged(source, name, lists).columns, any(map(history.full.exists, members))
    return emptied(spark, config, source, name, columns, exists, into)


def rebuilt(
    spark: SparkSession,
    config: Config,
    source: Source,
    history: History,
    name: Name,
    before: state.Tables,
    *,
    needs_rows: bool = True,
) -> state.Outcome:
    """One table made anew, and what became of it noted. Raises TableStopped of a table that no batch has met."""
    path, batch_id = TABLE_STATE.at(stores.lake(config)), before[name]["batch"] if name in before else state.BEFORE

    def note(found: state.Outcome) -> None:
        state.keep(stores.lake(config), source, [found], state.now(path, source), batch_id, anew=True)

    def made() -> None:  # a run killed while its two tables are put in place is followed by one that does it again
        if name in before and before[name]["state"] == "live":
            note(state.Outcome(name, "stale", "it is put in place", 0, 0))

    try:
        found = rebuild_table(spark, config, source, history, name, needs_rows=needs_rows, made=made)
    except TableStopped as why:
        if name not in before:
            raise
        found = stop(name, why.reason)
    note(found)
    return found


def not_upcast(rows: DataFrame, spans: dict[Name, list[Upcast]], source: Source) -> dict[Name, str]:
    """Today's tables some of whose rows can't be carried, and why."""
    found: dict[Name, str] = {}
    for name, carries in spans.items():
        start = None
        for c in carries:
            why = c.today and (upcast.unknown(c) or _filtered(name, c.today, source))
            here = partial(_rows_within, rows, name, start, c.until)
            if c.today and why and not here().isEmpty():
                found[c.today] = why
            elif c.today and not why and (why := upcast.refused(here, c)):
                found.setdefault(c.today, why)
            start = c.until
    return found


def _rows_within(rows: DataFrame, name: Name, start: Order | None, until: Order | None) -> DataFrame:
    """Rows of a name from one place up to another."""
    here = of_table(*name)
    if start is not None:
        here = here & (F.col("order_key") >= _order_literal(start))
    return rows.where(here if until is None else here & (F.col("order_key") < _order_literal(until)))


def _order_literal(order: Order) -> Column:
    return order_literal(dict(zip(ORDER_FIELDS, order, strict=True)))


def _filtered(name: Name, today: Name, source: Source) -> str | None:
    """Why a table can't be told that took the place of another one: its rows were never let in."""
    if source.tables.wanted(*name) or not source.tables.wanted(*today):
        return None
    if [*map(str.lower, filter(None, name))] == [*map(str.lower, filter(None, today))]:
        return None  # a TRUNCATE calls it so (unify.outcome)
    return f"it was {'.'.join(name)} before a RENAME, whose rows tables.include leaves out"


def stop(name: Name, reason: str, changes: int = 0) -> state.Outcome:
    """Outcome of a table that can't be kept; the log tells it, too."""
    log.error("%s: %s", ".".join(name), reason)
    return state.Outcome(name, "stopped", reason, changes, 0)
