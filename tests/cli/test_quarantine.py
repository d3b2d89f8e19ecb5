"""`quarantine list|show` on real Delta tables."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.cli.app import run
from cdc_platform.cli.message import parse_address
from cdc_platform.formats.pb import canal_entry_pb2 as entry_pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from cdc_platform.formats.pb import tencent_dts_pb2 as dts
from cdc_platform.tables import LANDING, QUARANTINE
from tests.rows import add

NOW = datetime(2026, 11, 20, tzinfo=UTC)
VALUE = bytes(range(40)) + b"\x1b[31m</script>"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "cdc.yaml").write_text(
        "lake: ./lake\nkafka: {bootstrap.servers: 'h:1'}\nsources:\n"
        "  - {name: orders, format: tencent_dts, topics: [a]}\n"
        "  - {name: stock, format: debezium, topics: [b]}\n"
    )
    monkeypatch.setenv("CDC_CONFIG", str(tmp_path / "cdc.yaml"))
    return str(tmp_path / "lake")


@pytest.fixture
def rows(lake: str) -> None:
    """Three quarantined events of two sources, one that has healed, and the records they came from."""
    names = (
        *("source", "format", "decoder_version", "room", "topic", "partition", "offset", "entry_index", "row_index"),
        *("db", "table", "reason", "quarantined_at", "resolved_at"),
    )
    data = [
        ("orders", "tencent_dts", "1", "changes", "a", 0, 7, 0, 0, "shop", "x", "torn", NOW, None),
        (
            "orders",
            "tencent_dts",
            "1",
            "changes",
            "a",
            0,
            9,
            0,
            0,
            "shop",
            "x",
            "bad\x1b[2J",
            NOW + timedelta(seconds=1),
            None,
        ),
        ("stock", "debezium", "1", "changes", "b", 1, 7, 0, 0, None, None, "no JSON", NOW, None),
        ("stock", "debezium", "1", "changes", "b", 1, 8, 0, 0, None, None, "not known", NOW, NOW),
    ]
    add(lake, QUARANTINE, *(dict(zip(names, r, strict=True)) for r in data))
    said = {"topic": "a", "partition": 0, "timestamp": NOW, "landed_at": NOW, "value": VALUE}
    said["headers"] = [{"key": "ShardId", "value": b"1"}]
    add(lake, LANDING, *({**said, "offset": o} for o in (7, 8, 9)), source="orders")


def test_list_is_newest_first_and_bounded(rows, capsys):
    assert run(["quarantine", "list", "--json"]) == 0
    assert [r["address"] for r in json.loads(capsys.readouterr().out)] == ["a/0/9", "a/0/7", "b/1/7"]
    assert run(["quarantine", "list", "--source", "stock", "--json"]) == 0
    assert [(r["address"], r["reason"]) for r in json.loads(capsys.readouterr().out)] == [("b/1/7", "no JSON")]
    assert run(["quarantine", "list", "--limit", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_what_has_healed_is_listed_on_demand(rows, capsys):
    assert run(["quarantine", "list", "--source", "stock", "--resolved", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["address"], r["resolved_at"] is None) for r in found] == [("b/1/7", True), ("b/1/8", False)]


@pytest.fixture
def told(lake: str) -> None:
    """A quarantine whose rows tell table, key and column; another table's are routed to shop.orders."""
    Path(lake).parent.joinpath("cdc.yaml").write_text(
        "lake: ./lake\nkafka: {bootstrap.servers: 'h:1'}\nsources:\n"
        "  - {name: orders, format: tencent_dts, topics: [a], tables: {routes: {'shop_.[.]orders': shop.orders}}}\n"
        "  - {name: stock, format: debezium, topics: [b]}\n"
    )
    said = {"source": "orders", "topic": "a", "partition": 0, "entry_index": 0, "row_index": 0}
    rows = [
        ("shop", "orders", {"id": "1"}, "v", "column 'v': 'x' doesn't fit its type 'int'", {}),
        ("shop", "orders", {"id": "2", "b": "\x1b[2J"}, "v", "column 'v': 'y' doesn't fit its type 'int'", {}),
        ("shop", "orders", {"id": "3"}, "w", "column 'w': 'x' doesn't fit its type 'int'", {}),
        ("shop_1", "orders", {"id": "4"}, None, "old has 3 rows, data 2", {}),
        ("shop", "healed", None, None, "the table's columns aren't known", {"resolved_at": NOW}),
        (None, None, None, None, "no JSON", {}),
        ("dbo", "items", None, None, "no JSON", {"source": "stock", "schema": "s"}),
    ]
    data = [
        {**said, "db": db, "table": t, "key": key and list(key.items()), "column": column, "reason": reason, **more}
        | {"offset": i, "quarantined_at": NOW + timedelta(seconds=i)}
        for i, (db, t, key, column, reason, more) in enumerate(rows)
    ]
    add(lake, QUARANTINE, *data)


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert run(["quarantine", "list", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_rows_tell_table_and_key_and_are_found_by_them(told, capsys):
    assert [(r["db"], r["schema"], r["table"], r["key"], r["column"]) for r in listed(capsys)][-1] == (
        *("shop", None, "orders", {"id": "1"}, "v"),
    )
    by_option = {
        ("--table", "shop.orders"): [3, 2, 1, 0],  # with what is routed there
        ("--table", "shop_1.*"): [3],
        ("--table", "shop.healed"): [],
        ("--table", "shop.healed", "--resolved"): [4],
        ("--source", "stock"): [6],
        ("--reason", "no json"): [6, 5],
        ("--reason", "FIT", "--table", "shop.orders", "--limit", "2"): [2, 1],
        ("--unresolved",): [6, 5, 3, 2, 1, 0],
    }
    found = {options: [int(r["address"].split("/")[2]) for r in listed(capsys, *options)] for options in by_option}
    assert found == by_option


def test_rows_are_counted_by_table_column_and_reason_whatever_the_values(told, capsys):
    groups = listed(capsys, "--summary")
    assert [(g["source"], g["db"], g["table"], g["column"], g["rows"], g["reasons"]) for g in groups] == [
        ("orders", "shop", "orders", "v", 2, 2),
        ("orders", "shop", "orders", "w", 1, 1),
        ("orders", "shop_1", "orders", None, 1, 1),
        ("orders", None, None, None, 1, 1),
        ("stock", "dbo", "items", None, 1, 1),
    ]
    first = groups[0]
    assert first["reason"] == "column 'v': 'y' doesn't fit its type 'int'"
    assert (first["first"], first["last"]) == (NOW.isoformat(), (NOW + timedelta(seconds=1)).isoformat())


def test_people_see_whose_row_it_is(told, capsys):
    assert run(["quarantine", "list", "--table", "shop.orders"]) == 0
    told_, beside = capsys.readouterr()
    assert "shop.orders" in told_ and "id=1" in told_ and "\x1b" not in told_
    assert "1 more in quarantine names no table, and may be of any" in beside
    assert run(["quarantine", "list", "--summary"]) == 0
    told_ = " ".join(capsys.readouterr().out.split())
    assert "and 1 that differ in their values" in told_ and "dbo.s.items" in told_


def test_a_table_that_nobody_knows_is_an_error_with_those_that_are_known(told, capsys):
    assert run(["quarantine", "list", "--table", "shop.order"]) != 0
    beside = capsys.readouterr().err
    assert "'shop.order'" in beside and "shop.healed" in beside and "dbo.s.items" in beside


@pytest.mark.parametrize("options", [["--summary"], ["--table", "shop.x"], ["--reason", "torn"]])
def test_lists_of_a_quarantine_made_before_it_had_keys(rows, capsys, options):
    [first, *_] = listed(capsys, *options)
    assert (first["db"], first["table"], first["column"], first.get("key")) == ("shop", "x", None, None)


def test_an_empty_quarantine_is_no_error(lake, capsys):
    assert run(["quarantine", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_show_gives_reason_and_bytes(rows, capsys):
    assert run(["quarantine", "show", "a/0/7", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [r["reason"] for r in data["reasons"]] == ["torn"]
    assert (data["key"], data["value"]["kind"], data["value"]["bytes"]) == (None, "bytes", len(VALUE))
    assert base64.b64decode(data["value"]["base64"]) == VALUE
    assert data["headers"] == [{"key": "ShardId", "value": "1"}]


def test_bytes_are_shown_as_a_dump(rows, capsys):
    assert run(["quarantine", "show", "a/0/7"]) == 0
    out = capsys.readouterr().out
    assert f"value: bytes, {len(VALUE)} bytes\n00000000  00 01 02" in out
    assert "\nstage " in out and "room" not in out, "the field's word, whatever the table's column is called"
    assert all(len(line) <= 100 for line in out.splitlines())


MESSAGE = (
    b'{"data":[{"id":"1","amount":"12,5","n":1.10,"note":"\\u001b[31m \xe5\xae\xa2"}],"old":[{"amount":"1"}],"sql":""}'
)


@pytest.fixture
def one(lake: str):
    """Puts one message of `orders` into quarantine under a/0/1: format, value, reason, column."""

    def put(format: str, value: bytes | None, reason: str, column: str | None = None) -> None:
        row = {"source": "orders", "format": format, "topic": "a", "partition": 0, "offset": 1, "reason": reason}
        row |= {"decoder_version": "1", "room": "changes", "entry_index": 0, "row_index": 0, "db": "shop"}
        row |= {"table": "orders", "column": column, "quarantined_at": NOW, "resolved_at": None}
        add(lake, QUARANTINE, row, overwrite=True)
        record = {"topic": "a", "partition": 0, "offset": 1, "timestamp": NOW, "landed_at": NOW, "key": b"k"}
        record |= {"value": value, "headers": []}
        add(lake, LANDING, record, overwrite=True, source="orders")

    return put


@pytest.mark.parametrize(
    ("reason", "column"), [("column 'amount': '12,5' is no decimal", None), ("no decimal", "amount")]
)
def test_json_is_laid_out_with_the_bad_value_marked(one, capsys, reason, column):
    one("canal_json", MESSAGE, reason, column)
    assert run(["quarantine", "show", "a/0/1"]) == 0
    out = capsys.readouterr().out
    assert '      "amount": "12,5",   <<<\n      "n": 1.10,\n' in out
    assert "客" in out
    assert "\x1b" not in out
    assert [line.split()[0] for line in out.splitlines() if line.endswith("<<<")] == ['"amount":'] * 2
    assert run(["quarantine", "show", "a/0/1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["value"] == {"kind": "JSON", "bytes": len(MESSAGE), "text": MESSAGE.decode()}
    assert told["key"] == {"kind": "text", "bytes": 1, "text": "k"}


def test_hex_is_shown_on_demand(one, capsys):
    one("canal_json", MESSAGE, "no decimal", "amount")
    assert run(["quarantine", "show", "a/0/1", "--hex"]) == 0
    assert "00000000  7b 22 64 61 74 61 22 3a" in capsys.readouterr().out


def test_protobuf_of_tencent_is_shown_as_text(one, capsys):
    entries = dts.Entries()
    entry = entries.items.add()
    entry.header.schemaName, entry.header.tableName, entry.header.messageType = "shop", "orders", dts.DML
    entry.event.dmlEvent.columns.add(name="amount", originalType="decimal(10,2)")
    entry.event.dmlEvent.rows.add().newColumns.add(dataType=dts.BYTES, bv=b"\xff\x00")
    value = dts.Envelope(version=1, total=1, data=entries.SerializeToString()).SerializeToString()
    one("tencent_dts", value, "no decimal", "amount")
    assert run(["quarantine", "show", "a/0/1"]) == 0
    out = capsys.readouterr().out
    assert "value: protobuf" in out
    for line in ('      tableName: "orders"', "          bv: 0xff00", "      messageType: DML"):
        assert line in out
    assert 'name: "amount"   <<<' in out
    assert run(["quarantine", "show", "a/0/1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["value"]
    assert base64.b64decode(told["base64"]) == value
    assert 'tableName: "orders"' in told["text"]


def test_protobuf_of_canal_is_shown_as_text_down_to_the_columns(one, capsys):
    change = entry_pb.RowChange(eventType=entry_pb.INSERT)
    change.rowDatas.add().afterColumns.add(name="amount", value="12,5", mysqlType="decimal(10,2)")
    entry = entry_pb.Entry(entryType=entry_pb.ROWDATA, storeValue=change.SerializeToString())
    entry.header.tableName = "orders"
    body = net.Messages(batch_id=1, messages=[entry.SerializeToString()]).SerializeToString()
    one("canal", net.Packet(type=net.MESSAGES, body=body).SerializeToString(), "no decimal", "amount")
    assert run(["quarantine", "show", "a/0/1"]) == 0
    out = capsys.readouterr().out
    assert 'name: "amount"   <<<' in out
    assert 'value: "12,5"' in out


@pytest.mark.parametrize("format", ["tencent_dts", "canal"])
@pytest.mark.parametrize("value", [b"\xff\xfe torn", b"\x0a\xff", b"\x12\x03abc"])
def test_what_is_no_message_of_the_format_is_shown_as_bytes(one, capsys, format, value):
    one(format, value, "torn")
    assert run(["quarantine", "show", "a/0/1"]) == 0
    assert value.hex(" ") in capsys.readouterr().out


def test_a_tombstone_and_plain_text_are_said(one, capsys):
    one("canal_json", None, "no value")
    assert run(["quarantine", "show", "a/0/1"]) == 0
    assert "none (a Kafka tombstone)" in capsys.readouterr().out
    one("canal_json", b'{"torn": ', "no JSON")
    assert run(["quarantine", "show", "a/0/1"]) == 0
    assert 'value: text, 9 bytes\n{"torn":' in capsys.readouterr().out


def test_a_long_message_says_how_much_is_missing(one, capsys):
    rows = [{"id": i} for i in range(300)] + [{"bad": 1}]
    one("canal_json", json.dumps(rows).encode(), "no", "bad")
    assert run(["quarantine", "show", "a/0/1"]) == 0
    assert "… 705 more lines, 1 marked line among them (--all)" in capsys.readouterr().out
    assert run(["quarantine", "show", "a/0/1", "--all"]) == 0
    assert '"bad": 1   <<<' in capsys.readouterr().out


def test_nothing_from_the_wire_commands_the_terminal(rows, capsys):
    assert run(["quarantine", "show", "a/0/9"]) == 0
    assert run(["quarantine", "list"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "code", "told"),
    [
        ("a/0/8", 1, "nothing is in quarantine"),
        ("b/1/7", 1, "isn't in landing/stock"),
        ("a'--/x", 2, "valid: topic/partition/offset"),
        ("a/0", 2, "valid: topic/partition/offset"),
    ],
)
def test_an_address_without_a_row_is_told(rows, capsys, lake, address, code, told):
    assert run(["quarantine", "show", address]) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["my.topic-1/3/42", "my.topic-1[3]@42", "my.topic-1:3:42"])
def test_addresses(text):
    assert parse_address(text) == ("my.topic-1", 3, 42)
