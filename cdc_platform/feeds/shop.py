"""The demo's tables: one row of facts per column, from which every encoder and the comparison read.

Type text is what `SHOW COLUMNS` prints on MySQL 5.7 and what DTS sends as `originalType`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True, slots=True)
class Connect:
    """How Debezium's MySQL connector describes the column: Connect type, semantic schema name, parameters."""

    type: str
    name: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `dts` is the DTS DataType name; `charset` that of the column's text (MySQL's name)."""

    name: str
    type: str
    dts: str
    connect: Connect
    key: bool = False
    nullable: bool = True
    charset: str | None = None
    fsp: int = 0  # digits of a fraction of a second

    @property
    def base(self) -> str:
        """The type's name without length and attributes."""
        return self.type.partition("(")[0].partition(" ")[0]

    @property
    def labels(self) -> list[str]:
        """Labels of an ENUM or SET, as SHOW COLUMNS quotes them: quotes doubled, few characters behind a backslash."""
        quoted = re.findall(r"'((?:[^'\\]|''|\\.)*)'", self.type.partition("(")[2], re.DOTALL)
        return [re.sub(r"''|\\(.)", lambda m: _ESCAPES.get(m[1], m[1] or "'"), x, flags=re.DOTALL) for x in quoted]


_ESCAPES = {"0": "\0", "n": "\n", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Table:
    """A source table: its columns in order; `key` columns in key order."""

    db: str
    name: str
    columns: tuple[Column, ...]

    @property
    def full_name(self) -> str:
        return f"{self.db}.{self.name}"

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.key)

    def key_of(self, row: dict[str, Any]) -> tuple:
        """Primary key values of a row, in key order."""
        return tuple(row[k] for k in self.key)

    @property
    def ddl(self) -> str:
        """The CREATE TABLE statement, as a client would have sent it."""
        return (
            f"CREATE TABLE `{self.name}` (\n  "
            + ",\n  ".join(_definitions(self))
            + "\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
        )


def _definitions(table: Table) -> Iterator[str]:
    for c in table.columns:
        charset = f" CHARACTER SET {c.charset}" if c.charset not in (None, "utf8mb4") else ""
        yield f"`{c.name}` {c.type}{charset}{'' if c.nullable else ' NOT NULL'}"
    yield f"PRIMARY KEY ({', '.join(f'`{k}`' for k in table.key)})"


def _decimal(precision: int, scale: int) -> Connect:
    return Connect("bytes", _DECIMAL, {"scale": str(scale), "connect.decimal.precision": str(precision)})


def _text(name: str, type_text: str, charset: str = "utf8mb4", nullable: bool = True) -> Column:
    return Column(name, type_text, "STRING", Connect("string"), nullable=nullable, charset=charset)


_DATE = Connect("int32", "io.debezium.time.Date")
# As with column.propagate.source.type: nothing else in the message tells the digits of a second.
_TIME_MS = Connect(
    "int64",
    "io.debezium.time.MicroTime",
    {"__debezium.source.column.type": "TIME", "__debezium.source.column.length": "3"},
)
_DATETIME_MS = Connect("int64", "io.debezium.time.Timestamp")
_DATETIME_US = Connect("int64", "io.debezium.time.MicroTimestamp")
_ZONED = Connect("string", "io.debezium.time.ZonedTimestamp")
_YEAR = Connect("int32", "io.debezium.time.Year")
_JSON = Connect("string", "io.debezium.data.Json")
_INT16, _INT32, _INT64 = Connect("int16"), Connect("int32"), Connect("int64")


def _enum(*labels: str) -> Connect:
    return Connect("string", "io.debezium.data.Enum", {"allowed": ",".join(labels)})


