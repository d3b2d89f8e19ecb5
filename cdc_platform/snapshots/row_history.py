"""Versions of rows of the tables that `tables.history` names: `history/<source>/<db>[/<schema>]/<table>`.

Kept up with the snapshots, from the same changes. A batch adds to a history where its changes are newer than all that
the history has of their rows. Anything else (an older change, a TRUNCATE, DDL, a snapshot that was made anew, a table
without a key) makes the table's history anew from the changelog: it is what all changes in their order make, so it is
the same however they came.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.table_rules import Chosen, Rules
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import batches, stores
from cdc_platform.lake.store import File, Store
from cdc_platform.snapshots import state
from cdc_platform.snapshots.apply import prepare
from cdc_platform.snapshots.apply import versions as written
from cdc_platform.snapshots.batch_tables import Touched, of_table, touched_by
from cdc_platform.snapshots.rebuild import every_change
from cdc_platform.snapshots.reduce import versions
from cdc_platform.snapshots.reduce.fold import key_names, profile
from cdc_platform.snapshots.schema.columns import RESERVED, TableColumn, columns_of
from cdc_platform.snapshots.schema.history import History
from cdc_platform.snapshots.table_batch import column_lists, merged_list
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHANGELOG, CHECKPOINT, HISTORY_PATH, Name, as_name

log = logging.getLogger(__name__)

ROOM = "history"


def keep(spark: SparkSession, config: Config, source: Source, history: History, tables: state.Tables) -> list[Name]:
    """Brings the histories of a source up to what the changelog has. tables: the present state of its snapshots, which
    are up to date. Returns the tables whose histories changed. Raises nothing of its own: a history that can't be made
    is left out, the log tells why, and the next run tries again."""
    if not source.tables.history:
        return []
    return _Keeper(spark, config, source, history, tables).run()


@dataclass(slots=True)
class _Keeper:
    spark: SparkSession
    config: Config
    source: Source
    history: History
    tables: state.Tables
    made: set[Name] = field(default_factory=set)
    changed: set[Name] = field(default_factory=set)

    def run(self) -> list[Name]:
        wanted = {n for n, t in self.tables.items() if t["state"] == "live" and self.source.tables.has_history(*n)}
        kept = Chosen(self.spark, self.config, self.source, ROOM)
        before = {as_name(*json.loads(n)) for n in kept.done[-1].include} if kept.done else set[Name]()
        # What isn't kept any more is noted before batches pass that it will lack, what is new when it is whole.
        going_on = wanted & before
        _note(kept, going_on)
        for name in sorted(wanted):
            if name not in going_on or not self._fits(name):
                self.anew(name)
        self._batches(wanted)
        _note(kept, {n for n in wanted if n in self.made or n in going_on})
        return sorted(self.changed)

    def path(self, name: Name) -> Store:
        return HISTORY_PATH.of(stores.lake(self.config), self.source.name, name)

    def _batches(self, wanted: set[Name]) -> None:
        path, much = CHANGELOG.at(stores.lake(self.config)), self.source.max_bytes_per_batch
        checkpoint = CHECKPOINT.at(stores.lake(self.config), room=ROOM, source=self.source.name)
        plan = self.history.plan()

        def each(spark: SparkSession, files: list[File], _batch_id: int) -> None:
            left = wanted - self.made  # those are from the whole changelog
            if not left:
                return
            rows = delta_sql.rows_of(spark, path, files, source=self.source.name)
            lists = column_lists(self.config, self.source, found := touched_by(rows))
            for t in found:
                if not plan.old(t.name, t.low):
                    if t.name in left:
                        self._brought(rows.where(of_table(*t.name)), t, merged_list(t, lists))
                    continue
                for name in sorted({t.name, *(c.today for c in plan.spans[t.name])} & left):
                    self.anew(name)

        batches.for_each(self.spark, path, much, checkpoint, each, source=self.source.name)

    def _fits(self, name: Name) -> bool:
        """Whether a history is there, and is of the snapshot as it is now: of its columns, and not made anew since."""
        if (made := written.shape_of(self.path(name))) is None:
            return False
        since, columns = json.loads(made)
        snapshot = delta_sql.schema(Target.of(self.config, self.source.name, *name).snapshot)
        there = {f.name: f.dataType.simpleString() for f in snapshot if f.name not in RESERVED}
        return since == self._since(name) and {c[0]: c[1] for c in columns} == there

    def _since(self, name: Name) -> list[Any]:
        """What makes all rows of a table others: how often its snapshot was made anew, and the DDL that it has seen."""
        names = set(self.history.full.names_of(name))
        of = (s.effect for s in self.history.full.steps)
        return [self.tables[name]["rebuild"], sum(not names.isdisjoint((e.before, e.after)) for e in of)]

    def _brought(self, rows: DataFrame, touched: Touched, told: str | None) -> None:
        """The changes of one table in a batch."""
        name, path = touched.name, self.path(touched.name)
        columns = columns_of(self.source, name, told) if told else []
        made = written.shape(columns, self._since(name))
        if not any(c.key for c in columns) or made != written.shape_of(path):
            return self.anew(name)
        figures = profile(rows, columns, told_keys=touched.told_keys)
        if figures.truncated_at is not None or figures.lost_moves or figures.no_key:
            return self.anew(name)
        keys = key_names(columns)
        new = versions.typed_steps(rows, columns, figures).localCheckpoint()
        there = written.known(self.spark, path, columns)
        if not _older(new, there, keys).isEmpty():
            return self.anew(name)
        last = there.where("_cdc_order_to IS NULL").join(new.select(*keys).distinct(), keys, "left_semi")
        written.going_on(versions.going_on(new, last, columns), path, columns)
        prepare.put_together(self.spark, path)
        self.changed.add(name)
        return None

    def anew(self, name: Name) -> None:
        """A table's history from the whole changelog."""
        if name in self.made:
            return
        try:
            found = every_change(self.spark, self.config, self.source, self.history, name)
            if found.touched is None or found.columns is None:
                return
            columns = columns_of(self.source, name, found.columns)
            if own := {c.name.lower() for c in columns} & set(versions.VERSION):
                raise TableStopped(self.source.name, name, f"its column {min(own)!r} has the name of a history's own")
            all_ = self._all(found.rows, found.touched, columns)
        except TableStopped as why:
            log.error("history of %s: %s", ".".join(name), why.reason)
            return
        made = written.shape(columns, self._since(name))
        written.replace(self.spark, self.path(name), self.source.name, name, columns, all_, made)
        self.made.add(name)
        self.changed.add(name)

    def _all(self, rows: DataFrame, touched: Touched, columns: list[TableColumn]) -> DataFrame:
        mine = rows.where(of_table(*touched.name))
        if not any(c.key for c in columns):
            return versions.of_rows(mine, columns)
        return versions.of_keys(mine, columns, profile(mine, columns, told_keys=touched.told_keys))


def _note(kept: Chosen, names: Iterable[Name]) -> None:
    """Which tables have a history that has all changes so far."""
    told = tuple(sorted(json.dumps(list(n)) for n in names))
    if not kept.done or kept.done[-1].include != told:
        kept.note(Rules(kept.done[-1].number + 1 if kept.done else 0, told, ()), "done")


def _older(new: DataFrame, there: DataFrame, keys: list[str]) -> DataFrame:
    """Versions that aren't older than all new changes of their row."""
    first = new.groupBy(*keys).agg(F.min("order_key").alias("_first"))
    last = there.select(*keys, F.coalesce("_cdc_order_to", "_cdc_order").alias("_last"))
    return last.join(first, keys).where("_last >= _first")
