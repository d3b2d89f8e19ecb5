"""TDSQL's binlog messages: what kind each is, and what row it holds."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from cdc_platform.formats import collect
from cdc_platform.formats.events import Event, OfTable, file_number, of_table
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.tdsql.sets import PREFIX
from cdc_platform.formats.texts import a_text, shown
from cdc_platform.mysql.ddl import Statement, named_table, truncated_table
from cdc_platform.mysql.dml import changed_table
from cdc_platform.mysql.readable import with_backticks

OPS = ("insert", "update", "delete")
_TYPES = (*OPS, "gtid", "xid", "query")
HEARTBEAT = ("sysdb", "statustableforhb")
"""TDSQL writes into this table every few seconds; the case of its name varies."""

_GTID = re.compile(r"(?:([0-9A-Fa-f-]{32,36}):|([0-9]{1,10})-[0-9]{1,10}-)([0-9]{1,19})")
MICROS = 1_000_000
LAST_S = 253_402_300_799  # the end of year 9999
_WORD = re.compile(r"(?:\s|/\*.*?\*/|(?:--\s|#)[^\n]*(?:\n|\Z))*+([a-zA-Z]*)", re.DOTALL)
_CONTROL = {
    **{"begin": "begin", "start": "begin", "commit": "commit", "rollback": "rollback"},
    **{"xa start": "begin", "xa begin": "begin", "xa commit": "commit", "xa rollback": "rollback"},
}
"""First words of a statement, two of one on an XA transaction, as MySQL writes them to its binlog → kind."""
_DML = frozenset(("insert", "update", "delete", "replace", "load", "call"))
_NOTHING = frozenset(("savepoint", "release", "set", "use", "xa end", "xa prepare", ""))


Refused = Callable[[str | None], str | None]
"""Prefix of a TRUNCATE's message → why it empties nothing; None: it does."""


class Place(NamedTuple):
    """Where in the source's history a message stands. `lineage`: whose GTIDs; `number`: its place among them."""

    lineage: str | None
    number: int | None
    time: int | None  # µs


class Row(NamedTuple):
    """One row: message number `at`; literals before and after; what its message says of time (µs) and transaction."""

    at: int
    where: Sequence[str | None]
    field: Sequence[str | None]
    time: int | None
    gtid: str | None
    event_no: int | None
    row_no: int | None
    binlog_file: str | None


@dataclass(slots=True)
class Changes(collect.Changes):
    """Rows of one group, field by field."""

    ROW = Row

    where: list[Sequence[str | None]]
    field: list[Sequence[str | None]]
    time: list[int | None]
    gtid: list[str | None]
    event_no: list[int | None]
    row_no: list[int | None]
    binlog_file: list[str | None]


class Rows(NamedTuple):
    """A row and whose it is; `prefix`: of its message; `names`: its columns' names, where the message tells them (newer
    versions do)."""

    db: str
    table: str
    names: tuple[str, ...] | None
    prefix: str | None
    row: Row


def read(at: int, message: Any, options: TdsqlOptions, refused: Refused) -> Rows | list[Event]:
    """A parsed message, number `at` of its batch → its row, or its events without wire address.
    Raises ValueError when it is none of TDSQL's, or when it contradicts itself."""
    if type(message) is not dict:
        raise ValueError(f"{shown(message)} is no object")
    if message.get("logtype") != "mysqlbinlog":
        raise ValueError(f"logtype {shown(message.get('logtype'))}: a message of TDSQL says mysqlbinlog")
    kind = message.get("eventtypestr")
    if kind not in _TYPES:
        raise ValueError(f"eventtypestr {shown(kind)}; known: {', '.join(_TYPES)}")
    place, gtid = _place(message)
    if kind in OPS:
        return _row(at, kind, message, place.time, gtid, options)
    event_no, file = _number(message, "event_index"), binlog_file(a_text(message, "filename"))
    told = control_fields(place, gtid, event_no, file, options)
    if kind == "gtid":
        return begin(told)
    if kind == "xid":
        return commit(told, a_text(message, "xid"))
    return query(
        told, a_text(message, "sql"), a_text(message, "db"), a_text(message, "prefix") or None, refused, options
    )


