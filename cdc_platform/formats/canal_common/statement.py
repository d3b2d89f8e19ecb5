"""What an event of canal's without rows means: the same statements travel as FlatMessage and as protobuf.

Facts: alibaba/canal `LogEventConvert.parseQueryEvent`, `buildQueryEntry`. `isDdl` is false on DDL of some builds,
and true on statements that canal's parser doesn't know (REPLACE, LOAD DATA), so that the statement decides.
"""

import re
from collections.abc import Collection
from typing import Any

from cdc_platform.formats.events import OfTable
from cdc_platform.mysql.ddl import Statement, truncated_table
from cdc_platform.mysql.dml import changed_table
from cdc_platform.mysql.readable import with_backticks

Event = dict[str, Any]

DDL = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")
"""Event types that are always DDL."""

_OF_ONE_TABLE = frozenset(("CREATE", "ALTER", "TRUNCATE", "CINDEX", "DINDEX"))


def names_its_table(kind: str, rows: Collection[str], *, is_statement: bool) -> bool:
    """Whether the table that an event without rows names is the one that it is about. `rows`: types of row events. A
    statement may be about several tables, of which canal names the first."""
    return kind in _OF_ONE_TABLE or kind == "INSERT" or (kind in rows and not is_statement)


_STATEMENT = re.compile(r"(?:\s|/\*.*?\*/|(?:--|#)[^\n]*(?:\n|\Z))*+([a-zA-Z]*)", re.DOTALL)
_DML = frozenset(("insert", "update", "delete", "replace", "load", "with", "call"))


def ddl(kind: str, sql: str | None, named: Event) -> list[Event]:
    """Events of a DDL statement of type `kind`; `named`: what both say of table, time and position (and `session`:
    the database of names without one). Raises ValueError when there is no statement, or a TRUNCATE of who knows
    what."""
    if sql is None:
        raise ValueError(f"{kind} without statement")
    statement = {**named, "kind": "ddl", "ddl": sql, "info": [("type", kind)]}
    emptied = _emptied(kind, sql, named)
    if emptied is None:
        return [statement]
    db, table = emptied
    return [statement, {**named, "kind": "row", "op": "truncate", "db": db, "table": table, "entry_index": 1}]


def _emptied(kind: str, sql: str, named: Event) -> tuple[str, str] | None:
    """(database, table) of a TRUNCATE, which the message says by itself or its statement does."""
    if kind == "TRUNCATE" and named["db"] and named["table"]:
        return named["db"], named["table"]
    emptied = truncated_table(Statement(named.get("session") or named["db"], sql))
    if kind == "TRUNCATE" and emptied is None:
        raise ValueError(f"which table is truncated isn't told: {sql[:200]!r}")
    return emptied


def query(sql: str, is_ddl: bool, named: Event) -> list[Event]:
    """QUERY is any DDL without a type of its own, but also (isDdl false, in no database) the text of a
    statement whose rows come by themselves, and the variables of one in statement format. Raises ValueError for
    a statement whose rows aren't told."""
    # What a comment with ! holds is executed, or isn't, by the server's version: both readings count.
    words = {found[1].lower() for text in (sql, with_backticks(sql)) if (found := _STATEMENT.match(text))}
    if not words & _DML and not (words == {"set"} and named["db"] is None and not is_ddl):
        return ddl("QUERY", sql, named)
    if named["db"] is None and not is_ddl:
        return [{**named, "kind": "skip", "reason": "text or variables of a statement, no rows", "ddl": sql}]
    raise without_rows("QUERY", sql, named.get("session") or named["db"])


def without_rows(kind: str, sql: str, db: str | None) -> ValueError:
    """INSERT, UPDATE or DELETE that come as statements. `db`: that of names without one."""
    reason = f"{kind} as a statement: which rows it changed isn't told (binlog_format isn't ROW)"
    name = changed_table(Statement(db, sql))
    return ValueError(reason) if name is None else OfTable(*name, reason)
