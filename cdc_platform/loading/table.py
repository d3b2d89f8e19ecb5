"""A table as it is loaded: its columns, by which SQL their values are read, and how it is gone through by its key."""

import json
from binascii import b2a_base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.errors import ConfigError, UnknownType
from cdc_platform.formats.loaded import BYTES, Column
from cdc_platform.lake import delta_table, stores
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.key import Part, behind, primary_key
from cdc_platform.mysql.ddl import quoted_name
from cdc_platform.mysql.system_versions import SystemVersions
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.reconcile.columns import SourceColumn
from cdc_platform.reconcile.server import Server, table_name
from cdc_platform.snapshots.schema.seen import seen
from cdc_platform.suggest import closest
from cdc_platform.tables import SCHEMA_HISTORY

TRANSACTIONAL = ("InnoDB",)
"""Engines of which a transaction sees one state of the table, at a place of the log that the server tells: tried."""
_NUMBERS = ("integer", "bit", "boolean", "year")
_COUNTED = ("debezium",)
"""Formats whose messages count times: what they come to has no zeros at its end."""


@dataclass(frozen=True, slots=True)
class Table:
    """columns: as they land. at_source: of the server, in the same order, without those that the feed doesn't carry.
    every: all of the server, by which a change is seen; made: what tells the table from another one of its name. key:
    the primary key, in its order; none: it can't be read in pieces."""

    source: str
    db: str
    name: str
    columns: tuple[Column, ...]
    at_source: tuple[SourceColumn, ...]
    every: tuple[SourceColumn, ...]
    key: tuple[Part, ...]
    made: str | None = None
    counted: bool = False
    """Whether the feed counts times (of `_COUNTED`)."""

    @property
    def text(self) -> str:
        """db.table."""
        return f"{self.db}.{self.name}"

    def select(self, after: Sequence[str] | None, rows: int) -> str:
        """SQL of the next rows behind these texts of a key (None: from the first on): values, then texts of the key.
        Without a key of all rows. Raises LoadRefused."""
        if not self.key:
            return f"SELECT {self.values} FROM {table_name(self.db, self.name)}"
        condition = "TRUE" if after is None else behind(self.key, after)
        if condition is None:
            raise LoadRefused(self.source, f"{self.text}: no statement can say the key {list(after or ())!r}")
        order = ", ".join(p.sorted for p in self.key)
        told = f"SELECT {self.values}{self._texts} FROM {table_name(self.db, self.name)}"
        return f"{told} WHERE {condition} ORDER BY {order} LIMIT {rows:d}"

    @property
    def values(self) -> str:
        """SQL of the values of a row."""
        return ", ".join(_value(c) for c in self.at_source)

    @property
    def _texts(self) -> str:
        return "".join(f", {p.text}" for p in self.key)

    def goes_on(self, after: Sequence[str]) -> bool:
        """Whether these texts are of a load that went through the table in this order."""
        return all(not p.by_bytes or p.literal(text) for p, text in zip(self.key, after, strict=True))

    def landed(self, rows: Sequence[tuple[Any, ...]]) -> list[list[str | None]]:
        """What the server said of some rows, as a record has it."""
        if not rows:
            return []
        columns: list[Any] = list(zip(*rows, strict=True))[: len(self.columns)]
        told = [_landed(parse_type(c.type_text), v) for c, v in zip(self.at_source, columns, strict=True)]
        if self.counted:
            told = [_trimmed(parse_type(c.type), v) for c, v in zip(self.columns, told, strict=True)]
        return [list(row) for row in zip(*told, strict=True)]


def _landed(type_: MySqlType, values: Sequence[Any]) -> Sequence[str | None]:
    if type_.family in BYTES:
        return [None if v is None else b2a_base64(_bytes(v), newline=False).decode() for v in values]
    return [v.decode() if isinstance(v, bytes) else v for v in values]


