"""changelog → snapshots/<source>/<db>[/<schema>]/<table>: every batch brings each table it touches up to date.

Repeating a batch changes nothing: rows win by order, tombstones are written once per batch. A table that can't be
kept is stopped by itself, with the reason; the others go on.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import batches, looks, stores
from cdc_platform.lake.store import File, Store
from cdc_platform.results import StageResult, Stopwatch
from cdc_platform.snapshots import batch_rows, beside, catalog, partitions, retype, routing, state, together
from cdc_platform.snapshots.apply.prepare import read_in_bulk
from cdc_platform.snapshots.batch_tables import AffectedTable, affected_by, affected_of
from cdc_platform.snapshots.cuts import complete, publish
from cdc_platform.snapshots.evolve import evolve
from cdc_platform.snapshots.rebuild import not_upcast, rebuilt, stop
from cdc_platform.snapshots.rebuild_together import refreshed
from cdc_platform.snapshots.reduce import ties
from cdc_platform.snapshots.row_history import HISTORIES
from cdc_platform.snapshots.rule_changes import LEFT_OUT, follow
from cdc_platform.snapshots.schema import limits, upcast
from cdc_platform.snapshots.schema.history import History, Plan
from cdc_platform.snapshots.schema.upcast_files import clear, listed
from cdc_platform.snapshots.table_batch import Work, column_lists, merged_list, outcome
from cdc_platform.snapshots.target import Target
from cdc_platform.snapshots.typed_changes import TYPED_CHANGES
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import Rows
from cdc_platform.tables import CHANGELOG, CHECKPOINT, TABLE_STATE, Name, as_name

_MIXED = "earlier versions kept all schemas in one snapshot: this one is made from the changelog"


def run(spark: SparkSession, config: Config, source: Source, *, cut: bool = True) -> StageResult:
    """One catch-up of a source's snapshots. cut: whether to publish one."""
    watch = Stopwatch()
    delta_sql.ensure(TABLE_STATE, TABLE_STATE.at(stores.lake(config)))
    replaced = retype.retype(spark, config, source)
    history = History(spark, config, source)
    _follow(spark, config, source, history)
    evolve(spark, config, source, history)
    settled: set[Name] = set()
    done = _batches(spark, config, source, history.plan(), replaced, settled)
    tables = refreshed(spark, config, source, min(done, default=None))
    kept = {name: beside.keep(spark, config, source, history, tables, kind) for name, kind in _kinds(source).items()}
    figures, published = _report(spark, config, source, history, tables, settled, cut=cut)
    changes = sum(int(f["changes"]) for f in figures.values())
    return StageResult(
        "snapshots",
        source.name,
        changes,
        len(done),
        watch.seconds,
        {
            "changes": changes,
            "tables": len(figures),
            "stopped_tables": sum(f["state"] == "stopped" for f in figures.values()),
            **{name: len(changed) for name, changed in kept.items()},
            **published,
        },
        figures,
    )


def _kinds(source: Source) -> dict[str, beside.Kind]:
    """What is kept beside snapshots of a source, by the names of figures of a run."""
    asked = {"histories": source.tables.history, "typed_changes": source.tables.typed_changes}
    kinds = {"histories": HISTORIES, "typed_changes": TYPED_CHANGES}
    return {name: kinds[name] for name, patterns in asked.items() if patterns}


def _batches(
    spark: SparkSession, config: Config, source: Source, plan: Plan, replaced: frozenset[str], settled: set[Name]
) -> list[int]:
    """Takes up all that the changelog has; numbers of the batches. replaced: column lists whose rows were decoded
    again. settled: gets the tables whose last commit isn't Spark's: what this process knows of them is so."""
    path, much = CHANGELOG.at(stores.lake(config)), source.max_bytes_per_batch
    checkpoint = CHECKPOINT.at(stores.lake(config), room="snapshots", source=source.name)
    write = partial(_write, config, source, plan, replaced, settled)

    def each(spark: SparkSession, files: list[File], batch_id: int) -> None:
        batch, told = batch_rows.rows(spark, path, files, source), {f: batch_rows.note(f) for f in files}
        noted = None not in told.values()
        write(batch, batch_id, affected_of(list(told.values())) if noted else affected_by(batch.df), told)

    return batches.for_each(spark, path, much, checkpoint, each, source=source.name)


