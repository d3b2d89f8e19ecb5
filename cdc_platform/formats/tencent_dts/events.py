"""Tencent DTS entries → EVENT batch: what each Entry is, and the events of a batch column by column."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.contract import BAD_COLUMN, EVENT, KINDS
from cdc_platform.formats.events import file_number
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf.arrow import Lists, bools, build_maps, counts, non_empty_text, present, take_or_null
from cdc_platform.formats.tencent_dts.rows import Image, RowChanges
from cdc_platform.mysql.ddl import Statement, truncated_table

_OPS = {pb.INSERT: "insert", pb.UPDATE: "update", pb.DELETE: "delete"}
_BODIES = {
    pb.BEGIN: ("begin", "beginEvent"), pb.COMMIT: ("commit", "commitEvent"), pb.DML: ("row", "dmlEvent"),
    pb.DDL: ("ddl", "ddlEvent"), pb.ROLLBACK: ("rollback", "rollbackEvent"),
    pb.HEARTBEAT: ("heartbeat", "heartbeatEvent"), pb.CHECKPOINT: ("checkpoint", "checkpointEvent"),
}  # fmt: skip
_INFO = {
    "begin": ("beginEvent", {"transaction_id": "transactionId", "thread_id": "threadId"}),
    "commit": ("commitEvent", {"transaction_id": "transactionId"}),
    "rollback": ("rollbackEvent", {}),
    "heartbeat": ("heartbeatEvent", {"epoch": "epoch"}),
    "checkpoint": ("checkpointEvent", {"synced_gtid": "syncedGtid", "fake_gtid": "fakeGtid",
                                       "binlog_file": "fileName", "binlog_pos": "position"}),
    "ddl": ("ddlEvent", {"session_db": "schemaName", "execution_time": "executionTime"}),
}  # fmt: skip
KIND = {kind: number for number, kind in enumerate(KINDS)}
_INT64_MAX = pa.scalar(2**63 - 1, pa.uint64())


@dataclass(frozen=True, slots=True)
class Entries:
    """All Entry messages of a piece: the kind of each (number in KINDS) and why, for errors and skips; `emptied`:
    (database, table) of those that are a TRUNCATE."""

    header: pa.StructArray
    event: pa.StructArray
    kind: np.ndarray
    reason: dict[int, str]
    emptied: dict[int, tuple[str, str]]

    def mark(self, which: np.ndarray, kind: str, reason: Callable[[int], str]) -> None:
        for i in np.nonzero(which)[0].tolist():
            self.kind[i] = KIND[kind]
            self.reason[i] = reason(i)


def read_entries(entry: pa.StructArray, *, untold_source: bool = False) -> Entries:
    """Header and event body of each entry must tell the same kind of event. `untold_source`: source type 0 is MySQL."""
    header, event = entry.field("header"), entry.field("event")
    said, has_header = header.field("messageType").to_numpy(zero_copy_only=False), present(header)
    bodies = {name: present(event) & present(event.field(name)) for _, name in _BODIES.values()}
    number = np.sum(list(bodies.values()), axis=0)
    out = Entries(header, event, np.full(len(entry), KIND["error"], np.int64), {}, {})
    fits = np.zeros(len(entry), bool)
    for message_type, (kind, body) in _BODIES.items():
        mine = has_header & (said == message_type) & bodies[body] & (number == 1)
        out.kind[mine] = KIND[kind]
        fits |= mine

    def contradiction(i: int) -> str:
        told = ", ".join(name for name, there in bodies.items() if there[i]) or "no event"
        if not has_header[i]:
            return f"Entry without header ({told})"
        name = pb.MessageType.Name(said[i]) if said[i] in _BODIES else "unknown"
        return f"messageType {said[i]} ({name}) with {told}"

    out.mark(~fits, "error", contradiction)
    _check_headers(out, fits & has_header, untold_source)
    position = bools(pc.greater(header.field("eventIndex"), _INT64_MAX), False) & fits
    out.mark(position, "error", lambda i: f"eventIndex {header.field('eventIndex')[i]} is beyond 2^63")
    no_sql = (out.kind == KIND["ddl"]) & _empty(event.field("ddlEvent").field("sql"))
    out.mark(no_sql, "error", lambda _: "DDL event without statement")
    _read_truncates(out)
    row = out.kind == KIND["row"]
    nameless = row & (_empty(header.field("schemaName")) | _empty(header.field("tableName")))
    out.mark(nameless, "error", lambda _: "DML event without schemaName or tableName")
    op = event.field("dmlEvent").field("dmlEventType").to_numpy(zero_copy_only=False)
    out.mark(row & ~nameless & ~np.isin(op, list(_OPS)), "error", lambda i: f"unknown dmlEventType {op[i]}")
    return out


_SOURCES = (pb.MYSQL, pb.MARIADB)


def _check_headers(entries: Entries, fits: np.ndarray, untold_source: bool) -> None:
    """Another protocol version, and rows and statements of another database than MySQL. proto3: 0 isn't told, or it is
    ORACLE."""
    version, source = (entries.header.field(n).to_numpy(zero_copy_only=False) for n in ("version", "sourceType"))
    later = fits & ~np.isin(version, (0, 1))
    entries.mark(later, "error", lambda i: f"Header.version {version[i]}; only 1 is known")
    of_data = fits & ~later & np.isin(entries.kind, (KIND["row"], KIND["ddl"]))
    known = (*_SOURCES, 0) if untold_source else _SOURCES

    def why(i: int) -> str:
        name = pb.SourceType.Name(source[i]) if source[i] in pb.SourceType.values() else "unknown"
        also = " or not told; option untold_source takes that for MySQL" if not source[i] else ""
        return f"sourceType {source[i]} ({name}{also}); only MYSQL and MARIADB are understood"

    entries.mark(of_data & ~np.isin(source, known), "error", why)


def _read_truncates(entries: Entries) -> None:
    """DTS sends a TRUNCATE as nothing but a statement; the header's table isn't promised to be the one it names."""
    ddl = entries.event.field("ddlEvent")
    for i in np.nonzero(entries.kind == KIND["ddl"])[0].tolist():
        session = ddl.field("schemaName")[i].as_py() or entries.header.field("schemaName")[i].as_py()
        try:
            emptied = truncated_table(Statement(session, ddl.field("sql")[i].as_py()))
        except ValueError as error:
            entries.kind[i], entries.reason[i] = KIND["error"], str(error)
            continue
        if emptied is not None:
            entries.emptied[i] = emptied


def _empty(text: pa.StringArray) -> np.ndarray:
    return pc.fill_null(pc.binary_length(text), 0).to_numpy() == 0


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where each event comes from: index of its message, Entry (-1: none) and row (-1: no row change)."""

    message: np.ndarray
    entry: np.ndarray
    row: np.ndarray
    entry_index: np.ndarray
    row_index: np.ndarray
    is_schema: np.ndarray
    truncates: np.ndarray

    def of_rows(self) -> np.ndarray:
        """Event of each row."""
        return np.nonzero((self.row >= 0) & ~self.is_schema)[0]


