"""`reconcile`: the tables of a source, one after the other."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.config.tables import ORIGIN, origin_of
from cdc_platform.errors import ConfigError
from cdc_platform.lake import comparisons, delta_table, folders, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.reconcile import export, live, notes, reached
from cdc_platform.reconcile.columns import SourceColumn, pair
from cdc_platform.reconcile.result import TableResult
from cdc_platform.reconcile.server import Server
from cdc_platform.results import Stopwatch
from cdc_platform.snapshots.table_batch import newest_list
from cdc_platform.spark import delta_sql
from cdc_platform.tables import SCHEMA_HISTORY, Name, name_of

NO_SNAPSHOT = "there is no snapshot of it"
Told = Callable[[str], None]


def against_server(
    spark: SparkSession,
    config: Config,
    source: Source,
    server: Server,
    table: Name | None = None,
    *,
    wait_s: float = 0,
    limit: int = 20,
    told: Told = lambda _: None,
) -> list[TableResult]:
    """One table, or all tables of the source that have a snapshot or should have one, against a live server.

    wait_s: seconds per table that the chain may need to catch up; limit: differing rows that are read.
    Raises SourceUnreachable, SourceRefused, ConfigError (no such table)."""
    if table:
        wanted = _origins(spark, config, source, server, [table]) if source.tables.merged(*table) else [table]
    else:
        known = _known(config, source)
        merged = [n for n in known if source.tables.merged(*n)]
        origins = _origins(spark, config, source, server, merged) if merged else []
        wanted = sorted({*known, *_at_source(server, source, known), *origins} - set(merged) | set(origins))
    out = []
    feed: dict[int, reached.Newest | None] = {}
    for name in wanted:
        told(".".join(name))
        seen = notes.seen(config, source, name)
        if seen.lost not in feed:  # what has come behind what is lost by now
            feed[seen.lost] = reached.newest(config, source)
        one = partial(_live, spark, config, source, server, name, feed[seen.lost], wait_s, limit)
        out.append(_timed(TableResult(".".join(name)), one))
        notes.note(config, source, name, out[-1], seen)
    return out


def _known(config: Config, source: Source) -> list[Name]:
    return [name for r in queries.followed(config, source) if source.tables.kept(*(name := name_of(r)))]


def _origins(spark: SparkSession, config: Config, source: Source, server: Server, snapshots: list[Name]) -> list[Name]:
    """Tables of the source that routes lead to these snapshots: those it has, and those that rows tell."""
    paths = [folders.snapshot(stores.lake(config), source.name, name) for name in snapshots]
    rows = [
        r for p in paths if delta_table.exists(p) for r in delta_sql.read(spark, p).select(*ORIGIN).distinct().collect()
    ]
    told: set[Name] = {(r[ORIGIN[0]], r[ORIGIN[1]]) for r in rows}
    dbs = {n for n in queries.stated_tables(config, source) if source.tables.routed(*n) in snapshots} | told
    there = {n for n in _at_source(server, source, dbs) if source.tables.routed(*n) in snapshots}
    return sorted(told | there)


def _at_source(server: Server, source: Source, known: Iterable[Name]) -> list[Name]:
    """Tables of the followed databases, also of those of which nothing ever came: one without a snapshot must show."""
    databases = {name[0] for name in known} | source.tables.named_databases()
    return [(db, t) for db, t in server.tables(sorted(databases)) if source.tables.wanted(db, t)]


def _timed(result: TableResult, compare: Callable[[TableResult], None]) -> TableResult:
    watch = Stopwatch()
    compare(result)
    result.seconds = watch.seconds
    return result


def _live(
    spark: SparkSession,
    config: Config,
    source: Source,
    server: Server,
    name: Name,
    newest: reached.Newest | None,
    wait_s: float,
    limit: int,
    result: TableResult,
) -> None:
    if len(name) == 3:
        result.problems.append("servers whose databases have schemas can't be read: compare it with an export")
        return
    columns = server.columns(*name)
    path, part = _kept_in(config, source, name, [c.name for c in columns])
    if not columns:
        result.problems.append(comparisons.NO_SUCH_TABLE)
    if delta_table.exists(path):
        result.version = delta_table.version(path)
    else:
        result.problems.append(NO_SNAPSHOT)
    if result.problems:
        return
    pairing = pair(_with_keys(columns, _keys(source, name)), _types(part(delta_sql.read(spark, path))))
    result.problems += pairing.problems
    result.not_compared |= pairing.not_compared
    if pairing.pairs:

        def snapshot() -> tuple[int, DataFrame]:
            number, rows = _at_version(spark, path)
            return number, part(rows)

        result.reserve = reached.lacking(server, newest)
        live.compare(spark, live.Table(server, *name, pairing, snapshot), result, wait_s, limit)


def _kept_in(
    config: Config, source: Source, name: Name, columns: list[str]
) -> tuple[Store, Callable[[DataFrame], DataFrame]]:
    """Path of the snapshot that keeps a table, and what of it is this table's: in one that routes merge, rows of its
    origin, without columns that only other tables have (`columns`: its own at the source)."""
    target = source.tables.routed(*name)
    path = folders.snapshot(stores.lake(config), source.name, target)
    if not source.tables.merged(*target):
        return path, lambda rows: rows
    own = {c.lower() for c in columns}

    def part(rows: DataFrame) -> DataFrame:
        db, table = origin_of(name)
        mine = rows.where((F.col(ORIGIN[0]) == db) & (F.col(ORIGIN[1]) == table))
        return mine.select(*(F.col(delta_sql.quoted(c)) for c in rows.columns if c.lower() in own))

    return path, part


def _keys(source: Source, name: Name) -> list[str] | None:
    """Key columns that the configuration gives a table, or the snapshot that it is kept in."""
    return source.tables.keys.get(".".join(source.tables.routed(*name))) or source.tables.keys.get(".".join(name))


def _with_keys(columns: list[SourceColumn], keys: list[str] | None) -> list[SourceColumn]:
    """Keys from the configuration win, as they do in the snapshot."""
    if not keys:
        return columns
    return [SourceColumn(c.name, c.type_text, c.name in keys, c.virtual) for c in columns]


def _types(rows: DataFrame) -> dict[str, str]:
    return dict(rows.dtypes)


def _at_version(spark: SparkSession, path: Store, version: int | None = None) -> tuple[int, DataFrame]:
    """The newest version, or that one; pinned, so that all reads of it see the same rows."""
    number = delta_table.version(path) if version is None else version
    return number, spark.read.format("delta").option("versionAsOf", number).load(path.spark_uri())


def against_export(
    spark: SparkSession,
    config: Config,
    source: Source,
    path: str,
    name: Name,
    *,
    made_at: datetime | None = None,
    version: int | None = None,
    keys: list[str] | None = None,
    limit: int = 20,
) -> TableResult:
    """One table's snapshot, its newest version or that one, against an export. made_at: when it was made, as far as
    somebody says. keys: else the configuration's, else
    those that the messages told. Raises ExportUnreadable, ConfigError."""
    result = TableResult(".".join(name))
    given = export.read(spark, path)
    own, part = _kept_in(config, source, name, given.columns)
    if source.tables.merged(*name):
        result.problems.append("tables.routes merge it from several tables: compare each with an export of its own")
    if not delta_table.exists(own):
        result.problems.append(NO_SNAPSHOT)
    if result.problems:
        return result
    seen, newest = notes.seen_in_export(config, source, name, made_at), delta_table.version(own)
    if version is not None and not 0 <= version <= newest:
        raise ConfigError("--version", f"the snapshot has no version {version}", [f"0 to {newest}"])
    told = keys or _keys(source, name) or _feed_keys(spark, config, source, name)
    result.version, snapshot = _at_version(spark, own, newest if version is None else version)
    found = _timed(result, lambda r: export.compare(given, part(snapshot), told, r, limit))
    if result.version == newest:
        notes.note(config, source, name, found, seen)
    return found


def _feed_keys(spark: SparkSession, config: Config, source: Source, name: Name) -> list[str]:
    """Key columns by the newest column list of the messages; none known: []."""
    if not delta_table.exists(SCHEMA_HISTORY.at(stores.lake(config))):
        return []
    return [c["name"] for c in json.loads(newest_list(spark, config, source, name) or "[]") if c["key"]]
