"""Tables kept beside the snapshots, for the tables of the source that ask for them: histories, typed changes.

Kept up after the snapshots, from the same changes, each kind with a checkpoint of its own. A batch is added where the
kind can add it. Anything else (DDL, a snapshot that was made anew, …) makes the table anew from the changelog: it is
what all changes in their order make, so it is the same however they came.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import batches, delta_table, stores
from cdc_platform.lake import beside as noted
from cdc_platform.lake.store import File, Store
from cdc_platform.results import Stopwatch
from cdc_platform.snapshots import state
from cdc_platform.snapshots.apply import beside as written
from cdc_platform.snapshots.apply import prepare
from cdc_platform.snapshots.batch_tables import AffectedTable, affected_by, of_table
from cdc_platform.snapshots.rebuild import every_change
from cdc_platform.snapshots.schema.columns import RESERVED, TableColumn, columns_of
from cdc_platform.snapshots.schema.history import History
from cdc_platform.snapshots.table_batch import column_lists, merged_list, misfit, misfit_of, with_older
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import BESIDE_STATE, CHANGELOG, CHECKPOINT, Name, Table

log, progress = logging.getLogger(__name__), logging.getLogger("cdc_platform.run")


@dataclass(frozen=True, slots=True)
class Kind:
    """What is kept. name: among `lake.beside.KINDS`. table: the Delta table of a source's table. all: its rows from all
    changes of a table, as rows of today; `told_keys`: `key` tells the key of every one; raises TableStopped where they
    can't be made. add: brings a batch into the table at a place, which is whole up to there; False: it has to be made
    anew. form: a higher one for each mend of what was written before, for tables of another one are made anew."""

    name: str
    table: Callable[[str, Name, list[TableColumn]], Table]
    all: Callable[["Changes", bool], DataFrame]
    add: Callable[["Changes", AffectedTable, Store], bool]
    form: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """CHANGELOG rows of one table, with upcast.UNTOLD where DDL made something else of them, and its columns. target:
    its snapshot."""

    source: str
    name: Name
    rows: DataFrame
    columns: list[TableColumn]
    target: Target

    @property
    def keyed(self) -> bool:
        """Whether the table has a key."""
        return any(c.key for c in self.columns)


def keep(
    spark: SparkSession, config: Config, source: Source, history: History, tables: state.Tables, kind: Kind
) -> list[Name]:
    """Brings a source's tables of a kind up to what the changelog has. tables: the present state of its snapshots,
    which are up to date. Returns those that changed. Raises nothing of its own: a table that can't be made is left out,
    the log and BESIDE_STATE tell why, and the next run tries again."""
    return _Keeper(spark, config, source, history, tables, kind).run()


@dataclass(slots=True)
class _Keeper:
    spark: SparkSession
    config: Config
    source: Source
    history: History
    tables: state.Tables
    kind: Kind
    made: set[Name] = field(default_factory=set)
    changed: set[Name] = field(default_factory=set)
    failed: dict[Name, str] = field(default_factory=dict)

    def run(self) -> list[Name]:
        asked = partial(noted.KINDS[self.kind.name].asked, self.source.tables)
        wanted = {n for n, t in self.tables.items() if t["state"] == "live" and asked(*n)}
        delta_sql.ensure(BESIDE_STATE, BESIDE_STATE.at(stores.lake(self.config)))
        states = noted.States(self.config, self.source, self.kind.name)
        before = states.in_state(noted.KEPT)
        there = sorted(wanted & before)
        fit = delta_sql.ask_parallel(stores.lake(self.config), [partial(self._fits, n) for n in there])
        going_on = {n for n, fits in zip(there, fit, strict=True) if fits}
        # What isn't kept any more is noted before batches pass that it will lack, what is new when it is whole.
        states.note(
            dict.fromkeys(states.in_state(noted.KEPT, noted.LACKING) - wanted, (noted.LEFT, None))
            | dict.fromkeys(wanted & before - going_on, (noted.LACKING, noted.ANEW))
        )
        for name in sorted(wanted - going_on):
            self.anew(name)
        self._batches(wanted)
        failed = {name: (noted.LACKING, why) for name, why in self.failed.items()}
        states.note(dict.fromkeys(wanted, (noted.KEPT, None)) | failed)
        return sorted(self.changed)

    def path(self, name: Name) -> Store:
        return noted.KINDS[self.kind.name].path.of(stores.lake(self.config), self.source.name, name)

    def _batches(self, wanted: set[Name]) -> None:
        path, much = CHANGELOG.at(stores.lake(self.config)), self.source.max_bytes_per_batch
        checkpoint = CHECKPOINT.at(stores.lake(self.config), room=self.kind.name, source=self.source.name)
        plan = self.history.plan()

        def each(spark: SparkSession, files: list[File], _batch_id: int) -> None:
            left = wanted - self.made - self.failed.keys()  # these are from the whole changelog
            if not left:
                return
            rows = delta_sql.rows_of(spark, path, files, source=self.source.name)
            lists = column_lists(self.config, self.source, found := affected_by(rows))
            work: list[Callable[[], None]] = []
            again: set[Name] = set()
            for t in found:
                if plan.old(t.name, t.low):
                    again |= {t.name, *(c.today for c in plan.spans[t.name] if c.today)} & left
                elif t.name in left:
                    work.append(partial(self._bring, rows.where(of_table(*t.name)), t, merged_list(t, lists)))
            delta_sql.run_parallel(work)
            for name in sorted(again):
                self.anew(name)

        batches.for_each(self.spark, path, much, checkpoint, each, source=self.source.name)

    def _fits(self, name: Name) -> bool:
        """Whether a table is there, and is of the snapshot as it is now: of its columns, and not made anew since."""
        if not (made := written.shape_of(self.path(name))):
            return False
        since, columns = json.loads(made)
        snapshot = delta_sql.schema(self._target(name).snapshot)
        there = {f.name: f.dataType.simpleString() for f in snapshot if f.name not in RESERVED}
        return since == self._since(name) and {c[0]: c[1] for c in columns} == there

    def _target(self, name: Name) -> Target:
        return Target.of(self.config, self.source.name, *name)

    def _since(self, name: Name) -> list[Any]:
        """What makes all rows of a table others: how often its snapshot was made anew, and the DDL that it has seen."""
        names = set(self.history.full.names_of(name))
        of = (s.effect for s in self.history.full.steps)
        seen = sum(not names.isdisjoint((e.before, e.after)) for e in of)
        return [self.tables[name]["rebuild"], seen, *([self.kind.form] if self.kind.form else ())]

    def _columns(self, name: Name, told: str | None, made: str | None = None) -> list[TableColumn]:
        """told: as changes tell them; None: they tell none, as TRUNCATE and images of a part of the row do. made: the
        shape of the table: with its columns of which the changes tell all but some (they vanished, and no DDL told it).
        Raises TableStopped."""
        history = self.history.full
        if not (text := told or history.columns(name) or history.last_listed(name)):
            return []
        columns = columns_of(self.source, name, text)
        if not made or made == written.shape(columns, self._since(name)):
            return columns
        older = columns_of(self.source, name, with_older([text, *reversed(history.lists_of(name))]))
        return written.as_made(made, columns, older)

    def _bring(self, rows: DataFrame, touched: AffectedTable, told: str | None) -> None:
        """The changes of one table in a batch."""
        name, path = touched.name, self.path(touched.name)
        try:
            made = written.shape_of(path)
            columns = self._columns(name, told, made)
            if not columns or written.shape(columns, self._since(name)) != made:
                return self.anew(name)
            added = self.kind.add(Changes(self.source.name, name, rows, columns, self._target(name)), touched, path)
        except TableStopped as why:
            return self._left_out(name, why.reason)
        except (PySparkException, Py4JError) as error:  # `anew` finds out whether it is a value, and which
            log.warning("%s of %s: %s", self.kind.name, ".".join(name), _first_line(error))
            added = False
        if not added:
            return self.anew(name)
        self.changed.add(name)
        try:
            prepare.put_together(self.spark, path)
        except (PySparkException, Py4JError) as error:  # its rows are there, in more files
            log.warning("%s of %s: %s", self.kind.name, ".".join(name), _first_line(error))
        return None

    def anew(self, name: Name) -> None:
        """A table from the whole changelog."""
        if name in self.made or name in self.failed:
            return
        watch, text = Stopwatch(), f"{self.kind.name} of {self.source.name}/{'.'.join(name)}"
        progress.info("%s: it is made from the changelog", text)
        try:
            found = every_change(self.spark, self.config, self.source, self.history, name, untold=True)
            if not (columns := self._columns(name, found.columns)):
                raise TableStopped(self.source.name, name, "no list of its columns is known")
            mine = Changes(self.source.name, name, found.rows.where(of_table(*name)), columns, self._target(name))
            self._replace(mine, self.kind.all(mine, found.touched is not None and found.touched.told_keys))
        except TableStopped as why:
            self._left_out(name, why.reason)
            return
        progress.info("%s: made in %.1f s", text, watch.seconds)
        self.made.add(name)
        self.changed.add(name)

    def _replace(self, of: Changes, rows: DataFrame) -> None:
        """Raises TableStopped where that can't be done: a value doesn't fit its column, which the snapshot doesn't hold
        any more; a property that a reader has set refuses it; no room is left."""
        table = self.kind.table(of.source, of.name, of.columns)
        made = written.shape(of.columns, self._since(of.name))
        try:
            written.replace(self.spark, self.path(of.name), table, of.columns, rows, made)
        except (PySparkException, Py4JError) as error:
            why = misfit(error) or _misfit_of(rows)
            said = f"a value doesn't fit its column: {why!r}" if why else _first_line(error)
            raise TableStopped(of.source, of.name, said) from None

    def _left_out(self, name: Name, why: str) -> None:
        log.error("%s of %s: %s", self.kind.name, ".".join(name), why)
        self.failed[name] = why
        try:
            if delta_table.exists(path := self.path(name)):
                written.not_whole(self.spark, path)
        except (PySparkException, Py4JError) as error:
            log.error("%s of %s: %s", self.kind.name, ".".join(name), _first_line(error))


def _misfit_of(rows: DataFrame) -> str | None:
    try:
        return misfit_of(rows, rows.columns)
    except (PySparkException, Py4JError):
        return None


def _first_line(error: Exception) -> str:
    return repr((_cause(error) or str(error)).partition("\n")[0])


def _cause(error: Exception) -> str | None:
    """What Java says: the error's own first line only names the call that failed. None: nothing, or its process is
    gone."""
    try:
        java = getattr(error, "java_exception", None)
        while java is not None and java.getCause() is not None:
            java = java.getCause()
        return None if java is None else str(java.toString())
    except (Py4JError, OSError):
        return None
