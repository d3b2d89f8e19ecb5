"""One table brought up to date with changes of the changelog, by the plan that their figures ask for (choose.py).

Repeating it changes nothing: rows win by order, tombstones are written once per batch. A table that can't be kept is
stopped by itself, with the reason.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import delta_table, looks, queries, stores
from cdc_platform.lake.queries import NEWEST_LIST
from cdc_platform.snapshots import partitions, state
from cdc_platform.snapshots.apply import keyless, merge, prepare, tombstones, truncate_origin
from cdc_platform.snapshots.apply.append import load
from cdc_platform.snapshots.batch_tables import AffectedTable, of_table
from cdc_platform.snapshots.choose import Facts, Plan, choose, without_workers
from cdc_platform.snapshots.reduce import key_changes
from cdc_platform.snapshots.reduce.fold import Profile, fold, key_names, late_keys, profile
from cdc_platform.snapshots.reduce.full_images import FullImages
from cdc_platform.snapshots.reduce.full_images import fold as fold_plain
from cdc_platform.snapshots.schema.columns import TableColumn, columns_of
from cdc_platform.snapshots.target import LOST, Stale, Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import Rows, quoted
from cdc_platform.tables import SCHEMA_HISTORY, Name

log = logging.getLogger(__name__)

_BAD_VALUE = re.compile(
    r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|CONVERSION_INVALID_INPUT|INVALID_FORMAT)[^\]]*\][^\n]*"
)


@dataclass(frozen=True, slots=True)
class Work:
    """Changes of one source to bring into its tables. `app` and `batch_id` name the write: it happens once.
    lists: column lists by schema version, as `column_lists`. history: makes all changes of the source, as `changes`.
    anew: the table is made from these changes alone. plain: tables whose changes are so (full_images.py). came: how the
    source's row changes came; untied: tables in which these are in order for sure (ties.py). into: where tables are
    made, of those that aren't made at their own places."""

    config: Config
    source: Source
    changes: Rows
    batch_id: int
    app: str
    lists: Mapping[str, str]
    history: Callable[[], DataFrame] | None = None
    anew: bool = False
    plain: Mapping[Name, FullImages] = field(default_factory=dict)
    came: partitions.Came = partitions.ONE
    untied: frozenset[Name] = frozenset()
    into: Mapping[Name, Target] = field(default_factory=dict)

    def target(self, name: Name) -> Target:
        """Where a table is kept."""
        return self.into.get(name) or Target.of(self.config, self.source.name, *name)


class Done(NamedTuple):
    """How many dates became NULL, how many images told a part of the row, what the feed didn't tell, order of the
    newest change."""

    invalid_dates: int
    partial: int
    untold: str | None = None
    high_order: Any = None


def outcome(work: Work, touched: AffectedTable, columns_json: str | None, before: Any) -> state.Outcome:
    """Bring one table up to date."""
    source, name = work.source, touched.name
    try:
        if columns_json is None and not touched.versions:
            columns_json = newest_list(work.changes.spark, work.config, source, name)
        if columns_json is None:
            raise TableStopped(source.name, name, "no column list is known for it")
        columns = columns_of(source, name, columns_json)
        if work.came.unsettled(touched.low[1]):
            _check_partitions(work, touched, columns, before)
        snapshot = work.target(name).snapshot
        if before and before["state"] == "live" and not work.anew and not delta_table.exists(snapshot):
            raise TableStopped(source.name, name, LOST)
        done = _bring_up(work, touched, columns, before)
    except TableStopped as error:
        log.error("%s", error)
        return state.Outcome(name, "stopped", error.reason, touched.changes, 0)
    except Stale:
        return state.Outcome(name, "stale", "it is made anew from the changelog", touched.changes, 0)
    look = looks.look(snapshot)
    told = (done.untold, touched.changes, done.invalid_dates, done.partial, done.high_order)
    return state.Outcome(name, "live", *told, rows=look and look.rows)


def _check_partitions(work: Work, touched: AffectedTable, columns: list[TableColumn], before: Any) -> None:
    """Raises TableStopped where partitions without positions leave the order of changes open."""
    rows = work.changes.df.where(of_table(*touched.name))
    target = work.target(touched.name)
    high = before and before["high_order"]
    known = None if work.anew or not high else tuple(map(int, high.values()))
    untied = touched.name in work.untied
    partitions.check(work.config, work.source, target, rows, columns, touched.low, known, untied=untied, anew=work.anew)


