"""`shadow cutover` between feeds of two formats, neither of which can go on where the other ends: the tables of one
source take the place of the other's, and those theirs.

Both sources stay what they are, with their landing, changelog, history and certificates: what was landed is decoded as
before. Only the folders that their snapshots and tombstones are in are exchanged (lake/folders.py), and what is in
these. The rows are written first, into files that no table names. One commit of SNAPSHOT_FOLDERS decides it; behind it
each table takes its new rows with one commit, also where this process has been killed (lake/exchange.py).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from cdc_platform import chain
from cdc_platform.lake import commits, delta_table, exchange, folders, queries, stores, watermarks
from cdc_platform.lake.data_files import Sink, Written, leaves
from cdc_platform.lake.exchange import Exchanged
from cdc_platform.lake.store import Store
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.reading import catalog
from cdc_platform.results import Stopwatch
from cdc_platform.shadow import pairing, point, ready
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.shadow.ready import Way
from cdc_platform.snapshots.schema import features
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.spark.session import leased
from cdc_platform.tables import CHANGELOG, CUTS, SNAPSHOT_FOLDERS, WATERMARKS, Name

_LATER = "`cdc-platform run`, then this once more"
_OF_LOG = ("delta.columnMapping.", "delta.feature.", "delta.min")
"""Properties that say what a log is like, not what its table is to be."""


@dataclass(frozen=True)
class Handover(Way):
    """By the other's tables."""

    def plan(self) -> dict[str, Any]:
        """What would be done, by the last comparison: of, by, done (whether it is done already), folders (source → that
        of its tables then), tables (how many have rows), and where it isn't done Last.data. Changes nothing. Raises
        ShadowRefused."""
        if self._done():
            return self._result(done=True)
        self._check_config()
        ready.check_lake(self.config, self.pair)
        last = ready.last(self.config, self.pair)
        self._check(last.rows)
        return {**self._result(done=False), **last.data()}

    def do(self, spark: SparkSession) -> dict[str, Any]:
        """Brings both up to date, compares all of their tables, and does it. Returns what `plan` does, with seconds.
        Raises ShadowRefused, RunInProgress, and what the stages raise."""
        watch = Stopwatch()
        with ExitStack() as stack:
            leases = [(s, stack.enter_context(source_lock(self.config, s))) for s in (self.of, self.by)]
            if not self._done():
                self._check_config()
                rows = ready.bring(spark, self.config, self.pair, leases, self.told)
                self._check(rows)
                self._check_unsettled(spark, rows)
                with leased(spark, leases[1][1]):
                    self._exchange(spark)
            for source, lease in leases:  # their cuts, limits and catalog
                with leased(spark, lease):
                    chain.STAGES["snapshots"](spark, self.config, source)
        return {**self._result(done=True), "seconds": watch.seconds}

    def _done(self) -> bool:
        return folders.was_exchanged(stores.lake(self.config), self.by.name, self.of.name)

    def _result(self, *, done: bool) -> dict[str, Any]:
        now = {s.name: folders.folder(stores.lake(self.config), s.name) for s in (self.of, self.by)}
        then = now if done else dict(zip(now, reversed(now.values()), strict=True))
        return {"of": self.of.name, "by": self.by.name, "done": done, "folders": then, "tables": len(self._names())}

    # -- whether it can be done ----------------------------------------------------------------------------

    def _check(self, rows: dict[Name, dict[str, Any]]) -> None:
        """rows: of a comparison that found nothing wrong (ready.py)."""
        self._check_names()
        self._check_left()
        self._check_ahead(rows)
        for one in self._pairs():
            one.check(self.refused)

    def _check_config(self) -> None:
        """Raises ShadowRefused where the tables of the one would be made otherwise than those of the other."""
        ready.check_pair(self.pair)
        if self.of.tables != self.by.tables:
            raise self.refused("the sources have different `tables` settings", "the same `tables` for both")

    def _check_names(self) -> None:
        for one in pairing.tables(self.config, self.pair):
            if one.by not in (None, one.name):
                raise self.refused(f"{'.'.join(one.name)} is called {'.'.join(one.by)} in {self.by.name}")

    def _check_left(self) -> None:
        """Raises ShadowRefused where rows that nobody compares would go with a folder."""
        lake = stores.lake(self.config)
        for source in (self.of, self.by):
            for name, told in sorted(catalog.states(lake, source.name).items()):
                place = folders.snapshot(lake, source.name, name.name)
                if told.state == "left_out" and delta_table.exists(place):
                    problem = f"{name.text} is left out by the rules of {source.name}, and its rows of before are kept"
                    choices = ["to follow it again", f"to remove {place.uri()}"]
                    raise self.refused(problem, *choices)

    def _check_ahead(self, rows: dict[Name, dict[str, Any]]) -> None:
        """Raises ShadowRefused where the tables of `by` may lack something that those of `of` have: rows that can't be
        judged yet are newer there, unless all that `of` has was committed before the time up to which `by` is complete.
        An event tells when its statement ran, at most `settle_s` before its commit."""
        if not (open_ := ready.unsettled(rows)):
            return
        newest, complete = self._newest(), watermarks.complete(WATERMARKS.at(stores.lake(self.config)), self.by.name)
        up_to = complete and complete.source_time
        if newest is None or up_to is None or up_to <= newest + timedelta(seconds=self.pair.settle_s):
            problem = f"rows of {'.'.join(open_[0])} aren't settled, and {self.by.name} isn't known to have all that "
            raise self.refused(f"{problem}{self.of.name} has", _LATER)

    def _check_unsettled(self, spark: SparkSession, rows: dict[Name, dict[str, Any]]) -> None:
        """Raises ShadowRefused where a row that couldn't be judged differs, and `by` has nothing newer of it than all
        that `of` has: `by` has all of that, so both should have the same row. Some feeds tell seconds."""
        if (open_ := ready.unsettled(rows)) and (newest := self._newest()):
            at = point.before(self.config, self.pair, newest.replace(microsecond=0) + timedelta(seconds=1))
            ready.check_unsettled(spark, self.config, self.pair, open_, at)

    def _newest(self) -> datetime | None:
        """When the newest change of `of` was made; None: not every change tells that."""
        told = (
            "SELECT max(source_time) AS at, bool_or(source_time IS NULL) AS untold FROM t "
            f"WHERE source = {queries.text(self.of.name)}"
        )
        rows = queries.query(told, t=CHANGELOG.at(stores.lake(self.config)))
        return None if not rows or rows[0]["untold"] else rows[0]["at"]

    # -- doing it ------------------------------------------------------------------------------------------

    def _names(self) -> list[Name]:
        """Tables that are kept up to date, in both; of dropped ones nothing is left to exchange."""
        lake = stores.lake(self.config)
        told = [catalog.states(lake, s.name).items() for s in (self.of, self.by)]
        return sorted({n.name for of in told for n, found in of if found.state == "live"})

    def _pairs(self) -> "list[_TablePair]":
        lake, found = stores.lake(self.config), []
        for location in folders.EXCHANGED:
            for name in self._names():
                pair = [folders.table_folder(lake, location, s.name, name) for s in (self.of, self.by)]
                if any(map(delta_table.exists, pair)):
                    found.append(_TablePair(name, pair[0], pair[1]))
        return found

    def _exchange(self, spark: SparkSession) -> None:
        """Raises ShadowRefused where another process made an exchange meanwhile."""
        lake = stores.lake(self.config)
        self.told("writing the tables")
        delta_sql.ensure(SNAPSHOT_FOLDERS, SNAPSHOT_FOLDERS.at(lake))
        number, work = folders.next_number(lake), [partial(one.written, spark, lake) for one in self._pairs()]
        written = delta_sql.run_parallel(work)
        for source, side in ((self.by, 0), (self.of, 1)):  # who writes the folder from here on
            exchange.decide(lake, source.name, [tables[side] for tables in written], {}, number)
        if not folders.exchange(lake, number, self.of.name, self.by.name, self._newest_cut()):
            raise self.refused("another exchange was made at the same time", "this once more")
        self.told("exchanging the tables")
        for source in (self.by, self.of):
            exchange.finish(lake, source.name)

    def _newest_cut(self) -> int:
        lake, sources = stores.lake(self.config), (self.of, self.by)
        both = ", ".join(queries.text(s.name) for s in sources)
        rows = queries.query(f"SELECT max(cut) AS cut FROM t WHERE source IN ({both})", t=CUTS.at(lake))
        before = [folders.cuts_before(lake, s.name) for s in sources]
        return max(*before, int(rows[0]["cut"] or 0) if rows else 0)


