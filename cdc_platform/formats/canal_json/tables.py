"""Groups of rows that are converted together: one table, one list of columns, told of the same types."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cdc_platform.formats.canal_common.text import completed, parse_mysql_type
from cdc_platform.formats.canal_json.messages import Row, Rows
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.collect import Table
from cdc_platform.formats.events import BadColumn
from cdc_platform.formats.names import Names, dotted
from cdc_platform.formats.table_schemas.lookup import Columns
from cdc_platform.formats.texts import shown
from cdc_platform.mysql.types import MySqlType, parse_type

_BLOB = 2004  # java.sql.Types; the only one that says how the text is written whatever the value is
_TOLD_NOTHING = ("longtext", parse_type("longtext"))

Fail = Callable[[Row, BaseException], None]


class Group(NamedTuple):
    """What rows must have in common to be converted together. `types`: of each column `mysqlType`'s text, or
    `sqlType`'s number where there is none."""

    db: str
    table: str
    key: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str | int | None, ...]
    known: Columns | None = None  # what the schema history says, where that depends on the row's place
    schema: str | None = None


def described(group: Group, options: CanalJsonOptions, known: Columns | None = None) -> Table:
    """Columns and key of a group's rows; `known`: what the schema history says of them. Raises ValueError when a key
    column isn't in the rows."""
    given = Names(options.columns.get(dotted(group.db, group.schema, group.table), {}))
    of_history = known.type_of if known else lambda _: None
    columns = zip(group.names, group.types, strict=True)
    types = [column_type(given.get(name), told, of_history(name)) for name, told in columns]
    places = Names({name: i for i, name in enumerate(group.names)})
    key = [places.get(name) for name in group.key]
    if None in key:
        name = group.key[key.index(None)]
        raise BadColumn(name, f"key column {shown(name)} isn't in the row")
    if len(set(key)) != len(key):
        raise ValueError(f"pkNames {shown(list(group.key))} names a column twice")
    return Table(group.db, group.table, group.names, types, key, group.schema)


def column_type(given: str | None, told: str | int | None, known: str | None = None) -> tuple[str, MySqlType]:
    """Type of a column: what option `columns` gives, or its message tells (as in Group.types); what that leaves open
    is as the schema history has it."""
    if given:
        return given, parse_type(given)
    text = told if isinstance(told, str) else None
    found = parse_mysql_type("longblob" if told == _BLOB else text)
    return completed(text, known, blob=told == _BLOB) or found or _TOLD_NOTHING


def grouped(message: Rows, fail: Fail) -> Iterator[tuple[Group, Row]]:
    """The rows of a message with their groups; `old` with the names that `data` spells."""
    seen: dict[tuple[str, ...], Group] = {}
    for row in message.rows:
        names = tuple(row.data)
        try:
            if row.old and not row.old.keys() <= row.data.keys():
                old = _renamed(row.old, row.data)
                row = row._replace(old=old)  # noqa: PLW2901 - the same row, spelled as its data is
                names += tuple(n for n in old if n not in row.data)
            group = seen.get(names)
            if group is None:
                group = seen[names] = group_of(message, names)
        except ValueError as e:
            fail(row, e)
            continue
        yield group, row


def group_of(message: Rows, names: tuple[str, ...]) -> Group:
    """The group of rows with these columns. Raises ValueError."""
    told = tuple(map(message.types.get, names))
    if set(map(type, told)) != {str} or "" in told:
        types, sql_types = Names(message.types), Names(message.sql_types)
        told = tuple(stated_type(n, types, sql_types) for n in names)
    return Group(message.db, message.table, message.key, names, told, schema=message.schema)


def _renamed(old: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    spelled = Names(data)
    out = {name if name in data else spelled.other(name) or name: value for name, value in old.items()}
    if len(out) != len(old):
        raise ValueError("old names a column twice")
    return out


def stated_type(name: str, types: Names, sql_types: Names) -> str | int | None:
    """Type of a column as the message tells it (as in Group.types). Raises ValueError."""
    told = types.get(name)
    if told is not None and type(told) is not str:
        raise ValueError(f"mysqlType of {shown(name)}: {shown(told)} is no text")
    return told or (_BLOB if sql_types.get(name) == _BLOB else None)