def _layout(items: Lists, entries: Entries, rows: RowChanges, seen: set[str]) -> _Layout:
    """One event per row, else one per Entry (a TRUNCATE: two), else one per message; before the first row that has
    a schema version not yet `seen`, one for the schema."""
    per_message = np.maximum(items.lengths, 1)
    message, local = np.repeat(np.arange(len(per_message)), per_message), counts(per_message)
    entry = np.where(items.lengths[message] > 0, items.starts[message] + local, -1)
    is_row = np.append(entries.kind == KIND["row"], False)[entry]  # -1 hits the last
    row_counts = np.append(np.bincount(rows.entry, minlength=len(entries.kind)), 0)[entry]
    empties = np.isin(entry, list(entries.emptied))
    per_entry = np.where(is_row, row_counts, 1 + empties)
    of = np.repeat(np.arange(len(entry)), per_entry)
    row_index = counts(per_entry)
    row = np.where(is_row[of], np.cumsum(is_row[of]) - 1, -1)
    event_of_row = np.nonzero(row >= 0)[0]
    groups, first_rows = np.unique(rows.group, return_index=True)
    new = []
    for first, group in sorted(zip(first_rows.tolist(), groups.tolist(), strict=True)):
        version, _ = rows.schemas[group]
        if version not in seen:
            seen.add(version)
            new.append(event_of_row[first])

    def with_schemas(column: np.ndarray) -> np.ndarray:
        return np.insert(column, new, column[new])

    return _Layout(
        message=with_schemas(message[of]),
        entry=with_schemas(entry[of]),
        row=with_schemas(row),
        entry_index=with_schemas(local[of]),
        row_index=with_schemas(row_index),
        is_schema=np.insert(np.zeros(len(row), bool), new, True),
        truncates=with_schemas(empties[of] & (row_index == 1)),
    )


