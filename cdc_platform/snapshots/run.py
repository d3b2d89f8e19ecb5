"""changelog → snapshots/<source>/<db>/<table>: every batch brings each table it touches up to date.

Repeating a batch changes nothing: rows win by order, tombstones are written once per batch. A table that can't be
kept is stopped by itself, with the reason; the others go on.
"""

import logging
import uuid
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.chain import RoomResult
from cdc_platform.changelog.schema import Carry
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.mysql.effects import Name
from cdc_platform.resources import lake
from cdc_platform.snapshots import carry, cuts, state
from cdc_platform.snapshots.bring_up import (
    Touched,
    Work,
    column_lists,
    emptied,
    merged_list,
    of_table,
    outcome,
    touched_by,
)
from cdc_platform.snapshots.evolve import Decision, History, Plan, alter, in_place
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import CHANGELOG, CHECKPOINT, TABLE_STATE

log = logging.getLogger(__name__)


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of a source's snapshots."""
    watch = lake.Stopwatch()
    path = lake.ensure(spark, TABLE_STATE, TABLE_STATE.at(config.lake))
    history = History(spark, config, source)
    evolve(spark, config, source, history)
    progress = lake.for_each_batch(
        lake.stream(spark, CHANGELOG.at(config.lake), source.max_bytes_per_batch).where(F.col("source") == source.name),
        CHECKPOINT.at(config.lake, room="snapshots", source=source.name),
        f"snapshots {source.name}",
        batch_writer(config, source, history.plan()),
    )
    _refresh(spark, config, source)
    batches = lake.batches(progress)
    figures = state.figures(spark, config, source, path, batches)
    changes = sum(float(f["changes"]) for f in figures.values())
    return RoomResult(
        "snapshots",
        source.name,
        int(changes),
        len(batches),
        watch.seconds,
        {
            "changes": changes,
            "tables": len(figures),
            "stopped_tables": sum(f["state"] == "stopped" for f in figures.values()),
            **cuts.publish(spark, config, source),
        },
        figures,
    )


