"""The encoder's bytes read back with the plain protobuf classes, by rules written here once more."""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

from cdc_platform.feeds.shop import TABLES
from cdc_platform.feeds.tencent_dts import DtsEncoder, envelopes
from cdc_platform.feeds.workload import Workload
from cdc_platform.formats.pb import tencent_dts_pb2 as pb

ENCODINGS = {"utf8mb4": "utf-8", "gbk": "gbk"}


@pytest.fixture(scope="module")
def shop():
    return Workload(seed=11, transactions=60)


@pytest.fixture(scope="module")
def records(shop):
    return list(DtsEncoder("t", max_message_bytes=64 * 1024).encode(shop.transactions))


def messages(records):
    """(partition, Entries) of every whole message; checks index and total on the way."""
    waiting = defaultdict(list)
    for record in records:
        envelope = pb.Envelope.FromString(record.value)
        parts = waiting[record.partition]
        assert envelope.version == 1 and envelope.index == len(parts)
        parts.append(envelope.data)
        if envelope.index + 1 == envelope.total:
            yield record.partition, pb.Entries.FromString(b"".join(parts))
            parts.clear()
    assert not any(waiting.values())


def duration(text):
    sign, clock = (-1, text[1:]) if text[0] == "-" else (1, text)
    hours, minutes, seconds = clock.split(":")
    micros = Decimal(hours) * 3_600_000_000 + Decimal(minutes) * 60_000_000 + Decimal(seconds) * 1_000_000
    return sign * timedelta(microseconds=int(micros))


def value(column, data):
    """One Data → Python value, by the column's MySQL type text."""
    if data.dataType == pb.NIL:
        assert data.ByteSize() == 0
        return None
    base = column.originalType.split("(")[0].split()[0]
    if data.dataType == pb.BYTES:
        return data.bv.decode() if base == "json" else data.bv
    if data.dataType == pb.STRING:
        text = data.bv.decode(ENCODINGS[data.charset])
        if base == "timestamp":
            assert text.endswith(" +00:00")
            return datetime.fromisoformat(text[:-7]).replace(tzinfo=UTC)
        read = {"datetime": datetime.fromisoformat, "date": date.fromisoformat, "time": duration}
        return read.get(base, str)(text)
    read = {"decimal": Decimal, "double": float, "float": lambda v: float(np.float32(v))}
    number = read.get(base, int)(data.sv)
    return bool(number) if column.originalType == "bit(1)" else number


def replay(records):
    tables = {name: {} for name in TABLES}
    for _, entries in messages(records):
        for entry in entries.items:
            if entry.header.messageType != pb.DML:
                continue
            dml = entry.event.dmlEvent
            keys = [i for i, c in enumerate(dml.columns) if c.isKey]
            live = tables[f"{entry.header.schemaName}.{entry.header.tableName}"]
            for row in dml.rows:
                old, new = (
                    [value(c, d) for c, d in zip(dml.columns, side, strict=True)] if side else None
                    for side in (row.oldColumns, row.newColumns)
                )
                assert (old is not None, new is not None) == {
                    pb.INSERT: (False, True),
                    pb.UPDATE: (True, True),
                    pb.DELETE: (True, False),
                }[dml.dmlEventType]
                if old is not None:
                    del live[tuple(old[i] for i in keys)]
                if new is not None:
                    live[tuple(new[i] for i in keys)] = dict(zip((c.name for c in dml.columns), new, strict=True))
    return tables


def test_messages_hold_the_truth(shop, records):
    assert replay(records) == shop.truth


def test_big_row_spans_many_envelopes(records):
    split = [e for e in (pb.Envelope.FromString(r.value) for r in records) if e.total > 1]
    assert max(e.total for e in split) >= 30
    assert all(len(r.value) < 65 * 1024 for r in records)


def test_running_numbers_have_no_gap_also_over_an_increment():
    shop = Workload(2, 10)
    encoder = DtsEncoder("t", partitions=3)
    records = [*encoder.encode(shop.transactions), *encoder.encode(shop.advance(10))]
    for partition in range(3):
        ps = [int(dict(r.headers)["ps"]) for r in records if r.partition == partition]
        assert ps == list(range(1, len(ps) + 1)) and ps
    assert replay(records) == shop.truth


def test_control_entries_surround_the_rows(shop, records):
    kinds = [e.header.messageType for _, m in messages(records) for e in m.items]
    assert kinds[:3] == [pb.DDL] * 3
    assert kinds.count(pb.BEGIN) == kinds.count(pb.COMMIT) == len(shop.transactions) - 3
    assert kinds.count(pb.CHECKPOINT) > 1 and pb.HEARTBEAT in kinds
    for _, message in messages(records):
        if message.items[0].header.messageType == pb.CHECKPOINT:
            last = message.items[0].event.checkpointEvent
    assert last.syncedGtid.endswith(f":1-{shop.transactions[-1].gtid.split(':')[1]}")
    assert last.position == shop.transactions[-1].end_pos


def test_ddl_is_the_create_statement(records):
    ddl = [e.event.ddlEvent.sql for _, m in messages(records) for e in m.items if e.header.messageType == pb.DDL]
    assert ddl == [t.ddl for t in TABLES.values()]
    assert "`id` bigint(20) unsigned NOT NULL" in ddl[0] and "PRIMARY KEY (`order_id`, `line_no`)" in ddl[2]


@pytest.mark.parametrize(("size", "limit", "parts"), [(10, 10, 1), (11, 10, 2), (1, 10, 1), (30, 10, 3)])
def test_envelopes_are_cut_at_the_limit(size, limit, parts):
    data = bytes(range(size))
    made = [pb.Envelope.FromString(v) for v in envelopes(data, limit)]
    assert [(e.index, e.total) for e in made] == [(i, parts) for i in range(parts)]
    assert b"".join(e.data for e in made) == data
