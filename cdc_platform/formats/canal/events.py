"""canal's entries and rows → EVENT batch, column by column, in wire order."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal.entries import KIND, OPS, Entries, header_field
from cdc_platform.formats.canal.rows import RowChanges, Side
from cdc_platform.formats.canal.statements import named, statements
from cdc_platform.formats.contract import BAD_COLUMN, EVENT, KINDS
from cdc_platform.formats.events import file_number
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf.arrow import Lists, bools, build_maps, lists, non_empty_text, take_or_null
from cdc_platform.formats.texts import FIRST_MS, LAST_MS

_CONTROL = ("begin", "commit", "rollback", "heartbeat", "checkpoint")
_INFO: dict[str, tuple[str, dict[str, str]]] = {
    "begin": ("begin", {"transactionId": "transaction_id", "threadId": "thread_id"}),
    "commit": ("commit", {"transactionId": "transaction_id"}),
    "checkpoint": ("checkpoint", {"key": "key", "value": "value"}),
}
"""Kind of entry → its body, and which fields `info` has by which names; empty ones are left out."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where each event comes from: its message, entry (-1: none) and row (-1: no row of a RowChange); `extra` the
    place of what a statement told (-1: nothing)."""

    message: np.ndarray
    entry: np.ndarray
    row: np.ndarray
    extra: np.ndarray
    row_index: np.ndarray
    is_schema: np.ndarray


def _layout(entries: Entries, rows: RowChanges, extra: list[tuple[int, int]], schemas: np.ndarray) -> _Layout:
    """One event per row, per event of a statement (`extra`: entry and number there), per other entry, per message
    without entries; before each of the rows `schemas`, one for the columns it states."""
    taken = np.zeros(len(entries.kind), bool)
    taken[rows.entry] = True
    taken[[e for e, _ in extra]] = True
    other = np.nonzero(~taken)[0]
    silent = np.array(sorted(entries.silent), np.int64)
    none = np.full
    parts = [  # entry, row, extra, row_index, is_schema
        (rows.entry, np.arange(len(rows.entry)), none(len(rows.entry), -1), rows.place, 0),
        (rows.entry[schemas], schemas, none(len(schemas), -1), rows.place[schemas], 1),
        (
            np.array([e for e, _ in extra], np.int64),
            none(len(extra), -1),
            np.arange(len(extra)),
            np.array([n for _, n in extra], np.int64),
            0,
        ),
        (other, none(len(other), -1), none(len(other), -1), np.zeros(len(other), np.int64), 0),
        (none(len(silent), -1), none(len(silent), -1), none(len(silent), -1), np.zeros(len(silent), np.int64), 0),
    ]
    entry, row, extra_at, row_index = (np.concatenate([p[i] for p in parts]).astype(np.int64) for i in range(4))
    is_schema = np.repeat([bool(p[4]) for p in parts], [len(p[0]) for p in parts])
    message = np.append(entries.message, -1)[entry]
    message[entry < 0] = silent
    order = np.lexsort((~is_schema, row_index, entry, message))
    return _Layout(message[order], entry[order], row[order], extra_at[order], row_index[order], is_schema[order])


def assemble(batch: pa.RecordBatch, entries: Entries, rows: RowChanges, seen: set[str]) -> pa.RecordBatch:
    """Everything decoded from a MESSAGE batch → its EVENT batch. `seen`: schema versions told already."""
    told = statements(entries)
    extra = [(entry, number) for entry, events in told.items() for number in range(len(events))]
    details = [event for events in told.values() for event in events]
    at = _layout(entries, rows, extra, _new_schemas(rows, seen))
    kind, reason = _kinds(entries, rows, details, at)
    of_rows = np.nonzero((at.row >= 0) & ~at.is_schema)[0]  # event of each row
    is_change = (kind == KIND["row"]) & (at.row >= 0)
    op = np.append(rows.op, 0)[at.row]

    def image(side: Side, has_map: np.ndarray) -> pa.MapArray:
        return build_maps(of_rows[side.row], side.names, side.text, has_map)

    truncate = (kind == KIND["row"]) & (at.row < 0)
    version = np.append(rows.version, -1)[at.row]
    version[~is_change & ~at.is_schema] = -1
    texts = [pa.array([v[i] for v in rows.versions], pa.string()) for i in (2, 3)]
    ddl = pa.array([d.get("ddl") for d in details], pa.string())
    header = _header_columns(entries, at.entry)
    # A DDL statement's database is the session's, where that is told; a TRUNCATE may name its table alone.
    stated = {n: take_or_null(pa.array([d.get(n) for d in details], pa.string()), at.extra) for n in ("db", "table")}
    ops = np.where(truncate, 0, np.where(is_change, op, -1))
    names = {n: pc.coalesce(stated[n], header[n]) for n in ("db", "table")}
    if (unnamed := _unnamed(entries, details, kind, at)).any():
        names = {n: pc.if_else(pa.array(unnamed), None, told) for n, told in names.items()}
    values = {
        **header,
        **names,
        **{
            name: batch.column(name).take(pa.array(at.message)).cast(EVENT.field(name).type)
            for name in ("topic", "partition", "offset", "landed_at")
        },
        "entry_index": pa.array(np.append(entries.place, 0)[at.entry], pa.int32()),
        "row_index": pa.array(at.row_index, pa.int32()),
        "kind": pa.array(KINDS).take(pa.array(kind)),
        "reason": reason,
        "op": pa.array(["truncate", *OPS.values()]).take(pa.array(ops, mask=ops < 0)),
        "key": image(rows.key, (at.row >= 0) & ~at.is_schema & np.append(rows.has_key, False)[at.row]),
        "before": image(rows.before, is_change & np.append(rows.has_before, False)[at.row]),
        "after": image(rows.after, is_change & (op != pb.DELETE)),
        "schema_version": take_or_null(texts[0], version),
        "columns": take_or_null(texts[1], np.where(at.is_schema, version, -1)),
        "ddl": take_or_null(ddl, at.extra),
        "row_no": _row_numbers(rows, at, truncate),
        "info": _info(entries, details, kind, at, {int(of_rows[row]): name for row, name in rows.bad_column.items()}),
    }
    nulls = (values.get(f.name, pa.nulls(len(kind), f.type)) for f in EVENT)
    return pa.RecordBatch.from_arrays(list(nulls), schema=EVENT)


def _new_schemas(rows: RowChanges, seen: set[str]) -> np.ndarray:
    """First rows that state columns not yet told."""
    found, first = np.unique(rows.version, return_index=True)
    new = []
    for number, row in sorted(zip(found.tolist(), first.tolist(), strict=True), key=lambda p: p[1]):
        if number >= 0 and (version := rows.versions[number][2]) not in seen:
            seen.add(version)
            new.append(row)
    return np.array(new, np.int64)


def _row_numbers(rows: RowChanges, at: _Layout, truncate: np.ndarray) -> pa.Array:
    number = np.where(truncate, 0, np.append(rows.number, -1)[at.row])
    return pa.array(number, pa.int64(), mask=(number < 0) | at.is_schema)


def _kinds(
    entries: Entries, rows: RowChanges, details: list[dict[str, Any]], at: _Layout
) -> tuple[np.ndarray, pa.StringArray]:
    kind = np.append(entries.kind, KIND["error"])[at.entry]
    reason = np.full(len(kind), None, object)
    event_of = np.zeros(len(entries.kind), np.int64)
    event_of[at.entry[at.entry >= 0]] = np.nonzero(at.entry >= 0)[0]
    for entry, why in entries.reason.items():
        reason[event_of[entry]] = why
    of_rows = np.nonzero((at.row >= 0) & ~at.is_schema)[0]
    for row, why in rows.bad.items():
        kind[of_rows[row]], reason[of_rows[row]] = KIND["error"], why
    kind[at.is_schema] = KIND["schema"]
    for event in np.nonzero(at.extra >= 0)[0].tolist():
        detail = details[at.extra[event]]
        kind[event], reason[event] = KIND[detail["kind"]], detail.get("reason")
    for event in np.nonzero(at.entry < 0)[0].tolist():
        name, reason[event] = entries.silent[int(at.message[event])]
        kind[event] = KIND[name]
    return kind, pa.array(reason, pa.string())


def _unnamed(entries: Entries, details: list[dict[str, Any]], kind: np.ndarray, at: _Layout) -> np.ndarray:
    """Which errors aren't, or not surely, about the table that their header names."""
    out = np.zeros(len(kind), bool)
    errors = np.nonzero((kind == KIND["error"]) & (at.entry >= 0) & (at.row < 0))[0].tolist()
    if not errors:
        return out
    types = pc.fill_null(entries.header.field("eventType"), 0).to_numpy()
    for event in errors:
        entry, extra = int(at.entry[event]), int(at.extra[event])
        known = details[extra]["named"] if extra >= 0 else named(int(types[entry]), is_statement=False)
        out[event] = not (known or entries.with_rows[entry])
    return out


