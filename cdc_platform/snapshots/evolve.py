"""DDL that no run has looked at, brought to the snapshots: decided once per statement."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from cdc_platform.changelog.schema import BY_ROWS, WHICH_MOVED, Step
from cdc_platform.config import Config, Source
from cdc_platform.lake import checkpoints, delta_table, stores
from cdc_platform.snapshots import routing, state
from cdc_platform.snapshots.choose import NO_KEY
from cdc_platform.snapshots.rebuild import stop
from cdc_platform.snapshots.rebuild_together import rebuild_each
from cdc_platform.snapshots.schema import upcast
from cdc_platform.snapshots.schema.alter import alter
from cdc_platform.snapshots.schema.history import Decision, History, changes_only_columns
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHECKPOINT, TABLE_STATE, Name


class Decided(NamedTuple):
    """What became of statements, why or with what reserve, and of the snapshot."""

    word: str
    reason: str | None = None
    outcome: state.Outcome | None = None


def evolve(spark: SparkSession, config: Config, source: Source, history: History) -> None:
    """Brings the snapshots' shape up to date with DDL that no run has looked at; each statement is decided once."""
    new = history.undecided()
    if not new:
        return
    path = TABLE_STATE.at(stores.lake(config))
    addresses = {r["address"] for r in new}
    steps = [s for s in history.full.steps if s.address in addresses]
    before = state.now(path, source)
    names = {n for s in steps if not s.effect.nothing for n in (s.effect.before, s.effect.after) if n is not None}
    snapshots = {source.tables.routed(*n) for n in names if source.tables.wanted(*n)}
    named = sorted(snapshots)
    each = [partial(_evolve, spark, config, source, history, n, before) for n in named]
    found = dict(zip(named, delta_sql.run_parallel(each), strict=True))
    wanted = {n: d.reason for n, d in found.items() if d.word == "rebuilt"}
    before = _noted(config, source, before, [n for n in wanted if n in before])
    made = rebuild_each(spark, config, source, history, sorted(wanted))
    decided = {**found, **{o.name: _of_rebuild(o, wanted[o.name]) for o in made}}
    outcomes = [d.outcome for d in decided.values() if d.outcome is not None]
    if outcomes:
        met = [before[name]["batch"] for o in outcomes if (name := o.name) in before]
        batch_id = max(met, default=state.BEFORE)
        state.keep(stores.lake(config), source, outcomes, before, batch_id, anew=True)
    decisions = []
    for s in steps:
        name = source.tables.routed(*(s.effect.after or s.effect.before or ("", "")))
        done = decided.get(name, Decided("no effect"))
        decisions.append(Decision(s, "no effect" if s.effect.nothing else done.word, done.reason))
    history.keep(decisions)


def _evolve(
    spark: SparkSession, config: Config, source: Source, history: History, name: Name, before: state.Tables
) -> Decided:
    """What is decided of the statements that concern one of today's snapshots; that it is to be rebuilt isn't done
    yet."""
    target = Target.of(config, source.name, *name)
    members, last = history.members(name), before.get(name)
    merged, steps = source.tables.merged(*name), history.undecided_steps(*members)
    stopped = last is not None and last["state"] == "stopped"
    if last is not None and stopped and not _gives_key(last, steps):
        return Decided("stopped", last["reason"])
    told = "; ".join(
        dict.fromkeys(
            [x for m in members for c in history.full.upcasts(m) for x in upcast.inexact(c)]
            + [s.effect.rows for s in steps if s.effect.rows]
        )
    )
    there = delta_table.exists(target.snapshot)
    same_names = all(history.full.names_of(m) == [m] for m in members)
    unsettled = not history.full.unsettled.isdisjoint(members)
    fresh = not (there or stopped or unsettled) and (same_names or _nothing_done(config, source))
    if fresh or (merged and routing.only_joins(spark, source, target, steps, history.lists(name))):
        return Decided("applied", told or None)  # rows are carried as they come
    if reason := WHICH_MOVED if unsettled else _forbidden(source, name, steps, members):
        return Decided("stopped", reason, stop(name, reason))
    # A run may have ended while it put the table made anew in place: its columns may be today's.
    kept = last is None or last["state"] != "stale"
    as_it_is = bool(steps) and all(s.effect.same_columns for s in steps)
    in_shape = there and not merged and changes_only_columns(steps, members)
    if kept and (as_it_is or (in_shape and alter(spark, target, steps))):
        return Decided("applied", told or None)
    return Decided("rebuilt", told or None)


def _gives_key(last: Mapping[str, Any], steps: Sequence[Step]) -> bool:
    """Whether steps may tell the key of changes for the lack of which a table is stopped."""
    return NO_KEY in (last["reason"] or "") and any(s.effect.key is not None for s in steps)


def _noted(config: Config, source: Source, before: state.Tables, names: list[Name]) -> state.Tables:
    """Notes that snapshots are to be made anew, before they are. Returns all tables' state."""
    found = [
        state.Outcome(n, "stale", "it is made anew after DDL", 0, 0) for n in names if before[n]["state"] == "live"
    ]
    if not found:
        return before
    path = TABLE_STATE.at(stores.lake(config))
    state.keep(stores.lake(config), source, found, before, max(before[o.name]["batch"] for o in found), anew=True)
    return state.now(path, source)


def _of_rebuild(outcome: state.Outcome, reserve: str | None) -> Decided:
    if outcome.state == "stopped":
        return Decided("stopped", outcome.reason, outcome)
    return Decided("rebuilt" if outcome.changes else "emptied", reserve, outcome)


def _forbidden(source: Source, name: Name, steps: Sequence[Step], members: Collection[Name]) -> str | None:
    """Why option tables.ddl stops a table at these steps; None: it lets them through."""
    policy = source.tables.ddl_policy(*name)
    only_adds = changes_only_columns(steps, members) and not any(
        s.effect.renamed or s.effect.dropped or s.effect.rows for s in steps
    )
    stated = next((s.ddl for s in steps if s.ddl not in BY_ROWS), None)
    if stated and (policy == "stop" or (policy == "add_only" and not only_adds)):
        return f"tables.ddl is {policy}: {stated[:200]}"
    return None


def _nothing_done(config: Config, source: Source) -> bool:
    """Whether no batch was begun yet: all rows are still to come."""
    begun, _ = checkpoints.newest(CHECKPOINT.at(stores.lake(config), room="snapshots", source=source.name))
    return begun < 0