def assemble(
    batch: pa.RecordBatch,
    items: Lists,
    entries: Entries,
    rows: RowChanges,
    unreadable: dict[int, str],
    *,
    seen: set[str],
) -> pa.RecordBatch:
    """Everything decoded from a MESSAGE batch → its EVENT batch. `unreadable`: message → what is wrong."""
    at = _layout(items, entries, rows, seen)
    of_rows = at.of_rows()
    kind, reason = _kinds(batch, entries, rows, unreadable, at)
    is_row = (kind == KIND["row"]) & ~at.truncates
    row_op = np.where(at.truncates, len(_OPS), np.append(rows.op, -1)[at.row])
    group = np.append(rows.group, -1)[at.row]
    schemas = [rows.schemas.get(g, ("", "")) for g in range(int(rows.group.max(initial=-1)) + 1)]
    versions, columns = (pa.array([s[i] for s in schemas], pa.string()) for i in (0, 1))
    has_key = (at.row >= 0) & ~at.is_schema & np.append(rows.has_key, False)[at.row]

    def image(side: Image, has_map: np.ndarray) -> pa.MapArray:
        return build_maps(of_rows[side.row], side.names, side.text, has_map)

    values = {
        **{
            name: batch.column(name).take(pa.array(at.message)).cast(EVENT.field(name).type)
            for name in ("topic", "partition", "offset", "landed_at")
        },
        "entry_index": pa.array(at.entry_index, pa.int32()),
        "row_index": pa.array(at.row_index, pa.int32()),
        "kind": pa.array(KINDS).take(pa.array(kind)),
        "reason": reason,
        "op": pa.array([*_OPS.values(), "truncate"]).take(pa.array(row_op, mask=~is_row & ~at.truncates)),
        "key": image(rows.key, has_key),
        "before": image(rows.before, is_row & (row_op != pb.INSERT)),
        "after": image(rows.after, is_row & (row_op != pb.DELETE)),
        "schema_version": take_or_null(versions, group),
        "columns": take_or_null(columns, np.where(at.is_schema, group, -1)),
        "row_no": pa.array(at.row_index, pa.int64(), mask=(at.row < 0) | at.is_schema),
        "info": _info(entries.event, kind, at.entry, {int(of_rows[r]): name for r, name in rows.bad_column.items()}),
        **_header_columns(entries, kind, at),
    }
    nulls = (values.get(f.name, pa.nulls(len(kind), f.type)) for f in EVENT)
    return pa.RecordBatch.from_arrays(list(nulls), schema=EVENT)


def _kinds(
    batch: pa.RecordBatch, entries: Entries, rows: RowChanges, unreadable: dict[int, str], at: _Layout
) -> tuple[np.ndarray, pa.StringArray]:
    kind = np.append(entries.kind, KIND["error"])[at.entry]
    kind[at.is_schema], kind[at.truncates] = KIND["schema"], KIND["row"]
    reason = np.full(len(kind), None, object)
    event_of_entry = np.zeros(len(entries.kind), np.int64)
    event_of_entry[at.entry[at.entry >= 0]] = np.nonzero(at.entry >= 0)[0]
    for entry, why in entries.reason.items():
        reason[event_of_entry[entry]] = why
    of_rows = at.of_rows()
    for row, why in rows.bad.items():
        kind[of_rows[row]], reason[of_rows[row]] = KIND["error"], why
    for event in np.nonzero(at.entry < 0)[0]:
        message = int(at.message[event])
        value = batch.column("value")[message].as_py()
        if message in unreadable:
            reason[event] = f"not a serialized Entries: {unreadable[message]}"
        elif value is None:
            reason[event] = "no value"
        elif value:
            reason[event] = f"no Entry in {len(value)} bytes"
        else:
            kind[event], reason[event] = KIND["skip"], "empty Entries"
    return kind, pa.array(reason, pa.string())


