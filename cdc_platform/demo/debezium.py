"""Transactions → Kafka records as Debezium's MySQL connector 2.7 sends them, JsonConverter with schemas.

Connector settings that this stands for: decimal.handling.mode=precise, bigint.unsigned.handling.mode=precise,
time.precision.mode=adaptive_time_microseconds, binary.handling.mode=bytes, tombstones.on.delete=true,
include.schema.changes=true, heartbeats on. Shares nothing with `formats/debezium.py`: it is that decoder's
oracle. Source: Debezium 2.7 documentation, MySQL connector, "Data type mappings" and "Data change events".
"""

import base64
import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec

from cdc_platform.demo.publish import Record
from cdc_platform.demo.shop import Column, Table
from cdc_platform.demo.values import float32_text, java_number
from cdc_platform.demo.workload import SERVER_ID, Ddl, RowChange, TableChange, Transaction

VERSION = "2.7.4.Final"
_EPOCH_DATE, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1)
_MS, _US = timedelta(milliseconds=1), timedelta(microseconds=1)


class DebeziumEncoder:
    """Topics: `<prefix>.<db>.<table>`, `<prefix>` (schema changes), `__debezium-heartbeat.<prefix>`.

    `schemas`: False leaves out the schema blocks, as `schemas.enable=false` does.
    """

    def __init__(self, prefix: str, *, heartbeat_every: int = 50, schemas: bool = True):
        self.prefix, self.heartbeat_every, self.schemas = prefix, heartbeat_every, schemas
        self._shapes: dict[str, TableShape] = {}

    @property
    def heartbeat_topic(self) -> str:
        return f"__debezium-heartbeat.{self.prefix}"

    def topics(self, tables: Iterable[Table]) -> list[str]:
        """Every topic that `encode` writes to for these tables."""
        return [*(self._shape(t).topic for t in tables), self.prefix, self.heartbeat_topic]

    def encode(self, transactions: Iterable[Transaction]) -> Iterator[Record]:
        """Records in commit order; `partition` is None (by key) but for schema changes: partition 0.

        Ends with a heartbeat.
        """
        last = None
        for count, tx in enumerate(transactions, 1):
            last = tx
            if tx.ddl is not None:
                yield from self._ddl(tx, tx.ddl)
            for change in tx.events:
                yield from self._change(tx, change)
            if count % self.heartbeat_every == 0:
                yield self._heartbeat(tx)
        if last is not None:
            yield self._heartbeat(last)

    def _shape(self, table: Table) -> "TableShape":
        found = self._shapes.get(table.full_name)
        if found is None or found.table is not table:  # a DDL statement changed it
            found = self._shapes[table.full_name] = TableShape(self.prefix, table, self.schemas)
        return found

    def _change(self, tx: Transaction, change: RowChange) -> Iterator[Record]:
        shape, table = self._shape(change.table), change.table
        before, after = change.before, change.after
        if before is None or after is None or table.key_of(before) == table.key_of(after):
            yield from self._images(tx, change, (before, after))
            return
        # A changed primary key is a delete under the old key and a create under the new one.
        new, old = shape.struct_text(after), shape.struct_text(before)
        yield from self._images(tx, change, (before, None), (("__debezium.newkey", new),))
        yield from self._images(tx, change, (None, after), (("__debezium.oldkey", old),))

    def _images(
        self,
        tx: Transaction,
        change: RowChange,
        images: tuple[dict[str, Any] | None, dict[str, Any] | None],
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> Iterator[Record]:
        table, (before, after) = change.table, images
        shape = self._shape(table)
        op = "c" if before is None else "d" if after is None else "u"
        source = self._source(tx, change.pos, change.row, (table.db, table.name))
        payload = {
            "before": shape.image(before),
            "after": shape.image(after),
            "source": source,
            "transaction": None,
            "op": op,
            **_times(tx.timestamp_ms + 85),
        }
        key = shape.key(before if after is None else after)
        yield Record(shape.topic, None, key, shape.value(payload), headers, tx.timestamp_ms + 90)
        if op == "d":
            yield Record(shape.topic, None, key, None, headers, tx.timestamp_ms + 90)

    def _source(self, tx: Transaction, pos: int, row: int, named: tuple[str, str]) -> dict[str, Any]:
        at = _times(tx.timestamp_ms // 1000 * 1000)  # a binlog event's time has whole seconds
        return {
            "version": VERSION,
            "connector": "mysql",
            "name": self.prefix,
            "ts_ms": at["ts_ms"],
            "snapshot": "false",
            "db": named[0],
            "sequence": None,
            "ts_us": at["ts_us"],
            "ts_ns": at["ts_ns"],
            "table": named[1],
            "server_id": SERVER_ID,
            "gtid": tx.gtid,
            "file": tx.file,
            "pos": pos,
            "row": row,
            "thread": tx.thread_id,
            "query": None,
        }

    def _heartbeat(self, tx: Transaction) -> Record:
        common = "io.debezium.connector.common"
        key = _struct([_field("serverName", "string")], f"{common}.ServerNameKey")
        value = _struct([_field("ts_ms", "int64")], f"{common}.Heartbeat")
        return Record(
            self.heartbeat_topic,
            None,
            _wrap(key, {"serverName": self.prefix}, self.schemas),
            _wrap(value, {"ts_ms": tx.timestamp_ms}, self.schemas),
            (),
            tx.timestamp_ms,
        )

    def _ddl(self, tx: Transaction, ddl: Ddl) -> Iterator[Record]:
        """As `MySqlAntlrDdlParser` takes statements apart (tried, 3.5.0): one record per table of a RENAME or DROP,
        each with a statement of its own; an index made or dropped by a statement of its own changes no table."""
        if ddl.kind == "TRUNCATE":
            yield self._schema_change(tx, ddl.target, ddl.sql, [])
            # skipped.operations=none; a truncate has no key and no images.
            payload = {"before": None, "after": None, "source": self._source(tx, tx.end_pos, 0, ddl.target)}
            payload |= {"transaction": None, "op": "t", **_times(tx.timestamp_ms + 85)}
            [change] = ddl.changes
            assert change.table is not None
            shape = self._shape(change.table)
            yield Record(shape.topic, None, None, shape.value(payload), (), tx.timestamp_ms + 90)
            return
        for change in ddl.changes:
            sql, old, new = ddl.sql, _quoted(change.old or ddl.target), _quoted((change.db, change.name))
            if change.table is None:
                sql = f"DROP TABLE {new}"
            elif change.old and len(ddl.changes) > 1:
                sql = f"RENAME TABLE {old} TO {new}"
            yield self._schema_change(tx, (change.db, change.name), sql, [_changed_table(change)])
        if not ddl.changes:
            yield self._schema_change(tx, ddl.target, ddl.sql, [])

    def _schema_change(
        self, tx: Transaction, named: tuple[str, str], sql: str, changes: list[dict[str, Any]]
    ) -> Record:
        names = {"databaseName": named[0]}
        key_name = "io.debezium.connector.mysql.SchemaChangeKey"
        key_schema = _struct([_field("databaseName", "string")], key_name)
        payload = {
            "source": self._source(tx, tx.end_pos, 0, named),
            **_times(tx.timestamp_ms + 85),
            **names,
            "schemaName": None,
            "ddl": sql,
            "tableChanges": changes,
        }
        # The value's schema block is left out: readers take the payload, and the vendor's is 20 KB of text.
        value = _dumps({"schema": None, "payload": payload} if self.schemas else payload)
        return Record(self.prefix, 0, _wrap(key_schema, names, self.schemas), value, (), tx.timestamp_ms + 90)


class TableShape:
    """Topic, schema blocks (serialized once) and value encoders of one table."""

    def __init__(self, prefix: str, table: Table, schemas: bool):
        self.table, self.topic, self._schemas = table, f"{prefix}.{table.full_name}", schemas
        self._encoders = [(c.name, _encoder(c)) for c in table.columns]
        self._keys = [(c.name, _encoder(c)) for c in table.columns if c.key]

    @cached_property
    def key_schema(self) -> bytes:
        return _dumps(_struct([_column(c) for c in self.table.columns if c.key], f"{self.topic}.Key"))

    @cached_property
    def value_schema(self) -> bytes:
        columns = [_column(c) for c in self.table.columns]
        image = _struct(columns, f"{self.topic}.Value", optional=True)
        return _dumps(
            _struct(
                [
                    {**image, "field": "before"},
                    {**image, "field": "after"},
                    {**_SOURCE, "field": "source"},
                    {**_TRANSACTION, "field": "transaction"},
                    _field("op", "string"),
                    *(_field(x, "int64", optional=True) for x in ("ts_ms", "ts_us", "ts_ns")),
                ],
                f"{self.topic}.Envelope",
                version=2,
            )
        )

    def image(self, row: dict[str, Any] | None) -> dict[str, Any] | None:
        """A row as the payload's before or after."""
        if row is None:
            return None
        return {name: None if row[name] is None else encode(row[name]) for name, encode in self._encoders}

    def key(self, row: dict[str, Any] | None) -> bytes | None:
        """The record's key; none where the table has none."""
        assert row is not None
        if not self._keys:
            return None
        payload = _dumps({name: encode(row[name]) for name, encode in self._keys})
        return b'{"schema":%b,"payload":%b}' % (self.key_schema, payload) if self._schemas else payload

    def value(self, payload: dict[str, Any]) -> bytes:
        raw = _dumps(payload)
        return b'{"schema":%b,"payload":%b}' % (self.value_schema, raw) if self._schemas else raw

    def struct_text(self, row: dict[str, Any]) -> bytes:
        """A key in a header: Connect's default header converter writes a struct's `toString`."""
        return ("Struct{" + ",".join(f"{name}={row[name]}" for name, _ in self._keys) + "}").encode()


def _dumps(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _wrap(schema: dict[str, Any], payload: dict[str, Any], schemas: bool) -> bytes:
    return _dumps({"schema": schema, "payload": payload} if schemas else payload)


def _times(ms: int) -> dict[str, int]:
    return {"ts_ms": ms, "ts_us": ms * 1000, "ts_ns": ms * 1_000_000}


# -- schema blocks -----------------------------------------------------------------------------------------


_Schema = dict[str, Any]


def _struct(fields: list[_Schema], name: str, *, optional: bool = False, version: int = 1) -> _Schema:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, "version": version}


def _field(name: str, type_name: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": type_name, "optional": optional, "field": name}


def _column(column: Column) -> dict[str, Any]:
    connect = column.connect
    named = {"name": connect.name, "version": 1} if connect.name else {}
    parameters = {"parameters": connect.parameters} if connect.parameters else {}
    # Debezium's geometry schemas are structs of their own.
    fields = (
        {"fields": [_field(n, t, optional=n != "wkb") for n, t in _GEOMETRY[connect.name]]}
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


_POINT = "io.debezium.data.geometry.Point"
_GEOMETRY: dict[str | None, tuple[tuple[str, str], ...]] = {
    _POINT: (("x", "double"), ("y", "double"), ("wkb", "bytes"), ("srid", "int32")),
    "io.debezium.data.geometry.Geometry": (("wkb", "bytes"), ("srid", "int32")),
}
_SOURCE = _struct(
    [
        *(_field(x, "string") for x in ("version", "connector", "name")),
        _field("ts_ms", "int64"),
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": "true,last,false,incremental"},
            "default": "false",
            "field": "snapshot",
        },
        _field("db", "string"),
        _field("sequence", "string", optional=True),
        *(_field(x, "int64", optional=True) for x in ("ts_us", "ts_ns")),
        _field("table", "string", optional=True),
        _field("server_id", "int64"),
        _field("gtid", "string", optional=True),
        _field("file", "string"),
        _field("pos", "int64"),
        _field("row", "int32"),
        _field("thread", "int64", optional=True),
        _field("query", "string", optional=True),
    ],
    "io.debezium.connector.mysql.Source",
)
_TRANSACTION = _struct(
    [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")],
    "event.block",
    optional=True,
)


def _quoted(name: tuple[str, str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in name)


def _table_id(name: tuple[str, str]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)


def _changed_table(change: TableChange) -> dict[str, Any]:
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


# -- values ------------------------------------------------------------------------------------------------


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decimal(value: Decimal | int, scale: int) -> str:
    """java.math.BigDecimal.unscaledValue().toByteArray(): big-endian two's complement, as short as can be."""
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** (scale + exponent) * (-1 if sign else 1)
    bits = unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()
    return _base64(unscaled.to_bytes(bits // 8 + 1, "big", signed=True))


def _zoned(value: datetime) -> str:
    moment = value.astimezone(UTC)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _geometry(value: bytes) -> dict[str, Any]:
    """MySQL's own bytes: the SRID in four bytes, then WKB. An SRID of zero is none."""
    return {"wkb": _base64(value[4:]), "srid": int.from_bytes(value[:4], "little") or None}


def _point(value: bytes) -> dict[str, Any]:
    x, y = struct.unpack("<dd", value[9:25])
    return {"x": x, "y": y, **_geometry(value)}


def _existing(encode: Callable[[Any], Any], zero: Any) -> Callable[[Column], Callable[[Any], Any]]:
    """A date that doesn't exist is NULL, or the epoch where the column is NOT NULL (Debezium, "Temporal types")."""
    return lambda c: lambda v: encode(v) if not isinstance(v, str) else None if c.nullable else zero


_BY_NAME: dict[str, Callable[[Column], Callable[[Any], Any]]] = {
    "org.apache.kafka.connect.data.Decimal": lambda c: (
        lambda v, scale=int(c.connect.parameters["scale"]): _decimal(v, scale)
    ),
    # Bits are little-endian, unlike everything else in the protocol.
    "io.debezium.data.Bits": lambda c: (
        lambda v, size=(int(c.connect.parameters["length"]) + 7) // 8: _base64(v.to_bytes(size, "little"))
    ),
    # The binlog reader adds 1900 to the stored byte, which is 0 for the year 0000 (RowDeserializers.deserializeYear).
    "io.debezium.time.Year": lambda _: lambda v: v or 1900,
    "io.debezium.time.Date": _existing(lambda v: (v - _EPOCH_DATE).days, 0),
    "io.debezium.time.MicroTime": lambda _: lambda v: v // _US,
    "io.debezium.time.Timestamp": _existing(lambda v: (v - _EPOCH) // _MS, 0),
    "io.debezium.time.MicroTimestamp": _existing(lambda v: (v - _EPOCH) // _US, 0),
    "io.debezium.time.ZonedTimestamp": _existing(_zoned, "1970-01-01T00:00:00Z"),
    _POINT: lambda _: _point,
    "io.debezium.data.geometry.Geometry": lambda _: _geometry,
}
_BY_TYPE: dict[str, Callable[[Any], Any]] = {
    "bytes": _base64,
    "boolean": bool,
    # JsonConverter writes a Connect float32 as a Java float: 5.1, not 5.099999904632568.
    "float": lambda v: msgspec.Raw(java_number(float32_text(v)).encode()),
    "double": lambda v: msgspec.Raw(java_number(repr(v)).encode()),
}


def _encoder(column: Column) -> Callable[[Any], Any]:
    """Non-null Python value → JSON payload value, by semantic name, else by Connect type, else as it is."""
    if column.type.startswith("binary("):  # the connector puts back the zeros that the binlog leaves out
        width = int(column.type[7:-1])
        return lambda v: _base64(v.ljust(width, b"\0"))
    if column.type.partition("(")[0] in ("date", "datetime", "timestamp"):
        encode = _BY_NAME[column.connect.name or ""](column)
        # A date that has a zero in it is NULL where the column may be NULL (Debezium's page, "Zero values").
        return lambda v: None if isinstance(v, str) else encode(v)
    if column.connect.name in _BY_NAME:
        return _BY_NAME[column.connect.name](column)
    return _BY_TYPE.get(column.connect.type, lambda v: v)
