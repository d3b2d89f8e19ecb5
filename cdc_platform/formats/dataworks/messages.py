"""DataWorks' messages: what each one says, without looking at single cells.

Facts: the vendor's page "Appendix: Message format" (Alibaba Cloud DataWorks); apache/paimon
`AliyunRecordParser` and its test data.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cdc_platform.formats import collect
from cdc_platform.formats.canal_common.statement import DDL, Event, ddl, query
from cdc_platform.formats.events import OfTable
from cdc_platform.formats.table_schemas.lookup import Columns
from cdc_platform.formats.texts import FIRST_MS, LAST_MS, a_text, an_object, shown

ROW_ID = "#alibaba_rds_row_id#"
"""Hidden key of RDS tables without primary key: a column of the message, never in `primaryKey`."""

VERSIONS = re.compile(r"[01]\.\d+(?:\.\d+)*", re.ASCII)
"""`version` of the message format: the page has 0.0.1 and 1.0.0."""

FULL_LOAD = -1  # sequenceId of rows that the full load read
_POSITIONS_PER_FILE = 10**18  # a sequenceId of any length as (file number, position)
LONGEST = 36  # digits of a sequenceId: what then still fits a 64-bit file number
_CONTROL = {
    "MHEARTBEAT": "heartbeat",
    "TRANSACTION_BEGIN": "begin",
    "TRANSACTION_END": "commit",
    "XACOMMIT": "commit",
    "XAROLLBACK": "rollback",
}
_HALF, _WHOLE = 0, 1
"""event_no: the first half of an update that comes in two records stands before the second, whose sequenceId it
shares."""


class Group(NamedTuple):
    """What rows must have in common to be converted together. `types`: of the six, one per name."""

    db: str
    schema: str | None
    table: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]
    known: Columns | None = None  # what the schema history says, where that depends on the row's place


class Row(NamedTuple):
    """One row change: its message in the batch, op, place in the source's order, images, source time (µs)."""

    at: int
    op: str
    file_no: int
    position: int
    event_no: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    time: int | None


@dataclass(slots=True)
class Changes(collect.Changes):
    """Rows of one group, field by field."""

    ROW = Row

    op: list[str]
    file_no: list[int]
    position: list[int]
    event_no: list[int]
    before: list[dict[str, Any] | None]
    after: list[dict[str, Any] | None]
    time: list[int | None]


def read(at: int, message: Any) -> tuple[Group, Row] | list[Event]:
    """A parsed message, number `at` of its batch → its row, or its events without wire address. Raises ValueError
    when it is none of DataWorks', or when it contradicts itself."""
    if type(message) is not dict:
        raise ValueError(f"{shown(message)} is no object")
    if "payload" not in message:
        raise ValueError(
            "no payload: this is no message of a whole database's synchronization. Of a task for a single table the "
            "output Canal CDC is read, as format canal_json; its output JSON isn't"
        )
    schema, payload = _object(message, "schema"), _object(message, "payload")
    if (version := message.get("version")) is not None and not (type(version) is str and VERSIONS.fullmatch(version)):
        raise ValueError(f"version {shown(version)}; known: 0.0.1, 1.0.0")
    op = payload.get("op")
    if type(op) is not str:
        raise ValueError(f"payload.op {shown(op)} is no text: this is no message of DataWorks")
    if op in ROWS:
        return _row(at, op, schema, payload)
    return _events(op, schema, payload)


def _row(at: int, op: str, schema: dict, payload: dict) -> tuple[Group, Row]:
    group = group_of(schema)
    before, after = _image(payload, "before"), _image(payload, "after")
    number = _sequence(payload)
    if number is None:
        raise ValueError(f"{op} without sequenceId: its place in the source's order isn't told")
    kind, event_no = ROWS[op](before, after, group)
    if number == FULL_LOAD:
        if kind != "insert":
            raise ValueError(f"{op} with sequenceId -1, which the full load's INSERT alone has")
        kind = "read"
    return group, Row(at, kind, *log_position(number), event_no, before, after, _micros(payload))


