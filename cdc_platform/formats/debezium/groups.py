"""Groups of Debezium's rows that are converted together, and what is told of messages and rows that can't be used."""

from functools import partial
from typing import Any, NamedTuple

from cdc_platform.formats.debezium.connectors import Database, database_of, place_in_log
from cdc_platform.formats.debezium.options import DebeziumOptions
from cdc_platform.formats.debezium.rows import Load, LoadEnd, Table
from cdc_platform.formats.events import Event, of_table, readable_key
from cdc_platform.formats.kafka_connect.bare import bare_column
from cdc_platform.formats.kafka_connect.types import Column, column
from cdc_platform.formats.kafka_connect.wrapper import Schema
from cdc_platform.formats.names import Names, dotted
from cdc_platform.formats.table_schemas.lookup import Columns
from cdc_platform.formats.texts import BAD

_NO_SNAPSHOT = (None, False, "false", "incremental")
_ENDS: dict[str, LoadEnd] = {"last": "all", "last_in_data_collection": "table"}


class Group(NamedTuple):
    """What rows must have in common to be converted together. `names`: columns of the Kafka key; `shape`:
    columns of a bare payload's images, None when the schema tells them; `known`: what the schema history says."""

    schema: Schema | None
    key_schema: Schema | None
    db: str
    table: str
    dtle: bool
    snapshot: bool
    names: tuple[str, ...]
    shape: tuple[str, ...] | None
    known: Columns | None = None
    database: Database = "mysql"
    namespace: str | None = None  # the table's schema, where its database has any
    load: Load | None = None  # the snapshot that sent the rows


def described(group: Group, options: DebeziumOptions) -> Table:
    """Columns and key of the rows of a group. Raises ValueError for a schema that can't be read."""
    dialect = options.dialect(group.dtle, group.snapshot, group.database)
    name = dotted(group.db, group.namespace, group.table)
    given = Names(options.columns.get(name, {}))
    known = group.known.type_of if group.known else lambda _: None
    defaulted = group.known.defaulted if group.known else ()
    if group.schema is not None:
        columns = [column(f, given.get(f["field"]), dialect, known(f["field"])) for f in group.schema.fields]
    else:
        # A bare value under a key with schema: the key's types hold for the images too, or keys would differ.
        typed = {f["field"]: f for f in group.key_schema.fields} if group.key_schema else {}
        columns = [
            column(typed[n], given.get(n), dialect, known(n))
            if n in typed
            else bare_column(n, given.get(n) or known(n), dialect, defaulted=n.lower() in defaulted)
            for n in group.shape or group.names
        ]
    found: dict[str, Column] = {c.name: c for c in columns}
    if len(found) != len(columns):
        raise ValueError("the schema names a column twice")
    key_names = group.names if all(n in found for n in group.names) else ()
    complete = group.schema is not None or bool(group.shape)
    own = _primary_key(group.known, found, key_names) if group.known and complete else key_names
    rekeyed = set(own) != set(key_names)
    of = group.database, group.namespace, group.load
    return Table(group.db, group.table, group.dtle, found, own, complete, rekeyed, *of)


def _primary_key(known: Columns, found: dict[str, Column], told: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the key's columns, as the message spells them; `told`, those of Kafka's key, where they are the same or
    the messages lack one."""
    spelled = {n.lower(): n for n in found}
    if known.key is None or not all(n.lower() in spelled for n in known.key):
        return told
    key = tuple(spelled[n.lower()] for n in known.key)
    return told if set(told) == set(key) else key


def is_dtle(source: dict[str, Any]) -> bool:
    """Whether dtle wrote a `source` block."""
    return source.get("version") == "0.0.1" and "connector" not in source


def is_snapshot(source: dict[str, Any]) -> bool:
    """Whether a row with this `source` block is of the initial load."""
    return source.get("snapshot") not in _NO_SNAPSHOT


def load_of(source: dict[str, Any], *, dtle: bool) -> Load:
    """Which snapshot sent a row with this `source` block."""
    mark = source.get("snapshot")
    if dtle:
        return Load("", None)
    if database_of(source) == "mysql":
        file, pos = source.get("file"), source.get("pos")
    else:
        file, _, pos = place_in_log(source)
    return Load(f"{file}:{pos}" if file else "", _ENDS.get(mark) if type(mark) is str else None)


def of_message(
    payload: dict[str, Any],
    schema: Schema | None,
    key: tuple[Schema | None, dict | None],
    options: DebeziumOptions,
    known: Columns | None = None,
) -> Event:
    """What is told of a row message that is refused as a whole: the table that its `source` names, and the Kafka key as
    far as it can be read. `key`: its schema and columns. A topic's name is no proof of a table: routing changes it, and
    it spells names in other letters."""
    source, (key_schema, row) = payload.get("source") or {}, key
    if type(source) is not dict:
        return {}
    database, namespace = database_of(source), source.get("schema") if database_of(source) != "mysql" else None
    named = of_table(source.get("db") or options.database, source.get("table") or options.table, namespace)
    if not row or payload["op"] == "t":
        return named
    dtle, names = is_dtle(source), tuple(row)
    db, table = (named.get(n, "") for n in ("db", "table"))
    of = database, named.get("schema")
    load = dtle and is_snapshot(source)
    group = Group(key_schema or schema, key_schema, db, table, dtle, load, names, names, known, *of)
    try:
        return {**named, **of_row(described(group, options), row)}
    except BAD:
        return named


def of_row(table: Table, row: dict[str, Any] | None) -> Event:
    """The same of a row; `row`: what holds its key."""

    def read(name: str, values: dict[str, Any]) -> str | None:
        found = table.columns[name]
        value = values[name]
        return None if value is None or value == found.unavailable else found.convert([value])[0]

    key = readable_key((name, partial(read, name, row)) for name in table.key_names) if row else {}
    return {**of_table(table.db, table.table, table.schema), **key}
