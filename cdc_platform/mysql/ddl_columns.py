"""Columns of Debezium's model of a table (Java objects) → `ddl.Column`, and what the model lacks."""

from typing import Any

from cdc_platform.mysql.ddl import Column, unescaped
from cdc_platform.mysql.readable import TYPE
from cdc_platform.mysql.tokens import tokens
from cdc_platform.mysql.types import AS_BINARY, FAMILIES, SYNONYMS

_BACKTICK = "\ue000"


def without_backticks(sql: str) -> str:
    """The statement with another character for each backtick within a name: the parsers leave some of them doubled, so
    that a CHANGE doesn't find its column."""
    if "``" not in sql:
        return sql
    found = tokens(sql, gaps=True)
    return "".join(f"`{t.text[1:-1].replace('``', _BACKTICK)}`" if t.kind == "quoted" else t.text for t in found)


def source_name(text: str) -> str:
    """A name as the source has it."""
    return text.replace(_BACKTICK, "`")


def with_bytes(table: Any) -> Any:
    """A table with binary types for its text columns of the character set binary: they stay that when the table gets
    another one (CONVERT TO). None: it has no such column."""
    bare = {
        c.name(): twin
        for c in table.columns()
        if (c.charsetName() or "").lower() == "binary" and (twin := _BYTES.get(_type_words(c)[0]))
    }
    if not bare:
        return None
    edited = table.edit()
    for name, twin in bare.items():
        edited.updateColumn(table.columnWithName(name).edit().type(twin).charsetName(None).create())
    return edited.create()


_UNTOLD = "__cdc_untold__"


def with_default_charset(table: Any, charset: str) -> Any:
    """A table with a character set for the columns to come. Those that are there keep theirs, told or not: the parsers
    would give it to columns that tell none."""
    given = table.edit().setDefaultCharsetName(charset).create()
    edited = given.edit()
    for column in table.columns():
        if column.charsetName() is None and (now := given.columnWithName(column.name())).charsetName() is not None:
            edited.updateColumn(now.edit().charsetName(_UNTOLD).create())
    return edited.create()


_BYTES = {
    name: AS_BINARY[plain]
    for name in (*AS_BINARY, *SYNONYMS)
    if (plain := SYNONYMS.get(name, name)) in AS_BINARY and not name.startswith("n")
}
"""Text type as it is written → its binary twin. National types have a character set of their own."""


def columns_of(table: Any, primary: bool) -> tuple[Column, ...]:
    """A table's columns. primary: it has a primary key; else its key is one without NULLs that the model calls so."""
    told = [
        (
            source_name(c.name()),
            _type_text(c),
            c.isOptional(),
            c.defaultValueExpression().orElse(None),
            c.isGenerated() or c.isAutoIncremented(),
            _charset(c),
        )
        for c in table.columns()
    ]
    key = set(map(source_name, table.primaryKeyColumnNames()))
    if not primary and any(nullable and name in key for name, _, nullable, *_ in told):
        key = set()  # a unique key takes NULL from any number of rows
    return tuple(
        Column(name, type_, nullable and name not in key, name in key, default, computed, charset)
        for name, type_, nullable, default, computed, charset in told
    )


def _charset(column: Any) -> str | None:
    told = (column.charsetName() or "").lower()
    return told if told not in ("", _UNTOLD) else None


_ATTRIBUTES = ("unsigned", "signed", "zerofill")
_OF_TEXT = ("binary", "ascii", "unicode")  # `varchar(5) binary`: a collation, no type
_ALONE = {"binary": "binary(1)"}  # its length matters: the binlog leaves zeros at its end out
_RENAMED = {"boolean": "tinyint(1)", "bool": "tinyint(1)", "serial": "bigint unsigned"}


def _type_words(column: Any) -> tuple[str, str]:
    """Name of a column's type, and its attributes."""
    words = column.typeName().lower().split()
    words = [w for i, w in enumerate(words) if not (i and w in _OF_TEXT)]
    name = " ".join(w for w in words if w not in _ATTRIBUTES)
    return name, "".join(f" {w}" for w in words if w in _ATTRIBUTES)


def _type_text(column: Any) -> str:
    name, attributes = _type_words(column)
    if name in _RENAMED:
        return _RENAMED[name] + attributes
    if FAMILIES.get(name) in ("enum", "set"):
        labels = list(column.enumValues())
        if labels and (text := labels[0][1:-1]).startswith(TYPE):
            return _other_type(unescaped(text.removeprefix(TYPE), "'"))
        bytes_ = (column.charsetName() or "").lower() == "binary"
        return f"{name}({','.join(_label(x, blanks=bytes_) for x in labels)})"
    length, scale = column.length(), column.scale()
    if length < 0:
        return f"{_ALONE.get(name, name)}{attributes}"
    args = f"{length},{scale.get()}" if scale.isPresent() else str(length)
    return f"{name}({args}){attributes}"


_ORACLE = {"varchar2": "varchar", "clob": "longtext", "xmltype": "longtext", "raw": "varbinary", "number": "decimal"}


def _other_type(text: str) -> str:
    """A type that the parsers don't know. MariaDB's Oracle mode has other names; NUMBER without digits is a double."""
    name, bracket, rest = text.partition("(")
    return "double" if text == "number" else f"{_ORACLE.get(name, name)}{bracket}{rest}"


_SHOWN = {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"}


def _label(written: str, *, blanks: bool) -> str:
    """A label as the statement writes it (either kind of quotes, SQL's escapes) → as SHOW COLUMNS would. `blanks`:
    whether those at its end stay; the server takes them off (MySQL manual, "The ENUM Type"), but for bytes."""
    text = unescaped(written[1:-1], written[0])
    text = text if blanks else text.rstrip(" ")
    return "'" + "".join(_SHOWN.get(c, c) for c in text) + "'"