def emptied(
    spark: SparkSession,
    config: Config,
    source: Source,
    name: Name,
    columns_json: str | None,
    exists: bool,
    into: Target | None = None,
) -> state.Outcome:
    """A table that DDL left without rows, dropped where it doesn't exist any more. Raises TableStopped."""
    told = columns_json or newest_list(spark, config, source, name)
    if told is None:
        raise TableStopped(source.name, name, "no column list is known for it")
    columns = columns_of(source, name, told)
    prepare.empty(spark, into or Target.of(config, source.name, *name), columns)
    return state.Outcome(
        name, "live" if exists else "dropped", None if exists else "dropped at the source", 0, 0, rows=0
    )


def _bring_up(work: Work, touched: AffectedTable, columns: list[TableColumn], before: Any) -> Done:
    """Raises TableStopped, Stale."""
    target = work.target(touched.name)
    folded: list[DataFrame] = []
    try:
        if not any(c.key for c in columns):
            return _keyless(work, touched, target, columns, before)
        return _keyed(work, touched, target, columns, before, folded)
    except (PySparkException, Py4JError) as error:
        why = misfit(error) or (folded and misfit_of(folded[0], [c for c in folded[0].columns if c.startswith("_v")]))
        if why:
            raise TableStopped(work.source.name, touched.name, f"a value doesn't fit its column: {why!r}") from None
        raise


def _keyless(work: Work, touched: AffectedTable, target: Target, columns: list[TableColumn], before: Any) -> Done:
    rows = work.changes.df.where(of_table(*touched.name))
    prepare.prepare(rows.sparkSession, target, columns)
    told = {v: [c["name"] for c in json.loads(text)] for v, text in work.lists.items()}
    doubted = bool(before and before["reason"])
    invalid, untold = keyless.bring_up(rows, target, columns, told, work.app, work.batch_id, doubted=doubted)
    return Done(invalid, 0, untold)


def _keyed(
    work: Work,
    touched: AffectedTable,
    target: Target,
    columns: list[TableColumn],
    before: Any,
    folded: list[DataFrame],
) -> Done:
    """folded: where the frame is left that is written, for who wants to know why it can't be."""
    rows = work.changes.df.where(of_table(*touched.name))
    spark, merged = rows.sparkSession, work.source.tables.merged(*touched.name)
    gone = truncate_origin.truncated(rows) if merged else {}
    rows = truncate_origin.since(rows, gone)
    figures = _profile(work, touched, rows, columns)
    if figures.lost_moves and work.anew:
        rows = key_changes.filled(rows, columns, figures)
        figures = profile(rows, columns, told_keys=touched.told_keys)
    plain = work.plain.get(touched.name)
    facts = _facts(work, target, figures, before, whole=plain is not None)
    choice = choose(facts)
    if choice.plan is Plan.STOP:
        raise TableStopped(work.source.name, touched.name, str(choice.reason))
    if choice.plan is Plan.REBUILD:
        raise Stale
    empty = prepare.prepare(spark, target, columns) or work.anew
    truncate_origin.empty(spark, target, columns, gone, work.app, work.batch_id)
    done = Done(figures.invalid_dates, figures.partial, high_order=figures.high_order)
    if choice.plan is Plan.NOTHING:
        return Done(0, 0)
    if choice.plan in (Plan.APPEND, Plan.REPLACE) and plain:
        if load(spark, plain, columns, target, work.app, work.batch_id, empty=empty):
            return done
        choice = without_workers(choice)
    if not empty:
        prepare.ready_for_merge(spark, target)
    found, figures = _folded(work, rows, target, columns, figures, choice.plan is Plan.REFOLD)
    folded.append(found)
    if not (facts.empty or facts.newer):
        found = tombstones.not_buried(found, target, columns, figures)
    if merged:
        found = truncate_origin.not_truncated(found, target, columns, figures)
    tombstones.tombstone_deletes(found, target, columns, figures, work.app, work.batch_id)
    merge.apply(found, target, columns, figures, work.batch_id, empty=empty)
    return done


