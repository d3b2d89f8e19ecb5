"""What is told of a FlatMessage, or of a row of it, that can't be used: its table, and its key as far as it can be
read."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cdc_platform.formats.canal_common.statement import names_its_table
from cdc_platform.formats.canal_json.messages import OPS, Rows, column_key
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.canal_json.rows import column_text
from cdc_platform.formats.canal_json.tables import Group, column_type, stated_type
from cdc_platform.formats.events import Event, of_table, readable_key
from cdc_platform.formats.names import Names, dotted


def of_message(message: Any, options: CanalJsonOptions) -> Event:
    """Of a parsed message that is refused as a whole. The key is told where it has one row."""
    if type(message) is not dict:
        return {}
    kind = str(message.get("type")).upper()
    data = message.get("data") or (message.get("old") if kind == "DELETE" else None)
    rows = [data] if type(data) is dict else data if type(data) is list else []
    statement = bool(message.get("sql"))
    if not rows and statement and not names_its_table(kind, OPS, is_statement=True):
        return {}
    db, table = message.get("database"), message.get("table")
    if rows or kind in OPS:
        db, table = db or options.database, table or options.table
    named = of_table(db, table, message.get("schema"))
    old = message.get("old") or message.get("updateBefore") or {}
    olds = [old] if type(old) is dict else old if type(old) is list else []
    if len(rows) != 1 or len(olds) != 1 or type(rows[0]) is not dict or type(olds[0]) is not dict:
        return named  # which row it is, or what it was before, isn't told
    try:
        key = column_key(message.get("pkNames"))
    except ValueError:
        return named
    types, sql_types = (_object(message.get(name)) for name in ("mysqlType", "sqlType"))
    told = Rows(str(db), str(table), key, types, sql_types, [], named.get("schema"))
    return {**named, **_key(told, rows[0], olds[0], options)}


def of_row(told: Rows | Group, data: dict[str, Any], old: dict[str, Any] | None, options: CanalJsonOptions) -> Event:
    """Of one row; `told`: what its message says of its table and its columns."""
    return {**of_table(told.db, told.table, told.schema), **_key(told, data, old or {}, options)}


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _key(told: Rows | Group, data: dict[str, Any], old: dict[str, Any], options: CanalJsonOptions) -> Event:
    """That of the row before, by the names that `data` has."""
    given = Names(options.columns.get(dotted(told.db, told.schema, told.table), {}))
    stated, image, before = _types(told), Names(data), Names(old)
    spelled = [name if name in data else image.other(name) for name in told.key]

    def read(name: str) -> str | None:
        changed = name if name in old else before.other(name)
        value = data[name] if changed is None else old[changed]
        _, mysql_type = column_type(given.get(name), stated(name))
        text, ok = column_text(name, [value], mysql_type, options.dialect)
        return text[0].as_py() if ok.all() else None

    return readable_key((name, partial(read, name)) for name in spelled if name is not None)


def _types(told: Rows | Group) -> Callable[[str], str | int | None]:
    if isinstance(told, Group):
        return dict(zip(told.names, told.types, strict=True)).get
    types, sql_types = Names(told.types), Names(told.sql_types)
    return lambda name: stated_type(name, types, sql_types)
