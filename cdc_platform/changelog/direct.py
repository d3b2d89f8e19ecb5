"""A batch's changelog rows, control events and ledger by one pass over its files of `changes`: what they are is decided
in unify.py, by the workers, and their files are named here. Schema history and quarantine, which few events concern,
are written as `outputs` has them."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from cdc_platform.changelog import unify
from cdc_platform.changelog.outputs import Batch, Write, ledger_of, writes
from cdc_platform.formats import FORMATS
from cdc_platform.resources import lake, notes, passes
from cdc_platform.resources.parquet import Sink
from cdc_platform.tables import CHANGELOG, CONTROL_EVENTS, STATS

_MANY_PARTS = 10_000
"""Messages of several records that are sent along with a pass; Spark joins more."""


@dataclass(frozen=True, slots=True)
class Direct:
    """Files of a batch, and what each notes of its events (formats/summary.py)."""

    files: list[str]
    notes: list[Any]

    def writes(self, batch: Batch, figures: list[dict[str, Any]], epochs: dict[str | None, int]) -> list[Write]:
        """As outputs.writes."""
        others = writes(batch, figures, leave_out=("changelog", "control_events", "ledger"))
        return [partial(self._pass, batch, figures, epochs), *others]

    def _pass(self, batch: Batch, figures: list[dict[str, Any]], epochs: dict[str | None, int]) -> None:
        spark, source = batch.events.sparkSession, batch.source
        parts = _parts(batch, figures)
        work = unify.Unify(source.format, FORMATS[source.format].version, source.tables, epochs, parts or {})
        sinks = _sinks(batch)
        app = f"{batch.app} {source.name}"
        written = {name: passes.done_before(sink.table, app, batch.number) for name, sink in sinks.items()}
        done = passes.over(
            spark, self.files, unify.EVENTS, work, {n: s for n, s in sinks.items() if not written[n]}, whole=True
        )
        for name, sink in sinks.items():
            if not written[name] and done.written[name]:
                passes.commit(sink, done.written[name], app, batch.number)
        accounts = [told for _, told in done.told]
        if parts is None or not _apart(accounts):
            ledger_of(batch, figures)
            return
        rows = _ledger_rows(batch, [entry for told in accounts for entry in told["ledger"]])
        of = f"source = '{source.name}' AND room = 'changelog' AND batch = {batch.number}"
        lake.append_rows(spark, batch.paths["ledger"], rows, of=of)


def _sinks(batch: Batch) -> dict[str, Sink]:
    of = (("source", batch.source.name),)
    told = {"changelog": (CHANGELOG, unify.CHANGELOG_FILE), "control_events": (CONTROL_EVENTS, unify.CONTROL_FILE)}
    return {
        name: Sink(
            batch.paths[name],
            schema,
            tuple(table.properties.get(STATS, ",".join(unify.PLAIN_STATS)).split(",")),
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
    rows = notes.ask(
        batch.events.sparkSession,
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
