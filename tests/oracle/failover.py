"""Two servers that replicate, promoted and demoted in turns, and what a capture sends of their binlogs."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import MariadbGtidEvent, RotateEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from cdc_platform.feeds.publish import Record
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from tests.oracle.server import Server

DB, KEYED, KEYLESS = "pair", "t", "log"
TYPES = {KEYED: {"id": "int(11)", "v": "varchar(20)"}, KEYLESS: {"v": "varchar(20)"}}
Rows = dict[str, list[tuple[Any, ...]]]


class Change(NamedTuple):
    """A row change as a binlog has it; server: where it was first written."""

    gtid: str
    server: int
    file: str
    pos: int
    row: int
    time: int
    table: str
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Pair:
    """A primary and its replica. `sent`: the last transaction that the capture has sent."""

    def __init__(self, first: Server, second: Server, seed: int):
        self.primary, self.replica = first, second
        self.random, self.sent = random.Random(seed), ""
        for server in (first, second):
            self._on(server, "SET sql_log_bin = 0", "CREATE USER r@'127.0.0.1' IDENTIFIED BY 'r'",
                     "GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")  # fmt: skip
        self._follow()
        self._on(first, f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.{KEYED} (id int PRIMARY KEY, v varchar(20))",
                 f"CREATE TABLE {DB}.{KEYLESS} (v varchar(20))")  # fmt: skip

    def _on(self, server: Server, *statements: str) -> list[tuple[Any, ...]]:
        with server.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def _follow(self) -> None:
        master = f"master_host='127.0.0.1', master_port={self.primary.port}, master_user='r', master_password='r'"
        self._on(self.replica, f"CHANGE MASTER TO {master}, master_use_gtid=current_pos", "START SLAVE")

    def write(self, statements: int) -> None:
        """Random changes on the primary."""
        with self.primary.connect(database=DB) as connection, connection.cursor() as cursor:
            for _ in range(statements):
                id_, v = self.random.randrange(12), f"v{self.random.randrange(10**6)}"
                statement = self.random.choice(
                    (
                        f"REPLACE INTO {KEYED} VALUES ({id_}, '{v}')",
                        f"UPDATE {KEYED} SET v = '{v}' WHERE id <= {id_}",
                        f"DELETE FROM {KEYED} WHERE id = {id_}",
                        f"INSERT INTO {KEYLESS} VALUES ('{v[:2]}'), ('{v[:2]}')",
                        f"DELETE FROM {KEYLESS} WHERE v = '{v[:2]}' LIMIT 1",
                    )
                )
                cursor.execute(statement)
                if self.random.random() < 0.1:
                    cursor.execute("FLUSH BINARY LOGS")

    def fail_over(self) -> None:
        """The replica becomes the primary, and the other way round."""
        [(at,)] = self._on(self.primary, "SELECT @@gtid_binlog_pos")
        self._on(self.replica, f"SELECT MASTER_GTID_WAIT('{at}', 60)", "STOP SLAVE", "RESET SLAVE ALL")
        self.primary, self.replica = self.replica, self.primary
        self._follow()

    def new_changes(self, again: int = 0) -> list[Change]:
        """What the primary's binlog has behind what was sent; from some transactions before it on, if the capture was
        killed."""
        every = list(changes(self.primary))
        gtids = list(dict.fromkeys(c.gtid for c in every))
        from_ = gtids[max(gtids.index(self.sent) + 1 - again, 0) :] if self.sent in gtids else gtids
        self.sent = gtids[-1]
        return [c for c in every if c.gtid in set(from_)]

    def rows(self) -> Rows:
        """What the primary says."""
        return {t: sorted(self._on(self.primary, f"SELECT * FROM {DB}.{t}")) for t in TYPES}


def changes(server: Server) -> Iterator[Change]:
    """All of a server's binlog."""
    stream = BinLogStreamReader(
        connection_settings=dict(server.settings),
        server_id=9,
        only_events=[MariadbGtidEvent, RotateEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[DB],
        is_mariadb=True,
        enable_logging=False,
    )
    file, gtid = "", ""
    try:
        for event in stream:
            if isinstance(event, RotateEvent):
                file = event.next_binlog
            elif isinstance(event, MariadbGtidEvent):
                gtid = event.gtid
            elif isinstance(event, RowsEvent):
                place = (gtid, event.packet.server_id, file, event.packet.log_pos - event.packet.event_size)
                for number, row in enumerate(event.rows):
                    yield Change(*place, number, event.timestamp, event.table, *_images(event, row))
    finally:
        stream.close()


def _images(event: RowsEvent, row: dict[str, Any]) -> tuple[str, dict[str, Any] | None, dict[str, Any] | None]:
    if isinstance(event, UpdateRowsEvent):
        return "u", row["before_values"], row["after_values"]
    return ("c", None, row["values"]) if isinstance(event, WriteRowsEvent) else ("d", row["values"], None)


def debezium(found: Iterable[Change]) -> Iterator[Record]:
    """Without schemas, keyed."""
    for c in found:
        source = {
            "connector": "mariadb", "name": "p", "ts_ms": c.time * 1000, "snapshot": "false", "db": DB,
            "table": c.table, "server_id": c.server, "gtid": c.gtid, "file": c.file, "pos": c.pos, "row": c.row,
        }  # fmt: skip
        value = {"before": c.before, "after": c.after, "source": source, "op": c.op, "ts_ms": c.time * 1000}
        key = {"id": (c.after or c.before or {})["id"]} if c.table == KEYED else None
        yield Record("p", None, key and json.dumps(key).encode(), json.dumps(value).encode(), (), c.time * 1000)


def canal_json(found: Iterable[Change]) -> Iterator[Record]:
    """A row a message, all in one partition."""
    for c in found:
        row, old = c.after or c.before or {}, None
        if c.op == "u":
            old = [{n: _text(v) for n, v in (c.before or {}).items() if v != row[n]}]
        value = {
            "data": [{n: _text(v) for n, v in row.items()}], "database": DB, "table": c.table, "es": c.time * 1000,
            "id": 1, "isDdl": False, "mysqlType": TYPES[c.table], "old": old, "sql": "", "ts": c.time * 1000,
            "pkNames": ["id"] if c.table == KEYED else None, "type": _EVENTS[c.op],
        }  # fmt: skip
        yield Record("p", 0, None, json.dumps(value).encode(), (), c.time * 1000)


_EVENTS = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}


