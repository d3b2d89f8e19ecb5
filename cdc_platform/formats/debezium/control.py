"""Debezium's and dtle's messages that are no row changes: transactions, heartbeats, DDL, signals."""

from collections.abc import Callable
from typing import Any

from cdc_platform.formats.debezium.connectors import database_of, is_ticdc
from cdc_platform.formats.debezium.rows import integer, positions, source_time
from cdc_platform.formats.events import Event, OfTable, columns_json, error_event, of_table, schema_version
from cdc_platform.formats.table_schemas import table_changes
from cdc_platform.formats.texts import BAD, an_object, json_text, plain_text, shown
from cdc_platform.mysql.ddl import Statement, truncated_table

_HEARTBEAT_TOPIC = "__debezium-heartbeat"
_HEARTBEAT_SCHEMA = "Heartbeat"  # io.debezium.connector.common.Heartbeat, in older versions ….mysql.Heartbeat
_DTLE_DDL_TOPIC = "schema-changes."  # dtle's default SchemaChangeTopic is this and its job's Topic
_SIGNAL = {"id", "type", "data"}
_NOTIFICATION = {"id", "aggregate_type", "type"}
WATERMARK = "TIDB_WATERMARK"
"""Type of TiCDC's checkpoints in `info`, as its canal-json calls them."""
_STATUS = {"BEGIN": "begin", "END": "commit"}


def control_events(payload: dict, topic: str, schema_name: str | None) -> list[Event] | None:
    """Payload of a message without `op` → its events, without wire address; None: no known control message.
    Raises ValueError when it is one but a field can't be what it says."""
    for matches, build in _KINDS:
        if matches(payload, topic, schema_name):
            return build(payload, topic)
    return None


def message_event(payload: dict) -> Event:
    """A message of op m, without wire address: a checkpoint of TiCDC (`enable-tidb-extension`), which has sent all that
    was committed up to `source.commit_ts` by then, or a logical decoding message of PostgreSQL. Raises ValueError."""
    source = payload.get("source")
    if type(source) is not dict or not is_ticdc(source):
        return {"kind": "skip", "reason": "logical decoding message (op m)"}
    info = _info({"type": WATERMARK, "watermark_ts": integer(source.get("commit_ts"), "source.commit_ts")})
    return {"kind": "checkpoint", "source_time": source_time(source), "info": info}


def _is_heartbeat(payload: dict, topic: str, schema_name: str | None) -> bool:
    named = (schema_name or "").rsplit(".", 1)[-1] == _HEARTBEAT_SCHEMA
    return topic.startswith(_HEARTBEAT_TOPIC) or named or payload.keys() == {"ts_ms"}


def _heartbeat(payload: dict, _: str) -> list[Event]:
    return [{"kind": "heartbeat", "source_time": source_time(payload), "info": _info(payload)}]


def _is_transaction(payload: dict, _: str, __: str | None) -> bool:
    return payload.get("status") in ("BEGIN", "END") and "id" in payload


def _transaction(payload: dict, _: str) -> list[Event]:
    info = _info({k: payload.get(k) for k in ("event_count", "data_collections")})
    txn = payload["id"]
    if type(txn) is not str:
        raise ValueError(f"transaction id {shown(txn)} is no text")
    integer(payload.get("event_count"), "event_count")
    return [{"kind": _STATUS[payload["status"]], "txn_id": txn, "source_time": source_time(payload), "info": info}]


def _is_ddl(payload: dict, _: str, __: str | None) -> bool:
    return "ddl" in payload and ("source" in payload or "position" in payload)


def _ddl(payload: dict, topic: str) -> list[Event]:
    ddl, changes = payload["ddl"], payload.get("tableChanges")
    source = an_object(payload, "source") or {}
    position = an_object(payload, "position") or source
    if database_of(source) != "mysql":  # its types are not MySQL's, and rows tell their columns themselves
        return [{"kind": "skip", "reason": f"schema change of {database_of(source)}"}]
    if (ddl is not None and type(ddl) is not str) or not (ddl or changes):
        raise ValueError(f"schema change with ddl {shown(ddl)} and no tableChanges")
    changes = [changes] if type(changes) is dict else changes  # CloudCanal's one table
    place = {name: values[0] for name, values in positions([position], [False]).items()}
    place["lineage"] = place["lineage"] or _dtle_lineage(source, topic)
    place["gtid"] = place["gtid"] or source.get("gtid")
    if place["source_time"] is None and position is source:
        place["source_time"] = source_time(payload) if not _snapshot(source) else None
    told = payload.get("databaseName") or source.get("db") or None
    if told is not None and type(told) is not str:
        raise ValueError(f"databaseName {shown(told)} is no text")
    shapes, tables = _shapes(changes, (told, source.get("table")))
    if ddl is None and not shapes:
        why = f"schema change without a statement, whose tableChanges {shown(changes)} state no columns"
        raise OfTable(told, tables[0], why) if told and len(tables) == 1 else ValueError(why)
    info = {"snapshot": position.get("snapshot"), "gtids": position.get("gtids"), "table_changes": changes}
    first = {
        "kind": "ddl",
        "ddl": ddl,
        "db": told,
        "table": tables[0] if len(tables) == 1 else None,
        "info": _info(info),
        **place,
    }
    statement = (
        [] if ddl is None and all(s["kind"] == "error" for s in shapes) else [first, *_truncate(ddl, told, place)]
    )
    return [{**e, "entry_index": i} for i, e in enumerate([*statement, *({**s, **place} for s in shapes)])]


