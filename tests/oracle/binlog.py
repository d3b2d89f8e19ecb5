"""The server's binlog → the demo's transactions, read by `mysql-replication`: a reader that shares nothing with the
platform. What it can't tell (lengths, the exact type text) comes from information_schema as of that statement.
"""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from cdc_platform.feeds.shop import Column, Table
from cdc_platform.feeds.workload import SERVER_UUID, Ddl, Row, RowChange, Transaction
from tests.oracle.catalog import BYTES
from tests.oracle.server import Server
from tests.oracle.session import DB, Done

_EPOCH = datetime(1970, 1, 1)
_EXACT = Context(prec=100)
_ZERO = {"date": "0000-00-00", "datetime": "0000-00-00 00:00:00", "timestamp": "0000-00-00 00:00:00"}


def _time2(event: Any, column: Any) -> timedelta:
    """TIME, whose negative values mysql-replication 1.0.17 reads wrong: whole and fraction are one number in two's
    complement (MariaDB, `my_time_packed_from_binary`)."""
    size = (column.fsp + 1) // 2
    packed = int.from_bytes(event.packet.read(3 + size), "big") - (0x800000 << 8 * size)
    whole, fraction = divmod(abs(packed), 1 << 8 * size)
    hours, minutes, seconds = whole >> 12 & 0x3FF, whole >> 6 & 0x3F, whole & 0x3F
    micros = fraction * 10 ** (6 - 2 * size)
    value = timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    return -value if packed < 0 else value


RowsEvent._RowsEvent__read_time2 = _time2  # type: ignore[attr-defined]


def transactions(server: Server, told: dict[str, Done]) -> Iterator[Transaction]:
    """All transactions of database `oracle`, in order. `told`: GTID → what the DDL statement did."""
    return _read(server, _Reader(told), is_mariadb=True)


def mysql_transactions(server: Server, told: dict[str, Done]) -> Iterator[Transaction]:
    """The same of MySQL 5.6, whose log tells neither names nor signs of columns."""
    return _read(server, _MysqlReader(told), is_mariadb=False)


def _read(server: Server, reader: "_Reader", *, is_mariadb: bool) -> Iterator[Transaction]:
    stream = BinLogStreamReader(
        connection_settings=dict(server.settings),
        server_id=9,
        only_events=[
            *(MariadbGtidEvent, GtidEvent, QueryEvent, XidEvent, RotateEvent),
            *(WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent),
        ],
        is_mariadb=is_mariadb,
        enable_logging=False,
    )
    try:
        yield from reader.read(stream)
    finally:
        stream.close()


class _Reader:
    def __init__(self, told: dict[str, Done]):
        self.told = told
        self.tables: dict[str, Table] = {}
        self.file, self.gtid, self.told_gtid, self.pos = "", "", "", 0
        self.changes: list[RowChange] = []

    def read(self, stream: Any) -> Iterator[Transaction]:
        for event in stream:
            start = event.packet.log_pos - event.packet.event_size
            if isinstance(event, RotateEvent):
                self.file = event.next_binlog
            elif isinstance(event, MariadbGtidEvent | GtidEvent):
                self.gtid, self.told_gtid, self.pos, self.changes = event.gtid, self._as_told(event), start, []
            elif isinstance(event, RowsEvent):
                self.changes += self._rows(event, start)
            elif isinstance(event, XidEvent) or event.query == "COMMIT":
                yield self._transaction(event)
                self.changes = []
            elif self.gtid in self.told:
                yield self._transaction(event, self._ddl(event))

    def _as_told(self, event: Any) -> str:
        """The encoders stand for MySQL's tools: a GTID is a UUID and a number."""
        return f"{SERVER_UUID}:{event.gtid_seq_no}"

    def _transaction(self, event: Any, ddl: Ddl | None = None) -> Transaction:
        end, at = event.packet.log_pos, event.timestamp * 1000
        return Transaction(self.told_gtid, self.file, self.pos, end, at, 7, tuple(self.changes), ddl)

    def _ddl(self, event: Any) -> Ddl:
        done = self.told[self.gtid]
        for change in done.changes:
            self.tables.pop(change.old[1] if change.old else change.name, None)
            if change.table:
                self.tables[change.name] = change.table
        return Ddl(event.schema.decode(), event.query, done.kind, done.target, done.changes)

    def _rows(self, event: Any, pos: int) -> Iterator[RowChange]:
        if event.schema != DB:
            return
        table = self.tables[event.table]
        for number, row in enumerate(self._named(event, table)):
            images = {image: _image(table, row, image) for image in ("values", "before_values", "after_values")}
            before, after = images["before_values"], images["after_values"]
            if isinstance(event, UpdateRowsEvent):
                op = "update"
            elif isinstance(event, WriteRowsEvent):
                op, after = "insert", images["values"]
            else:
                op, before = "delete", images["values"]
            yield RowChange(table, op, before, after, pos, number)

    def _named(self, event: Any, table: Table) -> list[dict[str, Any]]:
        """The event's rows by the names of their columns."""
        names = [c.name for c in event.columns]
        assert names == [c.name for c in table.columns], (self.gtid, names, table)
        return event.rows


class _MysqlReader(_Reader):
    def _as_told(self, event: Any) -> str:
        return event.gtid

    def _named(self, event: Any, table: Table) -> list[dict[str, Any]]:
        assert len(event.columns) == len(table.columns), (self.gtid, table)
        rows = event.rows
        return [{image: self._by_place(told, table) for image, told in row.items()} for row in rows]

    @staticmethod
    def _by_place(told: dict[str, Any], table: Table) -> dict[str, Any]:
        places = {f"UNKNOWN_COL{i}": c.name for i, c in enumerate(table.columns)}
        return {places[name]: value for name, value in told.items()}


def _image(table: Table, row: dict[str, Any], image: str) -> Row | None:
    if image not in row:
        return None
    absent = row[image.replace("values", "none_sources")]
    return {c.name: _value(c, row[image][c.name], str(absent.get(c.name, ""))) for c in table.columns}


def _value(column: Column, value: Any, absent: str) -> Any:
    """mysql-replication's value → the demo's."""
    base = column.base
    if value is None:
        if "empty set" in absent.lower():
            return ""
        return _ZERO[base] if "range" in absent.lower() else None
    if base in BYTES:
        raw = value if isinstance(value, bytes) else value.encode()
        # BINARY(n) holds n bytes; the binlog leaves zeros at its end out.
        return raw.ljust(int(column.type.partition("(")[2].rstrip(")")), b"\0") if base == "binary" else raw
    return _VALUES.get(base, lambda v, _: v)(value, column)


def _decimal(value: Decimal, column: Column) -> Decimal:
    scale = int(column.type.partition(",")[2].partition(")")[0])
    return value.quantize(Decimal((0, (1,), -scale)), context=_EXACT)


_VALUES: dict[str, Any] = {
    "decimal": _decimal,
    "bit": lambda v, _: int(v, 2),
    "set": lambda v, c: ",".join(x for x in c.labels if x in v),
    # 1900 is no year of MySQL's: it is how the reader gives 0000.
    "year": lambda v, _: 0 if v == 1900 else v,
    # Zero seconds are how the zero TIMESTAMP is stored.
    "timestamp": lambda v, _: _ZERO["timestamp"] if v == _EPOCH else v.replace(tzinfo=UTC),
    "float": lambda v, _: struct.unpack("<f", struct.pack("<f", v))[0],
}
