import base64
import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cdc_platform.errors import ConfigError
from cdc_platform.feeds.generators import bench_records, bench_truth
from cdc_platform.formats.pb import canal_entry_pb2 as canal_pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from cdc_platform.formats.pb import tencent_dts_pb2 as pb

N, KEYS = 1003, 100


def last_rows_dts(records):
    rows, ops = {}, Counter()
    for record in records:
        for entry in pb.Entries.FromString(pb.Envelope.FromString(record.value).data).items:
            dml = entry.event.dmlEvent
            for row in dml.rows:
                old = [d.sv or d.bv.decode() for d in row.oldColumns]
                new = [d.sv or d.bv.decode() for d in row.newColumns]
                assert rows.get(new[0], []) == old
                rows[new[0]] = new
                ops[pb.DMLType.Name(dml.dmlEventType)] += 1
                assert [c.name for c in dml.columns] == ["id", "name", "amount", "created", "note", "qty"]
    return rows, ops


def last_rows_debezium(records, schemas):
    rows, ops = {}, Counter()
    for record in records:
        message = json.loads(record.value)
        payload = message["payload"] if schemas else message
        key = json.loads(record.key)
        key = key["payload"] if schemas else key
        assert rows.get(key["id"]) == payload["before"] and key["id"] == payload["after"]["id"]
        rows[key["id"]] = payload["after"]
        ops[payload["op"]] += 1
    return rows, ops


@pytest.mark.parametrize(("n", "keys"), [(N, KEYS), (50, 100), (100, 100), (N, 7)])
def test_dts_records_lead_to_the_truth(n, keys):
    rows, ops = last_rows_dts(bench_records("tencent_dts", n, keys, seed=3))
    truth = bench_truth(n, keys, seed=3).to_pylist()
    assert sorted(rows.values(), key=lambda r: int(r[0])) == [[str(v) for v in r.values()] for r in truth]
    assert ops == +Counter(INSERT=min(n, keys), UPDATE=max(0, n - keys))


@pytest.mark.parametrize("schemas", [True, False])
def test_debezium_records_lead_to_the_truth(schemas):
    rows, ops = last_rows_debezium(bench_records("debezium", N, KEYS, seed=3, schemas=schemas), schemas)
    truth = bench_truth(N, KEYS, seed=3).to_pylist()
    assert len(truth) == len(rows)
    for want in truth:
        got = rows[want["id"]]
        cents = int.from_bytes(base64.b64decode(got["amount"]), "big", signed=True)
        assert cents == int(want["amount"] * 100)
        assert got["created"] == 1767323045000 and f"{want['created']}" == "2026-01-02 03:04:05"
        assert all(got[c] == want[c] for c in ("name", "note", "qty"))
    assert ops == Counter(c=KEYS, u=N - KEYS)


def test_canal_json_records_lead_to_the_truth():
    rows, ops = {}, Counter()
    for record in bench_records("canal_json", N, KEYS, seed=3):
        message = json.loads(record.value)
        [row], before = message["data"], rows.get(json.loads(record.value)["data"][0]["id"])
        assert (before is None) == (message["old"] is None)
        if before:
            assert {**row, **message["old"][0]} == before
        rows[row["id"]] = row
        ops[message["type"]] += 1
    truth = bench_truth(N, KEYS, seed=3).to_pylist()
    assert sorted(rows.values(), key=lambda r: int(r["id"])) == [{k: str(v) for k, v in r.items()} for r in truth]
    assert ops == Counter(INSERT=KEYS, UPDATE=N - KEYS)


def test_tdsql_records_lead_to_the_truth():
    rows, ops = {}, Counter()
    first, *records = bench_records("tdsql", N, KEYS, seed=3)
    assert json.loads(first.value)["sql"].startswith("CREATE TABLE `orders`")
    for record in records:
        message = json.loads(record.value)
        row = [v.strip("'") for v in message["field"]]
        assert [v.strip("'") for v in message["where"]] == rows.get(row[0], [])
        rows[row[0]] = row
        ops[message["eventtypestr"]] += 1
    truth = bench_truth(N, KEYS, seed=3).to_pylist()
    assert sorted(rows.values(), key=lambda r: int(r[0])) == [[str(v) for v in r.values()] for r in truth]
    assert ops == Counter(insert=KEYS, update=N - KEYS)


def test_canal_records_lead_to_the_truth():
    rows, ops = {}, Counter()
    for record in bench_records("canal", N, KEYS, seed=3):
        messages = net.Messages.FromString(net.Packet.FromString(record.value).body).messages
        assert len(messages) <= 50
        for entry in map(canal_pb.Entry.FromString, messages):
            if entry.entryType != canal_pb.ROWDATA:
                continue
            change = canal_pb.RowChange.FromString(entry.storeValue)
            [row] = change.rowDatas
            before, after = ({c.name: c.value for c in image} for image in (row.beforeColumns, row.afterColumns))
            assert rows.get(after["id"], {}) == before
            rows[after["id"]] = after
            assert change.eventType == entry.header.eventType
            ops[canal_pb.EventType.Name(change.eventType)] += 1
    truth = bench_truth(N, KEYS, seed=3).to_pylist()
    assert sorted(rows.values(), key=lambda r: int(r["id"])) == [{k: str(v) for k, v in r.items()} for r in truth]
    assert ops == Counter(INSERT=KEYS, UPDATE=N - KEYS)


def test_dataworks_records_lead_to_the_truth():
    rows, sequence = {}, 0
    for record in bench_records("dataworks", N, KEYS, seed=3):
        payload = json.loads(record.value)["payload"]
        assert int(payload["sequenceId"]) > sequence
        sequence = int(payload["sequenceId"])
        after = payload["after"]["dataColumn"]
        assert (payload["before"] or {}).get("dataColumn") == rows.get(after["id"])
        assert payload["op"] == ("UPDATE_AFTER" if after["id"] in rows else "INSERT")
        rows[after["id"]] = after
    for row in rows.values():
        row["created"] = datetime.fromtimestamp(row["created"] / 1000, UTC).replace(tzinfo=None)
        row["amount"] = Decimal(row["amount"])
    assert list(rows.values()) == bench_truth(N, KEYS, seed=3).to_pylist()


@pytest.mark.parametrize("format", ["tencent_dts", "debezium", "canal_json", "canal", "dataworks", "tdsql"])
def test_equal_seeds_give_equal_records(format):
    one, two, other = (list(bench_records(format, 300, 50, seed)) for seed in (1, 1, 2))
    assert one == two and one != other
    assert {r.partition for r in one} == {0, 1, 2, 3}


def test_unknown_format_names_the_known_ones():
    with pytest.raises(ConfigError, match="tencent_dts, debezium, canal_json"):
        next(bench_records("csv", 1, 1))
