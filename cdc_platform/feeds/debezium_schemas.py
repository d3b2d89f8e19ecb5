"""What Debezium's messages say of their shape: Connect's schema blocks, `tableChanges` of schema-change messages."""

from typing import Any

from cdc_platform.feeds.shop import Column, Table
from cdc_platform.feeds.workload import TableChange

_Schema = dict[str, Any]


def struct_schema(fields: list[_Schema], name: str, *, optional: bool = False, version: int = 1) -> _Schema:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, "version": version}


def field(name: str, type_name: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": type_name, "optional": optional, "field": name}


def column_schema(column: Column) -> dict[str, Any]:
    connect = column.connect
    named = {"name": connect.name, "version": 1} if connect.name else {}
    parameters = {"parameters": connect.parameters} if connect.parameters else {}
    # Debezium's geometry schemas are structs of their own.
    fields = (
        {"fields": [field(n, t, optional=n != "wkb") for n, t in _GEOMETRY[connect.name]]}
        if connect.type == "struct"
        else {}
    )
    return {
        "type": connect.type,
        **fields,
        "optional": column.nullable,
        **named,
        **parameters,
        "field": column.name,
    }


POINT = "io.debezium.data.geometry.Point"
_GEOMETRY: dict[str | None, tuple[tuple[str, str], ...]] = {
    POINT: (("x", "double"), ("y", "double"), ("wkb", "bytes"), ("srid", "int32")),
    "io.debezium.data.geometry.Geometry": (("wkb", "bytes"), ("srid", "int32")),
}
SOURCE = struct_schema(
    [
        *(field(x, "string") for x in ("version", "connector", "name")),
        field("ts_ms", "int64"),
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": "true,last,false,incremental"},
            "default": "false",
            "field": "snapshot",
        },
        field("db", "string"),
        field("sequence", "string", optional=True),
        *(field(x, "int64", optional=True) for x in ("ts_us", "ts_ns")),
        field("table", "string", optional=True),
        field("server_id", "int64"),
        field("gtid", "string", optional=True),
        field("file", "string"),
        field("pos", "int64"),
        field("row", "int32"),
        field("thread", "int64", optional=True),
        field("query", "string", optional=True),
    ],
    "io.debezium.connector.mysql.Source",
)
TRANSACTION = struct_schema(
    [field("id", "string"), field("total_order", "int64"), field("data_collection_order", "int64")],
    "event.block",
    optional=True,
)


def quoted(name: tuple[str, str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in name)


def _table_id(name: tuple[str, str]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)


def changed_table(change: TableChange) -> dict[str, Any]:
    """An entry of `tableChanges` (`ConnectTableChangeSerializer`): a rename's id is the old one and the new one."""
    names = [*([change.old] if change.old else []), (change.db, change.name)]
    return {
        "type": "DROP" if change.table is None else "CREATE" if change.created else "ALTER",
        "id": ",".join(map(_table_id, names)),
        "table": _table_change(change.table) if change.table else None,
    }


def _table_change(table: Table) -> dict[str, Any]:
    return {
        "defaultCharsetName": "utf8mb4",
        "primaryKeyColumnNames": list(table.key),
        "columns": [_changed_column(c, position) for position, c in enumerate(table.columns, 1)],
        "comment": None,
    }


def _changed_column(column: Column, position: int) -> dict[str, Any]:
    base, _, rest = column.type.partition("(")
    inner, _, tail = rest.rpartition(")")
    name = f"{base}{tail}".upper()
    labels = column.labels if base in ("enum", "set") else None
    length, _, scale = ("1", "", "") if labels else inner.partition(",")
    return {
        "name": column.name,
        "jdbcType": 12,
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": column.charset,
        "length": int(length) if length else None,
        "scale": int(scale) if scale else None,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": False,
        "generated": False,
        "comment": None,
        "hasDefaultValue": False,
        "enumValues": ["'" + x.replace("\\", "\\\\").replace("'", "''") + "'" for x in labels or ()],
    }
