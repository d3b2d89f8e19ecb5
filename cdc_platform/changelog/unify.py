"""EVENT batches → changelog rows, control events and what becomes of every message; Arrow only, on the executors.

The same as `outputs` and `ledger` say in columns of Spark, for batches whose files every executor sees: the changelog's
rows then never become Spark's. tests/changelog/test_unify.py holds both against each other.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.config import Tables
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.summary import KINDS, later
from cdc_platform.resources.parquet import Output

RANK = ("quarantined", "applied", "filtered", "duplicate", "control")
"""A message with several outcomes counts under the first of these."""

ROLLED_BACK = (
    "the source took a transaction back; rows of it that came before this event stay applied: "
    "`cdc-platform reconcile` compares the tables"
)
"""Why it is in quarantine. A prepared XA transaction's rows come when it is prepared, and nothing in the event that
takes it back (MySQL's XA ROLLBACK) says which they were."""

_ORDER = pa.struct(
    [
        ("epoch", pa.int64()),
        ("file", pa.int64()),
        ("pos", pa.decimal128(20, 0)),
        ("event", pa.int64()),
        ("row", pa.int64()),
        ("landed", pa.int64()),
    ]
)
_SAID = [("format", pa.string()), ("decoder_version", pa.string())]
_TXN = ("source_time", "landed_at", "txn_id", "txn_seq", "txn_last", "gtid", "binlog_file", "binlog_pos")
_ROW = (
    *("topic", "partition", "offset", "entry_index", "row_index", "db", "schema", "table", "op"),
    *("key", "before", "after", "schema_version", *_TXN),
)
_MARK = ("topic", "partition", "offset", "entry_index", "kind", "db", "info", *_TXN)
_STATEMENT = (
    *("topic", "partition", "offset", "entry_index", "kind", "db", "schema", "table", "schema_version", "columns"),
    *("ddl", "info", *_TXN),
)
_UNUSABLE = ("topic", "partition", "offset", "entry_index", "row_index", "db", "table", "reason", "landed_at")


def _with_order(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([*_SAID, *(EVENT.field(c) for c in columns), ("order_key", _ORDER)])


CHANGELOG_FILE = _with_order(_ROW)
CONTROL_FILE = _with_order(_MARK)
QUARANTINE_FILE = pa.schema(
    [
        *(*_SAID, ("room", pa.string())),
        *(EVENT.field(c) for c in _UNUSABLE),
        *((c, pa.timestamp("us", "UTC")) for c in ("quarantined_at", "resolved_at")),
    ]
)
"""Rows of CHANGELOG, CONTROL_EVENTS and QUARANTINE without their partition column `source`."""


def stated(schema: pa.Schema) -> tuple[str, ...]:
    """Columns of files whose lowest and highest values are told where a table doesn't say which: all that have some."""
    plain = (f.name for f in schema if not pa.types.is_nested(f.type) and f.name != "reason")
    return (*plain, *(f"order_key.{n}" for n in _ORDER.names if "order_key" in schema.names))


WORDS = (
    *("format", "decoder_version", "topic", "partition", "db", "schema", "table", "op", "kind", "schema_version"),
    *("binlog_file", "gtid", "txn_id", "lineage", "reason", "landed_at", "source_time", "order_key.epoch"),
    *("order_key.file", *(f"{image}.key_value.key" for image in ("key", "before", "after", "info"))),
)
"""Leaf columns whose values repeat."""


@dataclass(frozen=True, slots=True)
class Unify:
    """The work of a pass over files of `changes`. `epochs`: of each lineage, as order.epochs_of. `parts`: Kafka records
    of messages that came in several, by (topic, partition, offset). `versions`: of column lists that the schema history
    lacks. `now`: µs."""

    format: str
    version: str
    tables: Tables
    epochs: Mapping[str | None, int]
    parts: Mapping[tuple[str, int, int], int]
    versions: frozenset[str]
    now: int

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> dict[str, Any]:
        """ledger: [topic, partition, outcome, first and last offset, records]; apart: whether every message's events
        stood together; statements: DDL and new column lists as SCHEMA_HISTORY has them, with `row_index`; placed: per
        new version the lowest order of its rows. An output that isn't there was written before."""
        messages, statements, touched = Messages(self.parts), Statements(self.versions), Touched()
        wanted: dict[str | None, bool] = {}
        for events in batches:
            outcomes = outcome(events, self.tables, wanted)
            messages.add(events, outcomes)
            kind = events.column("kind")
            rows = _those(events, pc.and_(pc.equal(kind, "row"), pc.equal(outcomes, "applied")))
            marks = _those(events, pc.is_in(kind, pa.array(KINDS["control"])))
            bad = _those(events, pc.equal(outcomes, "quarantined"))
            rows = with_keys(rows, self.tables)
            touched.add(rows, self.epochs)
            for output, some, schema in (
                ("changelog", rows, CHANGELOG_FILE),
                ("control_events", marks, CONTROL_FILE),
                ("quarantine", bad, QUARANTINE_FILE),
            ):
                if some.num_rows and output in out:
                    out[output].write(self._said(some, schema))
            statements.add(events, self.epochs)
        if "changelog" in out:
            out["changelog"].note = touched.told()
        return {**messages.told(), "statements": statements.statements, "placed": statements.placed}

    def _said(self, events: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        n = events.num_rows
        made = {
            "format": lambda: pa.repeat(self.format, n),
            "decoder_version": lambda: pa.repeat(self.version, n),
            "order_key": lambda: order_key(events, self.epochs),
            "room": lambda: pa.repeat("changes", n),
            "reason": lambda: _reason(events),
            "quarantined_at": lambda: pa.repeat(pa.scalar(self.now, pa.timestamp("us", "UTC")), n),
            "resolved_at": lambda: pa.nulls(n, pa.timestamp("us", "UTC")),
        }
        columns = [made[f.name]() if f.name in made else events.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _those(events: pa.RecordBatch, which: pa.BooleanArray) -> pa.RecordBatch:
    """Some of the events; mostly it is all or none, which need no copy."""
    count = which.true_count
    return events.slice(0, count) if count in (0, events.num_rows) else events.filter(which)


def _reason(events: pa.RecordBatch) -> pa.Array:
    """As ledger.reason."""
    return pc.if_else(pc.equal(events.column("kind"), "rollback"), ROLLED_BACK, events.column("reason"))


def order_key(events: pa.RecordBatch, epochs: Mapping[str | None, int]) -> pa.StructArray:
    """As order.order_key."""
    column = events.column
    known = [x for x in epochs if x is not None]
    of = pa.array([*(epochs[x] for x in known), epochs.get(None, 0)], pa.int64())
    place = pc.fill_null(pc.index_in(column("lineage"), pa.array(known, pa.string())), len(known))
    told = pc.and_(pc.is_valid(column("file_no")), pc.is_valid(column("binlog_pos")))
    stands_in = column("offset").cast(pa.decimal128(19, 0)).cast(pa.decimal128(20, 0))
    fields = (
        of.take(place),
        pc.if_else(told, column("file_no"), pa.scalar(-1, pa.int64())),
        pc.if_else(told, column("binlog_pos"), stands_in),
        pc.coalesce(column("event_no"), column("entry_index").cast(pa.int64()), pa.scalar(0, pa.int64())),
        pc.coalesce(column("row_no"), column("row_index").cast(pa.int64()), pa.scalar(0, pa.int64())),
        column("offset"),
    )
    return pa.StructArray.from_arrays(fields, fields=list(_ORDER))


def outcome(events: pa.RecordBatch, tables: Tables, wanted: dict[str | None, bool]) -> pa.Array:
    """As ledger.outcome. wanted: answers so far, by name."""
    kind, db, table = (events.column(c) for c in ("kind", "db", "table"))
    named = pc.and_(pc.is_valid(db), pc.is_valid(table))
    of_a_table = pc.or_(pc.equal(kind, "row"), pc.and_(pc.equal(kind, "error"), named))
    left_out = pc.and_(of_a_table, pc.invert(_wanted(_names(db, table), tables, wanted)))
    return pc.case_when(
        pc.make_struct(
            left_out,
            pc.is_in(kind, pa.array(KINDS["errors"])),
            pc.is_in(kind, pa.array(("row", "ddl"))),
        ),
        *(pa.scalar(x) for x in ("filtered", "quarantined", "applied", "control")),
    )


def _names(db: pa.Array, table: pa.Array) -> pa.DictionaryArray:
    """db.table as Spark's concat_ws writes it, each name once."""
    dbs, names = db.dictionary_encode(), table.dictionary_encode()
    count = len(names.dictionary) + 1
    codes = pc.add(
        pc.multiply(pc.fill_null(dbs.indices, len(dbs.dictionary)).cast(pa.int64()), count),
        pc.fill_null(names.indices, count - 1).cast(pa.int64()),
    ).dictionary_encode()
    known = [*dbs.dictionary.to_pylist(), None], [*names.dictionary.to_pylist(), None]
    # Arrow's own join leaves rows out where all is NULL (binary_join_element_wise, null_handling="skip").
    spelled = [
        ".".join(x for x in (known[0][pair // count], known[1][pair % count]) if x is not None)
        for pair in codes.dictionary.to_pylist()
    ]
    return pa.DictionaryArray.from_arrays(codes.indices, pa.array(spelled, pa.string()))


def _wanted(names: pa.DictionaryArray, tables: Tables, known: dict[str | None, bool]) -> pa.BooleanArray:
    found = []
    for name in names.dictionary.to_pylist():
        if name not in known:
            known[name] = tables.wanted_name(name)
        found.append(known[name])
    return pa.array(found, pa.bool_()).take(names.indices)


def with_keys(rows: pa.RecordBatch, tables: Tables) -> pa.RecordBatch:
    """Rows of tables whose key the configuration gives, with that: as rules.key."""
    names = _names(rows.column("db"), rows.column("table")).cast(pa.string()) if tables.keys else None
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


def map_value(maps: pa.MapArray, name: str) -> pa.StringArray:
    """Of each map the value under a key; NULL where it has none."""
    offsets = maps.offsets.to_numpy()
    keys, items = maps.keys, maps.items
    mine = np.nonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))[0]
    row = np.searchsorted(offsets, mine, side="right") - 1
    inside = (row >= 0) & (row < len(maps))
    found = np.full(len(maps), -1, np.int64)
    found[row[inside]] = mine[inside]
    if maps.null_count:
        found[maps.is_null().to_numpy(zero_copy_only=False)] = -1
    return items.take(pa.array(found, mask=found < 0))


class Statements:
    """DDL statements of a file, its first statements of new column lists, and where the rows of those begin."""

    def __init__(self, versions: frozenset[str]):
        self._versions = pa.array(sorted(versions), pa.string())
        self._ddl: list[dict[str, Any]] = []
        self._lists: dict[str, dict[str, Any]] = {}
        self.placed: dict[str, list[int]] = {}

    @property
    def statements(self) -> list[dict[str, Any]]:
        """As Unify tells them."""
        return [*self._ddl, *self._lists.values()]

    def add(self, events: pa.RecordBatch, epochs: Mapping[str | None, int]) -> None:
        """More events, in the order of the file."""
        kind = events.column("kind")
        new = pc.is_in(events.column("schema_version"), self._versions)
        told = _those(events, pc.or_(pc.equal(kind, "ddl"), pc.and_(pc.equal(kind, "schema"), new)))
        for event, order in zip(told.to_pylist(), order_key(told, epochs).to_pylist(), strict=True):
            statement = {
                **{c: event[c] for c in (*_STATEMENT, "row_index")},
                **{c: None if event[c] is None else _micros(event[c]) for c in ("source_time", "landed_at")},
                "binlog_pos": None if event["binlog_pos"] is None else str(event["binlog_pos"]),
                "order_key": [int(x) for x in order.values()],
            }
            if event["kind"] == "ddl":
                self._ddl.append(statement)
            else:
                version = event["schema_version"]
                self._lists[version] = min(statement, self._lists.get(version, statement), key=came)
        rows = _those(events, pc.and_(pc.equal(kind, "row"), new))
        for version in pc.unique(rows.column("schema_version")).to_pylist():
            mine = rows.filter(pc.equal(rows.column("schema_version"), version))
            low = _lowest(order_key(mine, epochs))
            self.placed[version] = min(low, self.placed.get(version, low))


def came(statement: dict[str, Any]) -> tuple:
    """When a statement arrived; NULL before all, as Spark has it."""
    at = ("landed_at", "topic", "partition", "offset", "entry_index", "row_index")
    return tuple((statement[n] is not None, statement[n]) for n in at)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _lowest(orders: pa.StructArray) -> list[int]:
    columns = dict(zip(_ORDER.names, orders.flatten(), strict=True))
    first = pc.sort_indices(pa.table(columns), sort_keys=[(n, "ascending") for n in columns])[0].as_py()
    return [int(column[first].as_py()) for column in columns.values()]


class Touched:
    """Which tables the rows of a file change, noted in its footer so that the snapshots needn't look for them."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str | None, str | None, str | None], dict[str, Any]] = {}
        self._fine = True

    def add(self, rows: pa.RecordBatch, epochs: Mapping[str | None, int]) -> None:
        """More rows of the changelog."""
        if not rows.num_rows or not self._fine:
            return
        codes = [rows.column(c).dictionary_encode() for c in ("db", "table", "schema_version")]
        group, names = np.zeros(rows.num_rows, np.int64), [c.dictionary.to_pylist() for c in codes]
        for c in codes:
            group = group * (len(c.dictionary) + 1) + pc.fill_null(c.indices, len(c.dictionary)).to_numpy()
        try:
            order = numbers(order_key(rows, epochs))
        except pa.ArrowInvalid:  # a position that no 64-bit integer holds
            self._fine = False
            return
        told = pc.or_(pc.is_valid(rows.column("key")), pc.fill_null(pc.equal(rows.column("op"), "truncate"), False))
        told = told.to_numpy(zero_copy_only=False)
        if not later(order).all():
            by_order = np.lexsort(order.T[::-1])
            group, order, told = group[by_order], order[by_order], told[by_order]
        found, first, counts = np.unique(group, return_index=True, return_counts=True)
        last = len(group) - 1 - np.unique(group[::-1], return_index=True)[1]
        untold = set(np.unique(group[~told]).tolist())
        ends = zip(found.tolist(), order[first].tolist(), order[last].tolist(), counts, strict=True)
        for code, low, newest, n in ends:
            key = _unpacked(code, names)
            known = self._groups.setdefault(key, {"n": 0, "low": low, "newest": newest, "told_keys": True})
            known["n"] += int(n)
            known["low"], known["newest"] = min(known["low"], low), max(known["newest"], newest)
            known["told_keys"] &= code not in untold

    def told(self) -> list[dict[str, Any]] | None:
        """Per db, table and schema_version: n changes, low and newest order, told_keys. None: not known."""
        if not self._fine:
            return None
        named = ("db", "table", "schema_version")
        return [{**dict(zip(named, key, strict=True)), **figures} for key, figures in self._groups.items()]


def _unpacked(code: int, names: list[list[str]]) -> tuple[str | None, str | None, str | None]:
    out: list[str | None] = []
    for known in reversed(names):
        code, place = divmod(code, len(known) + 1)
        out.append(known[place] if place < len(known) else None)
    return out[2], out[1], out[0]


def numbers(order_key: pa.StructArray) -> np.ndarray:
    """One row of numbers per order. Raises ArrowInvalid where one is no 64-bit integer."""
    return np.column_stack([column.cast(pa.int64()).to_numpy() for column in order_key.flatten()])


class Messages:
    """What became of the messages of a file, event by event: the first of RANK that any of its events has."""

    def __init__(self, parts: Mapping[tuple[str, int, int], int]):
        self._parts = parts
        self._topics: dict[str, int] = {}
        self._seen: list[tuple[np.ndarray, ...]] = []

    def add(self, events: pa.RecordBatch, outcomes: pa.Array) -> None:
        """Events in the order of the file, with their outcomes."""
        topics = events.column("topic").dictionary_encode()
        known = [self._topics.setdefault(t, len(self._topics)) for t in topics.dictionary.to_pylist()]
        codes = np.array(known, np.int64)
        rank = pc.index_in(outcomes, pa.array(RANK)).to_numpy(zero_copy_only=False)
        place = codes[topics.indices.to_numpy()] * (1 << 32) + events.column("partition").to_numpy()
        self._seen.append((place, events.column("offset").to_numpy(), rank.astype(np.int8)))

    def told(self) -> dict[str, Any]:
        """As Unify tells it."""
        if not self._seen:
            return {"ledger": [], "apart": True}
        place, offset, rank = (np.concatenate(c) for c in zip(*self._seen, strict=True))
        new = np.ones(len(place), bool)
        new[1:] = (place[1:] != place[:-1]) | (offset[1:] != offset[:-1])
        starts = np.nonzero(new)[0]
        rank = np.minimum.reduceat(rank, starts)
        place, offset = place[starts], offset[starts]
        topics = list(self._topics)
        apart, ledger = True, []
        for at in np.unique(place).tolist():
            topic, partition = topics[at >> 32], at & 0xFFFFFFFF
            mine = place == at
            offsets, ranks = offset[mine], rank[mine]
            apart &= bool((np.diff(offsets) > 0).all()) or len(np.unique(offsets)) == len(offsets)
            weights = np.ones(len(offsets), np.int64)
            for i in np.nonzero(np.isin(offsets, self._long(topic, partition)))[0].tolist():
                weights[i] = self._parts[topic, partition, int(offsets[i])]
            for r in np.unique(ranks).tolist():
                these = ranks == r
                first, last = int(offsets[these].min()), int(offsets[these].max())
                ledger.append([topic, partition, RANK[r], first, last, int(weights[these].sum())])
        return {"ledger": ledger, "apart": bool(apart)}

    def _long(self, topic: str, partition: int) -> list[int]:
        return [offset for t, p, offset in self._parts if (t, p) == (topic, partition)]
