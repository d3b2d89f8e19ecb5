"""`tableChanges` of Debezium's schema-change events: each table's columns after a statement, with MySQL's types."""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from cdc_platform.errors import UnknownType
from cdc_platform.formats.events import OfTable
from cdc_platform.formats.texts import shown
from cdc_platform.mysql.ddl import quoted_name
from cdc_platform.mysql.types import AS_BINARY, labels_type, lower_outside_quotes, parse_type, unquoted_label

_PART = r'"((?:[^"]|"")*)"'
_TABLE_ID = re.compile(rf"{_PART}(?:\.{_PART})?(?:\.{_PART})?")


class TableChange(NamedTuple):
    """A table after a statement. `columns` None: it is gone; else [{"name", "type", "key"}, …]. `before`: its name
    before, of a rename. `creates`: the statement made it, so that it was as new before, too. `nullable`: columns that
    take NULL; `primary`: whether its key is known to be its PRIMARY KEY (`listed_keys`)."""

    db: str
    table: str
    columns: tuple[dict[str, Any], ...] | None
    before: tuple[str, str] | None = None
    creates: bool = False
    nullable: frozenset[str] = frozenset()
    primary: bool = False


def read_changes(text: str) -> tuple[TableChange, ...] | None:
    """JSON of `tableChanges` (a list, or one entry alone) → those that name a table of a database; None: it is none,
    or no entry names its table. Entries that can't be read are left out: they are in quarantine."""
    try:
        changes = json.loads(text)
    except ValueError:
        return None
    found: list[TableChange | None] = []
    for change in [changes] if isinstance(changes, dict) else changes if isinstance(changes, list) else (None,):
        try:
            found.append(_change(change))
        except (ValueError, TypeError, LookupError, AttributeError):
            continue
    return tuple(c for c in found if c is not None) if found or changes == [] else None


def _change(change: Any) -> TableChange | None:
    names = named(change)
    if not names:
        return None
    db, table = names[-1]
    kind = str(change.get("type", "")).upper()
    gone = kind == "DROP" or not change.get("table")
    columns = None if gone else tuple(columns_of(change["table"], db, table))
    nullable = frozenset() if gone else frozenset(c["name"] for c in change["table"]["columns"] if _takes_null(c))
    return TableChange(db, table, columns, names[0] if len(names) > 1 else None, kind == "CREATE", nullable)


def _takes_null(column: dict[str, Any]) -> bool:
    return column.get("optional") is True


def named(change: Any) -> list[tuple[str, str]]:
    """(database, table) of an entry; of a rename the old one, then the new. Raises ValueError."""
    if type(change) is not dict or type(change.get("id")) is not str:
        raise ValueError(f"tableChanges entry without id: {shown(change)}")
    parts = ([p.replace('""', '"') for p in m.groups() if p] for m in _TABLE_ID.finditer(change["id"]))
    return [(p[0], p[-1]) for p in parts if len(p) > 1]


def columns_of(table: dict[str, Any], db: str, name: str) -> list[dict[str, Any]]:
    """`table` of an entry → [{"name", "type", "key"}, …]; `type`: None where it isn't MySQL's; `key`: None where no key
    is said; `default`: true where one may be NULL and has a default. Raises ValueError."""
    keys, names = table.get("primaryKeyColumnNames"), [c["name"] for c in table["columns"]]
    if not isinstance(keys, list | None) or set(map(type, names)) != {str} or len(set(names)) != len(names):
        raise OfTable(db, name, f"tableChanges of {shown(name)}: column names {shown(names)}, key {shown(keys)}")
    return [
        {
            **{"name": c["name"], "type": _type_of(c), "key": None if keys is None else c["name"] in keys},
            **({"default": True} if _takes_null(c) and c.get("defaultValueExpression") is not None else {}),
        }
        for c in table["columns"]
    ]


def _type_of(column: dict[str, Any]) -> str | None:
    name, charset = str(column["typeName"]), column.get("charsetName")
    if type(charset) is str and charset.lower() == "binary":  # a text type that is really one of bytes
        name = AS_BINARY.get(name.lower(), name)
    if (expressed := _expressed(column.get("typeExpression"))) is not None and name == column["typeName"]:
        return expressed
    return mysql_type(name, column.get("length"), column.get("scale"), column.get("enumValues") or ())


def _expressed(expression: Any) -> str | None:
    """A `typeExpression` that has all of the type: CloudCanal's `varchar(20)`, where Debezium's has the words alone."""
    if type(expression) is not str or "(" not in expression:
        return None
    try:
        parse_type(expression)
    except UnknownType:
        return None
    return lower_outside_quotes(expression.strip())


def mysql_type(name: str, length: Any, scale: Any, labels: Iterable[str]) -> str | None:
    """Debezium's (typeName, length, scale, enumValues): `INT UNSIGNED`, 10 → `int(10) unsigned`; or None."""
    words = re.sub(r"\(.*?\)", "", name).lower().split()
    if words[:1] == ["vector"]:
        return None  # rows have it as an array of numbers
    if words[:1] in (["enum"], ["set"]):
        # Newer versions quote each label as the DDL does.
        plain = [unquoted_label(x[1:-1]) if len(x) > 1 and x[0] == x[-1] == "'" else x for x in labels]
        return labels_type(words[0], plain)
    args = ",".join(str(int(x)) for x in (length, scale) if x not in (None, "", -1, "-1"))
    split = 2 if words[:2] == ["double", "precision"] else 1
    text = " ".join(words[:split]) + (f"({args})" if args else "") + "".join(f" {w}" for w in words[split:])
    try:
        parse_type(text)
    except UnknownType:
        return None
    return text


def create_table(table: str, columns: Iterable[dict[str, Any]], *, primary: bool = True) -> str:
    """The CREATE TABLE statement of such columns; `primary`: whether their key is a PRIMARY KEY, else a unique one."""
    columns = list(columns)
    unique = "" if primary else " NOT NULL"
    parts = [f"{quoted_name(c['name'])} {c['type'] or 'longtext'}{unique if c['key'] else ''}" for c in columns]
    if key := [quoted_name(c["name"]) for c in columns if c["key"]]:
        parts.append(f"{'PRIMARY' if primary else 'UNIQUE'} KEY ({', '.join(key)})")
    return f"CREATE TABLE {quoted_name(table)} ({', '.join(parts)})"