@dataclass(frozen=True, slots=True)
class _TablePair:
    """Two tables that exchange their rows, of which one may not be there."""

    name: Name
    of: Store
    by: Store

    def check(self, refused: Callable[..., ShadowRefused]) -> None:
        """Raises what `refused` makes where they can't."""
        there = [path for path in (self.of, self.by) if delta_table.exists(path)]
        if odd := next((path for path in there if commits.live(path) is None), None):
            raise refused(f"{odd.uri()} has features of Delta that aren't kept to here")
        columns = [{f.name: f.dataType.simpleString() for f in delta_sql.schema(path)} for path in there]
        if columns[0] != columns[-1]:
            apart = sorted(c for c in {**columns[0], **columns[-1]} if columns[0].get(c) != columns[-1].get(c))
            raise refused(f"column {apart[0]} of {'.'.join(self.name)} isn't the same in both")

    def written(self, spark: SparkSession, lake: Store) -> tuple[Exchanged, Exchanged]:
        """The rows of each, in files for the other, which no log names."""
        for path, other in ((self.of, self.by), (self.by, self.of)):
            if not delta_table.exists(path):
                _make_like(spark, path, other)
        found = []
        for path, other in ((self.of, self.by), (self.by, self.of)):
            under = path.uri().removeprefix(f"{lake.uri()}/")
            found.append(Exchanged(under, {}, _rows_for(spark, path, other), news=True))
        return found[0], found[1]