def _insert(before: dict | None, after: dict | None, _group: Group) -> tuple[str, int]:
    if before is not None or after is None:
        raise ValueError("an INSERT has an after image and no before image")
    return "insert", _WHOLE


def _delete(before: dict | None, after: dict | None, _group: Group) -> tuple[str, int]:
    if before is None or after is not None:
        raise ValueError("a DELETE has a before image and no after image")
    return "delete", _WHOLE


def _first_half(before: dict | None, after: dict | None, _group: Group) -> tuple[str, int]:
    """The old row goes; the second half, at the same sequenceId, brings the new one, under whatever key. The halves
    of an update that changes the key lie in different partitions, so that neither may wait for the other."""
    if before is None or after is not None:
        raise ValueError("the first half of an update has a before image and no after image")
    return "delete", _HALF


def _update(before: dict | None, after: dict | None, group: Group) -> tuple[str, int]:
    if after is None:
        raise ValueError("UPDATE_AFTER without after image")
    if before is None and (missing := [n for n in group.names if n not in after]):
        # The first half removed the old row: what isn't here would be lost.
        raise ValueError(f"the second half of an update lacks column {shown(missing[0])}")
    return "update", _WHOLE


ROWS: dict[str, Callable[[dict | None, dict | None, Group], tuple[str, int]]] = {
    "INSERT": _insert,
    "DELETE": _delete,
    "UPDATE_BEFOR": _first_half,  # the vendor's spelling
    "UPDATE_BEFORE": _first_half,
    "UPDATE_AFTER": _update,
}


def group_of(schema: dict) -> Group:
    """What a message's `schema` says of its row. Raises ValueError."""
    source = _object(schema, "source")
    db, table = a_text(source, "dbName"), a_text(source, "tableName")
    if not db or not table:
        raise ValueError("schema.source names no dbName and tableName")
    names, types = [], []
    for column in _list(schema, "dataColumn") or ():
        if type(column) is not dict or type(column.get("name")) is not str or type(column.get("type")) is not str:
            raise ValueError(f"schema.dataColumn holds {shown(column)}, no column")
        names.append(column["name"])
        types.append(column["type"])
    if not names or len(set(names)) != len(names):
        raise ValueError("schema.dataColumn names a column twice" if names else "schema.dataColumn is empty")
    fallback = ROW_ID if ROW_ID in names else _ROWID.get(_database(source))
    key = _list(schema, "primaryKey") or ([fallback] if fallback in names else [])
    if missing := [k for k in key if k not in names]:
        raise ValueError(f"primaryKey names {shown(missing[0])}, which isn't in schema.dataColumn")
    if len(set(key)) != len(key):
        raise ValueError("primaryKey names a column twice")
    return Group(db, schema_of(source), table, tuple(names), tuple(types), tuple(key))


def schema_of(source: dict) -> str | None:
    """The schema that a table's name has; raises ValueError.

    Databases of MySQL's kind have none: what is told there is the database's name once more."""
    named = a_text(source, "schemaName") or None
    database = _database(source)
    again = database and not database.startswith(_OTHERS) and named == a_text(source, "dbName")
    return None if again else named


def _database(source: dict) -> str:
    """The kind of database, in lower case; empty: not told."""
    return (a_text(source, "dbType") or "").lower()


_ROWID = {"oracle": "rowid"}
"""Kind of database → the column that tells rows without primary key apart."""
_OTHERS = ("oracle", "postgres", "sqlserver", "sql server", "db2", "mongo", "oceanbase_oracle", "dm")
"""How the names of databases begin whose statements aren't MySQL's."""


def _image(payload: dict, name: str) -> dict[str, Any] | None:
    if payload.get(name) is None:
        return None
    image = _object(payload, name).get("dataColumn")
    if type(image) is not dict:
        raise ValueError(f"payload.{name}.dataColumn {shown(image)} is no object")
    return image


