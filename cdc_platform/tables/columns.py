"""Columns of Delta tables as data; what Spark's SQL and Arrow have for them is made out of it."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def quoted(name: str) -> str:
    """A name as a Spark SQL identifier; names from the wire come into SQL text only through here."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts. name: in Spark's SQL. arrow, arguments: the function of pyarrow that makes it."""

    name: str
    arrow: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values."""

    of: "Type"


@dataclass(frozen=True, slots=True)
class Map:
    """Values by key."""

    key: "Type"
    value: "Type"


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields, in order."""

    fields: tuple[tuple[str, "Type"], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.fields)


Type = Scalar | Array | Map | Struct

STRING = Scalar("STRING", "string")
INT = Scalar("INT", "int32")
BIGINT = Scalar("BIGINT", "int64")
BOOLEAN = Scalar("BOOLEAN", "bool_")
BINARY = Scalar("BINARY", "binary")
TIMESTAMP = Scalar("TIMESTAMP", "timestamp", ("us", "UTC"))
UNSIGNED_BIGINT = Scalar("DECIMAL(20,0)", "decimal128", (20, 0))
"""Whole numbers up to 2^64 - 1."""


_SCALARS = {
    s.name.lower(): s
    for s in (
        *(STRING, INT, BIGINT, BOOLEAN, BINARY, TIMESTAMP),
        Scalar("TINYINT", "int8"),
        Scalar("SMALLINT", "int16"),
        Scalar("FLOAT", "float32"),
        Scalar("DOUBLE", "float64"),
        Scalar("DATE", "date32"),
        Scalar("TIMESTAMP_NTZ", "timestamp", ("us",)),
    )
}
_DECIMAL = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")


def scalar(name: str) -> Scalar:
    """A type without parts by its name in Spark's SQL, in small letters. KeyError: there is none."""
    if digits := _DECIMAL.fullmatch(name):
        return Scalar(name.upper(), "decimal128", tuple(map(int, digits.groups())))
    return _SCALARS[name]


def sql(type_: Type) -> str:
    """A type in Spark's SQL."""
    return _sql(type_, quoted)


def shown(type_: Type) -> str:
    """A type as people read it: like Spark's SQL, in small letters, no name quoted."""
    return _sql(type_, str).lower()


def _sql(type_: Type, name_of: Any) -> str:
    match type_:
        case Scalar():
            return type_.name
        case Array():
            return f"ARRAY<{_sql(type_.of, name_of)}>"
        case Map():
            return f"MAP<{_sql(type_.key, name_of)}, {_sql(type_.value, name_of)}>"
        case Struct():
            return f"STRUCT<{', '.join(f'{name_of(n)}: {_sql(t, name_of)}' for n, t in type_.fields)}>"


def arrow(type_: Type) -> "pa.DataType":
    """A type in Arrow."""
    import pyarrow as pa  # not above: commands that read no table start without it

    match type_:
        case Scalar():
            return getattr(pa, type_.arrow)(*type_.arguments)
        case Array():
            return pa.list_(arrow(type_.of))
        case Map():
            return pa.map_(arrow(type_.key), arrow(type_.value))
        case Struct():
            return pa.struct([(n, arrow(t)) for n, t in type_.fields])


@dataclass(frozen=True, slots=True)
class Column:
    """A column; all of ours may be NULL. comment: in the Delta table itself. about: what the documentation says where
    the table, in lakes that exist, has no comment."""

    name: str
    type: Type
    comment: str = ""
    about: str = ""

    @property
    def ddl(self) -> str:
        """As it stands in CREATE TABLE and ADD COLUMNS."""
        return f"{quoted(self.name)} {sql(self.type)}" + (f" COMMENT {literal(self.comment)}" if self.comment else "")

    @property
    def meaning(self) -> str:
        """What is in it."""
        return self.comment or self.about
