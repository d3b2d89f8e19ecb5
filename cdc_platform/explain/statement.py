"""A change as an SQL statement in MySQL's language: what would do at a server what the change says was done.

Names are quoted with backticks, texts with escapes (not for servers in NO_BACKSLASH_ESCAPES). Timestamps are UTC: a
session that runs statements sets `time_zone` first (`PREAMBLE`).
"""

import json
import re
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.errors import UnknownType
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.reduce.one_key import SETS_WHOLE_ROW, key_image
from cdc_platform.tables import name_of

PREAMBLE = "SET NAMES utf8mb4;\nSET time_zone = '+00:00';"

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_ESCAPED = str.maketrans({"\\": "\\\\", "'": "\\'", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"})
"""MySQL manual, "String Literals"."""


def quoted(name: str) -> str:
    """A name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def statement(change: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> str:
    """A CHANGELOG row (maps as dicts) as a statement. columns: name, type, key of its schema version; of others the
    values are given as text. The changed row is told by its key, else by all that is known of it, and then one row of
    those is meant."""
    table = ".".join(map(quoted, name_of(change)))
    types = {c["name"]: c.get("type") for c in columns}
    op, after = change["op"], change["after"] or {}
    if op == "truncate":
        return f"TRUNCATE TABLE {table};"
    if op in SETS_WHOLE_ROW:
        names, values = ", ".join(map(quoted, after)), ", ".join(literal(v, types.get(n)) for n, v in after.items())
        return f"INSERT INTO {table} ({names}) VALUES ({values});"
    where = _where(change, types)
    if op == "delete":
        return f"DELETE FROM {table} WHERE {where};"
    told = ", ".join(f"{quoted(n)} = {literal(v, types.get(n))}" for n, v in after.items())
    return f"UPDATE {table} SET {told} WHERE {where};"


def ddl(event: Mapping[str, Any]) -> str:
    """A DDL event as the source had it, after the database that it was said in."""
    use = f"USE {quoted(event['db'])};\n" if event["db"] else ""
    return f"{use}{(event['ddl'] or '').rstrip().rstrip(';')};"


def _where(change: Mapping[str, Any], types: Mapping[str, str | None]) -> str:
    keyed = bool(change["key"])
    image = key_image(change)
    same = " AND ".join(
        f"{quoted(n)} IS NULL" if v is None else f"{quoted(n)} = {literal(v, types.get(n))}" for n, v in image.items()
    )
    return same if keyed else f"{same} LIMIT 1"


def literal(value: str | None, type_: str | None) -> str:
    """A canonical text as a literal of a column of that type."""
    if value is None:
        return "NULL"
    try:
        family = parse_type(type_).family if type_ else "text"
    except UnknownType:
        family = "text"
    return _LITERALS.get(family, _text)(value)


def _text(value: str) -> str:
    return f"'{value.translate(_ESCAPED)}'"


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
    wanted = set(versions)
    if not wanted:
        return {}
    rows = queries.query(
        f"SELECT schema_version, columns FROM t WHERE source = {queries.text(source.name)} AND kind = 'message' "
        f"AND schema_version IN ({delta_table.digests(wanted)})",
        t=tables.SCHEMA_HISTORY.at(stores.lake(config)),
    )
    return {r["schema_version"]: json.loads(r["columns"] or "[]") for r in rows or []}
