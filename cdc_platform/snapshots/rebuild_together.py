"""Snapshots made anew from the whole changelog: those whose changes are plain and few by one Spark job (together.py),
the others each by itself (rebuild.py), which takes some jobs of seconds and gives the same."""

import uuid
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

from cdc_platform.changelog.schema import WHICH_MOVED
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.store import File
from cdc_platform.snapshots import batch_rows, partitions, state, together
from cdc_platform.snapshots.apply import staging
from cdc_platform.snapshots.batch_tables import AffectedTable, affected_of
from cdc_platform.snapshots.rebuild import columns_now, not_upcast, rebuild_table, rebuilt, stop
from cdc_platform.snapshots.reduce.full_images import FullImages
from cdc_platform.snapshots.schema.columns import columns_of
from cdc_platform.snapshots.schema.history import History, Plan
from cdc_platform.snapshots.schema.upcast_files import Notes, clear
from cdc_platform.snapshots.table_batch import Work, column_lists
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import Rows
from cdc_platform.tables import CHANGELOG, TABLE_STATE, Name, name_of

_MOST_FILES, _MOST_BYTES = 2_000, 256 << 20
"""Files of the changelog of which it is looked what they note, and bytes of those that are read in whole: of a longer
one each table reads what statistics tell it to."""
_AT_ONCE = 16


def refreshed(spark: SparkSession, config: Config, source: Source, since: int | None) -> state.Tables:
    """Makes tables anew that batches left stale, this run's or a killed one's, and those that were stopped until it
    showed which table a RENAME had moved. Returns all tables' present state and, since a batch, their figures."""
    path = TABLE_STATE.at(stores.lake(config))
    before = state.now(path, source, since)
    stale = {n for n, t in before.items() if t["state"] == "stale"}
    waiting = {n for n, t in before.items() if t["state"] == "stopped" and WHICH_MOVED in (t["reason"] or "")}
    if not stale and not waiting:
        return before
    history = History(spark, config, source)
    names = sorted(stale | (waiting - history.full.unsettled))
    done = rebuild_several(spark, config, source, history, names)
    for batch in sorted({before[name]["batch"] for name in done}):
        mine = [done[name] for name in sorted(done) if before[name]["batch"] == batch]
        state.keep(stores.lake(config), source, mine, before, batch, anew=True)
    for name in (n for n in names if n not in done):
        rebuilt(spark, config, source, history, name, before, needs_rows=name in stale)
    return state.now(path, source, since)


def rebuild_each(
    spark: SparkSession, config: Config, source: Source, history: History, names: list[Name]
) -> list[state.Outcome]:
    """Some snapshots made anew; of one that can't be, that it is stopped."""
    done = rebuild_several(spark, config, source, history, names)

    def alone(name: Name) -> state.Outcome:
        try:
            return rebuild_table(spark, config, source, history, name)
        except TableStopped as why:
            return stop(name, why.reason)

    return [*done.values(), *delta_sql.run_parallel([partial(alone, n) for n in names if n not in done])]


class _Changes(NamedTuple):
    """Changes of some snapshots as rows of today: rows, files with what they note, tables, their column lists."""

    rows: Rows
    files: Notes
    touched: list[AffectedTable]
    columns: dict[Name, str | None]
    lists: dict[str, str]


def rebuild_several(
    spark: SparkSession, config: Config, source: Source, history: History, names: list[Name]
) -> dict[Name, state.Outcome]:
    """Outcomes of those of some snapshots that were made anew. The others are as they were: each is to be made by
    itself (rebuild.rebuild_table)."""
    if source.tables.routes or len(names) < 2:
        return {}
    try:
        found = _changes(spark, config, source, history, {*names})
        return {} if found is None else _made(spark, config, source, found)
    finally:
        clear(stores.lake(config), source)  # rows as of today


def _made(spark: SparkSession, config: Config, source: Source, found: _Changes) -> dict[Name, state.Outcome]:
    plain = batch_rows.full_image_tables(spark, source, found.files, found.touched, found.columns)
    came = partitions.came(config, source)
    ready = [t for t in found.touched if (p := plain.get(t.name)) and _is_ready(p, t) and not came.unsettled(t.low[1])]
    app = f"rebuild {uuid.uuid4().hex}"
    places = delta_sql.run_parallel([partial(_target, config, source, t, found) for t in ready], _AT_ONCE)
    into = {place.name: place for place in places if place}
    with staging.discarded_on_failure(*into.values()):
        work = Work(config, source, found.rows, 0, app, found.lists, plain=plain, came=came, into=into)
        asked = [together.Asked(t, found.columns[t.name], None, anew=True) for t in ready if t.name in into]
        outcomes = together.bring_up(work, asked)
        delta_sql.run_parallel([partial(staging.swap_in, spark, into[n]) for n in outcomes], _AT_ONCE)
    staging.discard(*(place for name, place in into.items() if name not in outcomes))
    return outcomes


def _changes(
    spark: SparkSession, config: Config, source: Source, history: History, names: set[Name]
) -> _Changes | None:
    """None: the changelog is long, or doesn't note what it holds."""
    plan = history.plan()
    if (files := _files(config, source, _ever(plan, names))) is None:
        return None
    touched, path = affected_of(list(files.values())), CHANGELOG.at(stores.lake(config))
    spans = {n: plan.spans[n] for t in touched if plan.old(n := t.name, t.low)}
    rows = batch_rows.rows(spark, path, list(files), source)
    stopped = not_upcast(rows.df, spans, source) if spans else {}
    rows, touched, noted, apart = batch_rows.as_today(rows, config, source, plan, spans, touched, files)
    if apart:
        return None
    mine = [t for t in touched if t.name in names and t.name not in stopped]
    lists = column_lists(config, source, mine)
    columns = {t.name: columns_now(history, t, lists) for t in mine}
    return _Changes(rows, {f: told for f, told in noted.items() if told is not None}, mine, columns, lists)


def _ever(plan: Plan, names: set[Name]) -> set[Name]:
    """Names under which rows of some tables may stand in the changelog."""
    return names | {n for n, carries in plan.spans.items() if any(c.today in names for c in carries)}


def _files(config: Config, source: Source, names: set[Name]) -> Notes | None:
    """The changelog's files that have rows of these names, with what each notes of them. None: too much, or one that
    notes nothing."""
    path = CHANGELOG.at(stores.lake(config))
    added = delta_table.added(path).select(["path", "size_bytes", "partition.source"]).to_pylist()
    sizes = {File(path, unquote(a["path"])): a["size_bytes"] for a in added if a["partition.source"] == source.name}
    if len(sizes) > _MOST_FILES:
        return None
    told = dict(zip(sizes, delta_sql.run_parallel([partial(batch_rows.note, f) for f in sizes], _AT_ONCE), strict=True))
    found: Notes = {}
    for file, note in told.items():
        if note is None:
            return None
        if mine := [group for group in note if group["db"] is not None and name_of(group) in names]:
            found[file] = mine
    return found if sum(sizes[f] for f in found) <= _MOST_BYTES else None


def _is_ready(plain: FullImages, touched: AffectedTable) -> bool:
    """Whether one task can make the table of its changes."""
    return bool(plain.table.keys) and together.is_few(plain, touched)


def _target(config: Config, source: Source, touched: AffectedTable, found: _Changes) -> Target | None:
    """Where a table is made, with today's columns if it is there already. None: Spark has to do it."""
    target = Target.of(config, source.name, *touched.name)
    place, columns = staging.beside(target), columns_of(source, touched.name, found.columns[touched.name] or "[]")
    return place if staging.make(place, columns) or not delta_table.exists(target.snapshot) else None
