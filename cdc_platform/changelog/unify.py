"""EVENT batches → changelog rows, control events and what becomes of every message; Arrow only, on the executors.

The same as `outputs` and `ledger` say in columns of Spark, for batches whose files every executor sees: the changelog's
rows then never become Spark's. tests/changelog/test_unify.py holds both against each other.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.file_stats import Touched
from cdc_platform.changelog.order_key import Clock, map_value, placed, replayed, those
from cdc_platform.changelog.outcomes import Messages
from cdc_platform.changelog.statements import Statements
from cdc_platform.changes.file_stats import KINDS
from cdc_platform.config import Tables
from cdc_platform.formats import loaded
from cdc_platform.formats.contract import BAD_COLUMN
from cdc_platform.lake.data_files import Output
from cdc_platform.tables import CHANGELOG, CONTROL_EVENTS, LOADED, QUARANTINE

ROLLED_BACK = (
    "the source took a transaction back; rows of it that came before this event stay applied: "
    "`cdc-platform reconcile` compares the tables"
)
"""Why it is in quarantine. A prepared XA transaction's rows come when it is prepared, and nothing in the event that
takes it back (MySQL's XA ROLLBACK) says which they were."""

CHANGELOG_FILE, CONTROL_FILE, QUARANTINE_FILE = (
    table.arrow(but=table.partition_by) for table in (CHANGELOG, CONTROL_EVENTS, QUARANTINE)
)
"""Rows of CHANGELOG, CONTROL_EVENTS and QUARANTINE without their partition column `source`."""


WORDS = (
    *("format", "decoder_version", "topic", "partition", "db", "schema", "table", "op", "kind", "schema_version"),
    *("binlog_file", "gtid", "txn_id", "lineage", "reason", "column", "landed_at", "source_time", "order_key.epoch"),
    *("order_key.file", "decoded_by", *(f"{image}.key_value.key" for image in ("key", "before", "after", "info"))),
)
"""Leaf columns whose values repeat."""


@dataclass(frozen=True, slots=True)
class Unify:
    """The work of a pass over files of `changes`. `arrivals`: the order of its events. `parts`: Kafka records
    of messages that came in several, by (topic, partition, offset). `versions`: of column lists that the schema history
    lacks. `now`: µs. `decoded_by`: what all of them say of it; None: not known."""

    format: str
    version: str
    tables: Tables
    arrivals: Arrivals
    parts: Mapping[tuple[str, int, int], int]
    versions: frozenset[str]
    now: int
    decoded_by: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> dict[str, Any]:
        """ledger: [topic, partition, outcome, first and last offset, records]; apart: whether every message's events
        stood together; statements: DDL and new column lists as SCHEMA_HISTORY has them, with `row_index`; placed: per
        new version the lowest order of its rows. An output that isn't there was written before."""
        messages, statements, touched = Messages(self.parts), Statements(self.versions), Touched(self.tables)
        wanted: dict[str | None, bool] = {}
        clock = Clock(self.arrivals.clocks)
        for batch in batches:
            events = placed(batch, self.arrivals, clock)
            outcomes = duplicates(events, outcome(events, self.tables, wanted), self.arrivals)
            messages.add(events, outcomes)
            kind = events.column("kind")
            rows = those(events, pc.and_(pc.equal(kind, "row"), pc.equal(outcomes, "applied")))
            marks = those(events, pc.is_in(kind, pa.array(KINDS["control"])))
            bad = those(events, pc.equal(outcomes, "quarantined"))
            rows = with_keys(rows, self.tables)
            touched.state(events)
            touched.add(rows)
            for output, some, schema in (
                ("changelog", rows, CHANGELOG_FILE),
                ("control_events", marks, CONTROL_FILE),
                ("quarantine", bad, QUARANTINE_FILE),
            ):
                if some.num_rows and output in out:
                    out[output].write(self._said(some, schema))
            statements.add(events)
        if "changelog" in out:
            out["changelog"].note = touched.told()
        return {**messages.told(), "statements": statements.statements, "placed": statements.placed}

    def _said(self, events: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        n = events.num_rows
        made = {
            "format": lambda: _by(events, loaded.NAME, self.format),
            "decoder_version": lambda: _by(events, loaded.VERSION, self.version),
            "room": lambda: pa.repeat("changes", n),
            "reason": lambda: _reason(events),
            "column": lambda: _bad_column(events),
            "quarantined_at": lambda: pa.repeat(pa.scalar(self.now, pa.timestamp("us", "UTC")), n),
            "decoded_by": lambda: pa.repeat(pa.scalar(self.decoded_by, pa.string()), n),
            "resolved_at": lambda: pa.nulls(n, pa.timestamp("us", "UTC")),
        }
        columns = [made[f.name]() if f.name in made else events.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _by(events: pa.RecordBatch, ours: str, feed: str) -> pa.Array:
    """What is said of who decoded each event."""
    return pc.if_else(pc.equal(events.column("topic"), LOADED), ours, feed)


def _reason(events: pa.RecordBatch) -> pa.Array:
    """As ledger.reason."""
    return pc.if_else(pc.equal(events.column("kind"), "rollback"), ROLLED_BACK, events.column("reason"))


def _bad_column(events: pa.RecordBatch) -> pa.Array:
    """As ledger.bad_column."""
    named = map_value(events.column("info"), BAD_COLUMN)
    return pc.if_else(pc.equal(events.column("kind"), "error"), named, pa.scalar(None, pa.string()))


def outcome(events: pa.RecordBatch, tables: Tables, wanted: dict[str | None, bool]) -> pa.Array:
    """As ledger.outcome. wanted: answers so far, by name."""
    kind, db, table = (events.column(c) for c in ("kind", "db", "table"))
    named = pc.and_(pc.is_valid(db), pc.is_valid(table))
    of_a_table = pc.or_(pc.equal(kind, "row"), pc.and_(pc.equal(kind, "error"), named))
    names = _names(events)
    left_out = pc.and_(of_a_table, pc.invert(_wanted(names, tables, wanted)))
    emptied = pc.and_(left_out, pc.fill_null(pc.equal(events.column("op"), "truncate"), False))
    if emptied.true_count:
        left_out = pc.and_(left_out, pc.invert(pc.and_(emptied, _wanted_in_any_case(names, tables))))
    return pc.case_when(
        pc.make_struct(
            left_out,
            pc.is_in(kind, pa.array(KINDS["errors"])),
            pc.is_in(kind, pa.array(("row", "ddl"))),
            pc.equal(kind, "erased"),
        ),
        *(pa.scalar(x) for x in ("filtered", "quarantined", "applied", "erased", "control")),
    )


def duplicates(events: pa.RecordBatch, outcomes: pa.Array, arrivals: Arrivals) -> pa.Array:
    """Outcomes, where row changes of a replay are duplicates."""
    if not arrivals.replays:
        return outcomes
    row = pc.and_(pc.equal(events.column("kind"), "row"), pc.equal(outcomes, "applied"))
    return pc.if_else(pc.and_(row, replayed(events, arrivals)), "duplicate", outcomes)


_NAME = ("db", "schema", "table")


def _names(events: pa.RecordBatch) -> pa.DictionaryArray:
    """The names of events' tables as text, as `rules.name` writes them, each once."""
    parts = [events.column(c).dictionary_encode() for c in _NAME]
    codes = pa.array(np.zeros(events.num_rows, np.int64))
    for part in parts:
        count = len(part.dictionary) + 1
        codes = pc.add(pc.multiply(codes, count), pc.fill_null(part.indices, count - 1).cast(pa.int64()))
    codes = codes.dictionary_encode()
    known = [[*part.dictionary.to_pylist(), None] for part in parts]
    # Arrow's own join leaves rows out where all is NULL (binary_join_element_wise, null_handling="skip").
    named = (dict(zip(_NAME, _parts(code, known), strict=True)) for code in codes.dictionary.to_pylist())
    spelled = [".".join(x for x in (n["db"], n["schema"] or None, n["table"]) if x is not None) for n in named]
    return pa.DictionaryArray.from_arrays(codes.indices, pa.array(spelled, pa.string()))


def _parts(code: int, known: list[list[str | None]]) -> Iterator[str | None]:
    for i, texts in enumerate(known):
        yield texts[code // prod(len(after) for after in known[i + 1 :]) % len(texts)]


def _wanted_in_any_case(names: pa.DictionaryArray, tables: Tables) -> pa.BooleanArray:
    """As rules.emptied."""
    found = [tables.wanted_name(name, any_case=True) for name in names.dictionary.to_pylist()]
    return pa.array(found, pa.bool_()).take(names.indices)


def _wanted(names: pa.DictionaryArray, tables: Tables, known: dict[str | None, bool]) -> pa.BooleanArray:
    found = []
    for name in names.dictionary.to_pylist():
        if name not in known:
            known[name] = tables.wanted_name(name)
        found.append(known[name])
    return pa.array(found, pa.bool_()).take(names.indices)


def with_keys(rows: pa.RecordBatch, tables: Tables) -> pa.RecordBatch:
    """Rows of tables whose key the configuration gives, with that: as rules.key."""
    names = _names(rows).cast(pa.string()) if tables.keys else None
    for table, columns in tables.keys.items():
        mine = np.nonzero(pc.equal(names, table).to_numpy(zero_copy_only=False))[0]
        if not len(mine):
            continue
        some = rows.take(pa.array(mine))
        values = [
            pc.coalesce(*(map_value(some.column(image), name) for image in ("before", "after"))) for name in columns
        ]
        width = len(columns)
        places = np.arange(width * len(mine)).reshape(width, -1).T.ravel()
        told = pa.MapArray.from_arrays(
            pa.array(np.arange(len(mine) + 1, dtype=np.int32) * width),
            pa.array(list(columns) * len(mine), pa.string()),
            pa.concat_arrays(values).take(pa.array(places)),
        )
        at = np.arange(rows.num_rows)
        at[mine] = rows.num_rows + np.arange(len(mine))
        keys = pa.concat_arrays([rows.column("key"), told]).take(pa.array(at))
        place = rows.schema.get_field_index("key")
        rows = rows.set_column(place, rows.schema.field(place), keys)
    return rows
