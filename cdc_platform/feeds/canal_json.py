"""Transactions → Kafka records as canal 1.1.7 sends them with `canal.mq.flatMessage=true`.

Written from canal's sources (`LogEventConvert`, `MQMessageUtils.messageConverter`, `FlatMessage`) and sharing
nothing with `formats/canal_json`: it is that decoder's oracle. Stands for: one topic, partition 0 (canal's
default, and the only one in which updates of primary keys keep their order), a JVM in `zone`, GTID mode on,
heartbeats. Begin and commit aren't sent in this form.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import Column, Table
from cdc_platform.feeds.values import clock_text, day_text, float32_text, java_number, moment_text
from cdc_platform.feeds.workload import RowChange, Transaction, row_events

BYTES = (
    *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    "geometrycollection",
)
"""Types whose values are bytes."""

_UNSIGNED = {
    "tinyint": (-6, 5, 7),
    "smallint": (5, 4, 15),
    "mediumint": (4, 4, 23),
    "int": (4, -5, 31),
    "bigint": (-5, 3, 63),
}
"""Type → java.sql.Types number, the one it is promoted to, and the bits beyond which it is."""

_SQL_TYPES = {
    "char": 1, "varchar": 12, "date": 91, "time": 92, "datetime": 93, "timestamp": 93, "year": 12, "mediumint": 4,
    "float": 7, "double": 8, "decimal": 3, "bit": -7, "enum": 4, "set": -7, "json": 12,
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 2005), **dict.fromkeys(BYTES, 2004),
}  # fmt: skip


class CanalJsonEncoder:
    """Keeps what the server keeps between messages: the number of the batch and the GTID set."""

    def __init__(self, topic: str, *, zone: str = "UTC", heartbeat_every: int = 50):
        self.topic, self.zone, self.heartbeat_every = topic, ZoneInfo(zone), heartbeat_every
        self._batch = 0

    def encode(self, transactions: Iterable[Transaction]) -> Iterator[Record]:
        """Records in commit order, all in partition 0; ends with a heartbeat."""
        last = None
        for count, tx in enumerate(transactions, 1):
            last = tx
            self._batch += 1
            if tx.ddl is not None:
                ddl = {"isDdl": True, "sql": tx.ddl.sql, "type": tx.ddl.kind}
                yield self._record(tx, {**self._header(tx, tx.ddl.target), **ddl})
            for rows in row_events(tx):
                yield self._record(tx, {**self._header(tx, (rows[0].table.db, rows[0].table.name)), **self._body(rows)})
            if count % self.heartbeat_every == 0:
                yield self._heartbeat(tx)
        if last is not None:
            yield self._heartbeat(last)

    def _record(self, tx: Transaction, message: dict[str, Any]) -> Record:
        # fastjson2 writes bean fields in the order of their names, nulls included.
        value = msgspec.json.encode(dict(sorted(message.items())))
        return Record(self.topic, 0, None, value, (), tx.timestamp_ms + 40)

    def _header(self, tx: Transaction, named: tuple[str, str]) -> dict[str, Any]:
        uuid, _, number = tx.gtid.rpartition(":")
        return {
            "id": self._batch,
            "database": named[0],
            "table": named[1],
            "pkNames": None,
            "isDdl": False,
            "es": tx.timestamp_ms // 1000 * 1000,  # a binlog event's time has whole seconds
            "ts": tx.timestamp_ms + 35,
            "sql": "",
            "sqlType": None,
            "mysqlType": None,
            "data": None,
            "old": None,
            "gtid": f"{uuid}:1-{number}",  # canal's header holds the set
        }

    def _heartbeat(self, tx: Transaction) -> Record:
        # An entry without RowChange bears the default event type, and its header no time.
        return self._record(tx, {**self._header(tx, ("", "")), "type": "UPDATE", "es": 0, "gtid": ""})

    def _body(self, rows: list[RowChange]) -> dict[str, Any]:
        table, op = rows[0].table, rows[0].op
        images = [change.before if op == "delete" else change.after for change in rows]
        last = images[-1] or {}
        return {
            "pkNames": list(table.key),
            "type": op.upper(),
            "sqlType": {c.name: sql_type(c, last[c.name]) for c in table.columns},
            "mysqlType": {c.name: c.type for c in table.columns},
            "data": [self._image(table, row or {}) for row in images],
            "old": list(self._olds(table, rows)) if op == "update" else None,
        }

    def _olds(self, table: Table, rows: list[RowChange]) -> Iterator[dict[str, Any]]:
        """messageConverter never clears its set of changed columns between the rows of an event."""
        changed: set[str] = set()
        for change in rows:
            before, after = self._image(table, change.before or {}), self._image(table, change.after or {})
            changed |= {name for name in after if before[name] != after[name]}
            yield {name: text for name, text in before.items() if name in changed}

    def _image(self, table: Table, row: dict[str, Any]) -> dict[str, str | None]:
        return {c.name: None if row[c.name] is None else self._text(c, row[c.name]) for c in table.columns}

    def _text(self, column: Column, value: Any) -> str:
        return column_text(column, value, self.zone)


def column_text(column: Column, value: Any, zone: ZoneInfo) -> str:
    """A value as canal writes it, in either of its forms; `zone` is its JVM's."""
    if isinstance(value, str) and column.base not in ("enum", "set"):
        return value  # also dates that don't exist: canal prints them as they are stored
    if column.base == "timestamp" and isinstance(value, datetime):
        value = value.astimezone(zone)
    return _TEXT.get(column.base, lambda v, _: str(v))(value, column)


def sql_type(column: Column, value: Any) -> int:
    """`sqlType` of a value: a number of java.sql.Types."""
    base = column.base
    if base not in _UNSIGNED:
        return _SQL_TYPES[base]
    plain, promoted, bits = _UNSIGNED[base]
    return promoted if "unsigned" in column.type and value is not None and value >> bits else plain


def _mask(value: str, column: Column) -> str:
    chosen = set(value.split(","))
    return str(sum(1 << i for i, label in enumerate(column.labels) if label in chosen))


_TEXT: dict[str, Callable[[Any, Column], str]] = {
    **dict.fromkeys(("datetime", "timestamp"), lambda v, c: moment_text(v, c.fsp)),
    "time": lambda v, c: clock_text(v, c.fsp),
    "date": lambda v, _: day_text(v),
    "decimal": lambda v, _: f"{v:f}",
    "float": lambda v, _: java_number(float32_text(v)),
    "double": lambda v, _: java_number(repr(v)),
    "bit": lambda v, _: str(int(v)),
    # Index 0 is the '' of a value that was refused, which needs no label of its own.
    "enum": lambda v, c: str(c.labels.index(v) + 1 if v in c.labels else 0),
    "set": _mask,
    **dict.fromkeys(BYTES, lambda v, _: v.decode("latin-1")),
    # A binlog leaves zeros at the end of BINARY(n) out.
    "binary": lambda v, _: v.rstrip(b"\0").decode("latin-1"),
}
"""MySQL type name → text as canal writes it; the others are `str`."""