def _report(
    spark: SparkSession,
    config: Config,
    source: Source,
    history: History,
    tables: state.Tables,
    settled: set[Name],
    *,
    cut: bool,
) -> tuple[dict[str, dict[str, float | str]], dict[str, float]]:
    """What a run tells of its tables, in figures and in their metadata, and its cut. settled: as `_batches`."""
    touched = {n: t for n, t in tables.items() if t["touched"]}
    moved = publish.has_moved(config, source)
    names = sorted({*(tables if moved else touched), *_reported_again(config, source, history, tables)})
    paths = {n: Target.of(config, source.name, *n).snapshot for n in names}
    each = [partial(looks.look, path, look=n not in settled) for n, path in paths.items()]
    seen = dict(zip(names, delta_sql.run_parallel(each), strict=True))

    def published() -> tuple[dict[Name, str], dict[str, float]]:
        texts = limits.note(spark, config, source, history, {n: seen[n] for n in names if tables[n]["state"] == "live"})
        if not cut:
            return texts, {}
        cut_ = publish.publish(spark, config, source, tables, seen)
        complete.publish(config, source, tables)
        return texts, {**cut_, **catalog.publish(spark, config, source, tables)}

    found: list[Any] = delta_sql.run_parallel([partial(state.table_metrics, touched, seen), published])
    figures, (texts, metrics) = found
    for name, text in texts.items():
        if name in touched:
            figures[".".join(name)]["limits"] = text
    return figures, metrics


_SAID: set[tuple[str, str, Name, str]] = set()
"""What this process has looked after: lake, source, table, text."""


def _reported_again(config: Config, source: Source, history: History, tables: state.Tables) -> set[Name]:
    """Tables of which something is said that may not be in their metadata yet, though they got no row since."""
    found = set()
    for name, texts in history.full.said.items():
        said = (stores.lake(config).uri(), source.name, name, "\n".join(texts))
        if said not in _SAID and (snapshot := source.tables.routed(*name)) in tables:
            _SAID.add(said)
            found.add(snapshot)
    return found


