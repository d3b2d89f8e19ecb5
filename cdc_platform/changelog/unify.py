"""EVENT batches → changelog rows, control events and what becomes of every message; Arrow only, on the executors.

The same as `outputs` and `ledger` say in columns of Spark, for batches whose files every executor sees: the changelog's
rows then never become Spark's. tests/changelog/test_unify.py holds both against each other.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.config import Tables
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.summary import KINDS
from cdc_platform.resources.parquet import Output

RANK = ("quarantined", "applied", "filtered", "duplicate", "control")
"""A message with several outcomes counts under the first of these."""

_UNREAD = ("reason", "columns", "ddl")
EVENTS = pa.schema([f for f in EVENT if f.name not in _UNREAD])
"""What is read of `changes`."""

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


def _with_order(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([*_SAID, *(EVENT.field(c) for c in columns), ("order_key", _ORDER)])


CHANGELOG_FILE = _with_order(_ROW)
CONTROL_FILE = _with_order(_MARK)
"""Rows of CHANGELOG and CONTROL_EVENTS without their partition column `source`."""

PLAIN_STATS = (
    *("topic", "partition", "offset", "entry_index", "kind", "db", "source_time", "landed_at"),
    *(f"order_key.{f.name}" for f in _ORDER),
)
"""Columns of files whose lowest and highest values are told where a table doesn't say which."""

WORDS = (
    *("format", "decoder_version", "topic", "partition", "db", "schema", "table", "op", "kind", "schema_version"),
    *("binlog_file", "gtid", "txn_id", "lineage", "reason", "landed_at", "source_time", "order_key.epoch"),
    *("order_key.file", *(f"{image}.key_value.key" for image in ("key", "before", "after", "info"))),
)
"""Leaf columns whose values repeat."""


@dataclass(frozen=True, slots=True)
class Unify:
    """The work of a pass over files of `changes`. `epochs`: of each lineage, as order.epochs_of. `parts`: Kafka records
    of messages that came in several, by (topic, partition, offset)."""

    format: str
    version: str
    tables: Tables
    epochs: Mapping[str | None, int]
    parts: Mapping[tuple[str, int, int], int]

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> dict[str, Any]:
        """ledger: [topic, partition, outcome, first and last offset, records]; apart: whether every message's events
        stood together. An output that isn't there was written before."""
        messages = Messages(self.parts)
        wanted: dict[str | None, bool] = {}
        for events in batches:
            outcomes = outcome(events, self.tables, wanted)
            messages.add(events, outcomes)
            rows = events.filter(pc.and_(pc.equal(events.column("kind"), "row"), pc.equal(outcomes, "applied")))
            if rows.num_rows and "changelog" in out:
                out["changelog"].write(self._said(with_keys(rows, self.tables), CHANGELOG_FILE))
            marks = events.filter(pc.is_in(events.column("kind"), pa.array(KINDS["control"])))
            if marks.num_rows and "control_events" in out:
                out["control_events"].write(self._said(marks, CONTROL_FILE))
        return messages.told()

    def _said(self, events: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        n = events.num_rows
        made = {
            "format": lambda: pa.repeat(self.format, n),
            "decoder_version": lambda: pa.repeat(self.version, n),
            "order_key": lambda: order_key(events, self.epochs),
        }
        columns = [made[f.name]() if f.name in made else events.column(f.name) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


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
    pairs = codes.dictionary.to_numpy()
    spelled = pc.binary_join_element_wise(
        pa.array([*dbs.dictionary.to_pylist(), None], pa.string()).take(pa.array(pairs // count)),
        pa.array([*names.dictionary.to_pylist(), None], pa.string()).take(pa.array(pairs % count)),
        ".",
        null_handling="skip",
    )
    return pa.DictionaryArray.from_arrays(codes.indices, spelled)


def _wanted(names: pa.DictionaryArray, tables: Tables, known: dict[str | None, bool]) -> pa.BooleanArray:
    found = []
    for name in names.dictionary.to_pylist():
        if name not in known:
            known[name] = tables.wanted_name(name)
        found.append(known[name])
    return pa.array(found, pa.bool_()).take(names.indices)


def with_keys(rows: pa.RecordBatch, tables: Tables) -> pa.RecordBatch:
    """Rows of tables whose key the configuration gives, with that: as rules.key."""
    for table, columns in tables.keys.items():
        names = pc.binary_join_element_wise(rows.column("db"), rows.column("table"), ".", null_handling="skip")
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


class Messages:
    """What became of the messages of a file, event by event: the first of RANK that any of its events has."""

    def __init__(self, parts: Mapping[tuple[str, int, int], int]):
        self._parts = parts
        self._topics: dict[str, int] = {}
        self._seen: list[tuple[np.ndarray, ...]] = []

    def add(self, events: pa.RecordBatch, outcomes: pa.Array) -> None:
        """Events in the order of the file, with their outcomes."""
        topics = events.column("topic").dictionary_encode()
        codes = np.array([self._topics.setdefault(t, len(self._topics)) for t in topics.dictionary.to_pylist()])
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
            apart &= len(np.unique(offsets)) == len(offsets)
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
