"""Snapshots when the configuration's rules change: tables that are left out from now on, that come back, that
`tables.routes` keeps in another snapshot."""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.table_rules import Rules, RulesInEffect
from cdc_platform.config import Config, Source, Tables
from cdc_platform.lake import stores
from cdc_platform.snapshots import state
from cdc_platform.snapshots.batch_tables import names_in
from cdc_platform.snapshots.rebuild_together import rebuild_each
from cdc_platform.snapshots.schema.history import History
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHANGELOG, TABLE_STATE, Name

LEFT_OUT = "left_out"


def follow(
    spark: SparkSession, config: Config, source: Source, history: History
) -> tuple[list[state.Outcome], Callable[[], None]]:
    """What becomes of the snapshots that a change of rules concerns, none where there is no change; and what notes that
    it is done, to be called when the outcomes are kept. Doing it once more changes nothing."""
    chosen = RulesInEffect(spark, config, source, "snapshots")
    now = Rules.of(source, 0, routes=True)
    if chosen.done and chosen.done[-1].same(now):
        return [], lambda: None
    before = state.now(TABLE_STATE.at(stores.lake(config)), source)
    if not chosen.done:  # made before rules were noted: there were no routes
        met = any(t["batch"] > state.BEFORE for t in before.values())
        chosen.note(replace(now, routes=()) if met else now, "done")
    if chosen.done[-1].same(now):
        return [], lambda: None
    was, is_ = _routed_names(spark, config, source, history, chosen.done[-1].tables(source))
    moved = [n for n in is_ if is_[n] != was[n]]
    # What was never taken into a snapshot comes by the changelog's stream.
    known = {t for n in moved if (t := is_[n]) and (t in before or was[n])}
    rest = {t for n in moved if (t := was[n]) and t in is_.values()}
    outcomes = rebuild_each(spark, config, source, history, sorted(known | rest))
    left = {t for n in moved if (t := was[n]) and t in before} - set(is_.values())
    outcomes += [state.Outcome(t, LEFT_OUT, _why(source.tables, t), 0, 0) for t in sorted(left)]
    return outcomes, lambda: chosen.note(replace(now, number=chosen.done[-1].number + 1), "done")


def _routed_names(
    spark: SparkSession, config: Config, source: Source, history: History, rules: Tables
) -> tuple[dict[Name, Name | None], dict[Name, Name | None]]:
    """Where each table of the changelog was kept by rules before, and is by the configuration; None: nowhere."""
    rows = delta_sql.read(spark, CHANGELOG.at(stores.lake(config))).where(F.col("source") == source.name)
    stored = names_in(rows)
    names = {c.today for n in stored for c in history.full.upcasts(n) if c.today is not None}
    before, now = ({n: t.routed(*n) if t.wanted(*n) else None for n in names} for t in (rules, source.tables))
    return before, now


def _why(tables: Tables, name: Name) -> str:
    """Why nothing comes into a snapshot any more."""
    if tables.wanted(*name) and tables.routed(*name) != name:
        return f"tables.routes keep it in {'.'.join(tables.routed(*name))}; the snapshot stays as it was"
    if not tables.wanted(*name):
        return "tables.include and tables.exclude leave it out; the snapshot stays as it was"
    return "tables.routes no longer lead to it; the snapshot stays as it was"
