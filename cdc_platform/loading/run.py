"""`load`: whole tables from the source's server, chunk by chunk, put in order among the feed's changes."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import msgspec
from pymysql.cursors import SSCursor
from pyspark.sql import SparkSession

from cdc_platform import chain
from cdc_platform.config import Config, Source
from cdc_platform.errors import ConfigError
from cdc_platform.formats.events import file_number
from cdc_platform.formats.loaded import LogPosition, Record
from cdc_platform.lake import beside, delta_table, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.landing import run as landing
from cdc_platform.loading import CHUNK_ROWS, land
from cdc_platform.loading.errors import EvidencePurged, LoadRefused
from cdc_platform.loading.images import check_whole
from cdc_platform.loading.proof import Evidence, evidence
from cdc_platform.loading.table import Table, table_of, there, untold
from cdc_platform.loading.view import Open, opened, who
from cdc_platform.reconcile import notes
from cdc_platform.reconcile.server import Server
from cdc_platform.results import Stopwatch
from cdc_platform.spark.session import leased
from cdc_platform.tables import name_of
from cdc_platform.units import count

_GOES_ON_S = 86_400
_UNTOLD = (
    "no change of it has told which columns the feed has: one that the feed leaves out has the server's value now, and "
    "keeps it when it changes"
)
WHOLE = "whole"
Told = Callable[[str], None]


@dataclass(slots=True)
class TableLoad:
    """One table. load: its number (epoch of the log, offset of its first record). first, last: places in the server's
    log of its first and last chunk. resumed: whether an interrupted load went on. rows, chunks: of the whole load, with
    what was read before it was interrupted. state, reason: of its snapshot afterwards. warning: what may be wrong."""

    table: str
    load: str
    first: str
    last: str
    rows: int = 0
    chunks: int = 0
    resumed: bool = False
    seconds: float = 0.0
    state: str | None = None
    reason: str | None = None
    warning: str | None = None

    def data(self) -> dict[str, Any]:
        """As --json tells it."""
        return asdict(self)


def load(
    spark: SparkSession,
    config: Config,
    source: Source,
    server: Server,
    names: Sequence[tuple[str, str]],
    *,
    chunk_rows: int = CHUNK_ROWS,
    end_history: bool = False,
    told: Told = lambda _: None,
) -> list[TableLoad]:
    """Loads tables (of `named`) whole; then brings the snapshots up to date. What was interrupted goes on. end_history:
    histories and typed changes of these tables may begin anew. Raises LoadRefused, ConfigError, SourceUnreachable,
    SourceRefused, RunInProgress, and what the stages raise."""
    with source_lock(config, source) as lease, leased(spark, lease):

        def catch_up() -> None:
            told("catching up with the feed")
            for stage in chain.STAGES.values():
                stage(spark, config, source)

        catch_up()
        asked = [partial(table_of, config, source, server, db, name) for db, name in names]
        tables = [table() for table in asked]  # what can't be loaded is refused before any lands
        check_whole(source, server, tables)
        if not end_history:
            _ends_nothing(config, source, names, {t.text for t in tables if t.key})
        seen = [notes.seen(config, source, name) for name in names]
        found = [_loaded(config, source, server, table(), chunk_rows, catch_up, told) for table in asked]
        told("bringing the snapshots up to date")
        follow(spark, config, source)
    states = {name_of(r): r for r in queries.table_states(config) if r["source"] == source.name}
    for one, name, before in zip(found, names, seen, strict=True):
        state = states.get(source.tables.routed(*name)) or {}
        one.state, one.reason = state.get("state"), state.get("reason")
        if one.state == "live" and not one.resumed:  # of one that went on some rows had been read earlier
            notes.note_load(config, source, name, one.rows, before)
    return found


def _ends_nothing(config: Config, source: Source, names: Iterable[tuple[str, str]], with_key: Collection[str]) -> None:
    """Raises LoadRefused where something is kept beside a table that begins anew at a load, as at DROP TABLE and
    CREATE TABLE. with_key: tables that `reconcile --repair` can do instead."""
    lake = stores.lake(config)
    targets = ((".".join(name), source.tables.routed(*name)) for name in names)
    ended = [
        (kind, name)
        for name, target in targets
        for kind, of in beside.KINDS.items()
        if of.asked(source.tables, *target) and delta_table.exists(of.path.of(lake, source.name, target))
    ]
    if ended:
        told = ", ".join(f"{kind} of {name}" for kind, name in ended)
        problem = f"a load ends {told}: they begin anew at its place, and what was before it is gone there"
        choices = ["--end-history (end_history in Dagster) to let it"]
        if repairable := ", ".join(dict.fromkeys(name for _, name in ended if name in with_key)):
            choices.append(f"`reconcile --repair` of {repairable}, which ends nothing")
        raise LoadRefused(source.name, problem, choices)


def named(source: Source, server: Server, texts: Iterable[str]) -> list[tuple[str, str]]:
    """Tables as people write them: db.table, each once. Before Spark is started: raises ConfigError where one isn't
    followed or the server has none of that name, SourceUnreachable."""
    split = [(db, name) for db, _, name in (text.partition(".") for text in dict.fromkeys(texts))]
    for db, name in split:
        if not (db and name):
            raise ConfigError("DB.TABLE", f"{'.'.join(filter(None, (db, name)))!r} is no table", ["db.table"])
        if not source.tables.wanted(db, name):
            raise ConfigError(f"{db}.{name}", f"{source.name} doesn't follow it", [*source.tables.include][:20])
    for db, name in split:
        there(server, db, name)
    return split


def follow(spark: SparkSession, config: Config, source: Source) -> None:
    """What was landed, accounted for and through the stages behind landing."""
    landing.account(spark, config, source)
    for stage in (chain.reassemble, chain.decode, chain.unify, chain.snapshot):
        stage(spark, config, source)


def _loaded(
    config: Config,
    source: Source,
    server: Server,
    table: Table,
    chunk_rows: int,
    catch_up: Callable[[], None],
    told: Told,
) -> TableLoad:
    """One table into landing."""
    watch, of, path = Stopwatch(), evidence(config, source), land.path_of(config, source)
    loading = _Loading(source, server, table, of, path, chunk_rows)
    before = loading.interrupted()
    done = TableLoad(table.text, "", "", "", resumed=before is not None)
    if untold(config, source, table.db, table.name):
        done.warning = _UNTOLD
        told(f"{table.text}: {_UNTOLD}")
    while True:
        try:
            before = loading.chunk(before) if table.key else loading.at_once()
        except EvidencePurged:  # a long load: the feed has come on
            catch_up()
            if (newer := evidence(config, source)) == loading.of or newer.epoch != loading.of.epoch:
                raise
            loading = replace(loading, of=newer, proven=False)
            continue
        loading = replace(loading, proven=True)
        at = shown(before.at)
        done.load, done.first, done.last = before.load, before.begin, at
        done.rows, done.chunks, done.seconds = before.loaded or 0, before.chunk + 1, watch.seconds
        told(f"{table.text}: {count(done.rows, 'row')} in {count(done.chunks, 'chunk')}, at {at}")
        if before.last:
            return done


def _position(at: LogPosition) -> tuple[int, int]:
    return file_number(at.file) or -1, at.pos


def shown(at: LogPosition) -> str:
    """file:position."""
    return f"{at.file}:{at.pos}"


@dataclass(frozen=True, slots=True)
class _Loading:
    """A table on its way."""

    source: Source
    server: Server
    table: Table
    of: Evidence
    path: Store
    chunk_rows: int
    proven: bool = False
    """Whether this process has found the evidence in the server's log."""

    def interrupted(self) -> Record | None:
        """The last record of a load that goes on; None: one begins. It goes on at the server that it began at, in
        its log, of the same table and columns, within a day: what was lost since its first chunks were read would stay
        lost. Of one that an earlier version of the platform began nobody knows how many rows it has read."""
        last = land.newest(self.path, self.of.epoch, self.table.db, self.table.name, WHOLE)
        if last is None or last.last or last.next is None or last.loaded is None:
            return None
        if last.columns != list(self.table.columns) or last.made not in (None, self.table.made):
            return None
        if not self.table.goes_on(last.next):  # its rows were in another order
            return None
        if time.time() - last.time_us / 1e6 >= _GOES_ON_S:
            return None
        with self.server.connected() as cursor:
            return last if who(cursor) == last.server else None

    def chunk(self, before: Record | None) -> Record:
        """The next one, landed; its last record. Raises LoadRefused."""
        with opened(self.server, self.of.again if self.proven else self.of) as view:
            self._same_table()
            rows = read(view, self.table.select(before.next if before else None, self.chunk_rows))
            self._same_table()  # the view holds them, once it was read
        again = ["to load again: it begins anew"]
        if before and view.server["id"] != before.server["id"]:
            raise LoadRefused(
                self.source.name, f"the load began at server {before.server['id']}", again, retriable=True
            )
        if before and self.proven and (view.server != before.server or _position(view.at) < _position(before.at)):
            raise LoadRefused(self.source.name, "the server or its log was begun anew", again, retriable=True)
        record = self._record(view, before, rows, last=len(rows) < self.chunk_rows)
        land.land(self.path, self.source, self.of.epoch, land.parted(record))
        return msgspec.structs.replace(record, rows=[])

    def at_once(self) -> Record:
        """All of a table without a key, of one view, in one commit: of rows that can't be told apart none may come by
        both the load and the feed. Raises LoadRefused."""
        with opened(self.server, self.of, exact=self.table.text) as view:
            self._same_table()
            last: list[Record] = []
            land.land(self.path, self.source, self.of.epoch, self._records(view, last))
        return last[0]

    def _records(self, view: Open, last: list[Record]) -> Iterator[Record]:
        """last: gets the last one."""
        pieces, before = pieces_of(view, self.table.select(None, 0), self.chunk_rows), None
        rows, more = next(pieces, []), next(pieces, None)
        while more is not None:
            before = self._record(view, before, rows, last=False)
            yield from land.parted(before)
            rows, more = more, next(pieces, None)
        self._same_table()  # the view holds them, once it was read
        record = self._record(view, before, rows, last=True)
        last.append(msgspec.structs.replace(record, rows=[]))
        yield from land.parted(record)

    def _record(self, view: Open, before: Record | None, rows: list[tuple[Any, ...]], *, last: bool) -> Record:
        table, width = self.table, len(self.table.columns)
        return Record(
            load=before.load if before else f"{self.of.epoch}.{land.next_offset(self.path, self.of.epoch)}",
            kind=WHOLE,
            server=view.server,
            at=view.at,
            time_us=view.time_us,
            db=table.db,
            table=table.name,
            columns=list(table.columns),
            after=self.of.newest,
            begin=before.begin if before else shown(view.at),
            chunk=before.chunk + 1 if before else 0,
            last=last,
            next=None if last or not table.key else [str(t) for t in rows[-1][width:]],
            rows=table.landed([row[:width] for row in rows]),
            made=table.made,
            loaded=len(rows) + ((before.loaded or 0) if before else 0),
        )

    def _same_table(self) -> None:
        table = self.table
        if tuple(self.server.columns(table.db, table.name)) != table.every:
            problem = f"the columns of {table.text} change while it is loaded"
        elif self.server.made(table.db, table.name) != table.made:
            problem = f"{table.text} was altered while it was loaded, or another table took its name"
        else:
            return
        raise LoadRefused(self.source.name, problem, ["to load again: it begins anew"], retriable=True)


def read(view: Open, sql: str) -> list[tuple[Any, ...]]:
    """Rows as the server's texts, and bytes."""
    view.cursor.connection.decoders = {}
    view.cursor.execute(sql)
    return list(view.cursor.fetchall())


def pieces_of(view: Open, sql: str, rows: int) -> Iterator[list[tuple[Any, ...]]]:
    """The same, so many at once, while the server sends them."""
    view.cursor.connection.decoders = {}
    with view.cursor.connection.cursor(SSCursor) as cursor:
        cursor.execute(sql)
        while some := list(cursor.fetchmany(rows)):
            yield some