def _header_columns(entries: Entries, entry: np.ndarray) -> dict[str, pa.Array]:
    """What the entries' headers tell, per event."""
    field = {n: header_field(entries, n, entry) for n in ("logfileName", "serverId", "schemaName", "tableName", "gtid")}
    names = field["logfileName"].dictionary_encode()
    numbers = pa.array([file_number(n) for n in names.dictionary.to_pylist()], pa.int64())
    there = field["logfileName"].is_valid()
    offset = pc.if_else(there, take_or_null(entries.header.field("logfileOffset"), entry), None)
    ms = header_field(entries, "executeTime", entry)
    broken = pc.or_(pc.less(ms, FIRST_MS), pc.greater(ms, LAST_MS))  # an error already
    micros = pc.multiply(pc.if_else(pc.fill_null(broken, True), None, ms), 1000)
    # The header's GTID is the set of all executed; this transaction's is a property.
    gtid = take_or_null(_property(entries, "curtGtid"), entry)
    return {
        "db": field["schemaName"],
        "table": field["tableName"],
        "source_time": micros.cast(pa.timestamp("us", "UTC")),
        "txn_id": gtid,
        "gtid": pc.coalesce(gtid, field["gtid"]),
        "binlog_file": field["logfileName"],
        "binlog_pos": offset.cast(pa.decimal128(20, 0)),
        "lineage": field["serverId"].cast(pa.string()),
        "file_no": numbers.take(names.indices),
        # An event has its position for itself, wherever in a message it stands.
        "event_no": pc.if_else(there, pa.scalar(0, pa.int64()), None),
    }


