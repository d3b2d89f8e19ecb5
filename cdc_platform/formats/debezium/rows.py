"""Row changes of Debezium and dtle, group by group (one table, one schema) → EVENT batches."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_platform.formats import collect
from cdc_platform.formats.contract import LOAD, LOAD_END, UNORDERED
from cdc_platform.formats.debezium.connectors import Database, is_ticdc, place_in_log
from cdc_platform.formats.events import (
    BadColumn,
    columns_json,
    file_number,
    require_distinct_names,
    row_batch,
    schema_version,
)
from cdc_platform.formats.kafka_connect.types import Column
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.formats.texts import BAD, shown

_ABSENT: Any = object()
_NO_ROW: dict = {}


class Row(NamedTuple):
    """One row message: place `at` in the batch, images and key as parsed JSON objects (None: not there)."""

    at: int
    op: str
    before: dict | None
    after: dict | None
    key: dict | None
    source: dict
    transaction: dict | None


@dataclass(slots=True)
class Changes(collect.Changes):
    """Rows of one group, field by field."""

    ROW = Row

    op: list[str]
    before: list[dict | None]
    after: list[dict | None]
    key: list[dict | None]
    source: list[dict]
    transaction: list[dict | None]


LoadEnd = Literal["table", "all"]


class Load(NamedTuple):
    """A snapshot: where in the log it was taken (contract.LOAD); end: its last row of the table, or of all tables."""

    at: str
    end: LoadEnd | None


@dataclass(slots=True)
class Table:
    """What all rows of a group share: the table, its columns by name, the key's column names in key order."""

    db: str
    table: str
    dtle: bool
    columns: dict[str, Column]
    key_names: tuple[str, ...]
    complete: bool  # False: no image told the columns, so they name no schema version
    rekeyed: bool = False  # the messages' own key is another one
    database: Database = "mysql"
    schema: str | None = None
    load: Load | None = None
    key_set: frozenset[str] = field(init=False)
    columns_json: str | None = field(init=False, default=None)
    version: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        require_distinct_names(self.columns)
        self.key_set = frozenset(self.key_names)
        if self.complete:
            self.columns_json = columns_json(
                [
                    {"name": c.name, "type": c.type_text, "key": c.name in self.key_names, "limits": c.limits}
                    for c in self.columns.values()
                ]
            )
            # Each snapshot states the columns once more: so its place is kept beside them.
            states = [self.columns_json, *(part or "" for part in self.load or ())]
            self.version = schema_version(self.db, self.table, "\x00".join(states), self.schema)

    def schema_event(self) -> dict[str, Any]:
        """EVENT of kind schema, without wire address."""
        writer = "dtle" if self.dtle else self.database
        info = [("writer", writer)] if writer != "mysql" else []
        if self.load:
            info += [(LOAD, self.load.at), *([(LOAD_END, self.load.end)] if self.load.end else [])]
        return {
            "kind": "schema",
            "db": self.db,
            "schema": self.schema,
            "table": self.table,
            "schema_version": self.version,
            "columns": self.columns_json,
            **({"info": info} if info else {}),
        }


def row_changes(messages: pa.RecordBatch, table: Table, rows: Changes) -> pa.RecordBatch:
    """Rows of one table → EVENT batch. Raises one of BAD where a row can't be used."""
    if table.database != "mysql":
        _check_whole(rows, table.columns.values())
    position = positions(rows.source, [table.dtle] * len(rows), table.database)
    transactions = [transaction or _NO_ROW for transaction in rows.transaction]
    key_columns = {name: table.columns[name] for name in table.key_names}
    columns = {
        "db": table.db,
        "schema": table.schema,
        "table": table.table,
        "op": rows.op,
        "key": map_array(rows.key, key_columns, whole=False),
        "before": map_array(rows.before, table.columns),
        "after": map_array(rows.after, table.columns),
        "schema_version": [None if op == "truncate" else table.version for op in rows.op],
        "txn_id": [
            _txn(t.get("id")) or _text(s.get("gtid")) or None for t, s in zip(transactions, rows.source, strict=True)
        ],
        "txn_seq": [integer(t.get("total_order"), "transaction.total_order") for t in transactions],
        **position,
    }
    if table.rekeyed:  # a change of Kafka's key is a delete and an insert of one row, at one position
        columns["event_no"] = [int(op == "insert") for op in rows.op]
    if any(map(is_ticdc, rows.source)):
        columns["info"] = [[(UNORDERED, "")] if is_ticdc(s) else None for s in rows.source]
    return row_batch(messages, rows.at, columns)


