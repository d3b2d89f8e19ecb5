"""Transactions → Kafka records as a DataWorks synchronization task of a whole MySQL database sends them.

Written from the vendor's page "Appendix: Message format" and apache/paimon's captured messages, and sharing nothing
with `formats/dataworks`: it is that decoder's oracle. Stands for: a task in `zone`, updates in one record or in two by
turns (the task's option was switched), records placed by primary key, so that the halves of an update that changes the
key may lie in different partitions.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from cdc_platform.feeds.bench_rows import CREATED_MS, NOTE, Run, timestamp
from cdc_platform.feeds.canal_json import BYTES, column_text
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import BENCH, TABLES, Column, Table
from cdc_platform.feeds.values import float32_text
from cdc_platform.feeds.workload import RowChange, Transaction

_FIRST_SEQUENCE = 1620457642589000000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

COLUMNS = {table.full_name: {c.name: c.type for c in table.columns} for table in TABLES.values()}
"""Option `columns` of a source that reads this feed."""


def as_sent(truth: Mapping[str, dict[Any, dict[str, Any]]]) -> dict[str, dict[Any, dict[str, Any]]]:
    """The truth as far as the messages can tell it: their DATE has milliseconds, DATETIME(6) loses the rest."""

    def cut(value: Any) -> Any:
        return value.replace(microsecond=value.microsecond // 1000 * 1000) if isinstance(value, datetime) else value

    return {
        name: {key: {c: cut(v) for c, v in row.items()} for key, row in rows.items()} for name, rows in truth.items()
    }


class DataworksEncoder:
    """Keeps what the task keeps between messages: the last sequenceId."""

    def __init__(self, topic: str, *, zone: str = "UTC", heartbeat_every: int = 50):
        self.topic, self.zone, self.heartbeat_every = topic, ZoneInfo(zone), heartbeat_every
        self._sequence = _FIRST_SEQUENCE
        self._updates = 0

    def encode(self, transactions: Iterable[Transaction]) -> Iterator[Record]:
        """Records in commit order; ends with a heartbeat."""
        last = None
        for count, tx in enumerate(transactions, 1):
            last = tx
            if tx.ddl is not None:
                ddl = {"text": tx.ddl.sql, "ddlMeta": "rO0ABXNyAA=="}
                yield self._plain(tx, tx.ddl.kind, _source(*tx.ddl.target), ddl)
            elif tx.events:
                yield self._plain(tx, "TRANSACTION_BEGIN", None, None)
                for change in tx.events:
                    yield from self._rows(tx, change)
                yield self._plain(tx, "TRANSACTION_END", None, None)
            if count % self.heartbeat_every == 0:
                yield self._plain(tx, "MHEARTBEAT", None, None)
        if last is not None:
            yield self._plain(last, "MHEARTBEAT", None, None)

    def _rows(self, tx: Transaction, change: RowChange) -> Iterator[Record]:
        self._sequence += 1
        if change.op != "update":
            yield self._row(tx, change.table, change.op.upper(), change.before, change.after)
            return
        self._updates += 1
        if self._updates % 2:
            yield self._row(tx, change.table, "UPDATE_AFTER", change.before, change.after)
        else:
            yield self._row(tx, change.table, "UPDATE_BEFOR", change.before, None)
            yield self._row(tx, change.table, "UPDATE_AFTER", None, change.after)

    def _row(self, tx: Transaction, table: Table, op: str, before: Any, after: Any) -> Record:
        row = before if after is None else after
        key = ",".join(str(row[k]) for k in table.key).encode()
        payload: dict[str, Any] = {"before": self._image(table, before), "after": self._image(table, after)}
        payload["sequenceId"] = str(self._sequence)
        return self._record(tx, None, key, self._schema(table), payload, op)

    def _plain(self, tx: Transaction, op: str, source: dict[str, Any] | None, ddl: Any) -> Record:
        schema = {"dataColumn": None, "primaryKey": None, "source": source}
        payload = {"before": None, "after": None, "sequenceId": None, "ddl": ddl}
        return self._record(tx, 0, None, schema, payload, op)

    def _record(
        self, tx: Transaction, partition: int | None, key: bytes | None, schema: Any, payload: Any, op: str
    ) -> Record:
        event = tx.timestamp_ms // 1000 * 1000  # a binlog event's time has whole seconds
        times = {"eventTime": event, "systemTime": tx.timestamp_ms + 977, "checkpointTime": event}
        payload = {"ddl": None, **payload, "timestamp": times, "op": op}
        value = msgspec.json.encode({"schema": schema, "payload": payload, "version": "0.0.1"})
        return Record(self.topic, partition, key, value, (), tx.timestamp_ms + 40)

    def _schema(self, table: Table) -> dict[str, Any]:
        columns = [{"name": c.name, "type": _TYPES[_base(c)][0]} for c in table.columns]
        return {"dataColumn": columns, "primaryKey": list(table.key), "source": _source(table.db, table.name)}

    def _image(self, table: Table, row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None:
            return None
        return {"dataColumn": {c.name: self._cell(c, row[c.name]) for c in table.columns}}

    def _cell(self, column: Column, value: Any) -> Any:
        kind, write = _TYPES[_base(column)]
        if value is None or (kind == "DATE" and isinstance(value, str)):
            return None  # also a date that doesn't exist: no number of milliseconds is one
        return write(value, column, self.zone)


def _source(db: str, table: str) -> dict[str, Any]:
    return {"dbType": "MySQL", "dbName": db, "tableName": table}


def _base(column: Column) -> str:
    return "bool" if column.type == "bit(1)" else column.base


def _millis(value: Any, _column: Column, zone: ZoneInfo) -> int:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day) if isinstance(value, date) else value
    aware = value if value.tzinfo else value.replace(tzinfo=zone)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def _number(value: Any, _column: Column, _zone: ZoneInfo) -> int:
    return int(value)


def _text(value: Any, column: Column, zone: ZoneInfo) -> str:
    return str(value) if isinstance(value, str) else column_text(column, value, zone)


_Cell = tuple[str, Callable[[Any, Column, ZoneInfo], Any]]
_TYPES: dict[str, _Cell] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), ("LONG", _number)),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), ("STRING", _text)),
    **dict.fromkeys(("enum", "set", "json", "time"), ("STRING", _text)),
    **dict.fromkeys(("date", "datetime", "timestamp"), ("DATE", _millis)),
    "bool": ("BOOLEAN", lambda v, _c, _z: bool(v)),
    **dict.fromkeys(BYTES, ("BYTES", lambda v, _c, _z: base64.b64encode(v).decode())),
    "binary": ("BYTES", lambda v, _c, _z: base64.b64encode(v.rstrip(b"\0")).decode()),  # as in the binlog
    "decimal": ("DOUBLE", lambda v, _c, _z: f"{v:f}"),
    "double": ("DOUBLE", lambda v, _c, _z: repr(v)),
    "float": ("DOUBLE", lambda v, _c, _z: float32_text(v)),
}
"""MySQL type → one of the six types, and how a value is written."""


# -- benchmark ---------------------------------------------------------------------------------------------


def bench_records(run: Run) -> Iterator[Record]:
    """The benchmark's changes (`generators.bench_records`), updates in one record."""
    columns = [{"name": c.name, "type": _TYPES[_base(c)][0]} for c in BENCH.columns]
    schema = msgspec.json.encode(
        {"dataColumn": columns, "primaryKey": list(BENCH.key), "source": _source(BENCH.db, BENCH.name)}
    )
    for i in range(run.n):
        k, ms = i % run.keys, timestamp(i)
        before, op = ("null", "INSERT") if i < run.keys else (_bench_row(run.salt, k, i - run.keys), "UPDATE_AFTER")
        value = (
            f'{{"schema":{schema.decode()},"payload":{{"before":{before},"after":{_bench_row(run.salt, k, i)},'
            f'"sequenceId":"{_FIRST_SEQUENCE + i}","ddl":null,"timestamp":{{"eventTime":{ms // 1000}000,'
            f'"systemTime":{ms},"checkpointTime":{ms // 1000}000}},"op":"{op}"}},"version":"0.0.1"}}'
        )
        yield Record(run.topic, k % run.partitions, b"%d" % k, value.encode(), (), ms)


def _bench_row(salt: str, k: int, i: int) -> str:
    return (
        f'{{"dataColumn":{{"id":{k},"name":"{salt}-{k}-{i}","amount":"{i % 10000}.{i % 100:02d}",'
        f'"created":{CREATED_MS},"note":"{NOTE}","qty":{i % 77}}}}}'
    )
