"""Transactions → Kafka records as canal 1.1.7 sends them with `canal.mq.flatMessage=false`.

Written from canal's sources (`LogEventConvert`, `CanalMessageSerializerUtil`) and sharing nothing with
`formats/canal`: it is that decoder's oracle. Stands for: one topic, no `partitionHash` (so batches go raw, all to
partition 0), a JVM in `zone`, GTID mode on, heartbeats.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

from cdc_platform.feeds.bench_rows import CREATED, NOTE, Run, field, file, position, timestamp
from cdc_platform.feeds.canal_json import column_text, sql_type
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import BENCH, Column
from cdc_platform.feeds.workload import SERVER_ID, SERVER_UUID, RowChange, Transaction, row_events
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net

_BATCH = 50  # canal.mq.canalBatchSize
_EVENTS = {"insert": pb.INSERT, "update": pb.UPDATE, "delete": pb.DELETE}
_DDL = {
    "CREATE": pb.CREATE,
    "ALTER": pb.ALTER,
    "ERASE": pb.ERASE,
    "TRUNCATE": pb.TRUNCATE,
    "RENAME": pb.RENAME,
    "CINDEX": pb.CINDEX,
    "DINDEX": pb.DINDEX,
    "QUERY": pb.QUERY,
}
_XID_BYTES = 31
_ROWS_PER_TRANSACTION = 5


class CanalEncoder:
    """Keeps what the server keeps between messages: the number of the batch and the entries that wait for it."""

    def __init__(self, topic: str, *, zone: str = "UTC", heartbeat_every: int = 50):
        self.topic, self.zone, self.heartbeat_every = topic, ZoneInfo(zone), heartbeat_every
        self._batch = 0
        self._waiting: list[bytes] = []

    def encode(self, transactions: Iterable[Transaction]) -> Iterator[Record]:
        """Records in commit order, all in partition 0; ends with a heartbeat."""
        last = None
        for count, tx in enumerate(transactions, 1):
            last = tx
            for entry in self._entries(tx):
                yield from self._add(tx, entry)
            if count % self.heartbeat_every == 0:
                yield from self._add(tx, _heartbeat())
        if last is not None:
            self._waiting.append(_heartbeat().SerializeToString())
            yield self._record(last)

    def _add(self, tx: Transaction, entry: pb.Entry) -> Iterator[Record]:
        self._waiting.append(entry.SerializeToString())
        if len(self._waiting) == _BATCH:
            yield self._record(tx)

    def _record(self, tx: Transaction) -> Record:
        self._batch += 1
        value = packet(net.Messages(batch_id=self._batch, messages=self._waiting))
        self._waiting = []
        return Record(self.topic, 0, None, value, (), tx.timestamp_ms + 40)

    def _entries(self, tx: Transaction) -> Iterator[pb.Entry]:
        if tx.ddl is not None:
            event = _DDL[tx.ddl.kind]
            change = pb.RowChange(eventType=event, isDdl=True, sql=tx.ddl.sql, ddlSchemaName=tx.ddl.db)
            yield _entry(_header(tx, tx.pos, tx.ddl.target, event), pb.ROWDATA, change)
            return
        yield _entry(_header(tx, tx.pos), pb.TRANSACTIONBEGIN, pb.TransactionBegin(threadId=tx.thread_id))
        for rows in row_events(tx):
            table, event = rows[0].table, _EVENTS[rows[0].op]
            header = _header(tx, rows[0].pos, (table.db, table.name), event, len(rows))
            change = pb.RowChange(tableId=111, eventType=event, isDdl=False, rowDatas=map(self._row, rows))
            yield _entry(header, pb.ROWDATA, change)
        end = pb.TransactionEnd(transactionId=tx.gtid.rpartition(":")[2])
        yield _entry(_header(tx, tx.end_pos - _XID_BYTES), pb.TRANSACTIONEND, end)

    def _row(self, change: RowChange) -> pb.RowData:
        columns = list(enumerate(change.table.columns))
        before, after = change.before, change.after
        return pb.RowData(
            beforeColumns=[self._column(i, c, before[c.name], False) for i, c in columns] if before else [],
            afterColumns=[
                self._column(i, c, after[c.name], before is None or before[c.name] != after[c.name]) for i, c in columns
            ]
            if after
            else [],
        )

    def _column(self, index: int, column: Column, value: Any, updated: bool) -> pb.Column:
        out = pb.Column(
            index=index,
            sqlType=sql_type(column, value),
            name=column.name,
            isKey=column.key,
            updated=updated,
            isNull=value is None,
            mysqlType=column.type,
        )
        if value is not None:
            out.value = column_text(column, value, self.zone)
        return out


def packet(messages: net.Messages) -> bytes:
    """A Kafka value as canal writes it from a raw batch: without version."""
    return net.Packet(type=net.MESSAGES, body=messages.SerializeToString()).SerializeToString()


def _entry(header: pb.Header, kind: pb.EntryType, body: Any) -> pb.Entry:
    return pb.Entry(header=header, entryType=kind, storeValue=body.SerializeToString())


def _heartbeat() -> pb.Entry:
    return pb.Entry(header=pb.Header(eventType=pb.MHEARTBEAT), entryType=pb.HEARTBEAT)


def _header(
    tx: Transaction, pos: int, named: tuple[str, str] = ("", ""), event: pb.EventType | None = None, rows: int = 0
) -> pb.Header:
    uuid, _, number = tx.gtid.rpartition(":")
    properties = {"curtGtid": tx.gtid, "curtGtidSn": number, "curtGtidLct": str(int(number) - 1)}
    if rows:
        properties["rowsCount"] = str(rows)
    out = pb.Header(
        version=1,
        logfileName=tx.file,
        logfileOffset=pos,
        serverId=SERVER_ID,
        serverenCode="UTF-8",
        executeTime=tx.timestamp_ms // 1000 * 1000,  # a binlog event's time has whole seconds
        sourceType=pb.MYSQL,
        schemaName=named[0],
        tableName=named[1],
        eventLength=100,
        props=[pb.Pair(key=k, value=v) for k, v in properties.items()],
        gtid=f"{uuid}:1-{number}",  # the set of all executed
    )
    if event is not None:
        out.eventType = event
    return out


# -- benchmark ---------------------------------------------------------------------------------------------


def bench_packets(run: Run) -> Iterator[Record]:
    """Many small row changes, fast: batches of 50 entries in transactions of five single-row statements."""
    waiting: list[list[int]] = [[] for _ in range(run.partitions)]
    in_batch = _BATCH // (_ROWS_PER_TRANSACTION + 2) * _ROWS_PER_TRANSACTION
    for i in range(run.n):
        partition = i % run.keys % run.partitions
        waiting[partition].append(i)
        if len(waiting[partition]) == in_batch:
            yield _bench_record(run, waiting[partition], partition)
            waiting[partition].clear()
    for partition, rows in enumerate(waiting):
        if rows:
            yield _bench_record(run, rows, partition)


def _bench_record(run: Run, rows: list[int], partition: int) -> Record:
    entries = []
    for start in range(0, len(rows), _ROWS_PER_TRANSACTION):
        group = rows[start : start + _ROWS_PER_TRANSACTION]
        begin, end = pb.TransactionBegin(threadId=7), pb.TransactionEnd(transactionId=str(group[0]))
        entries.append(_bench_entry(group[0], 0, group[0], pb.TRANSACTIONBEGIN, begin.SerializeToString()))
        entries += [_bench_entry(i, 100, group[0], pb.ROWDATA, _bench_change(run, i), i < run.keys) for i in group]
        entries.append(_bench_entry(group[-1], 250, group[0], pb.TRANSACTIONEND, end.SerializeToString()))
    value = packet(net.Messages(batch_id=rows[0] + 1, messages=entries))
    return Record(run.topic, partition, None, value, (), timestamp(rows[-1]))


def _bench_entry(i: int, within: int, number: int, kind: pb.EntryType, body: bytes, inserts: bool = False) -> bytes:
    gtid = f"{SERVER_UUID}:{number + 1}"
    header = pb.Header(
        version=1,
        logfileName=file(i),
        logfileOffset=position(i) + within,
        serverId=SERVER_ID,
        serverenCode="UTF-8",
        executeTime=timestamp(i) // 1000 * 1000,
        sourceType=pb.MYSQL,
        eventLength=150,
        props=[pb.Pair(key="curtGtid", value=gtid)],
        gtid=f"{SERVER_UUID}:1-{number + 1}",
    )
    if kind == pb.ROWDATA:
        header.schemaName, header.tableName = BENCH.db, BENCH.name
        header.eventType = pb.INSERT if inserts else pb.UPDATE
        header.props.add(key="rowsCount", value="1")
    return pb.Entry(header=header, entryType=kind, storeValue=body).SerializeToString()


def _bench_change(run: Run, i: int) -> bytes:
    k = i % run.keys
    after = b"".join(field(0x12, c) for c in _bench_columns(run.salt, k, i))
    if i < run.keys:
        return b"\x08\x6f\x10\x01\x50\x00" + field(0x62, after)
    before = b"".join(field(0x0A, c) for c in _bench_columns(run.salt, k, i - run.keys))
    return b"\x08\x6f\x10\x02\x50\x00" + field(0x62, before + after)


def _bench_columns(salt: str, k: int, i: int) -> Iterator[bytes]:
    texts = (str(k), f"{salt}-{k}-{i}", f"{i % 10000}.{i % 100:02d}", CREATED, NOTE, str(i % 77))
    for (head, tail), text in zip(_COLUMNS, texts, strict=True):
        yield head + field(0x42, text.encode()) + tail


_COLUMNS = [
    (
        pb.Column(index=i, sqlType=number, name=c.name, isKey=c.key, updated=True).SerializeToString() + b"\x30\x00",
        pb.Column(mysqlType=c.type).SerializeToString(),
    )
    for i, (c, number) in enumerate(zip(BENCH.columns, (-5, 12, 3, 93, 2005, 4), strict=True))
]
"""Bytes of a Column before its value and behind it."""