def _property(entries: Entries, key: str) -> pa.StringArray:
    """Value of the last property of this name in each entry's header; null where there is none or it is empty."""
    props = lists(entries.header.field("props"))
    of = _parents(props)
    hit = np.nonzero(pc.equal(props.values.field("key"), key).to_numpy(zero_copy_only=False))[0]
    at = np.full(len(props.lengths), -1)
    at[of[hit]] = hit
    return non_empty_text(props.values.field("value"), at)


def _parents(found: Lists) -> np.ndarray:
    of = np.full(len(found.values), -1)
    of[: found.lengths.sum()] = np.repeat(np.arange(len(found.lengths)), found.lengths)
    return of


def _info(
    entries: Entries, details: list[dict[str, Any]], kind: np.ndarray, at: _Layout, bad_column: dict[int, str]
) -> pa.MapArray:
    """What control events and statements say, field by field. `bad_column`: event → column."""
    of_event, keys, texts = [np.zeros(0, np.int64)], [pa.array([], pa.string())], [pa.array([], pa.string())]

    def add(events: np.ndarray, key: pa.Array, text: pa.Array) -> None:
        of_event.append(events)
        keys.append(key)
        texts.append(text)

    plain = (at.entry >= 0) & (at.extra < 0) & (at.row < 0)
    for name, (body, fields) in _INFO.items():
        mine = np.nonzero(plain & (kind == KIND[name]))[0]
        for field, key in fields.items() if len(mine) else ():
            values = entries.bodies[body].column(field).take(pa.array(entries.body[at.entry[mine]])).cast(pa.string())
            told = np.nonzero(~bools(pc.is_in(values, pa.array(["", "0"])), False))[0]
            add(mine[told], pa.repeat(key, len(told)), values.take(pa.array(told)))
        if len(mine) and name != "checkpoint":
            _add_properties(add, entries.bodies[body].column("props"), mine, entries.body[at.entry[mine]])
    sets = np.nonzero(plain & np.isin(kind, [KIND[n] for n in _CONTROL]))[0]
    gtids = header_field(entries, "gtid", at.entry[sets])
    told = np.nonzero(gtids.is_valid().to_numpy(zero_copy_only=False))[0]
    add(sets[told], pa.repeat("gtid_set", len(told)), gtids.take(pa.array(told)))
    for event in np.nonzero(at.extra >= 0)[0].tolist():
        pairs = dict(details[at.extra[event]].get("info") or [])
        add(np.full(len(pairs), event), pa.array(list(pairs), pa.string()), pa.array(list(pairs.values()), pa.string()))
    add(
        np.array(list(bad_column), np.int64),
        pa.repeat(BAD_COLUMN, len(bad_column)),
        pa.array(list(bad_column.values()), pa.string()),
    )
    of = np.concatenate(of_event)
    order = np.argsort(of, kind="stable")
    has_info = np.isin(kind, [KIND[n] for n in (*_CONTROL, "ddl")])
    has_info[list(bad_column)] = True
    order = order[has_info[of[order]]]
    index = pa.array(order)
    return build_maps(of[order], pa.concat_arrays(keys).take(index), pa.concat_arrays(texts).take(index), has_info)


def _add_properties(add: Any, column: pa.ListArray, events: np.ndarray, body: np.ndarray) -> None:
    """Properties of XA transactions: rare."""
    some = lists(column).lengths[body] > 0
    for event, at in zip(events[some].tolist(), body[some].tolist(), strict=True):
        pairs = {p["key"]: p["value"] for p in column[at].as_py()}
        add(np.full(len(pairs), event), pa.array(list(pairs), pa.string()), pa.array(list(pairs.values()), pa.string()))
