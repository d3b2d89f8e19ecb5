"""Many small row changes, fast, for `cdc-platform bench`: rows of one table, inserts first, then updates.

Change i (from 0) concerns key `i % keys`; the changes 0..keys-1 insert, the later ones update. Records of one
key share a partition, so the last change of a key is its truth.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdc_platform.errors import ConfigError
from cdc_platform.feeds import dataworks, tdsql
from cdc_platform.feeds.bench_rows import (
    CREATED,
    CREATED_MS,
    NOTE,
    Run,
    cents,
    field,
    file,
    position,
    salted,
    timestamp,
)
from cdc_platform.feeds.canal import bench_packets
from cdc_platform.feeds.compare import snapshot_types
from cdc_platform.feeds.debezium import VERSION, TableShape
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import BENCH
from cdc_platform.feeds.tencent_dts import envelopes
from cdc_platform.feeds.workload import SERVER_ID, SERVER_UUID
from cdc_platform.formats.pb import tencent_dts_pb2 as pb

_ROWS_PER_TRANSACTION = 5
_ROWS_PER_MESSAGE = 40


def bench_records(
    format: str,
    n: int,
    keys: int,
    seed: int = 0,
    *,
    topic: str = "bench",
    partitions: int = 4,
    schemas: bool = True,
) -> Iterator[Record]:
    """n row changes of shop.orders as Kafka records, all with an explicit partition below `partitions`.

    format: `tencent_dts` (40 rows of single-row statements, 8 transactions, per message), `debezium` (a
    message per row; `schemas` False leaves the schema blocks out), `canal_json` and `dataworks` (a message per row),
    `canal` (a message per batch of 50 entries, transactions of five single-row statements) or `tdsql` (a message per
    row, after one with the CREATE TABLE). Everything goes to the one `topic`, which is Debezium's
    `source.name` too. Raises ConfigError for other formats.
    """
    if format not in _GENERATORS:
        raise ConfigError("format", f"no generator for {format!r}", _GENERATORS)
    return _GENERATORS[format](Run(n, keys, salted(seed), topic, partitions, schemas))


def bench_truth(n: int, keys: int, seed: int = 0) -> pa.Table:
    """The rows of shop.orders after `bench_records(…, n, keys, seed)`: canonical snapshot types, by key."""
    salt, live = salted(seed), min(n, keys)
    # The last change of key k is the largest i < n with i % keys == k.
    last = [k + (n - 1 - k) // keys * keys for k in range(live)]
    columns = {
        "id": pa.array(range(live), pa.int64()),
        "name": pa.array([f"{salt}-{k}-{i}" for k, i in enumerate(last)]),
        "amount": pa.array([Decimal(cents(i)).scaleb(-2) for i in last], pa.decimal128(12, 2)),
        "created": pa.array([CREATED_MS * 1000] * live, pa.int64()).cast(pa.timestamp("us")),
        "note": pa.array([NOTE] * live),
        "qty": pa.array([i % 77 for i in last], pa.int32()),
    }
    assert [t.type for t in columns.values()] == [snapshot_types(c)[0] for c in BENCH.columns]
    return pa.table(columns)


# -- debezium ----------------------------------------------------------------------------------------------


def _debezium(run: Run) -> Iterator[Record]:
    keys, salt, topic, schemas = run.keys, run.salt, run.topic, run.schemas
    shape = TableShape(topic, BENCH, schemas)
    head = b'{"schema":%b,"payload":' % shape.value_schema if schemas else b""
    key_head = b'{"schema":%b,"payload":' % shape.key_schema if schemas else b""
    tail = b"}" if schemas else b""
    for i in range(run.n):
        k, ms = i % keys, timestamp(i)
        whole = ms // 1000  # a binlog event's time has whole seconds
        before, op = ("null", "c") if i < keys else (_json_row(salt, k, i - keys), "u")
        value = (
            f'{{"before":{before},"after":{_json_row(salt, k, i)},"source":{{"version":"{VERSION}",'
            f'"connector":"mysql","name":"{topic}","ts_ms":{whole}000,"snapshot":"false","db":"shop",'
            f'"sequence":null,"ts_us":{whole}000000,"ts_ns":{whole}000000000,"table":"orders",'
            f'"server_id":{SERVER_ID},"gtid":"{SERVER_UUID}:{i + 1}","file":"{file(i)}",'
            f'"pos":{position(i)},"row":0,"thread":7,"query":null}},"transaction":null,"op":"{op}",'
            f'"ts_ms":{ms},"ts_us":{ms}000,"ts_ns":{ms}000000}}'
        ).encode()
        key = f'{{"id":{k}}}'.encode()
        yield Record(topic, k % run.partitions, key_head + key + tail, head + value + tail, (), ms)


def _json_row(salt: str, k: int, i: int) -> str:
    return (
        f'{{"id":{k},"name":"{salt}-{k}-{i}","amount":"{_AMOUNTS[cents(i) // 100]}",'
        f'"created":{CREATED_MS},"note":"{NOTE}","qty":{i % 77}}}'
    )


def _amounts() -> list[str]:
    # Cents follow from the whole amount: i % 100 is i % 10000 % 100.
    unscaled = (cents(whole) for whole in range(10000))
    return [b64encode(c.to_bytes(c.bit_length() // 8 + 1, "big")).decode() for c in unscaled]


_AMOUNTS = _amounts()


# -- canal_json --------------------------------------------------------------------------------------------


def _canal_json(run: Run) -> Iterator[Record]:
    types = ",".join(f'"{c.name}":"{c.type}"' for c in BENCH.columns)
    tail = (
        f'"mysqlType":{{{types}}},"old":%s,"pkNames":["id"],"sql":"","sqlType":{{"id":-5,"name":12,"amount":3,'
        '"created":93,"note":2005,"qty":4},"table":"orders","ts":%d,"type":"%s"}'
    )
    for i in range(run.n):
        k, ms = i % run.keys, timestamp(i)
        old, op = ("null", "INSERT") if i < run.keys else (f"[{_canal_old(run.salt, k, i - run.keys)}]", "UPDATE")
        value = (
            f'{{"data":[{_canal_row(run.salt, k, i)}],"database":"shop","es":{ms // 1000}000,'
            f'"gtid":"{SERVER_UUID}:1-{i + 1}","id":{i // 50},"isDdl":false,' + tail % (old, ms, op)
        ).encode()
        yield Record(run.topic, k % run.partitions, None, value, (), ms)


def _canal_row(salt: str, k: int, i: int) -> str:
    return (
        f'{{"id":"{k}","name":"{salt}-{k}-{i}","amount":"{i % 10000}.{i % 100:02d}","created":"{CREATED}",'
        f'"note":"{NOTE}","qty":"{i % 77}"}}'
    )


def _canal_old(salt: str, k: int, i: int) -> str:
    return f'{{"name":"{salt}-{k}-{i}","amount":"{i % 10000}.{i % 100:02d}","qty":"{i % 77}"}}'


# -- tencent_dts -------------------------------------------------------------------------------------------


def _dts(run: Run) -> Iterator[Record]:
    waiting: list[list[int]] = [[] for _ in range(run.partitions)]
    ps = [0] * run.partitions
    for i in range(run.n):
        partition = i % run.keys % run.partitions
        waiting[partition].append(i)
        if len(waiting[partition]) == _ROWS_PER_MESSAGE:
            yield from _dts_message(run, waiting[partition], partition, ps)
            waiting[partition].clear()
    for partition, rows in enumerate(waiting):
        if rows:
            yield from _dts_message(run, rows, partition, ps)


def _dts_message(run: Run, rows: list[int], partition: int, ps: list[int]) -> Iterator[Record]:
    parts = []
    for start in range(0, len(rows), _ROWS_PER_TRANSACTION):
        group = rows[start : start + _ROWS_PER_TRANSACTION]
        gtid = f"{SERVER_UUID}:{group[0] + 1}"
        begin = pb.Event(beginEvent=pb.BeginEvent(transactionId=gtid, threadId=7))
        parts.append(_dts_entry(_header(pb.BEGIN, group[0], 0, gtid), begin.SerializeToString()))
        parts += [_dts_entry(_header(pb.DML, i, 100, gtid), _dts_event(run, i)) for i in group]
        commit = pb.Event(commitEvent=pb.CommitEvent(transactionId=gtid))
        parts.append(_dts_entry(_header(pb.COMMIT, group[-1], 250, gtid), commit.SerializeToString()))
    for value in envelopes(b"".join(parts), 10**6):
        ps[partition] += 1
        headers = (("ps", b"%d" % ps[partition]),)
        yield Record(run.topic, partition, None, value, headers, timestamp(rows[-1]))


def _header(kind: pb.MessageType, i: int, within: int, gtid: str) -> bytes:
    named = ("shop", "orders") if kind == pb.DML else ("", "")
    return pb.Header(
        version=1,
        sourceType=pb.MYSQL,
        messageType=kind,
        timestamp=timestamp(i) // 1000,
        serverId=SERVER_ID,
        fileName=file(i),
        position=position(i) + within,
        gtid=gtid,
        seqId=i + 1,
        isLast=True,
        schemaName=named[0],
        tableName=named[1],
    ).SerializeToString()


def _dts_event(run: Run, i: int) -> bytes:
    keys, salt = run.keys, run.salt
    k = i % keys
    new = _dts_row(salt, k, i, 0x12)
    row = new if i < keys else _dts_row(salt, k, i - keys, 0x0A) + new
    dml = (b"" if i < keys else b"\x08\x01") + _COLUMNS + field(0x1A, row)
    return field(0x12, dml)


def _dts_row(salt: str, k: int, i: int, tag: int) -> bytes:
    """RowChange.oldColumns (tag 0x0A) or newColumns (0x12), put together from bytes that repeat."""
    string = b"\x08\x0d\x12\x07utf8mb4"
    whole = i % 10000
    return b"".join(
        (
            field(tag, b"\x08\x04" + field(0x1A, b"%d" % k)),
            field(tag, string + field(0x22, f"{salt}-{k}-{i}".encode())),
            field(tag, b"\x08\x0c" + field(0x1A, b"%d.%02d" % (whole, i % 100))),
            field(tag, string + field(0x22, CREATED.encode())),
            field(tag, string + field(0x22, NOTE.encode())),
            field(tag, b"\x08\x03" + field(0x1A, b"%d" % (i % 77))),
        )
    )


def _dts_entry(header: bytes, event: bytes) -> bytes:
    """Entries.items: header is field 1 of Entry, event field 2."""
    return field(0x0A, field(0x0A, header) + field(0x12, event))


_COLUMNS = pb.DMLEvent(
    columns=[pb.Column(name=c.name, originalType=c.type, isKey=c.key) for c in BENCH.columns]
).SerializeToString()


_GENERATORS: dict[str, Callable[[Run], Iterator[Record]]] = {
    "tencent_dts": _dts,
    "debezium": _debezium,
    "canal_json": _canal_json,
    "canal": bench_packets,
    "dataworks": dataworks.bench_records,
    "tdsql": tdsql.bench_records,
}

OPTIONS: dict[str, dict[str, Any]] = {
    "dataworks": {"columns": {BENCH.full_name: {c.name: c.type for c in BENCH.columns}}}
}
"""Format → `options` of a source that reads its records, where it needs some."""
