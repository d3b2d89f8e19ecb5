"""A change as an SQL statement in MySQL's language: what would do at a server what the change says was done.

Names are quoted with backticks, texts with MySQL's escapes. Timestamps are UTC, zero dates and zero in a numbered
column are values: a session that runs statements sets so first (`PREAMBLE`). No value has a character that a screen
shows as another one, so that what people copy is what a server takes; DDL and names are as the source has them.
"""

import json
import re
import struct
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.errors import UnknownType
from cdc_platform.lake import queries
from cdc_platform.mysql.ddl import quoted_name
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.snapshots.reduce.one_key import SETS_WHOLE_ROW, key_image
from cdc_platform.tables import name_of
from cdc_platform.units import DECEIVING

PREAMBLE = (
    "SET NAMES utf8mb4;\nSET time_zone = '+00:00';\n"
    "SET sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO';"
)

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_ESCAPED = str.maketrans({
    "\\": "\\\\", "'": "''", "\0": "\\0", "\b": "\\b", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1a": "\\Z",
})  # fmt: skip
"""MySQL manual, "String Literals". A quote is doubled: so it ends no literal where a backslash is no escape, either."""


def statement(change: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> str:
    """A CHANGELOG row (maps as dicts) as a statement. columns: name, type, key of its schema version; of others the
    values are given as text. The changed row is told by its key, else by all that is known of it, and then one row of
    those is meant."""
    if change.get("schema"):
        return "-- no statement: the table is in a schema, and MySQL has none"
    table = ".".join(map(quoted_name, name_of(change)))
    types = {c["name"]: c.get("type") for c in columns}
    op, after = change["op"], change["after"] or {}
    if op == "truncate":
        return f"TRUNCATE TABLE {table};"
    if op in SETS_WHOLE_ROW:
        names, values = (
            ", ".join(map(quoted_name, after)),
            ", ".join(literal(v, types.get(n)) for n, v in after.items()),
        )
        return f"INSERT INTO {table} ({names}) VALUES ({values});"
    if not (where := _where(change, types)):
        return f"-- the {op} doesn't tell which row"
    if op == "delete":
        return f"DELETE FROM {table} WHERE {where};"
    told = ", ".join(f"{quoted_name(n)} = {literal(v, types.get(n))}" for n, v in after.items())
    return f"UPDATE {table} SET {told} WHERE {where};" if told else "-- the update tells of no column"


def ddl(event: Mapping[str, Any]) -> str:
    """A DDL event as the source had it, after the database that it was said in."""
    use = f"USE {quoted_name(event['db'])};\n" if event["db"] else ""
    text = (event["ddl"] or "").rstrip().rstrip(";")
    last = text.rpartition("\n")[2]
    end = "\n;" if "--" in last or "#" in last else ";"  # that may be a comment
    return f"{use}{text}{end}"


def _where(change: Mapping[str, Any], types: Mapping[str, str | None]) -> str:
    keyed = bool(change["key"])
    same = " AND ".join(_is(n, v, types.get(n), keyed=keyed) for n, v in key_image(change).items())
    return same if keyed or not same else f"{same} LIMIT 1"


def _is(name: str, value: str | None, type_: str | None, *, keyed: bool) -> str:
    """What is true of the rows whose column has this value. Where no key tells which row is meant, texts count that
    are equal to a byte, not those that a collation takes for equal."""
    column, said = quoted_name(name), literal(value, type_)
    if value is None:
        return f"{column} IS NULL"
    found = _parsed(type_)
    if found and found.family == "json":  # MySQL compares JSON with JSON alone; MariaDB has it as text
        return f"JSON_EXTRACT({column}, '$') = JSON_EXTRACT({said}, '$')"
    if found and found.spark == "float" and _NUMBER.fullmatch(value):
        return f"{column} = {_single(value)}"
    if found and found.family == "text" and not keyed:
        return f"CONVERT({column} USING utf8mb4) COLLATE utf8mb4_bin = {said}"
    return f"{column} = {said}"


def _single(value: str) -> str:
    """A number of single precision as the double that a server takes it for where it compares."""
    return repr(struct.unpack("f", struct.pack("f", float(value)))[0])


def literal(value: str | None, type_: str | None) -> str:
    """A canonical text as a literal of a column of that type."""
    if value is None:
        return "NULL"
    found = _parsed(type_)
    return _LITERALS.get(found.family if found else "text", _text)(value)


def _parsed(type_: str | None) -> MySqlType | None:
    try:
        return parse_type(type_) if type_ else None
    except UnknownType:
        return None


def _text(value: str) -> str:
    said = value.translate(_ESCAPED)
    return (
        f"_utf8mb4 X'{value.encode(errors='surrogatepass').hex().upper()}'" if DECEIVING.search(said) else f"'{said}'"
    )


def _number(value: str) -> str:
    return value if _NUMBER.fullmatch(value) else _text(value)


def _bytes(value: str) -> str:
    try:
        return f"X'{b64decode(value, validate=True).hex().upper()}'"
    except BadBase64:
        return _text(value)


_LITERALS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("integer", "decimal", "float", "year", "bit"), _number),
    **dict.fromkeys(("binary", "geometry"), _bytes),
    "boolean": lambda value: value.upper() if value in ("true", "false") else _number(value),
    "timestamp": lambda value: _text(value.removesuffix("Z")),
}
"""Family of types → how its texts are said; others as texts."""


def of_events(config: Config, source: Source, events: Sequence[dict[str, Any]]) -> None:
    """Gives rows of `changes` (maps as dicts) their statement as `sql`; what is neither a row nor DDL has none."""
    lists = column_lists(config, source, {e["schema_version"] for e in events if e["schema_version"]})
    lists |= {e["schema_version"]: json.loads(e["columns"]) for e in events if e["kind"] == "schema" and e["columns"]}
    for event in events:
        if event["kind"] == "row":
            event["sql"] = statement(event, lists.get(event["schema_version"], []))
        elif event["kind"] == "ddl":
            event["sql"] = ddl(event)


def column_lists(config: Config, source: Source, versions: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Column lists by schema version: name, type, key of each column."""
    return {v: json.loads(told or "[]") for v, told in queries.column_lists(config, source, versions).items()}