def _trimmed(stated: MySqlType, values: Sequence[str | None]) -> Sequence[str | None]:
    """Of a TIME whose digits the feed doesn't state, texts as it has them: there its zeros count."""
    if stated.family != "time" or stated.time_digits:
        return values
    return [v.rstrip("0").rstrip(".") if v and "." in v else v for v in values]


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _value(column: SourceColumn) -> str:
    """SQL of a value's text. Long values as they are: of functions a server gives NULL beyond max_allowed_packet."""
    name, type_ = quoted_name(column.name), parse_type(column.type_text)
    if type_.family in _NUMBERS:
        return f"CAST({name} + 0 AS CHAR)"  # no ZEROFILL, bits as a number
    if type_.family == "float":
        return f"CAST({name} * 1e0 AS CHAR)"  # of a FLOAT alone a server says six digits
    if type_.family == "decimal" and type_.unsigned:
        precision, scale = (*type_.args, 10, 0)[:2] if len(type_.args) != 1 else (type_.args[0], 0)
        return f"CAST(CAST({name} AS DECIMAL({precision:d},{scale:d})) AS CHAR)"
    return name


def there(server: Server, db: str, name: str) -> list[SourceColumn]:
    """Columns of a table of the server. Raises ConfigError where it has no such table."""
    every = server.columns(db, name)
    if not every:
        known = [f"{d}.{t}" for d, t in server.tables([db])]
        raise ConfigError(
            f"{db}.{name}",
            "the source has no such table, or its account may not read it",
            closest(f"{db}.{name}", known),
        )
    if (db, name) not in (tables := server.tables([db])):
        choices = closest(f"{db}.{name}", [f"{d}.{t}" for d, t in tables])
        raise ConfigError(f"{db}.{name}", "the source spells its name in another way, or it is no base table", choices)
    return every


def table_of(config: Config, source: Source, server: Server, db: str, name: str) -> Table:
    """Raises ConfigError where there is no such table, LoadRefused where it can't be loaded."""
    made = server.made(db, name)  # before its columns: a table that comes in its place between both is seen
    every, stated = there(server, db, name), _stated(config, source, db, name)
    if server.versioned(db, name):
        raise LoadRefused(source.name, SystemVersions.why(db, name))
    own = _replicated(source, f"{db}.{name}", every, {c["name"].lower() for c in stated})
    key = primary_key(server, db, name, every)
    if not key and not source.tables.keys.get(f"{db}.{name}") and any(c.key for c in own):
        problem = f"{db}.{name} has no primary key, and a unique index that servers show in its place"
        raise LoadRefused(source.name, problem, [_VENDOR, "a primary key", "tables.keys"])
    columns = _columns(source, db, name, own, every, stated)
    if not key and (engine := server.engine(db, name)) not in TRANSACTIONAL:
        problem = f"{db}.{name} has no primary key, so it can't be read in pieces, and of {engine} no view can be had"
        raise LoadRefused(source.name, problem, [_VENDOR, "a primary key"])
    if (key or source.tables.keys.get(f"{db}.{name}")) and not any(c.key for c in columns):
        raise LoadRefused(source.name, f"{db}.{name} has none of the columns that tables.keys names", ["tables.keys"])
    return Table(source.name, db, name, tuple(columns), tuple(own), tuple(every), key, made, source.format in _COUNTED)


def _replicated(source: Source, table: str, every: list[SourceColumn], told: set[str]) -> list[SourceColumn]:
    """Those that the feed carries. A virtual generated column stands in the row events of MariaDB; whether it stands in
    the feed, its column list says. Raises LoadRefused where there is none yet."""
    if not told and (virtual := {c.name for c in every if c.virtual}):
        problem = f"whether the feed carries {_listed(virtual)} of {table}, virtual generated columns, isn't told yet"
        raise LoadRefused(source.name, problem, ["to load when a change of the table has come"], retriable=True)
    return [c for c in every if not c.virtual or c.name.lower() in told]


def _columns(
    source: Source, db: str, name: str, own: list[SourceColumn], every: list[SourceColumn], stated: list[dict[str, Any]]
) -> list[Column]:
    """As the feed states them where it does: what it calls a type holds for its rows, too."""
    told = {c["name"].lower(): c for c in stated}
    keys = source.tables.keys.get(f"{db}.{name}")
    wanted = {k.lower() for k in keys} if keys else {c.name.lower() for c in own if c.key}
    key = {n for n, c in told.items() if c["key"]}
    if told and not keys and key != wanted:
        problem = (
            f"the feed states {_listed(key)} as key of {db}.{name}, the server has {_listed(wanted)}: the feed "
            "hasn't come to the statement that changed it, or doesn't tell the key"
        )
        raise LoadRefused(source.name, problem, ["to load when it has", "tables.keys"], retriable=True)
    if told:
        _check_names(source, f"{db}.{name}", told.keys(), every)
        _check_texts(source, f"{db}.{name}", [(c, told[c.name.lower()]) for c in own])
    return [_column(source, f"{db}.{name}", c, told.get(c.name.lower()), wanted) for c in own]


