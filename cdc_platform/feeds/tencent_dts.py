"""Transactions → Kafka records as Tencent DTS data subscription (Kafka edition, protobuf) sends them.

Written from the vendor's pages alone and sharing nothing with `formats/tencent_dts/`: it is that decoder's
oracle. Field numbers come from `proto/tencent_dts.proto`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import Column, Table
from cdc_platform.feeds.values import clock_text, day_text, float32_text, moment_text
from cdc_platform.feeds.workload import SERVER_ID, RowChange, Transaction, row_events
from cdc_platform.formats.pb import tencent_dts_pb2 as pb

_DML = {"insert": pb.INSERT, "update": pb.UPDATE, "delete": pb.DELETE}


class DtsEncoder:
    """Keeps what the vendor's task keeps between messages: running numbers per partition and the GTID set.

    `partitions`: tables are spread over them in the order first seen ("by table" policy); BEGIN, COMMIT and
    DDL go to partition 0, checkpoints and heartbeats to every one. `merge_bytes`: entries are merged into one
    message up to this size. `max_message_bytes`: a larger message is split into envelopes with at most this
    much data each. `checkpoint_every`: messages between checkpoints (the vendor's clock: every 10 s).
    """

    def __init__(
        self,
        topic: str,
        *,
        partitions: int = 1,
        merge_bytes: int = 16 * 1024,
        max_message_bytes: int = 64 * 1024,
        checkpoint_every: int = 5,
    ):
        self.topic, self.partitions = topic, partitions
        self.merge_bytes, self.max_message_bytes = merge_bytes, max_message_bytes
        self.checkpoint_every = checkpoint_every
        self._ps = [0] * partitions
        self._waiting: list[list[bytes]] = [[] for _ in range(partitions)]
        self._placed: dict[str, int] = {}
        self._seq = 0
        self._messages = 0
        self._last: Transaction | None = None

    def encode(self, transactions: Iterable[Transaction]) -> Iterator[Record]:
        """Records in the order they are to be produced; each states its partition.

        Ends with a heartbeat and a checkpoint in every partition; later calls go on from there.
        """
        for tx in transactions:
            self._last = tx
            for partition, entry in self._entries(tx):
                yield from self._add(partition, entry)
            if self._messages >= self.checkpoint_every:
                yield from self._control(self._checkpoint(tx))
        if self._last is not None:
            yield from self._control(self._heartbeat(self._last))
            yield from self._control(self._checkpoint(self._last))

    # -- entries ---------------------------------------------------------------------------------------

    def _entries(self, tx: Transaction) -> Iterator[tuple[int, pb.Entry]]:
        if tx.ddl is not None:
            ddl = pb.DDLEvent(schemaName=tx.ddl.db, sql=tx.ddl.sql, executionTime=tx.timestamp_ms // 1000)
            yield 0, self._entry(tx, pb.DDL, tx.end_pos, pb.Event(ddlEvent=ddl), tx.ddl.target)
            return
        begin = pb.BeginEvent(transactionId=tx.gtid, threadId=tx.thread_id)
        yield 0, self._entry(tx, pb.BEGIN, tx.pos, pb.Event(beginEvent=begin))
        for rows in row_events(tx):
            table = rows[0].table
            partition = self._placed.setdefault(table.full_name, len(self._placed) % self.partitions)
            yield partition, self._entry(tx, pb.DML, rows[0].pos, pb.Event(dmlEvent=dml(rows)), (table.db, table.name))
        commit = pb.CommitEvent(transactionId=tx.gtid)
        yield 0, self._entry(tx, pb.COMMIT, tx.end_pos, pb.Event(commitEvent=commit))

    def _entry(
        self, tx: Transaction, kind: pb.MessageType, pos: int, event: pb.Event, named: tuple[str, str] = ("", "")
    ) -> pb.Entry:
        self._seq += 1
        header = pb.Header(
            version=1,
            sourceType=pb.MYSQL,
            messageType=kind,
            timestamp=tx.timestamp_ms // 1000,
            serverId=SERVER_ID,
            fileName=tx.file,
            position=pos,
            gtid=tx.gtid,
            seqId=self._seq,
            isLast=True,
            schemaName=named[0],
            tableName=named[1],
        )
        return pb.Entry(header=header, event=event)

    def _checkpoint(self, tx: Transaction) -> pb.Entry:
        uuid, _, number = tx.gtid.rpartition(":")
        event = pb.CheckpointEvent(syncedGtid=f"{uuid}:1-{number}", fileName=tx.file, position=tx.end_pos)
        return self._entry(tx, pb.CHECKPOINT, tx.end_pos, pb.Event(checkpointEvent=event))

    def _heartbeat(self, tx: Transaction) -> pb.Entry:
        event = pb.HeartbeatEvent(epoch=tx.timestamp_ms // 1000)
        return self._entry(tx, pb.HEARTBEAT, tx.end_pos, pb.Event(heartbeatEvent=event))

    # -- messages --------------------------------------------------------------------------------------

    def _add(self, partition: int, entry: pb.Entry) -> Iterator[Record]:
        raw = items((entry,))
        waiting = self._waiting[partition]
        if waiting and sum(map(len, waiting)) + len(raw) > self.merge_bytes:
            yield from self._flush(partition)
        self._waiting[partition].append(raw)

    def _control(self, entry: pb.Entry) -> Iterator[Record]:
        """A message of its own in every partition, after all that was waiting there."""
        for partition in range(self.partitions):
            yield from self._flush(partition)
            self._waiting[partition].append(items((entry,)))
            yield from self._flush(partition)
        self._messages = 0

    def _flush(self, partition: int) -> Iterator[Record]:
        data, self._waiting[partition] = b"".join(self._waiting[partition]), []
        if not data or self._last is None:
            return
        self._messages += 1
        for value in envelopes(data, self.max_message_bytes):
            self._ps[partition] += 1
            headers = (("ps", str(self._ps[partition]).encode()),)
            yield Record(self.topic, partition, None, value, headers, self._last.timestamp_ms)


def items(entries: Iterable[pb.Entry]) -> bytes:
    """Serialized Entries; the pieces of a repeated field can be joined as bytes."""
    return pb.Entries(items=entries).SerializeToString()


def envelopes(data: bytes, max_bytes: int) -> Iterator[bytes]:
    """One serialized Entries → serialized Envelopes, each with at most `max_bytes` of its data."""
    cuts = range(0, len(data), max_bytes)
    for index, start in enumerate(cuts):
        part = data[start : start + max_bytes]
        yield pb.Envelope(version=1, total=len(cuts), index=index, data=part).SerializeToString()


def dml(rows: list[RowChange]) -> pb.DMLEvent:
    """The rows of one rows event → DMLEvent: columns once, then the images of every row."""
    table = rows[0].table
    return pb.DMLEvent(
        dmlEventType=_DML[rows[0].op],
        columns=[pb.Column(name=c.name, originalType=c.type, isKey=c.key) for c in table.columns],
        rows=[
            pb.RowChange(oldColumns=_image(table, change.before), newColumns=_image(table, change.after))
            for change in rows
        ],
    )


def _image(table: Table, row: dict[str, Any] | None) -> list[pb.Data]:
    return [] if row is None else [_data(c, row[c.name]) for c in table.columns]


def _data(column: Column, value: Any) -> pb.Data:
    if value is None:
        return pb.Data()  # NIL is enum 0: a NULL is a message of length zero
    if isinstance(value, bytes):
        value = value.rstrip(b"\0") if column.base == "binary" else value  # as the binlog has it
        return pb.Data(dataType=column.dts, charset="binary" if column.dts == "STRING" else "", bv=value)
    if column.dts == "BYTES":
        return pb.Data(dataType=pb.BYTES, bv=value.encode())
    # A date that doesn't exist is a text here, and sent as such.
    told = isinstance(value, str)
    text = value if told else _TEXT.get(column.base, lambda v, _: str(v))(value, column.fsp)
    if column.dts == "STRING":
        charset = column.charset or "utf8mb4"
        return pb.Data(dataType=pb.STRING, charset=charset, bv=text.encode(_PYTHON_CHARSET[charset]))
    return pb.Data(dataType=column.dts, sv=text)


_PYTHON_CHARSET = {"utf8mb4": "utf-8", "gbk": "gbk", "latin1": "cp1252", "ascii": "ascii"}


_TEXT: dict[str, Callable[[Any, int], str]] = {
    "datetime": moment_text,
    "timestamp": lambda v, fsp: f"{moment_text(v, fsp)} +00:00",  # vendor: always UTC, said so in the text
    "time": clock_text,
    "date": lambda v, _: day_text(v),
    "decimal": lambda v, _: f"{v:f}",
    "float": lambda v, _: float32_text(v),
    "double": lambda v, _: repr(v),
    "bit": lambda v, _: str(int(v)),
}
"""MySQL type name → text in `sv` or `bv`; the others are `str`."""
