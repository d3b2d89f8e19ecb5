"""Transactions → Kafka records as Debezium's MySQL connector 2.7 sends them, JsonConverter with schemas.

Connector settings that this stands for: decimal.handling.mode=precise, bigint.unsigned.handling.mode=precise,
time.precision.mode=adaptive_time_microseconds, binary.handling.mode=bytes, tombstones.on.delete=true,
include.schema.changes=true, heartbeats on. Shares nothing with `formats/debezium/`: it is that decoder's
oracle. Source: Debezium 2.7 documentation, MySQL connector, "Data type mappings" and "Data change events".
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from cdc_platform.feeds.debezium_schemas import (
    SOURCE,
    TRANSACTION,
    changed_table,
    column_schema,
    field,
    quoted,
    struct_schema,
)
from cdc_platform.feeds.debezium_values import encoder
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import Table
from cdc_platform.feeds.workload import SERVER_ID, Ddl, RowChange, Transaction

VERSION = "2.7.4.Final"


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
        key = struct_schema([field("serverName", "string")], f"{common}.ServerNameKey")
        value = struct_schema([field("ts_ms", "int64")], f"{common}.Heartbeat")
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
            sql, old, new = ddl.sql, quoted(change.old or ddl.target), quoted((change.db, change.name))
            if change.table is None:
                sql = f"DROP TABLE {new}"
            elif change.old and len(ddl.changes) > 1:
                sql = f"RENAME TABLE {old} TO {new}"
            yield self._schema_change(tx, (change.db, change.name), sql, [changed_table(change)])
        if not ddl.changes:
            yield self._schema_change(tx, ddl.target, ddl.sql, [])

    def _schema_change(
        self, tx: Transaction, named: tuple[str, str], sql: str, changes: list[dict[str, Any]]
    ) -> Record:
        names = {"databaseName": named[0]}
        key_name = "io.debezium.connector.mysql.SchemaChangeKey"
        key_schema = struct_schema([field("databaseName", "string")], key_name)
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
        self.table, self._schemas = table, schemas
        self.topic = re.sub("[^a-zA-Z0-9._-]", "_", f"{prefix}.{table.full_name}")  # AbstractTopicNamingStrategy
        self._encoders = [(c.name, encoder(c)) for c in table.columns]
        self._keys = [(c.name, encoder(c)) for c in table.columns if c.key]

    @cached_property
    def key_schema(self) -> bytes:
        return _dumps(struct_schema([column_schema(c) for c in self.table.columns if c.key], f"{self.topic}.Key"))

    @cached_property
    def value_schema(self) -> bytes:
        columns = [column_schema(c) for c in self.table.columns]
        image = struct_schema(columns, f"{self.topic}.Value", optional=True)
        return _dumps(
            struct_schema(
                [
                    {**image, "field": "before"},
                    {**image, "field": "after"},
                    {**SOURCE, "field": "source"},
                    {**TRANSACTION, "field": "transaction"},
                    field("op", "string"),
                    *(field(x, "int64", optional=True) for x in ("ts_ms", "ts_us", "ts_ns")),
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
