"""The oracle's own word on its tables: columns from information_schema, rows from SELECT in canonical text."""

import base64
from typing import Any

import numpy as np
import pymysql

from cdc_platform.feeds.shop import Column, Connect, Table

Text = str | None
Rows = list[dict[str, Text]]

_RAW: dict[Any, Any] = {}  # no conversions: every value as the server's text or bytes

GEOMETRY = frozenset(
    (
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    )
)
BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")) | GEOMETRY
_DTS = {
    "tinyint": "INT8", "smallint": "INT16", "mediumint": "INT32", "int": "INT32", "bigint": "INT64", "year": "INT64",
    "bit": "INT64", "float": "FLOAT32", "double": "FLOAT64", "decimal": "DECIMAL", "json": "BYTES",
    **dict.fromkeys(BYTES - {"binary", "varbinary"}, "BYTES"),
}  # fmt: skip
_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
_CONNECT = {
    "smallint unsigned": Connect("int32"), "tinyint": Connect("int16"), "smallint": Connect("int16"),
    "int unsigned": Connect("int64"), "mediumint": Connect("int32"), "int": Connect("int32"),
    "bigint": Connect("int64"), "float": Connect("float"), "double": Connect("double"),
    "date": Connect("int32", _TIME + "Date"), "time": Connect("int64", _TIME + "MicroTime"),
    "timestamp": Connect("string", _TIME + "ZonedTimestamp"), "year": Connect("int32", _TIME + "Year"),
    "json": Connect("string", _DATA + "Json"), "point": Connect("struct", _DATA + "geometry.Point"),
    **dict.fromkeys(GEOMETRY - {"point"}, Connect("struct", _DATA + "geometry.Geometry")),
    **dict.fromkeys(BYTES - GEOMETRY, Connect("bytes")),
}  # fmt: skip


def _connect(column: Column) -> Connect:
    """How Debezium's MySQL connector 2.7 describes the column (its documentation, "Data type mappings"; decimals
    and BIGINT UNSIGNED precise)."""
    base, args = column.base, column.type.partition("(")[2].partition(")")[0]
    if base == "decimal" or (base == "bigint" and "unsigned" in column.type):
        precision, scale = args.split(",") if base == "decimal" else ("20", "0")
        name = "org.apache.kafka.connect.data.Decimal"
        return Connect("bytes", name, {"scale": scale, "connect.decimal.precision": precision})
    if base == "bit":
        return Connect("boolean") if args == "1" else Connect("bytes", _DATA + "Bits", {"length": args})
    if base in ("enum", "set"):
        name = _DATA + ("Enum" if base == "enum" else "EnumSet")
        return Connect("string", name, {"allowed": ",".join(column.labels)})
    if base == "datetime":
        return Connect("int64", _TIME + ("Timestamp" if column.fsp <= 3 else "MicroTimestamp"))
    signed = base + (" unsigned" if "unsigned" in column.type else "")
    return _CONNECT.get(signed) or _CONNECT.get(base) or Connect("string")


def _column(name: str, type_text: str, nullable: bool, charset: Text, is_json: bool, key: bool, fsp: int) -> Column:
    # MariaDB's JSON is a LONGTEXT with a check; MySQL's tools see MySQL's type.
    type_text = "json" if is_json else type_text
    bare = Column(name, type_text, "", Connect(""), key, nullable, charset, fsp)
    dts = _DTS.get(bare.base, "STRING")
    dts = dts.replace("INT", "UINT") if "unsigned" in type_text and "INT" in dts else dts
    return Column(name, type_text, dts, _connect(bare), key, nullable, charset, fsp)


_COLUMNS = """
SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, DATETIME_PRECISION, COLUMN_KEY
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_CHECKS = """
SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s
"""


class Catalog:
    """Questions to the database, on a connection that writes nothing."""

    def __init__(self, connection: pymysql.Connection):
        self._connection = connection
        self._connection.decoders = _RAW

    def ask(self, sql: str, arguments: tuple = ()) -> list[tuple]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    def table(self, db: str, name: str) -> Table | None:
        """The table as it is now; None: there is none."""
        checks = self.checks(db, name)
        found = [
            _column(
                c, kind, nullable == "YES", charset, f"json_valid({quoted(c)})" in checks, key == "PRI", int(fsp or 0)
            )
            for c, kind, nullable, charset, fsp, key in self.ask(_COLUMNS, (db, name))
        ]
        return Table(db, name, tuple(found)) if found else None

    def checks(self, db: str, name: str) -> set[str]:
        """Conditions that a table's rows fulfil."""
        return {row[0] for row in self.ask(_CHECKS, (db, name))}

    def rows(self, table: Table) -> Rows:
        """All rows of a table as they are now, in canonical text."""
        told = ", ".join(_selected(c) for c in table.columns)
        rows = self.ask(f"SELECT {told} FROM {quoted(table.db)}.{quoted(table.name)}".replace("%", "%%"))
        return [
            {c.name: None if v is None else canonical(c, v) for c, v in zip(table.columns, row, strict=True)}
            for row in rows
        ]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _selected(column: Column) -> str:
    # FLOAT prints six digits only; BIT prints bytes.
    as_number = {"float": "DOUBLE", "bit": "UNSIGNED"}.get(column.base)
    return f"CAST({quoted(column.name)} AS {as_number})" if as_number else quoted(column.name)


def trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def canonical(column: Column, value: Any) -> str:
    """What the server printed → the platform's canonical text."""
    if column.base in BYTES:
        return base64.b64encode(value).decode()
    if column.base == "float":
        return repr(float(str(np.float32(float(value)))))
    if column.base == "double":
        return repr(float(value))
    if column.base in ("time", "datetime", "date", "timestamp"):
        zone = "Z" if column.base == "timestamp" and not value.startswith("0000") else ""
        return trimmed(value) + zone
    if "zerofill" in column.type:
        return str(int(value))
    return value
