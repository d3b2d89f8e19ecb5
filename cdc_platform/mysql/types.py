"""MySQL type text → what it is, and the Spark type of its snapshot column. Known once, for all formats.

Type text is what `SHOW COLUMNS` prints or a format's own name put into that language
(`bigint(20) unsigned`, `decimal(12,2)`, `enum('a','b')`, `datetime(6)`). Source of ranges and synonyms:
MySQL 8.0 reference manual, chapter 13 "Data Types".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from cdc_platform.errors import UnknownType

_ATTRIBUTES = frozenset(("unsigned", "signed", "zerofill", "binary", "ascii", "unicode", "byte"))
_QUOTED = r"'((?:[^'\\]|''|\\.)*+)'"  # possessive: an unclosed quote must not be read again from each place in it
_LABEL = re.compile(_QUOTED, re.DOTALL)
_LABELS = re.compile(rf"\s*{_QUOTED}\s*(?:,\s*{_QUOTED}\s*)*+", re.DOTALL)
_WORDS = re.compile(r"'(?:[^'\\]|''|\\.)*+(?:'|\Z)|[^']+", re.DOTALL)

SYNONYMS = {
    "integer": "int",
    "bool": "tinyint",
    "dec": "decimal",
    "numeric": "decimal",
    "fixed": "decimal",
    "real": "double",
    "double precision": "double",
    "character": "char",
    "character varying": "varchar",
    "nchar": "char",
    "nvarchar": "varchar",
    "national char": "char",
    "national character": "char",
    **dict.fromkeys(
        (
            "national varchar",
            "national char varying",
            "national character varying",
            "char varying",
            "nchar varchar",
            "nchar varying",
        ),
        "varchar",
    ),
    "long": "mediumtext",
    "long varchar": "mediumtext",
    "long varbinary": "mediumblob",
    "middleint": "mediumint",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "geomcollection": "geometrycollection",
}
"""Other names of MySQL's and MariaDB's types."""

FAMILIES = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(
        (
            "char",
            "varchar",
            "tinytext",
            "text",
            "mediumtext",
            "longtext",
            "long varchar",
            "inet4",
            "inet6",
            "uuid",
            "vector",
        ),
        "text",
    ),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"),
    **dict.fromkeys(
        (
            "geometry",
            "point",
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
            "geometrycollection",
        ),
        "geometry",
    ),
    "decimal": "decimal",
    "bit": "bit",
    "boolean": "boolean",
    "date": "date",
    "time": "time",
    "datetime": "datetime",
    "timestamp": "timestamp",
    "year": "year",
    "enum": "enum",
    "set": "set",
    "json": "json",
}
"""Base type name → family. `boolean` is no MySQL type: formats use it when they say a value is true or false."""

AS_BINARY = {
    "char": "binary",
    "varchar": "varbinary",
    **{f"{size}text": f"{size}blob" for size in ("", "tiny", "medium", "long")},
}
"""Text type → what it is with CHARACTER SET binary (MySQL manual, "The binary Character Set")."""

_INTEGERS = {  # (signed, unsigned)
    "tinyint": ("tinyint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
    "bigint": ("bigint", "decimal(20,0)"),
}

_SPARK = {
    "text": "string",
    "enum": "string",
    "set": "string",
    "json": "string",
    "time": "string",
    "binary": "binary",
    "geometry": "binary",
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "year": "smallint",
    "boolean": "boolean",
}


@dataclass(frozen=True, slots=True)
class MySqlType:
    """A parsed type: base `name`, its `family`, numeric `args`, `unsigned`, the `labels` of ENUM and SET."""

    name: str
    family: str
    args: tuple[int, ...] = ()
    unsigned: bool = False
    labels: tuple[str, ...] = ()

    @property
    def time_digits(self) -> int:
        """Digits of a second that each value of a TIME column shows; 0 of other types."""
        return (*self.args, 0)[0] if self.family == "time" else 0

    @property
    def spark(self) -> str:
        """Type of the snapshot column, as Spark DDL."""
        if self.family == "integer":
            return _INTEGERS[self.name][self.unsigned]
        if self.family == "float":
            # FLOAT(M,D) and FLOAT(p<=24) are single precision; FLOAT(p>24) is stored as DOUBLE.
            return "double" if self.name == "double" or (len(self.args) == 1 and self.args[0] > 24) else "float"
        if self.family == "decimal":
            precision, scale = (*self.args, 0)[:2] if self.args else (10, 0)
            return f"decimal({precision},{scale})" if precision <= 38 else "string"
        if self.family == "bit":
            return "boolean" if (self.args or (1,))[0] == 1 else "decimal(20,0)"
        return _SPARK[self.family]


_NOTE = re.compile(r"/\*[^*]*\*/\s*\Z")
"""What MariaDB puts behind the type of a column kept as versions before 10.1 did: `datetime /* mariadb-5.3 */`."""


@lru_cache(maxsize=4096)
def parse_type(text: str) -> MySqlType:
    """`"enum('a','b') charset utf8"` → MySqlType. Raises UnknownType."""
    head, _, rest = _NOTE.sub("", text).strip().partition("(")
    inner, _, tail = rest.rpartition(")")
    words = re.split(r"\bcharacter set\b|\bcharset\b|\bcollate\b", head.lower(), maxsplit=1)[0].split()
    attributes = {*words[1:], *tail.lower().split()} & _ATTRIBUTES
    name = " ".join(words[:1] + [w for w in words[1:] if w not in _ATTRIBUTES])
    name = SYNONYMS.get(name, name)
    if name not in FAMILIES:
        raise UnknownType(text)
    family = FAMILIES[name]
    if family in ("enum", "set"):
        labels = _LABEL.findall(inner) if _LABELS.fullmatch(inner) else ()
        return MySqlType(name, family, labels=tuple(map(unquoted_label, labels)))
    try:
        args = tuple(int(x) for x in inner.split(",")) if inner else ()
    except ValueError:
        raise UnknownType(text) from None
    return MySqlType(name, family, args, unsigned=bool(attributes & {"unsigned", "zerofill"}))


_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
"""What MySQL writes with a backslash in type text (`append_unescaped`), and quotes. Before anything else a backslash
is one: canal 1.1.7 writes labels without these escapes."""


def unquoted_label(label: str) -> str:
    """A label of ENUM or SET as it stands between quotes in DDL → the label."""
    return re.sub(r"''|\\(.)", lambda m: _ESCAPES.get(m[1], m[0]) if m[1] else "'", label, flags=re.DOTALL)


def lower_outside_quotes(text: str) -> str:
    """Type words in lower case; labels of ENUM and SET keep theirs."""
    return _WORDS.sub(lambda m: m[0] if m[0][0] == "'" else m[0].lower(), text)


def labels_type(kind: str, labels: Iterable[str]) -> str:
    """`enum`, labels → `enum('a','it''s')`."""
    quoted = ("'" + x.replace("\\", "\\\\").replace("'", "''") + "'" for x in labels)
    return f"{kind}({','.join(quoted)})"