def _make_like(spark: SparkSession, path: Store, other: Store) -> None:
    """An empty table with the columns and properties of another one."""
    schema, (_, properties, _) = delta_sql.schema(other), delta_table.protocol(other)
    names = [f.name for f in schema]
    kept_ = {k: v for k, v in properties.items() if not k.startswith(_OF_LOG)}
    columns = ", ".join(f"{delta_sql.quoted(f.name)} {f.dataType.simpleString()}" for f in schema)
    delta_sql.create(spark, path, columns, {**kept_, **features.at_creation(names)}, "")


def _rows_for(spark: SparkSession, path: Store, other: Store) -> list[Written]:
    """Files of a table with the rows of another one."""
    fields = delta_table.file_fields(path)
    schema = pa.schema(list(fields.values()))
    sink = Sink(path, schema, leaves(schema)[:32], ())
    rows = delta_sql.read(spark, other).select(*map(delta_sql.quoted, fields))
    make = partial(_as_in_files, delta_table.sink(path).schema, schema)
    written = arrow_tasks.partitions(rows, make, arrow_tasks.write, {"rows": sink}).written["rows"]
    return [file for file in written if file.rows]


def _as_in_files(given: pa.Schema, there: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in a table's columns → in its files' (a table may map their names, and those of their fields)."""
    for batch in arrow_tasks.conformed_to(given, batches):
        columns = [_renamed(column, field.type) for column, field in zip(batch.columns, there, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=there)


def _renamed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(type_):
        return column.cast(type_)
    fields = [column.field(i).cast(f.type) for i, f in enumerate(type_)]
    return pa.StructArray.from_arrays(fields, fields=list(type_), mask=column.is_null())