CUSTOMERS = Table(
    "shop",
    "customers",
    (
        # bigint.unsigned.handling.mode=precise: the only mode that keeps values beyond 2^63.
        Column("id", "bigint(20) unsigned", "UINT64", _decimal(20, 0), key=True, nullable=False),
        _text("email", "varchar(191)", nullable=False),
        _text("name", "varchar(64)"),
        _text("city", "varchar(64)", charset="gbk"),
        Column("vip", "tinyint(1)", "INT8", _INT16, nullable=False),
        Column("visits", "int(10) unsigned", "UINT32", _INT64),
        Column("birthday", "date", "STRING", _DATE),
        Column("birth_year", "year(4)", "INT64", _YEAR),
        Column("joined", "timestamp(3)", "STRING", _ZONED, nullable=False, fsp=3),
        Column("score", "float", "FLOAT32", Connect("float")),
        Column("rating", "double", "FLOAT64", Connect("double")),
        Column("flags", "bit(8)", "INT64", Connect("bytes", "io.debezium.data.Bits", {"length": "8"})),
        Column("active", "bit(1)", "INT64", Connect("boolean")),
        Column(
            "level",
            "enum('new','regular','it''s gold')",
            "STRING",
            _enum("new", "regular", "it's gold"),
            charset="utf8mb4",
        ),
        Column(
            "interests",
            "set('music','sport','food')",
            "STRING",
            Connect("string", "io.debezium.data.EnumSet", {"allowed": "music,sport,food"}),
            charset="utf8mb4",
        ),
        Column("profile", "json", "BYTES", _JSON),
        Column("avatar", "blob", "BYTES", Connect("bytes")),
    ),
)

ORDERS = Table(
    "shop",
    "orders",
    (
        Column("id", "bigint(20)", "INT64", _INT64, key=True, nullable=False),
        Column("customer_id", "bigint(20) unsigned", "UINT64", _decimal(20, 0), nullable=False),
        Column(
            "status",
            "enum('open','paid','sent','lost')",
            "STRING",
            _enum("open", "paid", "sent", "lost"),
            nullable=False,
            charset="utf8mb4",
        ),
        Column("amount", "decimal(12,2)", "DECIMAL", _decimal(12, 2), nullable=False),
        Column("rate", "decimal(38,18)", "DECIMAL", _decimal(38, 18)),
        Column("placed", "datetime(6)", "STRING", _DATETIME_US, nullable=False, fsp=6),
        Column("packed", "datetime", "STRING", _DATETIME_MS),
        Column("changed", "timestamp", "STRING", _ZONED),
        Column("due", "date", "STRING", _DATE),
        Column("transit", "time(3)", "STRING", _TIME_MS, fsp=3),
        # mediumtext: a text column ends at 64 KiB, and this one has to hold 2 MB.
        _text("note", "mediumtext"),
    ),
)

ITEMS = Table(
    "shop",
    "items",
    (
        Column("order_id", "bigint(20)", "INT64", _INT64, key=True, nullable=False),
        Column("line_no", "int(11)", "INT32", _INT32, key=True, nullable=False),
        _text("sku", "varchar(32)", nullable=False),
        Column("qty", "smallint(5) unsigned", "UINT16", _INT32, nullable=False),
        Column("price", "decimal(12,2)", "DECIMAL", _decimal(12, 2), nullable=False),
        Column("weight", "double", "FLOAT64", Connect("double")),
        Column("gift", "tinyint(1)", "INT8", _INT16),
        _text("remark", "varchar(255)"),
    ),
)

TABLES = {t.full_name: t for t in (CUSTOMERS, ORDERS, ITEMS)}
"""Full name → Table of the demo, in the order they are created."""

BENCH = Table(
    "shop",
    "orders",
    (
        Column("id", "bigint(20)", "INT64", _INT64, key=True, nullable=False),
        _text("name", "varchar(64)"),
        Column("amount", "decimal(12,2)", "DECIMAL", _decimal(12, 2)),
        Column("created", "datetime", "STRING", _DATETIME_MS),
        _text("note", "text"),
        Column("qty", "int(11)", "INT32", _INT32),
    ),
)
"""The benchmark's one table."""
