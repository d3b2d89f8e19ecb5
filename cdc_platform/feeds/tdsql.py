"""Transactions → Kafka records as TDSQL's data subscription sends its binlog.

Written from Tencent's page on the format, from messages that public readers hold, and from MySQL's own printer of
literals (`log_event_print_value`), sharing nothing with `formats/tdsql`: it is that decoder's oracle. Stands for:
one topic, partition 0 (the only one it writes to), MySQL's GTIDs, a server in `zone`, heartbeats.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from cdc_platform.feeds.bench_rows import CREATED, NOTE, Run, timestamp
from cdc_platform.feeds.canal_json import BYTES
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import BENCH, Column
from cdc_platform.feeds.values import clock_text, float32_text, moment_text
from cdc_platform.feeds.workload import SERVER_ID, SERVER_UUID, RowChange, Transaction, row_events

_TYPES = {"insert": 30, "update": 31, "delete": 32, "gtid": 33, "xid": 16, "query": 2}
_HEARTBEAT = ("SysDB", "StatusTableForHb")


class TdsqlEncoder:
    """Keeps what the subscription keeps between messages: how many it has sent."""

    def __init__(self, topic: str, *, zone: str = "UTC", heartbeat_every: int = 50):
        self.topic, self.zone, self.heartbeat_every = topic, ZoneInfo(zone), heartbeat_every
        self._sent = 0

    def encode(self, transactions: Iterable[Transaction]) -> Iterator[Record]:
        """Records in commit order, all in partition 0; ends with a heartbeat."""
        last = None
        for count, tx in enumerate(transactions, 1):
            last = tx
            if tx.ddl is not None:
                yield self._record(tx, "gtid", 1, *tx.ddl.target)
                # `db` is the session's: a statement's own names need it.
                yield self._record(tx, "query", 2, tx.ddl.db, tx.ddl.target[1], {"sql": tx.ddl.sql})
            else:
                yield from self._transaction(tx)
            if count % self.heartbeat_every == 0:
                yield self._heartbeat(tx)
        if last is not None:
            yield self._heartbeat(last)

    def _transaction(self, tx: Transaction) -> Iterator[Record]:
        events = list(row_events(tx))
        db, table = (events[0][0].table.db, events[0][0].table.name) if events else ("", "")
        yield self._record(tx, "gtid", 1, db, table)
        yield self._record(tx, "query", 2, db, table, {"sql": "BEGIN"})
        index = 2
        for rows in events:
            index += 2  # a table map event comes before each rows event
            for number, change in enumerate(rows, 1):
                yield self._record(tx, change.op, index, change.table.db, change.table.name, self._body(change, number))
        yield self._record(tx, "xid", index + 1, db, table, {"xid": str(tx.pos)})

    def _record(self, tx: Transaction, kind: str, index: int, db: str, table: str, body: Any = None) -> Record:
        self._sent += 1
        message = {
            "prefix": "Xpyba",
            "filename": f"/data/tdengine/log/4364/dblogs/bin/{tx.file}",
            "logtype": "mysqlbinlog",
            "eventtype": _TYPES[kind],
            "eventtypestr": kind,
            "db": db,
            "table": table,
            "localip": "",
            "localport": 0,
            "begintime": tx.timestamp_ms // 1000,
            "gtid": tx.gtid,
            "serverid": str(SERVER_ID),
            "event_index": str(index),
            "gtid_commitid": "",
            "gtid_flag2": "0",
            **(body or {}),
            "sequence_num": str(self._sent),
            "orgoffset": 65_649_097 + self._sent,
        }
        return Record(self.topic, 0, None, msgspec.json.encode(message), (), tx.timestamp_ms + 40)

    def _heartbeat(self, tx: Transaction) -> Record:
        body = {"where": ["1", "'10.0.0.1'"], "field": ["1", "'10.0.0.1'"], "sub_event_index": "1"}
        return self._record(tx, "update", 4, *_HEARTBEAT, body)

    def _body(self, change: RowChange, number: int) -> dict[str, Any]:
        where, field = (self._image(change, row) for row in (change.before, change.after))
        return {"where": where, "field": field, "sub_event_index": str(number)}

    def _image(self, change: RowChange, row: dict[str, Any] | None) -> list[str]:
        return [self._literal(c, row[c.name]) for c in change.table.columns] if row is not None else []

    def _literal(self, column: Column, value: Any) -> str:
        if value is None:
            return "'##isnull##'"
        if isinstance(value, str) and column.base in ("date", "datetime", "timestamp"):  # a date that doesn't exist
            return f"'{value.replace('-', ':') if column.base == 'date' else value}'"
        if column.base == "timestamp" and isinstance(value, datetime):
            value = value.astimezone(self.zone)
        return _LITERALS.get(column.base, lambda v, _: f"'{v}'")(value, column)


def _integer(value: int, column: Column) -> str:
    if "unsigned" not in column.type:
        return str(value) if value >= 0 else f"{value} ({value + 2**64})"
    # The printer reads every integer as a signed one first.
    bits = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}[column.base]
    return str(value) if value < 2 ** (bits - 1) else f"{value - 2**bits} ({value})"


def _set(value: str, column: Column) -> str:
    chosen = set(value.split(","))
    return "b'" + "".join("1" if x in chosen else "0" for x in reversed(column.labels)) + "'"


_LITERALS: dict[str, Callable[[Any, Column], str]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), _integer),
    "year": lambda v, _: str(v or 1900),  # the printer adds 1900 to the stored byte, which is 0 for the year 0000
    "decimal": lambda v, _: f"{v:f}",
    "float": lambda v, _: f"{float32_text(v):<20}",
    "double": lambda v, _: f"{v:<20.17g}",
    "bit": lambda v, c: f"b'{int(v):0{c.type.partition('(')[2].removesuffix(')')}b}'",
    "enum": lambda v, c: str(c.labels.index(v) + 1 if v in c.labels else 0),
    "set": _set,
    "date": lambda v, _: f"'{v.year:04d}:{v.month:02d}:{v.day:02d}'",
    **dict.fromkeys(("datetime", "timestamp"), lambda v, c: f"'{moment_text(v, c.fsp)}'"),
    "time": lambda v, c: f"'{clock_text(v, c.fsp)}'",
    **dict.fromkeys(BYTES, lambda v, _: f"x'{v.hex()}'"),
    "binary": lambda v, _: f"x'{v.rstrip(bytes(1)).hex()}'",  # a binlog leaves zeros at its end out
}
"""MySQL type name → the literal; of the others the text in quotes."""


def bench_records(run: Run) -> Iterator[Record]:
    """The benchmark's changes (`generators.bench_records`), after a message with the CREATE TABLE."""
    create = _bench_message("query", 0, f'"sql":{msgspec.json.encode(BENCH.ddl).decode()}')
    yield Record(run.topic, 0, None, create, (), timestamp(0))
    for i in range(run.n):
        k = i % run.keys
        where, op = ("", "insert") if i < run.keys else (_bench_row(run.salt, k, i - run.keys), "update")
        body = f'"where":[{where}],"field":[{_bench_row(run.salt, k, i)}],"sub_event_index":"1"'
        yield Record(run.topic, k % run.partitions, None, _bench_message(op, i + 1, body), (), timestamp(i))


def _bench_message(op: str, number: int, body: str) -> bytes:
    return (
        f'{{"prefix":"Xpyba","filename":"/data/dblogs/bin/binlog.000081","logtype":"mysqlbinlog",'
        f'"eventtype":{_TYPES[op]},"eventtypestr":"{op}","db":"shop","table":"orders","localip":"",'
        f'"localport":0,"begintime":{timestamp(number) // 1000},"gtid":"{SERVER_UUID}:{number + 1}",'
        f'"serverid":"{SERVER_ID}","event_index":"4","gtid_commitid":"","gtid_flag2":"0",{body},'
        f'"sequence_num":"{number}","orgoffset":{number}}}'
    ).encode()


def _bench_row(salt: str, k: int, i: int) -> str:
    return f'"{k}","\'{salt}-{k}-{i}\'","{i % 10000}.{i % 100:02d}","\'{CREATED}\'","\'{NOTE}\'","{i % 77}"'
