"""The encoder's packets read back with protobuf's own parser, by rules written here once more."""

import pytest

from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.shop import TABLES
from cdc_platform.feeds.workload import Workload
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from tests.demo.test_canal_json_encoder import ZONE, row


@pytest.fixture(scope="module")
def shop():
    return Workload(seed=19, transactions=80)


@pytest.fixture(scope="module")
def packets(shop):
    return [net.Packet.FromString(r.value or b"") for r in CanalEncoder("c", zone=ZONE).encode(shop.transactions)]


@pytest.fixture(scope="module")
def sent(packets):
    return [pb.Entry.FromString(e) for p in packets for e in net.Messages.FromString(p.body).messages]


def image(columns):
    assert [c.index for c in columns] == list(range(len(columns)))
    assert all(c.value == "" for c in columns if c.isNull)
    texts = {c.name: None if c.isNull else c.value for c in columns}
    return row({c.name: c.mysqlType for c in columns}, texts)


def test_packets_are_those_of_raw_batches(packets):
    batches = [net.Messages.FromString(p.body) for p in packets]
    assert all(p.type == net.MESSAGES and not p.HasField("version") and not p.HasField("compression") for p in packets)
    assert [b.batch_id for b in batches] == list(range(1, len(batches) + 1))
    assert {len(b.messages) for b in batches[:-1]} == {50}


def test_entries_hold_the_truth(shop, sent):
    tables = {name: {} for name in TABLES}
    for entry in sent:
        change = pb.RowChange.FromString(entry.storeValue) if entry.entryType == pb.ROWDATA else pb.RowChange()
        for data in change.rowDatas:
            table = TABLES[f"{entry.header.schemaName}.{entry.header.tableName}"]
            live = tables[table.full_name]
            old, new = image(data.beforeColumns), image(data.afterColumns)
            if old:
                assert live.pop(table.key_of(old)) == old
            if new:
                live[table.key_of(new)] = new
            assert (bool(old), bool(new)) == {
                pb.INSERT: (False, True), pb.UPDATE: (True, True), pb.DELETE: (True, False)
            }[change.eventType]  # fmt: skip
            changed = {c.name for c in data.afterColumns if c.updated}
            assert changed == {n for n in new if not old or old[n] != new[n]}
    assert tables == shop.truth


def test_positions_rise_and_transactions_are_closed(sent):
    told = [e.header for e in sent if e.entryType != pb.HEARTBEAT]
    places = [(int(h.logfileName.rpartition(".")[2]), h.logfileOffset) for h in told]
    assert places == sorted(places) and len(set(places)) == len(places)
    begun = None
    for entry in sent:
        gtid = {p.key: p.value for p in entry.header.props}.get("curtGtid")
        if entry.entryType == pb.TRANSACTIONBEGIN:
            assert begun is None
            begun = gtid
        elif entry.entryType == pb.TRANSACTIONEND:
            assert begun == gtid
            begun = None
        elif entry.entryType == pb.ROWDATA and not pb.RowChange.FromString(entry.storeValue).isDdl:
            assert begun == gtid


def test_what_has_no_rows(sent):
    ddl = [c for c in (pb.RowChange.FromString(e.storeValue) for e in sent if e.entryType == pb.ROWDATA) if c.isDdl]
    assert [c.sql for c in ddl] == [t.ddl for t in TABLES.values()]
    assert (sent[-1].entryType, sent[-1].header.eventType, sent[-1].storeValue) == (pb.HEARTBEAT, pb.MHEARTBEAT, b"")