def tencent_dts(found: Iterable[Change]) -> Iterator[Record]:
    """A row an entry, all in one partition."""
    ops = {"c": pb.INSERT, "u": pb.UPDATE, "d": pb.DELETE}
    for c in found:
        columns = [pb.Column(name=n, originalType=t, isKey=n == "id") for n, t in TYPES[c.table].items()]
        images = pb.RowChange(oldColumns=_data(c.before), newColumns=_data(c.after))
        event = pb.Event(dmlEvent=pb.DMLEvent(dmlEventType=ops[c.op], columns=columns, rows=[images]))
        header = pb.Header(
            version=1, sourceType=pb.MYSQL, messageType=pb.DML, timestamp=c.time, serverId=c.server, fileName=c.file,
            position=c.pos, gtid=c.gtid, schemaName=DB, tableName=c.table, eventIndex=c.row,
        )  # fmt: skip
        data = pb.Entries(items=[pb.Entry(header=header, event=event)]).SerializeToString()
        value = pb.Envelope(version=1, total=1, index=0, data=data).SerializeToString()
        yield Record("p", 0, None, value, (), c.time * 1000)


def _data(row: dict[str, Any] | None) -> list[pb.Data]:
    made = {"id": lambda v: pb.Data(dataType=pb.INT32, sv=str(v))}
    text = lambda v: pb.Data(dataType=pb.STRING, charset="utf8mb4", bv=v.encode())  # noqa: E731
    return [made.get(n, text)(v) for n, v in (row or {}).items()]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


ENCODERS: dict[str, Callable[[Iterable[Change]], Iterator[Record]]] = {
    "debezium": debezium,
    "tencent_dts": tencent_dts,
    "canal_json": canal_json,
}
