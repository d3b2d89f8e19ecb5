"""FlatMessages: what kind of message each is, and the rows it holds."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from cdc_platform.formats import collect
from cdc_platform.formats.canal_common.statement import DDL, Event, ddl, query, without_rows
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.texts import FIRST_MS, LAST_MS, a_text, an_object, shown

OPS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete", "INIT": "read"}
"""Row types. INIT is Tencent DTS' full load in canal's format."""

_CONTROL = {
    "MHEARTBEAT": "heartbeat",
    "GTID": "checkpoint",
    "TIDB_WATERMARK": "checkpoint",
    "XACOMMIT": "commit",
    "XAROLLBACK": "rollback",
}
_DEFAULTS = frozenset((*OPS, "EVENTTYPECOMPATIBLEPROTO2"))
FIRST_13_DIGITS = 1_000_000_000_000
_UNITS = {10: 1_000_000, 16: 1}
"""Digits of a time since 2001 in another unit → microseconds of it: Tencent's CKafka connector writes seconds."""


COMMIT_TS = 0
"""`file_no` of events whose `binlog_pos` is TiCDC's commitTs."""


class Row(NamedTuple):
    """One row: its message and `place` in it, from 0; op; `data` and the `old` beside it (None: the before image
    isn't told); what its message says of time (µs) and transaction; ordered: whether its writer keeps the order of the
    source's log, as canal and those that number their batches as it does."""

    at: int
    place: int
    op: str
    data: dict[str, Any]
    old: dict[str, Any] | None
    time: int | None
    gtid: str | None
    txn: str | None
    ordered: bool


@dataclass(slots=True)
class Changes(collect.Changes):
    """Rows of one group, field by field."""

    ROW = Row

    place: list[int]
    op: list[str]
    data: list[dict[str, Any]]
    old: list[dict[str, Any] | None]
    time: list[int | None]
    gtid: list[str | None]
    txn: list[str | None]
    ordered: list[bool]


class Rows(NamedTuple):
    """The rows of one message and what they share. `types`: `mysqlType`; `sql_types`: `sqlType`."""

    db: str
    table: str
    key: tuple[str, ...]
    types: dict[str, Any]
    sql_types: dict[str, Any]
    rows: list[Row]
    schema: str | None = None  # of databases that have schemas, told by InLong and Alibaba's Blink


def read(at: int, message: Any, options: CanalJsonOptions) -> Rows | list[Event]:
    """A parsed FlatMessage, number `at` of its batch → its rows, or its events without wire address.
    Raises ValueError when it is none, or when it contradicts itself."""
    if type(message) is not dict:
        raise ValueError(f"{shown(message)} is no object")
    extension = an_object(message, "_tidb") or {}
    if place := extension.get("claimCheckLocation"):
        raise ValueError(f"the row isn't here but in TiCDC's external storage: {shown(place)}")
    kind = message.get("type")
    if type(kind) is not str:
        raise ValueError(f"type {shown(kind)} is no text: this is no FlatMessage of canal")
    kind = kind.upper()
    data = _list(message, "data")
    if kind == "DELETE" and not data:  # Flink CDC up to 3.2 has the row in `old` (apache/flink-cdc#3788)
        data = _list(message, "old") or data
    if not data:
        return _events(kind, message, extension, empty=data is not None)
    if kind not in OPS:
        known = ", ".join((*OPS, *DDL, "QUERY", *_CONTROL))
        raise ValueError(f"{len(data)} rows in a message of type {shown(kind)}; known: {known}")
    if extension.get("onlyHandleKey") and kind != "DELETE":
        raise ValueError("TiCDC sent only the key of a row that was too large (onlyHandleKey): its values aren't here")
    return _rows(at, kind, message, extension, data, options)


def _rows(at: int, kind: str, message: dict, extension: dict, data: list, options: CanalJsonOptions) -> Rows:
    db, table = a_text(message, "database") or options.database, a_text(message, "table") or options.table
    if not db or not table:
        raise ValueError("the rows name no database and table; options database and table name one for all such")
    key = column_key(message.get("pkNames"))
    op, time, gtid = OPS[kind], micros(message.get("es")), a_text(message, "gtid") or None
    txn, number = _count(extension, "commitTs"), message.get("id")
    ordered = type(number) is int and number > 0  # canal's are; TiCDC writes 0, Flink and SeaTunnel none
    olds = _olds(message, len(data), key) if kind == "UPDATE" else [None] * len(data)
    for row in data:
        if type(row) is not dict or not row:
            raise ValueError(f"data holds {shown(row)}, no row")
    return Rows(
        db,
        table,
        key,
        of_object(_single(message.get("mysqlType")), "mysqlType"),
        of_object(_single(message.get("sqlType")), "sqlType"),
        [Row(at, i, op, r, o, time, gtid, txn, ordered) for i, (r, o) in enumerate(zip(data, olds, strict=True))],
        schema_of(message),
    )