def _facts(work: Work, target: Target, figures: Profile, before: Any, *, whole: bool) -> Facts:
    there = delta_table.exists(target.snapshot) or delta_table.exists(target.tombstones)
    high = before and before["high_order"]
    return Facts(
        keyed=True,
        changes=figures.changes,
        no_key=figures.no_key,
        lost_moves=figures.lost_moves,
        whole=whole,
        partial=bool(figures.partial or (before and before["partial"])),
        empty=work.anew or not there,
        newer=bool(high and figures.changes and tuple(high.values()) < tuple(figures.low_order)),
        anew=work.anew,
    )


def _profile(work: Work, touched: AffectedTable, rows: DataFrame, columns: list[TableColumn]) -> Profile:
    found = work.plain.get(touched.name)
    if found is None:
        return profile(rows, columns, told_keys=touched.told_keys)
    if found.figures.changes != touched.changes:
        raise AssertionError(f"{touched}: {found.figures.changes} changes were seen")
    return found.figures


def _folded(
    work: Work, rows: DataFrame, target: Target, columns: list[TableColumn], figures: Profile, parts: bool
) -> tuple[DataFrame, Profile]:
    """One row per key, and figures of them. parts: this table's images, now or before, tell a part of the row. Then a
    row can't be made of late changes and the row that is there: all changes of its key are folded again. Raises Stale
    where cells of the key went on to other keys."""
    if not parts and (found := work.plain.get(target.name)):
        return fold_plain(rows.sparkSession, found, columns), figures
    if work.history is None or not parts:
        return fold(rows, columns, figures, partial=figures.partial > 0), figures
    late = late_keys(rows, columns, figures, delta_sql.read(rows.sparkSession, target.snapshot))
    figures = replace(figures, partial=max(figures.partial, 1))
    folded = fold(rows, columns, figures, partial=True)
    none_late = late.isEmpty()
    if none_late and not tombstones.buried(rows.sparkSession, target, columns, figures):
        return folded, figures
    history = work.history().where(of_table(*target.name))
    if work.source.tables.merged(*target.name):
        history = truncate_origin.since(history, truncate_origin.truncated(history))
    ever = profile(history, columns, told_keys=False)
    if ever.lost_moves:
        raise Stale
    if none_late:
        return folded, figures
    again = fold(history, columns, ever, only=late, partial=True)
    others = folded.join(late, key_names(columns), "left_anti")
    return others.unionByName(again), replace(figures, deletes=max(figures.deletes, 1))


def misfit(error: Exception) -> str | None:
    """What Spark says of a value that doesn't fit its type; None where something else went wrong. A failed write is
    a Java error that names the value as its cause only."""
    found = _BAD_VALUE.search(str(error))
    return found[0][:300] if found else None


def misfit_of(rows: DataFrame, columns: list[str]) -> str | None:
    """The same by a query of its own, of values in these columns: a failed write on Spark Connect need not tell its
    cause."""
    try:
        rows.agg(F.max(F.xxhash64(*(F.col(quoted(c)) for c in columns)))).collect()
    except PySparkException as error:
        return misfit(error)
    return None


def column_lists(config: Config, source: Source, touched: list[AffectedTable]) -> dict[str, str]:
    """schema_version → column list as JSON, for the versions the history knows."""
    return queries.column_lists(config, source, (v for t in touched for v in t.versions))


def merged_list(touched: AffectedTable, lists: dict[str, str]) -> str | None:
    """The newest column list of a batch, and what only older changes in it have: their cells are kept also where
    the newest change tells a part of the row, and a batch gives what its changes one by one would."""
    if not touched.versions or touched.versions[0] not in lists:
        return None
    return with_older(lists[v] for v in touched.versions if v in lists)


def with_older(lists: Iterable[str]) -> str:
    """A column list, and what only older ones have, the newest first."""
    columns, *rest = map(json.loads, lists)
    names = {c["name"].lower() for c in columns}
    for older in rest:
        more = [c for c in older if c["name"].lower() not in names]
        columns += [{**c, "key": False} for c in more]
        names.update(c["name"].lower() for c in more)
    return json.dumps(columns, ensure_ascii=False)


def newest_list(spark: SparkSession, config: Config, source: Source, name: Name) -> str | None:
    """The newest column list the history knows of a table, for batches that hold nothing but its TRUNCATE."""
    known = delta_sql.read(spark, SCHEMA_HISTORY.at(stores.lake(config))).where(
        (F.col("source") == source.name) & (F.col("kind") == "message")
    )
    return known.where(of_table(*name)).agg(F.max_by("columns", F.struct(*NEWEST_LIST)).alias("c")).collect()[0]["c"]