def _truncate(ddl: str | None, db: str | None, place: Event) -> list[Event]:
    """The row event of a TRUNCATE. dtle tells it as DDL only, Debezium as op t, too, if `skipped.operations` lets
    it: twice at one position is once."""
    name = truncated_table(Statement(db, ddl or ""))
    if name is None:
        return []
    if place["file_no"] is None or place["binlog_pos"] is None:
        raise OfTable(*name, "TRUNCATE without binlog position: before or after which rows isn't told")
    return [{"kind": "row", "op": "truncate", "db": name[0], "table": name[1], **place}]


def _snapshot(source: dict) -> bool:
    return source.get("snapshot") not in (None, False, "false")


def _dtle_lineage(source: dict, topic: str) -> str | None:
    """dtle names no server in its DDL (`source.server` is ""): the rest of the default topic is its name."""
    is_dtle = topic.startswith(_DTLE_DDL_TOPIC) and not source.get("connector")
    return f"dtle:{topic.removeprefix(_DTLE_DDL_TOPIC)}" if is_dtle else None


def _shapes(changes: Any, named: tuple[Any, Any]) -> tuple[list[Event], list[str]]:
    """What `tableChanges` says: events of kind schema, those that can't be read as errors (the statement beside them is
    good all the same), and the tables' names. `named`: database and table of the message."""
    if changes is not None and type(changes) is not list:
        wrong = ValueError(f"tableChanges {shown(changes)} is neither a list nor an object")
        return [{**of_table(*named), **error_event(wrong)}], []
    events, tables = [], []
    named = named if len(changes or ()) == 1 else (None, None)
    for change in changes or ():
        try:
            name = _named_table(change, named)
            if name is None:
                continue
            tables.append(name[1])
            if change.get("table"):
                events.append(_shape(change, *name))
        except BAD as e:
            events.append({**of_table(*named), **error_event(e)})
    return events, tables


def _named_table(change: Any, named: tuple[Any, Any]) -> tuple[str, str] | None:
    """Table id `"db"."table"` (quotes doubled); a rename has `"db"."old","db"."new"`: the new one. Without an id:
    `named`, the message's."""
    db, table = named
    if type(change) is dict and change.get("id") is None and type(db) is type(table) is str and db and table:
        return db, table
    return next(reversed(table_changes.named(change)), None)


def _shape(change: dict, db: str, table: str) -> Event:
    """A table's columns, with MySQL's real types. DROP has none; a type that MySqlType can't read is text."""
    columns = table_changes.columns_of(change["table"], db, table)
    columns = columns_json([{**c, "type": c["type"] or "longtext"} for c in columns])
    return {
        "kind": "schema",
        "db": db,
        "table": table,
        "columns": columns,
        "schema_version": schema_version(db, table, columns),
    }


def _is_signal(payload: dict, _: str, __: str | None) -> bool:
    return payload.keys() == _SIGNAL


def _is_notification(payload: dict, _: str, __: str | None) -> bool:
    return payload.keys() >= _NOTIFICATION and payload.keys() <= _NOTIFICATION | {
        "additional_data",
        "timestamp",
    }


def _skip(reason: str) -> Callable[[dict, str], list[Event]]:
    return lambda _, __: [{"kind": "skip", "reason": reason}]


def _info(fields: dict) -> list[tuple[str, str]]:
    """Fields → pairs of EVENT's `info`: texts plain, lists and objects as JSON, nulls left out."""
    return [(k, json_text(v) if type(v) is bool else plain_text(v)) for k, v in fields.items() if v is not None]


_KINDS: tuple[tuple[Callable[[dict, str, str | None], bool], Callable[[dict, str], list[Event]]], ...] = (
    (_is_heartbeat, _heartbeat),
    (_is_transaction, _transaction),
    (_is_ddl, _ddl),
    (_is_signal, _skip("signal")),
    (_is_notification, _skip("notification")),
)