def _write(
    config: Config,
    source: Source,
    plan: Plan,
    replaced: frozenset[str],
    settled: set[Name],
    batch: Rows,
    batch_id: int,
    touched: list[AffectedTable],
    files: Mapping[File, Any],
) -> None:
    """Brings the tables of a batch up to date. files: the batch's data files, with the statistics in their footers."""
    spark, path = batch.spark, TABLE_STATE.at(stores.lake(config))
    if not touched:
        return
    older = retype.older(source, plan.spans, touched, replaced)
    spans = {n: plan.spans[n] for t in touched if plan.old(n := t.name, t.low)}
    before = state.now(path, source)
    stopped = not_upcast(batch.df, spans, source) if spans else {}
    batch, touched, files, apart = batch_rows.as_today(batch, config, source, plan, spans, touched, files)
    touched = [t for t in touched if not _of_another(source, t.name)]
    moved = {c.today for carries in spans.values() for c in carries}
    lists = column_lists(config, source, touched)
    names = {t.name: t for t in touched}
    told = {n: plan.columns.get(n) if n in moved else merged_list(t, lists) for n, t in names.items()}
    found = routing.Routed(batch, touched, told, stopped)
    if source.tables.routes:
        found = routing.route(found, source, plan.merged)

    def history() -> DataFrame:
        every = delta_sql.read(spark, CHANGELOG.at(stores.lake(config))).where(F.col("source") == source.name)
        known = {*names, *(n for lists in plan.merged.values() for n in lists)}
        lists_ = listed({n: text for n, text in plan.columns.items() if text})
        return routing.routed(upcast.upcast(every, plan.spans, lists_), source, sorted(known), found.lacking)

    surveyed = [] if source.tables.routes else [t for t in found.touched if t.name not in apart]
    plain = batch_rows.full_image_tables(spark, source, files, surveyed, found.told)
    app = f"snapshots {source.name}"
    came = partitions.came(config, source)
    work = Work(config, source, found.rows, batch_id, app, lists, history, plain=plain, came=came)

    def left(t: AffectedTable) -> state.Outcome | None:
        name = t.name
        if reason := found.stopped.get(name):
            return stop(name, reason, t.changes)
        last = before.get(name)
        if last is None and (name[0], name[-1]) in before and len(name) == 3:
            return state.Outcome(name, "stale", _MIXED, t.changes, 0)
        if last and last["state"] == LEFT_OUT and not source.tables.kept(*name):
            return state.Outcome(name, LEFT_OUT, last["reason"], t.changes, 0)
        if name in older and not (last and last["state"] == "stopped"):
            return state.Outcome(name, "stale", retype.OLDER, t.changes, 0)
        if last and last["state"] in ("stopped", "stale"):
            return state.Outcome(name, last["state"], last["reason"], t.changes, 0)
        return None

    done = {t.name: o for t in found.touched if (o := left(t)) is not None}
    asked = [together.Asked(t, found.told.get(t.name), before.get(t.name)) for t in found.touched if t.name not in done]
    brought = together.bring_up(work, asked)
    settled.difference_update(t.name for t in found.touched)
    settled.update(brought)
    done |= brought
    alone = [a for a in asked if a.touched.name not in done]
    # TRUNCATEs and tables without a key are Spark's, where tables go alone.
    rows_alone = {n: p for n, p in plain.items() if p.table.keys and p.figures.truncated_at is None}
    unplaced = {n: rows_alone[n] for a in alone if a.touched.low[1] < 0 and (n := a.touched.name) in rows_alone}
    work = replace(work, plain=rows_alone, untied=ties.untied(spark, unplaced) if came.several else frozenset())
    with read_in_bulk(spark, _read_alone(config, source, work, [a.touched.name for a in alone], before)):
        each = [partial(outcome, work, a.touched, a.columns, a.before) for a in alone]
        outcomes = [*done.values(), *delta_sql.run_parallel(each)]
    state.keep(stores.lake(config), source, outcomes, before, batch_id)
    if spans:
        clear(stores.lake(config), source)


def _of_another(source: Source, name: Name) -> bool:
    """Whether a TRUNCATE, which may spell a followed table in another case (unify.outcome), is of another table."""
    return not source.tables.wanted(*name) and source.tables.wanted_name(".".join(name), any_case=True)


def _read_alone(config: Config, source: Source, work: Work, names: list[Name], before: state.Tables) -> list[Store]:
    """The snapshots of some tables of a batch, if Spark reads neither their changes nor anything else that is large;
    none, if it does of one."""
    if not all(n in work.plain and not (before.get(n) or {}).get("partial") for n in names):
        return []
    return [Target.of(config, source.name, *n).snapshot for n in names]


def _follow(spark: SparkSession, config: Config, source: Source, history: History) -> None:
    """Does what other rules of the configuration ask for."""
    outcomes, done = follow(spark, config, source, history)
    if outcomes:
        path = TABLE_STATE.at(stores.lake(config))
        before = state.now(path, source)
        batch_id = max((t["batch"] for t in before.values()), default=state.BEFORE)
        state.keep(stores.lake(config), source, outcomes, before, batch_id, anew=True)
    done()


def rebuild(spark: SparkSession, config: Config, source: Source, *name: str) -> StageResult:
    """Make one table anew from the whole changelog; a stopped table that this heals is followed again. Raises
    TableStopped where it can't be kept: its rows stay as they were."""
    watch, table = Stopwatch(), as_name(*name)
    path = delta_sql.ensure(TABLE_STATE, TABLE_STATE.at(stores.lake(config)))
    retype.retype(spark, config, source)
    history = History(spark, config, source)
    evolve(spark, config, source, history)
    found = rebuilt(spark, config, source, history, table, state.now(path, source))
    if found.state == "stopped":
        raise TableStopped(source.name, table, str(found.reason))
    limits.note(spark, config, source, history, {table: looks.look(Target.of(config, source.name, *table).snapshot)})
    return StageResult("snapshots", source.name, found.changes, 1, watch.seconds, {"changes": found.changes})