def _check_whole(rows: Changes, columns: Iterable[Column]) -> None:
    """An insert without a value is the second half of an update that changed the key: what it doesn't tell (a value in
    TOAST) stood in the row of the old key. Raises BadColumn."""
    new = [after for op, after in zip(rows.op, rows.after, strict=True) if op in ("insert", "read") and after]
    for c in columns:
        if c.unavailable is not None and any(row.get(c.name, _ABSENT) == c.unavailable for row in new):
            why = "isn't told: its value is that of the old key's row; REPLICA IDENTITY FULL makes messages tell it"
            raise BadColumn(c.name, f"column {shown(c.name)} of a row whose key was changed {why}")


def positions(sources: list[dict], dtle: list[bool], database: Database = "mysql") -> dict[str, list]:
    """`source` blocks of one database → source_time (µs), gtid, binlog place, lineage, file_no, event_no, row_no."""
    if database != "mysql":
        return _log_places(sources)
    files = [_text(s.get("file")) or None for s in sources]
    numbers = {f: file_number(f) for f in set(files)}
    return {
        "source_time": list(map(source_time, sources)),
        "gtid": [_text(s.get("gtid")) or None for s in sources],
        "binlog_file": files,
        # dtle's snapshot rows carry file "" and pos 0: no position.
        "binlog_pos": [integer(s.get("pos"), "source.pos") if f else None for s, f in zip(sources, files, strict=True)],
        "lineage": [_dtle_lineage(s) if d else _lineage(s) for s, d in zip(sources, dtle, strict=True)],
        "file_no": [numbers[f] for f in files],
        "event_no": [0] * len(sources),
        "row_no": [integer(s.get("row"), "source.row") for s in sources],
    }


def _log_places(sources: list[dict]) -> dict[str, list]:
    places = list(map(place_in_log, sources))
    nothing = [None] * len(sources)
    return {
        "source_time": list(map(source_time, sources)),
        "gtid": nothing,
        "binlog_file": [p.file for p in places],
        "binlog_pos": [p.pos for p in places],
        "lineage": nothing,
        "file_no": [p.number for p in places],
        "event_no": [0] * len(sources),
        "row_no": nothing,
    }


def place_of_row(address: tuple[str, int, int], source: dict, *, dtle: bool) -> Place:
    """Where a row with this `source` block stands, as far as that says it."""
    file, pos = file_number(_text(source.get("file"))), integer(source.get("pos"), "source.pos")
    number = None if file is None or pos is None else (file, pos)
    lineage = _dtle_lineage(source) if dtle else _lineage(source)
    return Place(*address, 0, lineage, number, source_time(source))


def _lineage(source: dict) -> str | None:
    # Debezium's snapshot rows carry server_id 0: nobody's binlog.
    server = integer(source.get("server_id"), "source.server_id")
    return str(server) if server and server > 0 else None


def _dtle_lineage(source: dict) -> str | None:
    # dtle's server_id is a constant (0 in snapshots, 1 later) and says nothing; its job name does.
    return f"dtle:{_text(source.get('name')) or ''}"


_CLOCKS = (("ts_us", 1, 1), ("ts_ms", 1000, 1), ("ts_sec", 1_000_000, 1), ("ts_ns", 1, 1000))


_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999


def source_time(source: dict) -> int | None:
    """Commit time at the source in µs: ts_us, ts_ms, ts_sec (0.x; dtle's own clock) or ts_ns; 0: not told."""
    for name, times, per in _CLOCKS:
        value = integer(source.get(name), name)
        if value:
            micros = value * times // per
            if not _FIRST_TIME <= micros <= _LAST_TIME:  # no reader of the tables could show it
                raise ValueError(f"{name}: {value} is outside the years 1 to 9999")
            return micros
    return None