def _check_names(source: Source, table: str, told: Collection[str], every: list[SourceColumn]) -> None:
    """What the feed leaves out would never change after a load; what it has besides, the load would take away."""
    at_source = {c.name.lower() for c in every}
    if lacking := {c.name.lower() for c in every if not c.virtual} - {*told}:
        problem = (
            f"the feed doesn't tell column {_listed(lacking)} of {table}: it leaves it out, or hasn't come to it yet"
        )
    elif lacking := {*told} - at_source:
        problem = (
            f"the server tells no column {_listed(lacking)} of {table}, which the feed does: the account may not read "
            "it, or the feed hasn't come to its end"
        )
    else:
        return
    choices = ["to load when it has", "rights for all columns", _VENDOR]
    raise LoadRefused(source.name, problem, choices, retriable=True)


def _column(source: Source, table: str, own: SourceColumn, told: dict[str, Any] | None, keys: set[str]) -> Column:
    text = told["type"] if told else own.type_text
    try:
        both = [parse_type(t).family in BYTES for t in (own.type_text, text)]
    except UnknownType as error:
        raise LoadRefused(source.name, f"{table}: column {own.name!r} can't be read: {error}", [_VENDOR]) from None
    if parse_type(own.type_text).name == "vector":
        problem = f"{table}: column {own.name!r} is {own.type_text}, whose values a server tells as bytes"
        raise LoadRefused(source.name, problem, [_VENDOR])
    if both[0] != both[1] or {parse_type(t).name for t in (own.type_text, text)} in _APART:
        problem = f"{table}: column {own.name!r} is {own.type_text} at the server, and the feed states {text}"
        raise LoadRefused(source.name, problem, [_VENDOR])
    name, limits = (told["name"], told.get("limits", ())) if told else (own.name, ())
    return Column(name, text, own.name.lower() in keys, tuple(limits))


def _check_texts(source: Source, table: str, columns: list[tuple[SourceColumn, dict[str, Any]]]) -> None:
    """Of a column whose type the feed doesn't tell, values stand as its messages have them, which isn't always the
    server's text. A number that is stated as text says that it tells no types at all: messages without a schema have
    decimals as bytes; those with one as texts."""
    both = [(c, _family(c.type_text), _family(told["type"]) == "text") for c, told in columns]
    untold = any(as_text and family == "integer" for _, family, as_text in both)
    apart = {*_APART_AS_TEXT, *(["decimal"] if untold else [])}
    if other := {c.name for c, family, as_text in both if as_text and family in apart}:
        problem = (
            f"the feed doesn't tell the type of {_listed(other)} of {table}: its values are kept as its messages write "
            "them, and the server would tell them in another way"
        )
        raise LoadRefused(source.name, problem, ["option columns of the source, which names types", _VENDOR])


def _family(type_text: str) -> str | None:
    try:
        return parse_type(type_text).family
    except UnknownType:  # `_column` says it
        return None


_APART_AS_TEXT = ("date", "time", "datetime", "timestamp", "bit", "float")
_VENDOR = "the vendor's own initial load"
_APART = ({"float", "double"}, {"datetime", "timestamp"})
"""Types whose texts pass for each other's and aren't: the feed is behind a statement that changed the column."""


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def untold(config: Config, source: Source, db: str, name: str) -> bool:
    """Whether no message has told the columns of a table yet: which of them the feed leaves out nothing says."""
    if not delta_table.exists(SCHEMA_HISTORY.at(stores.lake(config))):
        return True
    full = seen(config, source).full
    return full.listed.isdisjoint(full.names_of((db, name)))


def _stated(config: Config, source: Source, db: str, name: str) -> list[dict[str, Any]]:
    """The column list of a table by the feed's messages and statements; []: they tell none."""
    if not delta_table.exists(SCHEMA_HISTORY.at(stores.lake(config))):
        return []
    return json.loads(seen(config, source).full.columns((db, name)) or "[]")
