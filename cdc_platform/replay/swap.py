"""A replay put in place of what is in use: all that the stages behind landing keep of the source, at one boundary.

Not a table by itself: snapshots are made again from the changelog, which is the order of all tables of a source, so a
snapshot alone would be undone by the next rebuild. What takes its place at once is the changelog with all that belongs
to it (lake/exchange.py); the snapshots, stale then, are made from it one after the other, as a rebuild makes them.
"""

from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform import tables
from cdc_platform.changelog import tellings
from cdc_platform.changes.files import CHANGE, events_sink
from cdc_platform.config import Config, Source
from cdc_platform.lake import batches, checkpoints, delta_table, exchange, stores
from cdc_platform.lake.exchange import Exchanged
from cdc_platform.snapshots import state
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import CHECKPOINT, Table, name_columns

AGAIN = "all of its source was decoded again; it is made anew from the changelog"
WITHOUT = "all of its source was decoded again, which gave no change of it: its rows are those of before"
_MADE = ("live", "stale")
"""States of tables whose snapshots are kept up to date."""
_KEPT = {
    tables.QUARANTINE.path: "room = 'envelopes'",
    tables.OFFSET_LEDGER.path: "room <> 'changelog'",
    tables.WATERMARKS.path: "scope = 'source'",
}
"""Rows that stages before the decoder wrote, or that are of no use but for the lake in use: they stay. So do
comparisons with the source, which see by TABLE_STATE that rows were made anew since."""
_OWN = (tables.CHANGES, tables.DDL_SEEN, tables.CONTEXTS)
_SHARED = (
    *(tables.CHANGELOG, tables.SCHEMA_HISTORY, tables.SCHEMA_CHANGES, tables.TYPES_KNOWN, tables.CONTROL_EVENTS),
    *(tables.QUARANTINE, tables.OFFSET_LEDGER, tables.LOG_EPOCHS, tables.LINEAGES, tables.TABLE_RULES),
    *(tables.DECODED_WITH, tables.TABLE_STATE, tables.BESIDE_STATE, tables.WATERMARKS),
)


def decide(spark: SparkSession, config: Config, source: Source, side: Config) -> None:
    """Writes the replay's rows beside those in use, and notes that they take their place: `exchange.finish` does it.
    The source's lease is held, and both lakes are as far."""
    work = [partial(_written, _Table(spark, config, side, source, table)) for table in (*_OWN, *_SHARED)]
    found = [done for done in delta_sql.run_parallel(work) if done is not None]
    exchange.decide(stores.lake(config), source.name, found, _batches(spark, config, source, side))


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of both lakes."""

    spark: SparkSession
    config: Config
    side: Config
    source: Source
    table: Table

    def at(self, config: Config) -> Any:
        """Where it is in a lake."""
        return self.table.at(stores.lake(config), format=self.source.format, source=self.source.name)

    def rows(self, config: Config) -> DataFrame | None:
        """The source's rows in a lake; None: the table isn't there."""
        path = self.at(config)
        if not delta_table.exists(path):
            return None
        rows = delta_sql.read(self.spark, path)
        return rows if self.table in _OWN else rows.where(F.col("source") == self.source.name)


def _written(of: _Table) -> Exchanged | None:
    """None: neither lake has the table."""
    new, before = of.rows(of.side), of.rows(of.config)
    if new is None and before is None:
        return None
    path = delta_sql.ensure(of.table, of.at(of.config))
    under = path.uri().removeprefix(f"{stores.lake(of.config).uri()}/")
    if of.table is tables.CHANGES:
        files = [] if new is None else tellings.newest_decodings(of.spark, of.at(of.side), events_sink(path, CHANGE))
        return Exchanged(under, {}, files)
    if of.table is tables.SCHEMA_CHANGES and new is not None and before is not None:
        new = _decided_as_before(new, before)
    parts = [] if new is None else [new]
    if before is not None and (kept := _KEPT.get(of.table.path)):
        parts.append(before.where(kept))
    if of.table is tables.TABLE_STATE:
        parts.append(_stale(of))
    partition = {} if of.table in _OWN else {"source": of.source.name}
    sink = delta_table.sink(path, **partition)
    files = []
    for rows in parts:
        some = rows if of.table is tables.CHANGELOG else rows.coalesce(1)
        make = partial(arrow_tasks.conformed_to, sink.schema)
        files += arrow_tasks.partitions(some, make, arrow_tasks.write, {"rows": sink}).written["rows"]
    return Exchanged(under, partition, [f for f in files if f.rows])


def _decided_as_before(new: DataFrame, before: DataFrame) -> DataFrame:
    """Decisions with the time at which the lake in use took them: by it they are before or after what was found of
    tables."""
    place = ("topic", "partition", "offset", "entry_index")
    then = before.groupBy(*(F.col(c).alias(f"_{c}") for c in place)).agg(F.min("at").alias("_at"))
    same = reduce(and_, (F.col(c).eqNullSafe(F.col(f"_{c}")) for c in place), F.col("topic").isNotNull())
    at = F.coalesce("_at", "at").alias("at")
    return new.join(F.broadcast(then), same, "left").select(*(at if c == "at" else c for c in new.columns))


def _stale(of: _Table) -> DataFrame:
    """TABLE_STATE rows by which the snapshots are to be made again; of tables whose state is the same, that it is."""
    before, now = (state.now(of.at(config), of.source) for config in (of.config, of.side))
    kept = {n: t["state"] for n, t in before.items()}
    same = {n for n, t in now.items() if t["state"] not in _MADE and t["state"] == kept.get(n)}
    outcomes = [(n, t["state"], t["reason"]) if n in same else (n, "stale", AGAIN) for n, t in now.items()]
    gone = [n for n in before if n not in now]
    outcomes += [(n, "stopped", WITHOUT) if kept[n] in _MADE else (n, kept[n], before[n]["reason"]) for n in gone]
    rows = []
    for name, became, reason in outcomes:
        batch = now[name]["batch"] if name in now else state.BEFORE
        told = {"source": of.source.name, **name_columns(name), "batch": batch, "state": became, "reason": reason}
        counts = {"changes": 0, "invalid_dates": 0, "partial": 0, "entries": 1}
        # Above what either lake had: by it histories and comparisons see that a table was made anew.
        last = max(of_.get(name, {}).get("rebuild", 0) for of_ in (before, now))
        rows.append({**told, **counts, "rebuild": last + 1})
    if rows:  # cuts see by the number of rows that something was done since
        rows[0]["entries"] = max(1, _entries(before) - _entries(now) + 1)
    schema = delta_sql.schema(of.at(of.config))
    made = of.spark.createDataFrame([{f.name: r.get(f.name) for f in schema} for r in rows], schema)
    return made.withColumn("at", F.current_timestamp())


def _entries(of: state.Tables) -> int:
    return sum(int(t["entries"]) for t in of.values())


def _batches(spark: SparkSession, config: Config, source: Source, side: Config) -> dict[str, tuple[int, str]]:
    """Numbers that no batch of either lake has, and how far its table is taken in the lake in use."""
    lake = stores.lake(config)
    changes = tables.CHANGES.at(lake, format=source.format, source=source.name)
    found = {}
    for room, path in (("changelog", changes), ("snapshots", tables.CHANGELOG.at(lake))):
        here, there = (CHECKPOINT.at(stores.lake(of), room=room, source=source.name) for of in (config, side))
        number = max(checkpoints.newest(at)[0] for at in (here, there)) + 1
        found[room] = number, batches.entry(spark, path, here)
    return found
