"""changes → changelog once more, when the configuration follows tables that it left out: their rows have been decoded
all along, and counted as filtered.

First the stream is brought up to date under the rules before, so that whatever `changes` holds was decided by them.
Then what only the new rules want is appended, once: every write is tied to the number of the change of rules, which is
noted as done last. A row that is in the changelog already (its table was followed for a while) isn't taken again.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import erased_events, repeated
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.file_stats import TableStatistics
from cdc_platform.changelog.follow import arrivals
from cdc_platform.changelog.order import merged_statistics
from cdc_platform.changelog.order_key import Clock, placed, those
from cdc_platform.changelog.outcomes import Accounting, Messages, overlaps
from cdc_platform.changelog.packed import Packed
from cdc_platform.changelog.table_rules import Rules, RulesInEffect
from cdc_platform.changelog.tellings import Tellings
from cdc_platform.changelog.unify import EVENT_OF, Known, Said, duplicates, outcome, with_keys
from cdc_platform.changelog.write import Batch, app_name, commit, note_outcomes, split_messages
from cdc_platform.changes.files import CHANGE, statistics_of
from cdc_platform.config import Source, Tables
from cdc_platform.formats.contract import EVENT
from cdc_platform.lake import commits, delta_table
from cdc_platform.lake.data_files import Output, units
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import MESSAGE_AT

_APP = "backfill"
_WRITTEN = ("changelog", "quarantine")
_AT = (*EVENT_OF, "kind")
"""What tells an event of a message apart: a row that was an error before stands in its place."""
_ADDRESS = pa.schema([CHANGE.field(c) for c in (*MESSAGE_AT, *_AT)])
_NAMED = pa.schema([*_ADDRESS, *(CHANGE.field(c) for c in ("op", "db", "schema", "table", "retold"))])
"""What rules ask of an event."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which events the new rules (`now`) want and none before took up: neither the last ones (`last`) nor earlier ones
    (`taken`: what those took up and the last ones left out)."""

    last: Tables
    now: Tables
    taken: Packed
    tellings: Tellings

    def before(self, events: pa.RecordBatch) -> pa.Array:
        """What had become of events, but for duplicates."""
        found = outcome(events, self.last, {})
        if not self.taken.parts:
            return found
        taken = pc.and_(pc.equal(found, "filtered"), self.taken.among(events, *_AT))
        used = pc.if_else(pc.equal(events.column("kind"), "error"), "quarantined", "applied")
        return pc.if_else(taken, used, found)

    def new(self, events: pa.RecordBatch) -> pa.Array:
        """Which are to be taken up now, if they count."""
        return _taken_up(self.before(events), outcome(events, self.now, {}))


def _taken_up(before: pa.Array, now: pa.Array) -> pa.Array:
    """Which outcomes were `filtered`, and aren't any more."""
    return pc.and_(pc.equal(before, "filtered"), pc.not_equal(now, "filtered"))


@dataclass(frozen=True, slots=True)
class Fill:
    """The work of a pass over files of `changes`."""

    said: Said
    choice: Choice
    arrivals: Arrivals
    accounting: Accounting
    known: Known

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> dict[str, Any]:
        """ledger, shared: as Messages; applied: new rows. An output that isn't there was written before."""
        messages, touched = Messages(self.accounting), TableStatistics(self.choice.now)
        clock, applied = Clock(self.arrivals.clocks), 0
        for batch in batches:
            events = placed(batch, self.arrivals, clock)
            touched.state(events)
            events = self.choice.tellings.counting(events)
            before, now = self.choice.before(events), outcome(events, self.choice.now, {})
            new = _taken_up(before, now)
            before = duplicates(events, before, self.arrivals, Known())
            now = duplicates(events, now, self.arrivals, self.known)
            messages.add(events, pc.if_else(new, now, before), before)
            rows, bad = (those(events, pc.and_(new, pc.equal(now, o))) for o in ("applied", "quarantined"))
            rows = with_keys(rows, self.choice.now)
            touched.add(rows)
            applied += rows.num_rows
            for output, some in (("changelog", rows), ("quarantine", bad)):
                if some.num_rows and output in out:
                    out[output].write(self.said.rows(some, output))
        if "changelog" in out:
            out["changelog"].note = touched.to_json()
        return {**messages.to_json(), "applied": applied}


