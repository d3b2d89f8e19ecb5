"""Entries of canal without rows: DDL, statements, and what they mean."""

from typing import Any

import numpy as np

from cdc_platform.formats.canal.entries import KIND, OPS, Entries, event_name, event_type
from cdc_platform.formats.canal_common import statement
from cdc_platform.formats.events import OfTable
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf.arrow import lists

_ROW_TYPES = frozenset(pb.EventType.Name(number) for number in OPS)
_XA: dict[int, str] = {pb.XACOMMIT: "commit", pb.XAROLLBACK: "rollback"}


def statements(entries: Entries) -> dict[int, list[dict[str, Any]]]:
    """Entries of RowChanges without rows → their events, as fields that differ from the header's."""
    changes = entries.bodies["row"]
    here = (entries.kind == KIND["row"]) & (lists(changes.column("rowDatas")).lengths == 0)
    kinds = event_type(entries)
    out = {}
    for i in np.nonzero(here)[0].tolist():
        told = {n: changes.column(n)[i].as_py() for n in ("sql", "isDdl", "ddlSchemaName", "props")}
        header = {n: entries.header.field(n)[i].as_py() or None for n in ("schemaName", "tableName")}
        try:
            out[i] = _statement(int(kinds[i]), told, header["schemaName"], header["tableName"])
        except ValueError as error:
            of_one = {"db": error.db, "table": error.table} if isinstance(error, OfTable) else {}
            is_known = bool(of_one) or named(int(kinds[i]), is_statement=bool(told["sql"]))
            out[i] = [{"kind": "error", "reason": str(error), "named": is_known, **of_one}]
    return out


def _statement(kind: int, told: dict[str, Any], db: str | None, table: str | None) -> list[dict[str, Any]]:
    """Events of one RowChange without rows. Raises ValueError."""
    sql, is_ddl = told["sql"] or None, bool(told["isDdl"])
    name = pb.EventType.Name(kind) if kind in pb.EventType.values() else str(kind)
    info = [("type", name), *((p["key"], p["value"]) for p in told["props"])]
    if kind in _XA:
        return [{"kind": _XA[kind], "info": [*info, *([("sql", sql)] if sql else [])]}]
    session = told["ddlSchemaName"] or None
    named = {"db": db, "table": table, "session": session}
    if kind in OPS and sql is not None:
        raise statement.without_rows(name, sql, session or db)
    if kind in OPS:
        raise ValueError(f"{name} without rows: canal sends no such event")
    if name in statement.DDL or (is_ddl and sql is not None and name != "QUERY"):
        found = statement.ddl(name, sql, named)
    elif name == "QUERY" and sql is not None:
        found = statement.query(sql, is_ddl, named)
    else:
        raise ValueError(f"RowChange without rows or statement, of event type {event_name(kind)}")
    if session:
        # Names without a database are of the session's; the header's is that of the first table named.
        for event in found:
            if event["kind"] == "ddl":
                event["db"] = session
                event["info"] += [("session_db", session), *([("db", db)] if db and db != session else [])]
    return found


def named(number: int, *, is_statement: bool) -> bool:
    """Whether an event of a type is about the table that it names, and no other."""
    name = pb.EventType.Name(number) if number in pb.EventType.values() else ""
    return statement.names_its_table(name, _ROW_TYPES, is_statement=is_statement)
