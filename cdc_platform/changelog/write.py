"""What a batch writes: changelog rows, control events, quarantine and ledger by one pass over its files of `changes`.
What they are is decided in unify.py, by the workers, and their files are named here."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform.changelog import statements, unify
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.order_key import ORDER, those
from cdc_platform.changelog.outcomes import Accounting, Entry, overlaps
from cdc_platform.changelog.packed import Packed
from cdc_platform.changelog.repeated import Again
from cdc_platform.changes.file_stats import KINDS
from cdc_platform.changes.files import CHANGE
from cdc_platform.config import Source
from cdc_platform.formats import FORMATS, loaded
from cdc_platform.formats.contract import EVENT
from cdc_platform.lake import commits, delta_table, small_files
from cdc_platform.lake.data_files import Sink, leaves
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import CHANGELOG, LOADED, MESSAGE_AT

_PARTS = pa.schema([*(EVENT.field(c) for c in MESSAGE_AT), ("parts", pa.int64())])
_ROW = (*MESSAGE_AT, *unify.EVENT_OF, "reason")
"""What tells rows of quarantine apart that a decoding has written."""
_REASONS = pa.schema([*(EVENT.field(c) for c in _ROW), ("bad", pa.bool_())])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Batch:
    """Files of `changes` that are taken up together, and where what is in them goes. notes: what each file notes of its
    events (changes/file_stats.py), figures: what that comes to. `app` and `number` name its writes: each happens once.
    """

    source: Source
    paths: dict[str, Store]
    number: int
    spark: SparkSession
    files: list[File]
    notes: list[Any]
    figures: list[dict[str, Any]]
    app: str = "changelog"

    @property
    def once(self) -> tuple[str, int]:
        """Application and number under which tables take its rows."""
        return app_name(self.app, self.source), self.number

    def sinks(self, *names: str) -> dict[str, Sink]:
        """Where the rows of some outputs go, but for those that are there already."""
        found = {n: _sink(self, n) for n in names}
        return {n: s for n, s in found.items() if not commits.done_before(s.table, *self.once)}


def app_name(app: str, source: Source) -> str:
    """What tables know writes of a source by."""
    return f"{app} {source.name}"


def write(batch: Batch, arrivals: Arrivals, repeats: Packed | None, again: Again | None) -> None:
    """Writes what a batch comes to. repeats: as unify.Known. again: what it tells anew: then the ledger comes before
    the changelog: when the batch is repeated, rows that stand there count as used before."""
    accounting = Accounting(_parts(batch, again), overlaps(batch.notes), again.messages if again else Packed({}))
    work = unify.Unify(
        unify.Said.of(batch.source, _decoded_by(batch)),
        batch.source.tables,
        arrivals,
        frozenset(_new_versions(batch)),
        accounting,
        unify.Known(repeats, again.used if again else None),
    )
    sinks = batch.sinks("changelog", "control_events", "quarantine")
    done = arrow_tasks.over(batch.spark, batch.files, CHANGE if again else EVENT, work, sinks, whole=True)
    account = partial(note_outcomes, batch, accounting.entries(done.told), batch.number)
    if again:
        account()
    commit(batch, sinks, done)
    if again:
        _resolve(batch)
    delta_table.append_rows(batch.paths["schema_history"], _statements(batch, done.told), once=batch.once)
    if not again:
        account()


def commit(batch: Batch, sinks: Mapping[str, Sink], done: arrow_tasks.Pass) -> None:
    """Names the files that a pass has written."""
    for name, sink in sinks.items():
        if done.written[name]:
            commits.append_files(sink, done.written[name], batch.once)
            if name != CHANGELOG.path:  # which the snapshots take commit by commit
                small_files.put_together(sink)


def note_outcomes(batch: Batch, entries: list[Entry], number: int) -> None:
    """Ledger rows of a batch of this number, once."""
    said = {"source": batch.source.name, "batch": number, "room": "changelog"}
    columns = ("topic", "partition", "outcome", "from_offset", "to_offset", "records")
    rows = [{**said, **dict(zip(columns, entry, strict=True))} for entry in entries]
    of = f"source = '{batch.source.name}' AND room = 'changelog' AND batch = {number}"
    delta_table.append_rows(batch.paths["ledger"], rows, of=of)


def decoded_again(files: list[File], notes: list[Any]) -> list[File]:
    """Files that have events of messages that were decoded again. notes: of each."""
    return [file for file, note in zip(files, notes, strict=True) if any(g.get("retold") for g in note["groups"])]


def _decoded_by(batch: Batch) -> str | None:
    """What all files were decoded by; None: not by the same, or it isn't known."""
    found = {note.get("decoded_by") for note in batch.notes}
    return found.pop() if len(found) == 1 else None


def _sink(batch: Batch, name: str) -> Sink:
    table, schema = unify.FILES[name]
    words = tuple(w for w in unify.WORDS if w.split(".")[0] in schema.names)
    of = (("source", batch.source.name),)
    return Sink(batch.paths[name], schema, table.stats or leaves(schema), words, of)