def fill(spark: SparkSession, source: Source, paths: dict[str, Store], changes: Store, chosen: RulesInEffect) -> int:
    """Does what the change of rules that is begun asks for, and notes that it is done. Returns how many rows came into
    the changelog. Raises LakeChanged."""
    now = chosen.begun
    if now is None:
        return 0
    every = _files(changes, now.version)
    notes = statistics_of(spark, every)
    choice = Choice(
        chosen.done[-1].tables(source),
        now.tables(source),
        _taken(spark, changes, source, chosen.done, now),
        Tellings.of(spark, changes, every, notes, now.version),
    )
    order = arrivals(paths, source, notes)
    files, notes = _with_news(spark, every, notes, choice)
    applied = 0
    if files:
        batch = Batch(source, paths, now.number, spark, files, notes, merged_statistics(notes), _APP)
        applied = _write(batch, changes, order, choice)
    chosen.note(now, "done")
    return applied


def number(source: Source, paths: dict[str, Store], chosen: RulesInEffect) -> int:
    """That of the next change of rules: its writes are named by it."""
    written = (paths[name] for name in _WRITTEN)
    return commits.unused(app_name(_APP, source), chosen.done[-1].number + 1, *written)


def _write(batch: Batch, changes: Store, order: Arrivals, choice: Choice) -> int:
    """Writes what is new, and how many rows are."""
    gone = erased_events.sent_again(batch.spark, batch.paths["erasures"], batch.source, changes, batch.files)
    known, reader = Known(repeated.packed([gone])), choice.tellings.read
    if order.by_position:
        each, made = partial(_new_rows, order, choice), arrow_tasks.spark_schema(repeated.PLACED)
        rows = arrow_tasks.frame(batch.spark, batch.files, CHANGE, each, made, reader=reader)
        stored = delta_sql.read(batch.spark, batch.paths["changelog"]).where(F.col("source") == batch.source.name)
        known = Known(repeated.in_rows(rows, stored, gone) or Packed({}))
    parts = split_messages(batch) if "envelopes" in batch.paths else Packed({})
    accounting = Accounting(parts, overlaps(batch.notes), moved=True)
    work = Fill(Said.of(batch.source, None), choice, order, accounting, known)
    sinks = batch.sinks(*_WRITTEN)
    done = arrow_tasks.over(batch.spark, batch.files, CHANGE, work, sinks, whole=True, reader=reader)
    commit(batch, sinks, done)
    note_outcomes(batch, accounting.entries(done.told), -batch.number)
    return sum(told["applied"] for told in done.told)


def _new_rows(order: Arrivals, choice: Choice, events: pa.RecordBatch) -> pa.RecordBatch:
    counting = choice.tellings.counting(events)
    rows = those(counting, pc.and_(pc.equal(counting.column("kind"), "row"), choice.new(counting)))
    return placed(rows.select(EVENT.names), order)


def _files(changes: Store, version: int | None) -> list[File]:
    return [File(changes, name) for name in delta_table.files_at(changes, version)]


def _with_news(
    spark: SparkSession, files: list[File], notes: list[Any], choice: Choice
) -> tuple[list[File], list[Any]]:
    """The files that have something new, and their notes; a file has all events of a message."""
    told = arrow_tasks.run(spark, files, partial(_narrow, choice.tellings), partial(_any_new, choice), {}).told
    found = [(file, note) for file, note, new in zip(files, notes, told, strict=True) if new]
    return [file for file, _ in found], [note for _, note in found]


def _narrow(tellings: Tellings, file: File) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(tellings.read(unit, _NAMED) for unit in units([file], whole=True))


def _any_new(choice: Choice, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> bool:
    return any(choice.new(choice.tellings.counting(events)).true_count for events in batches)


def _taken(spark: SparkSession, changes: Store, source: Source, before: Sequence[Rules], now: Rules) -> Packed:
    """Addresses of events that rules before the last ones took up while they were in force, and the last ones left out.
    before: all rules so far."""
    *earlier, last = before
    found = [
        arrow_tasks.frame(
            spark,
            _files(changes, following.version),
            _NAMED,
            partial(_taken_by, rules.tables(source), last.tables(source), now.tables(source)),
            arrow_tasks.spark_schema(_ADDRESS),
        )
        for rules, following in zip(earlier, before[1:], strict=True)
    ]
    return Packed.of(reduce(DataFrame.union, found).distinct()) if found else Packed({})


def _taken_by(rules: Tables, last: Tables, now: Tables, events: pa.RecordBatch) -> pa.RecordBatch:
    filtered = (pc.equal(outcome(events, tables, {}), "filtered") for tables in (rules, last, now))
    by_them, by_last, by_new = filtered
    return those(events, pc.and_(pc.and_(pc.invert(by_them), by_last), pc.invert(by_new))).select(_ADDRESS.names)