def _olds(message: dict, count: int, key: tuple[str, ...]) -> list:
    """`old` of each row of an UPDATE. InLong's `updateBefore` holds whole rows, to the same effect."""
    olds = _list(message, "old") or _list(message, "updateBefore")
    if not olds:
        return [None] * count
    for old in olds:
        if old is not None and type(old) is not dict:
            raise ValueError(f"old holds {shown(old)}, no row")
    if len(olds) == count:
        return [{} if old is None else old for old in olds]
    if len(olds) > count:
        raise ValueError(f"old has {len(olds)} rows, data {count}")
    # canal up to 1.1.6 left rows out of old that change nothing (alibaba/canal#4267): which belongs to which
    # row isn't told. Without a before image the rows are right all the same, unless a key changed.
    named = {k.casefold() for k in key}
    if not key or any(name.casefold() in named for old in olds for name in old or ()):
        raise ValueError(f"old has {len(olds)} rows, data {count}, and keys may have changed: no telling which rows'")
    return [None] * count


def _events(kind: str, message: dict, extension: dict, empty: bool) -> list[Event]:
    """Events of a message without rows."""
    sql = a_text(message, "sql") or None
    db, table = a_text(message, "database") or None, a_text(message, "table") or None
    named = {
        "db": db,
        "table": table,
        "source_time": micros(message.get("es")),
        "gtid": a_text(message, "gtid") or None,
    }
    named["schema"] = schema_of(message)
    named["txn_id"] = commit = _count(extension, "commitTs")
    if commit is not None:
        named |= {"file_no": COMMIT_TS, "binlog_pos": int(commit)}
    if kind in _CONTROL:
        return [{**named, "kind": _CONTROL[kind], "info": _info(kind, sql, extension)}]
    if found := _statement(kind, sql, named, is_ddl=message.get("isDdl") is True):
        return found
    if kind in _DEFAULTS and sql is None and db is None and table is None and message.get("data", ()) is None:
        # canal's heartbeat and GTID entries have no RowChange, so they bear the default type, UPDATE.
        return [{**named, "kind": "checkpoint" if named["gtid"] else "heartbeat", "info": _info(kind, None, extension)}]
    if kind in OPS and empty:
        return [{**named, "kind": "skip", "reason": f"{kind} without rows"}]
    if kind in OPS:
        raise ValueError(f"{kind} without data")
    known = ", ".join((*OPS, *DDL, "QUERY", *_CONTROL))
    raise ValueError(f"unknown type {shown(kind)}; known: {known}")


def _statement(kind: str, sql: str | None, named: Event, *, is_ddl: bool) -> list[Event]:
    """Events of a statement that isn't rows; none: it says nothing. Raises ValueError."""
    if sql is not None and named["schema"] is not None:
        return _of_another_database(kind, sql, named)
    if kind in DDL:
        return ddl(kind, sql, named)
    if sql is None:
        return []
    if kind == "QUERY":
        return query(sql, is_ddl, named)
    if kind in OPS:
        raise without_rows(kind, sql, named["db"])
    return ddl(kind, sql, named) if is_ddl else []


def _of_another_database(kind: str, sql: str, named: Event) -> list[Event]:
    """A statement in a database that has schemas isn't read as MySQL's: columns follow the rows."""
    reason = "a statement of a database with schemas: columns follow the rows"
    found = [{**named, "kind": "skip", "reason": reason, "ddl": sql}]
    if kind == "TRUNCATE":
        if not (named["db"] and named["table"]):
            raise ValueError(f"which table is truncated isn't told: {shown(sql)}")
        found.append({**named, "kind": "row", "op": "truncate", "entry_index": 1})
    return found


def _info(kind: str, sql: str | None, extension: dict) -> list[tuple[str, str]]:
    fields = {"type": kind, "sql": sql, "watermark_ts": _count(extension, "watermarkTs")}
    return [(k, v) for k, v in fields.items() if v is not None]


def schema_of(message: dict[str, Any]) -> str | None:
    """The schema that a message names. Raises ValueError."""
    return a_text(message, "schema") or None


def column_key(names: Any) -> tuple[str, ...]:
    """`pkNames`. Raises ValueError."""
    if names is None:
        return ()
    if type(names) is not list or set(map(type, names)) - {str} or len(set(names)) != len(names):
        raise ValueError(f"pkNames {shown(names)} is no list of column names")
    return tuple(names)


def of_object(value: Any, name: str) -> dict[str, Any]:
    """The field `name` of a message, an object or null. Raises ValueError."""
    if value is not None and type(value) is not dict:
        raise ValueError(f"{name} {shown(value)} is no object")
    return value or {}


def _single(value: Any) -> Any:
    """Types of columns as an object, also where they stand in a list as rows do."""
    return value[0] if type(value) is list and len(value) == 1 else value


def _list(message: dict, name: str) -> list | None:
    """Rows; SeaTunnel writes a single one without the array."""
    value = message.get(name)
    if type(value) is dict:
        return [value]
    if value is not None and type(value) is not list:
        raise ValueError(f"{name} {shown(value)} is no list of rows")
    return value


def _count(message: dict, name: str) -> str | None:
    value = message.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} {shown(value)} is no natural number")
    return str(value) if value else None


def micros(value: Any) -> int | None:
    """`es`: binlog time in ms (0: not told) → µs. Ten digits are seconds, sixteen microseconds: there are no
    binlogs of early 1970 or of the year 33658."""
    if type(value) is str and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if value is not None and type(value) is not int:
        raise ValueError(f"es {shown(value)} is no integer")
    if not value:
        return None
    if unit := _UNITS.get(len(str(value))):
        return value * unit
    if not FIRST_MS <= value <= LAST_MS:
        raise ValueError(f"es {shown(value)} is outside the years 1 to 9999")
    return value * 1000
