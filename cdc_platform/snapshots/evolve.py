"""DDL that no run has looked at, brought to the snapshots: decided once per statement."""

from collections.abc import Collection, Sequence
from functools import partial

from pyspark.sql import SparkSession

from cdc_platform.changelog.loads import BY_ROWS
from cdc_platform.changelog.schema import WHICH_MOVED, Step
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import checkpoints, delta_table, stores
from cdc_platform.snapshots import routing, state
from cdc_platform.snapshots.rebuild import anew, stop
from cdc_platform.snapshots.schema import upcast
from cdc_platform.snapshots.schema.history import Decision, History, alter, in_place
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHECKPOINT, TABLE_STATE, Name


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
    decided = dict(zip(named, delta_sql.run_parallel(each), strict=True))
    outcomes = [o for _, _, o in decided.values() if o is not None]
    if outcomes:
        met = [before[name]["batch"] for o in outcomes if (name := o.name) in before]
        batch_id = max(met, default=state.BEFORE)
        state.keep(path, source, outcomes, before, batch_id, anew=True)
    decisions = []
    for s in steps:
        name = source.tables.routed(*(s.effect.after or s.effect.before or ("", "")))
        word, reason, _ = decided.get(name, ("no effect", None, None))
        decisions.append(Decision(s, "no effect" if s.effect.nothing else word, reason))
    history.keep(decisions)


def _evolve(
    spark: SparkSession, config: Config, source: Source, history: History, name: Name, before: state.Tables
) -> tuple[str, str | None, state.Outcome | None]:
    """(decision, reason, outcome) of the statements that concern one of today's snapshots."""
    target = Target.of(config, source.name, *name)
    if (last := before.get(name)) is not None and last["state"] == "stopped":
        return "stopped", last["reason"], None
    members = history.members(name)
    merged, steps = source.tables.merged(*name), history.undecided_steps(*members)
    told = "; ".join(
        dict.fromkeys(
            [x for m in members for c in history.full.carries(m) for x in upcast.inexact(c)]
            + [s.effect.rows for s in steps if s.effect.rows]
        )
    )
    there = delta_table.exists(target.snapshot)
    same_names = all(history.full.names_of(m) == [m] for m in members)
    unsettled = not history.full.unsettled.isdisjoint(members)
    fresh = not (there or unsettled) and (same_names or _nothing_done(config, source))
    if fresh or (merged and routing.only_joins(spark, source, target, steps, history.lists(name))):
        return "applied", told or None, None  # rows are carried as they come
    if reason := WHICH_MOVED if unsettled else _forbidden(source, name, steps, members):
        return "stopped", reason, stop(name, reason)
    as_it_is = bool(steps) and all(s.effect.same_columns for s in steps)
    if as_it_is or (there and not merged and in_place(steps, members) and alter(spark, target, steps)):
        return "applied", told or None, None
    try:
        result = anew(spark, config, source, history, name)
    except TableStopped as error:
        return "stopped", error.reason, stop(name, error.reason)
    return "rebuilt" if result.changes else "emptied", told or None, result


def _forbidden(source: Source, name: Name, steps: Sequence[Step], members: Collection[Name]) -> str | None:
    """Why option tables.ddl stops a table at these steps; None: it lets them through."""
    policy = source.tables.ddl_policy(*name)
    only_adds = in_place(steps, members) and not any(
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
