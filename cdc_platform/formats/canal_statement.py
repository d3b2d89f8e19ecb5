"""What an event of canal's without rows means: the same statements travel as FlatMessage and as protobuf.

Facts: alibaba/canal `LogEventConvert.parseQueryEvent`, `buildQueryEntry`. `isDdl` is false on DDL of some builds,
and true on statements that canal's parser doesn't know (REPLACE, LOAD DATA), so that the statement decides.
"""

import re
from typing import Any

Event = dict[str, Any]

DDL = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")
"""Event types that are always DDL."""

_STATEMENT = re.compile(r"(?:\s|/\*.*?\*/|(?:--|#)[^\n]*(?:\n|\Z))*+([a-zA-Z]*)", re.DOTALL)
_DML = frozenset(("insert", "update", "delete", "replace", "load", "with", "call"))


def ddl(kind: str, sql: str | None, named: Event) -> list[Event]:
    """Events of a DDL statement of type `kind`; `named`: what both say of table, time and position. Raises
    ValueError when there is no statement."""
    if sql is None:
        raise ValueError(f"{kind} without statement")
    statement = {**named, "kind": "ddl", "ddl": sql, "info": [("type", kind)]}
    if kind == "TRUNCATE" and named["db"] and named["table"]:
        # Its effect on the rows is certain without reading the statement.
        return [statement, {**named, "kind": "row", "op": "truncate", "entry_index": 1}]
    return [statement]


def query(sql: str, is_ddl: bool, named: Event) -> list[Event]:
    """QUERY is any DDL without a type of its own, but also (isDdl false, in no database) the text of a
    statement whose rows come by themselves, and the variables of one in statement format. Raises ValueError for
    a statement whose rows aren't told."""
    found = _STATEMENT.match(sql)
    word = found[1].lower() if found else ""
    if word not in _DML and not (word == "set" and named["db"] is None and not is_ddl):
        return ddl("QUERY", sql, named)
    if named["db"] is None and not is_ddl:
        return [{**named, "kind": "skip", "reason": "text or variables of a statement, no rows", "ddl": sql}]
    raise ValueError("QUERY as a statement: which rows it changed isn't told (binlog_format isn't ROW)")


def without_rows(kind: str) -> ValueError:
    """INSERT, UPDATE or DELETE that come as statements."""
    return ValueError(f"{kind} as a statement: which rows it changed isn't told (binlog_format isn't ROW)")