def integer(value: Any, name: str) -> int | None:
    """JSON integer, or a text of one (`transaction` blocks hold either). Raises ValueError."""
    if value is None or type(value) is int:
        return value
    if type(value) is str and value.strip().isdecimal():
        return int(value)
    raise ValueError(f"{name}: {shown(value)} is no integer")


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    raise ValueError(f"{shown(value)} stands where a text belongs (source.file, gtid, name, or transaction.id)")


def _txn(value: Any) -> str | None:
    return str(value) if type(value) is int else _text(value)


def map_array(images: list[dict | None], columns: dict[str, Column], whole: bool = True) -> pa.MapArray:
    """Row images → MAP<string,string> of canonical text; None → null map. `whole`: fields that are no column
    are an error (they would be lost), missing ones are absent; otherwise every column must be there."""
    missing = np.fromiter((i is None for i in images), bool, len(images))
    there = [i for i in images if i is not None]
    if not columns and whole and any(there):
        raise ValueError("the message's schema names no columns for its rows")
    sizes, names, values = _entries(there, columns, whole) if there else (np.zeros(0, np.int64), [], [])
    counts = np.zeros(len(images) + 1, np.int64)
    counts[1:][~missing] = sizes
    offsets = pa.array(np.cumsum(counts).astype(np.int32))
    items = pa.array(values, pa.string())
    keys = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
    # Nulls go in by the mask: null offsets would need their own copy of the array.
    return pa.MapArray.from_arrays(offsets, keys, items, mask=pa.array(missing) if missing.any() else None)


def _entries(images: list[dict], columns: dict[str, Column], whole: bool) -> tuple[Any, Any, list]:
    """→ entries per image, entry names, entry values; image by image, columns in table order."""
    lists, sparse = [], False
    for column in columns.values():
        values, gaps = _values(images, column, whole)
        sparse = sparse or gaps
        lists.append(values)
    n, width = len(images), len(lists)
    if whole and (sparse or set(map(len, images)) != {width}):
        _check_fields(images, columns)
    flat = list(chain.from_iterable(zip(*lists, strict=True)))
    names = pa.array(list(columns), pa.string())
    if not sparse:
        return np.full(n, width), names.take(pa.array(np.tile(np.arange(width, dtype=np.int32), n))), flat
    kept = np.fromiter((v is not _ABSENT for v in flat), bool, len(flat))
    places = np.tile(np.arange(width, dtype=np.int32), n)[kept]
    return (
        kept.reshape(n, width).sum(axis=1),
        names.take(pa.array(places)),
        [v for v in flat if v is not _ABSENT],
    )


def _values(images: list[dict], column: Column, whole: bool) -> tuple[list, bool]:
    """One column's texts, `_ABSENT` where the image lacks it; and whether any is absent."""
    try:
        values = list(map(itemgetter(column.name), images))
        gaps = False
    except KeyError:
        values = [i.get(column.name, _ABSENT) for i in images]
        gaps = True
    if column.unavailable is not None and column.unavailable in values:
        values = [_ABSENT if v == column.unavailable else v for v in values]
        gaps = True
    if not whole and (gaps or None in values):  # MERGE would never find a row of such a key
        raise BadColumn(column.name, f"key column {shown(column.name)} has no value")
    try:
        if not gaps:
            return column.convert(values), False
        texts = column.convert([None if v is _ABSENT else v for v in values])
    except BAD as e:
        raise BadColumn(column.name, f"column {shown(column.name)}: {e}") from e
    return [_ABSENT if v is _ABSENT else t for v, t in zip(values, texts, strict=True)], True


def _check_fields(images: list[dict], columns: dict[str, Column]) -> None:
    for image in images:
        if extra := image.keys() - columns.keys():
            raise ValueError(f"fields that the schema doesn't name: {', '.join(sorted(map(shown, extra)))}")