def _events(op: str, schema: dict, payload: dict) -> list[Event]:
    source = _object(schema, "source")
    statement = a_text(_object(payload, "ddl"), "text")
    named: Event = {
        "db": a_text(source, "dbName") or None,
        "schema": schema_of(source),
        "table": a_text(source, "tableName") or None,
        "source_time": _micros(payload),
    }
    if op in _CONTROL:
        return [{**named, "kind": _CONTROL[op], "info": _info(op, payload)}]
    if op == "GTID":
        return [{**named, "kind": "skip", "reason": "a GTID event, which holds nothing"}]
    found = _statement(op, statement, named)
    if (database := _database(source)).startswith(_OTHERS):
        found = [_foreign(event, database) for event in found]
    number = _sequence(payload)
    if number is not None and number >= 0:
        file_no, position = log_position(number)
        told = {"lineage": "", "file_no": file_no, "binlog_pos": position, "event_no": _WHOLE}
        return [{**event, **told} for event in found]
    for event in found:
        if event.get("op") == "truncate":
            reason = "TRUNCATE without sequenceId: before or after which rows isn't told"
            raise OfTable(event["db"], event["table"], reason)
    return found


def _foreign(event: Event, database: str) -> Event:
    """A statement of another database isn't read as MySQL's: its tables' columns follow the rows."""
    if event["kind"] != "ddl":
        return event
    return {**event, "kind": "skip", "reason": f"a statement of {database}: columns follow the rows"}


def _statement(op: str, statement: str | None, named: Event) -> list[Event]:
    if op in DDL:
        return ddl(op, statement, named)
    if statement is not None:
        return query(statement, is_ddl=True, named=named)
    known = ", ".join((*ROWS, *_CONTROL, *DDL, "QUERY", "GTID"))
    raise ValueError(f"op {shown(op)} without statement; known: {known}")


def _info(op: str, payload: dict) -> list[tuple[str, str]]:
    told = {"op": op, "sequence_id": payload.get("sequenceId"), "scn": payload.get("scn")}
    told |= {f"{k}": v for k, v in _object(payload, "timestamp").items() if k.endswith("Time")}
    return [(k, str(v)) for k, v in told.items() if type(v) in (int, str)]


def _sequence(payload: dict) -> int | None:
    value = payload.get("sequenceId")
    return None if value is None else sequence(value)


def sequence(value: Any) -> int:
    """`sequenceId` as a number. Raises ValueError."""
    text = str(value)
    digits = text.removeprefix("-")
    if type(value) is bool or not (digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST):
        raise ValueError(f"sequenceId {shown(value)} is no number of at most {LONGEST} digits")
    number = int(text)
    if number < FULL_LOAD:
        raise ValueError(f"sequenceId {shown(value)}: only -1 is known below 0")
    return number


def log_position(number: int) -> tuple[int, int]:
    """A sequenceId as file number and position."""
    if number == FULL_LOAD:
        return 0, 0
    file_no, position = divmod(number, _POSITIONS_PER_FILE)
    return file_no + 1, position


def _micros(payload: dict) -> int | None:
    return micros(_object(payload, "timestamp").get("eventTime"))


def micros(millis: Any) -> int | None:
    """`eventTime` in ms → µs; the full load's -1 and a missing one are none. Raises ValueError."""
    if millis is None or millis == -1:
        return None
    if type(millis) is not int or not FIRST_MS <= millis <= LAST_MS:
        raise ValueError(f"timestamp.eventTime {shown(millis)} is no time")
    return millis * 1000


def _object(parent: dict, name: str) -> dict[str, Any]:
    return an_object(parent, name) or {}


def _list(parent: dict, name: str) -> list | None:
    value = parent.get(name)
    if value is not None and (type(value) is not list or (name == "primaryKey" and set(map(type, value)) - {str})):
        raise ValueError(f"{name} {shown(value)} is no list of names" if name == "primaryKey" else f"{name} is no list")
    return value