def _header_columns(entries: Entries, kind: np.ndarray, at: _Layout) -> dict[str, pa.Array]:
    """What the entries' headers tell, per event. proto3: a zero or empty field is one that is not told."""
    entry, header = at.entry, entries.header
    db, table, file, gtid = (
        non_empty_text(header.field(name), entry) for name in ("schemaName", "tableName", "fileName", "gtid")
    )
    seconds, server, position, event_no = (
        take_or_null(header.field(name), entry) for name in ("timestamp", "serverId", "position", "eventIndex")
    )
    of_ddl = np.where(kind == KIND["ddl"], entry, -1)
    emptied = [entries.emptied[i] for i in entry[at.truncates].tolist()]
    if emptied:
        mask = pa.array(at.truncates)
        db, table = (
            pc.replace_with_mask(told, mask, pa.array([e[i] for e in emptied], pa.string()))
            for i, told in enumerate((db, table))
        )
    errors = kind == KIND["error"]
    if errors.any():
        unnamed = errors & ~_of_rows(entries)[entry]
        db, table = (pc.if_else(pa.array(unnamed), None, told) for told in (db, table))
    names = file.dictionary_encode()
    numbers = pa.array([file_number(n) for n in names.dictionary.to_pylist()], pa.int64())
    # Beyond int64 the entry is an error already.
    event_no = pc.if_else(pc.less_equal(event_no, _INT64_MAX), event_no, None)
    ddl = entries.event.field("ddlEvent")
    return {
        "db": pc.coalesce(non_empty_text(ddl.field("schemaName"), of_ddl), db) if (of_ddl >= 0).any() else db,
        "table": table,
        "ddl": take_or_null(ddl.field("sql"), of_ddl),
        "source_time": pc.multiply(_zero_as_null(seconds).cast(pa.int64()), 1_000_000).cast(pa.timestamp("us", "UTC")),
        "txn_id": gtid,
        "gtid": gtid,
        "binlog_file": file,
        "binlog_pos": pc.if_else(file.is_valid(), position, None).cast(pa.decimal128(20, 0)),
        "lineage": _zero_as_null(server).cast(pa.string()),
        "file_no": numbers.take(names.indices),
        "event_no": event_no.cast(pa.int64()),
    }


def _of_rows(entries: Entries) -> np.ndarray:
    """Whether the table that a header names is the one its entry is about: a statement's isn't promised to be. One
    more, False, for events without an entry."""
    said = pc.equal(entries.header.field("messageType"), pb.DML)
    dml = bools(said, False) | (present(entries.event) & present(entries.event.field("dmlEvent")))
    return np.append(dml, False)


def _zero_as_null(numbers: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(numbers, pa.scalar(0, numbers.type)), None, numbers)


def _info(event: pa.StructArray, kind: np.ndarray, entry: np.ndarray, bad_column: dict[int, str]) -> pa.MapArray:
    """What control events say, field by field. `bad_column`: event → column."""
    of_event, keys, texts = [np.zeros(0, np.int64)], [pa.array([], pa.string())], [pa.array([], pa.string())]
    has_info = np.zeros(len(kind), bool)
    for name, (body, fields) in _INFO.items():
        mine = np.nonzero(kind == KIND[name])[0]
        has_info[mine] = True
        for key, field in fields.items() if len(mine) else ():
            of_event.append(mine)
            keys.append(pa.repeat(key, len(mine)))
            texts.append(event.field(body).field(field).take(pa.array(entry[mine])).cast(pa.string()))
    if bad_column:
        has_info[list(bad_column)] = True
        of_event.append(np.array(list(bad_column), np.int64))
        keys.append(pa.repeat(BAD_COLUMN, len(bad_column)))
        texts.append(pa.array(list(bad_column.values()), pa.string()))
    of = np.concatenate(of_event)
    order = pa.array(np.argsort(of, kind="stable"))
    return build_maps(np.sort(of), pa.concat_arrays(keys).take(order), pa.concat_arrays(texts).take(order), has_info)
