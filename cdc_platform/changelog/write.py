"""A batch's changelog rows, control events and ledger by one pass over its files of `changes`: what they are is decided
in unify.py, by the workers, and their files are named here."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

from cdc_platform.changelog import statements, unify
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.order_key import ORDER
from cdc_platform.changelog.outputs import Batch, ledger_of, new_versions, schema_rows
from cdc_platform.formats import FORMATS, loaded
from cdc_platform.formats.contract import EVENT
from cdc_platform.lake import commits, delta_table, small_files
from cdc_platform.lake.data_files import Sink, leaves
from cdc_platform.lake.store import File
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import CHANGELOG, CONTROL_EVENTS, LOADED, QUARANTINE

_MANY_PARTS = 10_000
"""Messages of several records that are sent along with a pass; Spark joins more."""

_MANY_STATEMENTS = 1_000
"""DDL statements of a batch that a pass tells; more are Spark's to write."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Direct:
    """Files of a batch, and what each notes of its events (changes/file_stats.py)."""

    files: list[File]
    notes: list[Any]

    def write(self, batch: Batch, figures: list[dict[str, Any]], arrivals: Arrivals) -> None:
        """All outputs of a batch without repeated or retold events, as outputs.writes."""
        spark, source, app = batch.spark, batch.source, f"{batch.app} {batch.source.name}"
        parts = _parts(batch, figures)
        versions = new_versions(batch, {v for f in figures for v in f["versions"]})
        few = sum(f["ddl"] for f in figures) <= _MANY_STATEMENTS
        now = int(time.time() * 1_000_000)
        version, stated = FORMATS[source.format].version, frozenset(versions if few else ())
        work = unify.Unify(source.format, version, source.tables, arrivals, parts or {}, stated, now, self._by)
        sinks = {n: s for n, s in _sinks(batch).items() if not commits.done_before(s.table, app, batch.number)}
        done = arrow_tasks.over(spark, self.files, EVENT, work, sinks, whole=True)
        for name, sink in sinks.items():
            if done.written[name]:
                commits.append_files(sink, done.written[name], (app, batch.number))
                if name != CHANGELOG.path:  # which the snapshots take commit by commit
                    small_files.put_together(sink)
        told = done.told
        if few:
            rows = _statements(batch, told)
            delta_table.append_rows(batch.paths["schema_history"], rows, once=(app, batch.number))
        else:
            batch.append(partial(schema_rows, versions=versions), "schema_history")
        if parts is None or not _apart(told):
            ledger_of(batch, figures)
            return
        rows = _ledger_rows(batch, [entry for account in told for entry in account["ledger"]])
        of = f"source = '{source.name}' AND room = 'changelog' AND batch = {batch.number}"
        delta_table.append_rows(batch.paths["ledger"], rows, of=of)

    @property
    def _by(self) -> str | None:
        """What all files were decoded by; None: not by the same, or it isn't known."""
        found = {note.get("decoded_by") for note in self.notes}
        return found.pop() if len(found) == 1 else None


def _sinks(batch: Batch) -> dict[str, Sink]:
    of = (("source", batch.source.name),)
    told = {
        "changelog": (CHANGELOG, unify.CHANGELOG_FILE),
        "control_events": (CONTROL_EVENTS, unify.CONTROL_FILE),
        "quarantine": (QUARANTINE, unify.QUARANTINE_FILE),
    }
    return {
        name: Sink(
            batch.paths[name],
            schema,
            table.stats or leaves(schema),
            tuple(w for w in unify.WORDS if w.split(".")[0] in schema.names),
            of,
        )
        for name, (table, schema) in told.items()
    }


def _parts(batch: Batch, figures: list[dict[str, Any]]) -> dict[tuple[str, int, int], int] | None:
    """Kafka records of the batch's messages that came in several; None: they are many."""
    if "envelopes" not in batch.paths:
        return {}
    low, high = min(f["from_offset"] for f in figures), max(f["to_offset"] for f in figures)
    rows = delta_table.ask(
        'SELECT topic, "partition", "offset", parts FROM {envelopes} WHERE parts > 1 '
        f'AND "offset" BETWEEN {low} AND {high} LIMIT {_MANY_PARTS + 1}',
        envelopes=batch.paths["envelopes"],
    )
    if len(rows) > _MANY_PARTS:
        return None
    return {(r["topic"], r["partition"], r["offset"]): r["parts"] for r in rows}


def _apart(accounts: list[dict[str, Any]]) -> bool:
    """Whether no message can have been counted twice: each file had every message's events together, and no two files
    reach into each other's offsets."""
    if not all(told["apart"] for told in accounts):
        return False
    spans: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for told in accounts:
        mine: dict[tuple[str, int], tuple[int, int]] = {}
        for topic, partition, _, first, last, _ in told["ledger"]:
            low, high = mine.get((topic, partition), (first, last))
            mine[topic, partition] = min(low, first), max(high, last)
        for at, span in mine.items():
            spans.setdefault(at, []).append(span)
    ordered = [sorted(found) for found in spans.values()]
    return all(a[1] < b[0] for found in ordered for a, b in pairwise(found))


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


def _ledger_rows(batch: Batch, entries: list[list[Any]]) -> list[dict[str, Any]]:
    """OFFSET_LEDGER rows, one per partition and outcome."""
    found: dict[tuple[str, int, str], list[int]] = {}
    for topic, partition, outcome, first, last, records in entries:
        low, high, n = found.get((topic, partition, outcome), (first, last, 0))
        found[topic, partition, outcome] = [min(low, first), max(high, last), n + records]
    said = {"source": batch.source.name, "batch": batch.number, "room": "changelog"}
    return [
        {**said, "topic": t, "partition": p, "from_offset": low, "to_offset": high, "outcome": o, "records": n}
        for (t, p, o), (low, high, n) in sorted(found.items())
    ]