def names_of(message: Any, options: TdsqlOptions) -> Event:
    """The table of a parsed message that is refused as a whole, if it is a row's: what a statement names beside it is
    some table of its transaction."""
    if type(message) is not dict or message.get("eventtypestr") not in OPS:
        return {}
    db, table = message.get("db"), message.get("table")
    fold = options.fold
    return of_table(*(n.lower() if fold and type(n) is str else n for n in (db, table)))


def control_fields(
    place: Place, gtid: str | None, event_no: int | None, file: str | None, options: TdsqlOptions
) -> Event:
    """What the events of a message without rows share."""
    told = {"source_time": place.time, "gtid": gtid, "txn_id": gtid, "txn_seq": event_no, "event_no": event_no}
    told["binlog_file"] = file
    if options.order == "gtid" and place.number is not None:
        told |= {"lineage": place.lineage, "file_no": 0, "binlog_pos": place.number}
    return told


def begin(told: Event) -> list[Event]:
    """The event of a message `gtid`."""
    return [{**told, "kind": "begin", "info": [("eventtypestr", "gtid")]}]


def commit(told: Event, xid: str | None) -> list[Event]:
    """The event of a message `xid`."""
    return [{**told, "kind": "commit", "info": [("eventtypestr", "xid"), *([("xid", xid)] if xid else [])]}]


def _row(
    at: int, op: str, message: dict, time: int | None, gtid: str | None, options: TdsqlOptions
) -> Rows | list[Event]:
    db, table = a_text(message, "db"), a_text(message, "table")
    if not db or not table:
        raise ValueError("the row names no db and table")
    if (db.lower(), table.lower()) == HEARTBEAT:
        return [{"kind": "heartbeat", "source_time": time, "gtid": gtid, "db": db, "info": [("table", table)]}]
    where, field = _literals(message, "where"), _literals(message, "field")
    check_images(op, len(where), len(field))
    event_no, row_no = _number(message, "event_index"), _number(message, "sub_event_index")
    if options.fold:
        db, table = db.lower(), table.lower()
    file = binlog_file(a_text(message, "filename"))
    prefix = a_text(message, "prefix") or None
    row = Row(at, where, field, time, gtid, event_no, row_no, file)
    return Rows(db, table, column_names(message.get("column"), len(where), len(field)), prefix, row)


def check_images(op: str, where: int, field: int) -> None:
    """Raises ValueError where so many values before and after can't be of such a change."""
    if bool(where) != (op != "insert") or bool(field) != (op != "delete"):
        raise ValueError(f"{op} with {where} values in where and {field} in field")
    if op == "update" and where != field:
        raise ValueError(f"update of {where} values in where to {field} in field")


def _literals(message: dict, name: str) -> list[str | None]:
    found = message.get(name)
    if found is None:
        return []
    if type(found) is not list:
        raise ValueError(f"{name} {shown(found)} is no list of values")
    if set(map(type, found)) <= {str}:
        return found
    return [_literal(name, value) for value in found]


def _literal(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):  # str: also a number with a fraction, as it was written
        return value
    if type(value) is int:
        return str(value)
    raise ValueError(f"{name} holds {shown(value)}, no literal")


def column_names(found: Any, where: int, field: int) -> tuple[str, ...] | None:
    """`column` of newer versions: the names, each in backticks. Raises ValueError where they aren't those of so many
    values before and after."""
    if not found:
        return None
    if type(found) is not list or set(map(type, found)) != {str}:
        raise ValueError(f"column {shown(found)} is no list of names")
    names = tuple(n[1:-1].replace("``", "`") if len(n) > 2 and n[0] == n[-1] == "`" else n for n in found)
    if len(set(names)) != len(names) or any(count not in (0, len(names)) for count in (where, field)):
        raise ValueError(f"column names {len(names)} columns, where has {where}, field {field}")
    return names


