"""EVENT batches → changelog rows, control events and what becomes of every message; Arrow only, on the executors."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.file_stats import TableStatistics
from cdc_platform.changelog.order_key import Clock, placed, replayed, those
from cdc_platform.changelog.outcomes import Accounting, Messages
from cdc_platform.changelog.packed import Packed
from cdc_platform.changelog.statements import Statements
from cdc_platform.changes.file_stats import KINDS, ROLLED_BACK
from cdc_platform.changes.maps import map_value
from cdc_platform.config import Source, Tables
from cdc_platform.formats import FORMATS, loaded
from cdc_platform.formats.contract import BAD_COLUMN
from cdc_platform.lake.data_files import Output
from cdc_platform.tables import CHANGELOG, CONTROL_EVENTS, LOADED, QUARANTINE

FILES = {
    name: (table, table.arrow(but=table.partition_by))
    for name, table in (("changelog", CHANGELOG), ("control_events", CONTROL_EVENTS), ("quarantine", QUARANTINE))
}
"""Outputs: their tables, and the columns of their files, which lack the partition column `source`."""
CHANGELOG_FILE = FILES["changelog"][1]
"""Rows of CHANGELOG's files."""


WORDS = (
    *("format", "decoder_version", "topic", "partition", "db", "schema", "table", "op", "kind", "schema_version"),
    *("binlog_file", "gtid", "txn_id", "lineage", "reason", "column", "landed_at", "source_time", "order_key.epoch"),
    *("order_key.file", "decoded_by", *(f"{image}.key_value.key" for image in ("key", "before", "after", "info"))),
)
"""Leaf columns whose values repeat."""


EVENT_OF = ("entry_index", "row_index")
"""What tells the events of a message apart."""


@dataclass(frozen=True, slots=True)
class Known:
    """Addresses of events that were there already. repeats: row changes that say the same as another at its place, or
    as one that was erased; where arrival orders, of the latter alone: the log tells what else is sent again. used:
    events with their `kind`, of messages that are decoded again."""

    repeats: Packed | None = None
    used: Packed | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What rows say beside their event. `now`: µs; `decoded_by`: what all of them say of it; None: not known."""

    format: str
    version: str
    now: int
    decoded_by: str | None = None

    @classmethod
    def of(cls, source: Source, decoded_by: str | None) -> "Said":
        """Of a source's rows that are written now."""
        return cls(source.format, FORMATS[source.format].version, int(time.time() * 1_000_000), decoded_by)

    def rows(self, events: pa.RecordBatch, output: str) -> pa.RecordBatch:
        """Rows of an output's files."""
        n, (_, schema) = events.num_rows, FILES[output]
        made = {
            "format": lambda: _by(events, loaded.NAME, self.format),
            "decoder_version": lambda: _by(events, loaded.VERSION, self.version),
            "room": lambda: pa.repeat("changes", n),
            "reason": lambda: reason(events),
            "column": lambda: _bad_column(events),
            "quarantined_at": lambda: pa.repeat(pa.scalar(self.now, pa.timestamp("us", "UTC")), n),
            "decoded_by": lambda: pa.repeat(pa.scalar(self.decoded_by, pa.string()), n),
            "resolved_at": lambda: pa.nulls(n, pa.timestamp("us", "UTC")),
        }
        columns = [made[f.name]() if f.name in made else events.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class Unify:
    """The work of a pass over files of `changes`. `arrivals`: the order of its events. `versions`: of column lists that
    the schema history lacks. `known`: what was there already."""

    said: Said
    tables: Tables
    arrivals: Arrivals
    versions: frozenset[str]
    accounting: Accounting
    known: Known

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> dict[str, Any]:
        """ledger, shared: as Messages; statements: DDL and new column lists as SCHEMA_HISTORY has them, with
        `row_index`; placed: per new version the lowest order of its rows. An output that isn't there was written
        before."""
        messages, statements, touched = (
            Messages(self.accounting),
            Statements(self.versions),
            TableStatistics(self.tables),
        )
        wanted: dict[str | None, bool] = {}
        clock = Clock(self.arrivals.clocks)
        for batch in batches:
            events = placed(batch, self.arrivals, clock)
            outcomes = duplicates(events, outcome(events, self.tables, wanted), self.arrivals, self.known)
            messages.add(events, outcomes)
            kind, new = events.column("kind"), pc.not_equal(outcomes, "duplicate")
            rows = those(events, pc.and_(pc.equal(kind, "row"), pc.equal(outcomes, "applied")))
            marks = those(events, pc.and_(pc.is_in(kind, pa.array(KINDS["control"])), new))
            bad = those(events, pc.equal(outcomes, "quarantined"))
            rows = with_keys(rows, self.tables)
            touched.state(events)
            touched.add(rows)
            for output, some in (("changelog", rows), ("control_events", marks), ("quarantine", bad)):
                if some.num_rows and output in out:
                    out[output].write(self.said.rows(some, output))
            statements.add(events, new)
        if "changelog" in out:
            out["changelog"].note = touched.to_json()
        return {**messages.to_json(), "statements": statements.statements, "placed": statements.placed}


def _by(events: pa.RecordBatch, ours: str, feed: str) -> pa.Array:
    """What is said of who decoded each event."""
    return pc.if_else(pc.equal(events.column("topic"), LOADED), ours, feed)


def reason(events: pa.RecordBatch) -> pa.Array:
    """Why events of an unusable kind are in quarantine."""
    return pc.if_else(pc.equal(events.column("kind"), "rollback"), ROLLED_BACK, events.column("reason"))


def _bad_column(events: pa.RecordBatch) -> pa.Array:
    """The column whose value could not be used, where an error names one."""
    named = map_value(events.column("info"), BAD_COLUMN)
    return pc.if_else(pc.equal(events.column("kind"), "error"), named, pa.scalar(None, pa.string()))


def outcome(events: pa.RecordBatch, tables: Tables, wanted: dict[str | None, bool]) -> pa.Array:
    """What becomes of each event; `applied` may still turn out a duplicate. wanted: answers so far, by name."""
    kind, db, table = (events.column(c) for c in ("kind", "db", "table"))
    named = pc.and_(pc.is_valid(db), pc.is_valid(table))
    # An error may tell its table too (a row whose columns aren't known): that of a table nobody wants is no loss.
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


def duplicates(events: pa.RecordBatch, outcomes: pa.Array, arrivals: Arrivals, known: Known) -> pa.Array:
    """Outcomes, where what was there already is a duplicate: row changes of a replay, those of `known.repeats`, and of
    messages that were decoded again what was used before."""
    row, again = pc.equal(events.column("kind"), "row"), []
    if arrivals.replays:
        again.append(pc.and_(row, replayed(events, arrivals)))
    if known.repeats:
        again.append(pc.and_(row, known.repeats.among(events, *EVENT_OF)))
    if known.used:
        used = pc.fill_null(events.column("retold"), False)
        again.append(pc.and_(used, known.used.among(events, *EVENT_OF, "kind")))
    if not again:
        return outcomes
    taken = pc.is_in(outcomes, pa.array(("applied", "control")))
    return pc.if_else(pc.and_(taken, reduce(pc.or_, again)), "duplicate", outcomes)


_NAME = ("db", "schema", "table")


def _names(events: pa.RecordBatch) -> pa.DictionaryArray:
    """The names of events' tables as text (`Tables.wanted_name`), each once."""
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
    """Whether tables are followed under another case of their names: rows say whether a TRUNCATE that spells one so is
    of it."""
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
    """Rows of tables whose key the configuration gives, with that: of the row before, column by column, as a minimal
    image of it need not hold columns that only the configuration calls a key."""
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