def batch_writer(config: Config, source: Source, plan: Plan) -> Callable[[DataFrame, int], None]:
    """The foreachBatch function of one source."""

    def each(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        path = TABLE_STATE.at(config.lake)
        touched = touched_by(batch)
        if not touched:
            return
        spans = {n: plan.spans[n] for t in touched if plan.old(n := (t.db, t.table), t.low)}
        before = state.now(spark, path, source)
        stopped = _not_carried(batch, spans, source)
        if spans:
            batch = carry.carried(batch, spans)
            touched = touched_by(batch)
        moved = {c.today for carries in spans.values() for c in carries}
        lists = column_lists(spark, config, source, touched)
        every = lake.read(spark, CHANGELOG.at(config.lake)).where(F.col("source") == source.name)
        history = carry.carried(every, plan.spans)
        work = Work(config, source, batch, batch_id, f"snapshots {source.name}", lists, history)

        def one(t: Touched) -> state.Outcome:
            name = (t.db, t.table)
            if reason := stopped.get(name):
                return _stopped(name, reason, t.changes)
            told = plan.columns.get(name) if name in moved else merged_list(t, lists)
            return outcome(work, t, told, before.get(name))

        outcomes = lake.together([partial(one, t) for t in touched])
        lake.append(state.rows(spark, path, source, outcomes, before, batch_id), path, work.app, batch_id)

    return each


def _stopped(name: Name, reason: str, changes: int = 0) -> state.Outcome:
    log.error("%s.%s: %s", *name, reason)
    return state.Outcome(*name, "stopped", reason, changes, 0)


def _not_carried(rows: DataFrame, spans: dict[Name, list[Carry]], source: Source) -> dict[Name, str]:
    """Today's tables some of whose rows can't be carried, and why."""
    found: dict[Name, str] = {}
    for name, carries in spans.items():
        start = None
        for c in carries:
            why = c.today and (carry.unknown(c) or _filtered(name, c.today, source))
            if c.today and why and not rows.where(carry.within(name, start, c.until)).isEmpty():
                found[c.today] = why
            start = c.until
    return found


def _filtered(name: Name, today: Name, source: Source) -> str | None:
    """Why a table can't be told that took the place of another one: its rows were never let in."""
    if source.tables.wanted(*name) or not source.tables.wanted(*today):
        return None
    return f"it was {'.'.join(name)} before a RENAME, whose rows tables.include leaves out"


def evolve(spark: SparkSession, config: Config, source: Source, history: History) -> None:
    """Brings the snapshots' shape up to date with DDL that no run has looked at; each statement is decided once."""
    new = history.undecided()
    if not new:
        return
    path = TABLE_STATE.at(config.lake)
    addresses = {r["address"] for r in new}
    steps = [s for s in history.full.steps if s.address in addresses]
    before = state.now(spark, path, source)
    names = {n for s in steps if not s.effect.nothing for n in (s.effect.before, s.effect.after) if n is not None}
    decided = {n: _evolve(spark, config, source, history, n, before) for n in sorted(names) if source.tables.wanted(*n)}
    outcomes = [o for _, _, o in decided.values() if o is not None]
    if outcomes:
        batch_id = max((before[o.db, o.table]["batch"] for o in outcomes if (o.db, o.table) in before), default=0)
        rows = state.rows(spark, path, source, outcomes, before, batch_id, anew=True)
        lake.append(rows, path, f"evolve {uuid.uuid4().hex}", 0)
    decisions = []
    for s in steps:
        word, reason, _ = decided.get(s.effect.after or s.effect.before or ("", ""), ("no effect", None, None))
        decisions.append(Decision(s, "no effect" if s.effect.nothing else word, reason))
    history.keep(decisions)


def _evolve(
    spark: SparkSession, config: Config, source: Source, history: History, name: Name, before: state.Tables
) -> tuple[str, str | None, state.Outcome | None]:
    """(decision, reason, outcome) of the statements that concern one of today's names."""
    target = Target.of(config, source.name, *name)
    if (last := before.get(name)) is not None and last["state"] == "stopped":
        return "stopped", last["reason"], None
    if not lake.exists(spark, target.snapshot) and history.full.names_of(name) == [name]:
        return "applied", None, None  # rows are carried as they come
    steps = history.undecided_steps(name)
    policy = source.tables.ddl_policy(*name)
    only_adds = in_place(steps, name) and not any(s.effect.renamed or s.effect.dropped for s in steps)
    if policy == "stop" or (policy == "add_only" and not only_adds):
        reason = f"tables.ddl is {policy}: {steps[0].ddl[:200]}"
        return "stopped", reason, _stopped(name, reason)
    told = "; ".join(dict.fromkeys(x for c in history.full.carries(name) for x in carry.inexact(c))) or None
    if in_place(steps, name) and alter(spark, target, steps):
        return "applied", told, None
    try:
        result = _anew(spark, config, source, history, name)
    except TableStopped as error:
        return "stopped", error.reason, _stopped(name, error.reason)
    return "rebuilt" if result.changes else "emptied", told, result


def _anew(
    spark: SparkSession, config: Config, source: Source, history: History, name: Name, *, needs_rows: bool = False
) -> state.Outcome:
    """One of today's tables made from the whole changelog. Raises TableStopped where it can't be."""
    rows = lake.read(spark, CHANGELOG.at(config.lake)).where(F.col("source") == source.name)
    spans = {n: history.full.carries(n) for n in history.full.names_of(name)} if history.any_ddl else {}
    of_names = F.lit(False)
    for n in spans or [name]:
        of_names = of_names | of_table(*n)
    rows = rows.where(of_names)
    stopped = _not_carried(rows, spans, source)
    if name in stopped:
        raise TableStopped(source.name, *name, stopped[name])
    rows = carry.carried(rows, spans).where(of_table(*name))
    touched = touched_by(rows)
    if not touched:
        if needs_rows:
            raise TableStopped(source.name, *name, "the changelog holds no change of it")
        return emptied(spark, config, source, name, history.full.columns(name), history.full.exists(name))
    lists = column_lists(spark, config, source, touched)
    told = history.full.columns(name) if spans else merged_list(touched[0], lists)
    work = Work(config, source, rows, 0, f"rebuild {uuid.uuid4().hex}", lists, anew=True)
    found = outcome(work, touched[0], told, None)
    if found.state == "stopped":
        raise TableStopped(source.name, *name, str(found.reason))
    return found


def _rebuilt(
    spark: SparkSession, config: Config, source: Source, history: History, name: Name, before: state.Tables
) -> state.Outcome:
    """One table made anew, and what became of it noted. Raises TableStopped of a table that no batch has met."""
    try:
        found = _anew(spark, config, source, history, name, needs_rows=True)
    except TableStopped as why:
        if name not in before:
            raise
        found = _stopped(name, why.reason)
    path, batch_id = TABLE_STATE.at(config.lake), before[name]["batch"] if name in before else 0
    rows = state.rows(spark, path, source, [found], before, batch_id, anew=True)
    lake.append(rows, path, f"rebuild {uuid.uuid4().hex}", 0)
    return found


def _refresh(spark: SparkSession, config: Config, source: Source) -> None:
    """Makes tables anew that batches left stale, this run's or those of one that was killed."""
    before = state.now(spark, TABLE_STATE.at(config.lake), source)
    stale = sorted(n for n, t in before.items() if t["state"] == "stale")
    if stale:
        history = History(spark, config, source)
        for name in stale:
            _rebuilt(spark, config, source, history, name, before)


def rebuild(spark: SparkSession, config: Config, source: Source, db: str, table: str) -> RoomResult:
    """Make one table anew from the whole changelog; a stopped table that this heals is followed again. Raises
    TableStopped where it can't be kept (the snapshot is then empty and stays stopped)."""
    watch = lake.Stopwatch()
    path = lake.ensure(spark, TABLE_STATE, TABLE_STATE.at(config.lake))
    history = History(spark, config, source)
    evolve(spark, config, source, history)
    found = _rebuilt(spark, config, source, history, (db, table), state.now(spark, path, source))
    if found.state == "stopped":
        raise TableStopped(source.name, db, table, str(found.reason))
    return RoomResult("snapshots", source.name, found.changes, 1, watch.seconds, {"changes": found.changes})