def query(
    told: Event, sql: str | None, db: str | None, prefix: str | None, refused: Refused, options: TdsqlOptions
) -> list[Event]:
    """The events of a statement. `db` is that of the session; the table beside it is some table of the transaction.
    `prefix`: of its message. Raises ValueError for a statement that can't be used."""
    if sql is None or not sql.strip():
        raise ValueError("query without sql")
    word = _words(sql)
    if kind := _CONTROL.get(word):
        return [{**told, "kind": kind, "info": [("sql", sql)]}]
    if word in _NOTHING:
        return [{**told, "kind": "skip", "reason": "a statement without rows or DDL", "ddl": sql}]
    statement = Statement(db, sql)
    if word in _DML:
        return _changes_rows(told, word, statement, fold=bool(options.fold))
    named = truncated_table(statement)
    name = named or named_table(statement)
    ddl = {**told, "kind": "ddl", "db": db or None, "table": name and name[1], "ddl": sql}
    if prefix:
        ddl["info"] = [(PREFIX, prefix)]
    if named is None:
        return [ddl]
    db, table = (n.lower() for n in named) if options.fold else named  # as the table's rows are named
    if reason := refused(prefix):
        raise OfTable(db, table, reason)
    return [ddl, {**told, "kind": "row", "op": "truncate", "db": db, "table": table, "entry_index": 1}]


def _changes_rows(told: Event, word: str, statement: Statement, *, fold: bool) -> list[Event]:
    """A statement in place of rows: TDSQL's own heartbeat, or one that can't be used. Raises ValueError."""
    reason = f"{word} as a statement: which rows it changed isn't told (binlog_format isn't ROW)"
    name = changed_table(statement)
    if name is None:
        raise ValueError(reason)
    db, table = name
    if (db.lower(), table.lower()) == HEARTBEAT:
        return [{**told, "kind": "heartbeat", "db": db, "info": [("table", table)]}]
    raise OfTable(db.lower() if fold else db, table.lower() if fold else table, reason)


def _words(sql: str) -> str:
    """The first word of a statement; two of an XA statement."""
    sql = with_backticks(sql)
    found = _WORD.match(sql)
    word = found[1].lower() if found else ""
    second = _WORD.match(sql, found.end()) if found and word == "xa" else None
    return f"{word} {second[1].lower()}" if second else word


def _place(message: dict) -> tuple[Place, str | None]:
    gtid = a_text(message, "gtid") or None
    seconds = message.get("begintime")
    if seconds is not None and (type(seconds) is not int or not 0 <= seconds <= LAST_S):
        raise ValueError(f"begintime {shown(seconds)} is no time in seconds")
    return place(gtid, seconds * MICROS if seconds else None), gtid


def place(gtid: str | None, time: int | None) -> Place:
    """MySQL's `uuid:number` and MariaDB's `domain-server-number`. A domain counts on when its master changes."""
    found = _GTID.fullmatch(gtid or "")
    if found is None:
        return Place(None, None, time)
    return Place((found[1] or found[2]).lower(), int(found[3]), time)


@lru_cache(maxsize=1024)
def binlog_file(path: str | None) -> str | None:
    """The binlog's file at the end of `filename`, where it has a number."""
    name = path.rsplit("/", 1)[-1] if path else None
    return name if file_number(name) is not None else None


def _number(message: dict, name: str) -> int | None:
    value = message.get(name)
    try:
        return number(value)
    except ValueError as e:
        raise ValueError(f"{name} {e}") from None


def number(value: Any) -> int | None:
    """A natural number, mostly written as text. Raises ValueError."""
    if value is None or value == "":
        return None
    if type(value) is int and 0 <= value < 2**63:
        return value
    if type(value) is str and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    raise ValueError(f"{shown(value)} is no natural number")