def _parts(batch: Batch, again: Again | None) -> Packed:
    """Kafka records of the batch's messages that came in several."""
    if "envelopes" not in batch.paths:
        return Packed({})
    if again:  # they may have come long ago, and all others since
        return split_messages(batch)
    ends: dict[tuple[str, int], list[int]] = {}
    for g in (g for note in batch.notes for g in note["groups"]):
        ends.setdefault((g["topic"], g["partition"]), []).extend((g["from_offset"], g["to_offset"]))
    near = " OR ".join(
        f"(topic = '{delta_table.topic(topic)}' AND \"partition\" = {partition} "
        f'AND "offset" BETWEEN {min(of)} AND {max(of)})'
        for (topic, partition), of in ends.items()
    )
    rows = delta_table.ask(
        'SELECT topic, "partition", "offset", parts FROM {envelopes} WHERE parts > 1 '
        f'AND ({near}) ORDER BY topic, "partition", "offset"',
        envelopes=batch.paths["envelopes"],
    )
    return Packed.of_table(pa.Table.from_pylist(rows, _PARTS))


def split_messages(batch: Batch) -> Packed:
    """The same of all messages within the batch's offsets."""
    low, high = min(f["from_offset"] for f in batch.figures), max(f["to_offset"] for f in batch.figures)
    every = delta_sql.read(batch.spark, batch.paths["envelopes"])
    near = every.where((F.col("parts") > 1) & F.col("offset").between(low, high))
    return Packed.of(near.select(*MESSAGE_AT, "parts"))


def _new_versions(batch: Batch) -> set[str]:
    """Schema versions of this batch that the history doesn't know from earlier ones."""
    if not (stated := {v for f in batch.figures for v in f["versions"]}):
        return stated
    known = delta_table.ask(
        f"SELECT schema_version FROM {{history}} WHERE source = '{batch.source.name}' AND kind = 'message' "
        f"AND schema_version IN ({delta_table.digests(stated)})",
        history=batch.paths["schema_history"],
    )
    return stated - {r["schema_version"] for r in known}


def _resolve(batch: Batch) -> None:
    """Marks rows of quarantine as resolved whose messages this batch decoded again: what still holds has just come once
    more. Once more changes nothing: of rows that say the same the newest stays."""
    again = decoded_again(batch.files, batch.notes)
    told = arrow_tasks.frame(batch.spark, again, CHANGE, _reasons, arrow_tasks.spark_schema(_REASONS))
    mine = (F.col("source") == batch.source.name) & (F.col("room") == "changes") & F.col("resolved_at").isNull()
    held = delta_sql.read(batch.spark, batch.paths["quarantine"]).where(mine)
    held = held.join(told.select(*MESSAGE_AT).distinct(), [*MESSAGE_AT], "left_semi").select(*_ROW, "quarantined_at")
    newest = F.max("quarantined_at").over(Window.partitionBy(*_ROW))
    held = held.withColumn("_newest", newest).distinct()
    holds = told.where("bad").select(*(F.col(c).alias(f"_{c}") for c in _ROW), "bad").distinct()
    same = reduce(Column.__and__, (F.col(c).eqNullSafe(F.col(f"_{c}")) for c in _ROW))
    gone = held.join(holds, same, "left").where("bad IS NULL OR quarantined_at < _newest")
    this = " AND ".join(f'(t."{c}" IS NOT DISTINCT FROM s."{c}")' for c in (*_ROW, "quarantined_at"))
    delta_table.merge(
        batch.paths["quarantine"],
        gone.select(*_ROW, "quarantined_at").toArrow(),
        f"t.source = '{batch.source.name}' AND t.room = 'changes' AND t.resolved_at IS NULL AND {this}",
        {"resolved_at": "arrow_cast(now(), 'Timestamp(Microsecond, Some(\"UTC\"))')"},
    )


def _reasons(events: pa.RecordBatch) -> pa.RecordBatch:
    """Events that were decoded again, and why those that can't be used can't."""
    again = those(events, pc.fill_null(events.column("retold"), False))
    bad = pc.is_in(again.column("kind"), pa.array(KINDS["errors"]))
    columns = [*(again.column(c) for c in (*MESSAGE_AT, *unify.EVENT_OF)), unify.reason(again), bad]
    return pa.RecordBatch.from_arrays(columns, schema=_REASONS)


def _statements(batch: Batch, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """SCHEMA_HISTORY rows: DDL statements, and each new column list where it came first, at the first row of it."""
    every = [s for account in told for s in account["statements"]]
    first: dict[str, dict[str, Any]] = {}
    for s in every:
        if s["kind"] == "schema":
            version = s["schema_version"]
            first[version] = min(s, first.get(version, s), key=statements.came)
    out = []
    for s in [*(s for s in every if s["kind"] == "ddl"), *first.values()]:
        placed = [account["placed"].get(s["schema_version"]) for account in told] if s["kind"] == "schema" else []
        order = min((p for p in placed if p is not None), default=s["order_key"])
        ours = s["topic"] == LOADED
        said = {"source": batch.source.name, "format": loaded.NAME if ours else batch.source.format}
        said["decoder_version"] = loaded.VERSION if ours else FORMATS[batch.source.format].version
        out.append(
            {
                **{n: v for n, v in s.items() if n != "row_index"},
                **said,
                "kind": "message" if s["kind"] == "schema" else "ddl",
                **{n: _time(s[n]) for n in ("source_time", "landed_at")},
                "binlog_pos": None if s["binlog_pos"] is None else Decimal(s["binlog_pos"]),
                "order_key": dict(zip(ORDER.names, order, strict=True)),
            }
        )
    return out


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
