"""`quarantine list|show` on real Delta tables."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.cli.app import run
from cdc_platform.cli.quarantine import hexdump, parse_address
from cdc_platform.tables import LANDING, QUARANTINE

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
    fields = [
        ("source", pa.string()),
        ("format", pa.string()),
        ("decoder_version", pa.string()),
        ("room", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("entry_index", pa.int32()),
        ("row_index", pa.int32()),
        ("db", pa.string()),
        ("table", pa.string()),
        ("reason", pa.string()),
        ("quarantined_at", pa.timestamp("us", "UTC")),
        ("resolved_at", pa.timestamp("us", "UTC")),
    ]
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
    table = pa.Table.from_pylist([dict(zip([n for n, _ in fields], r, strict=True)) for r in data], pa.schema(fields))
    write_deltalake(QUARANTINE.at(lake), table, partition_by=["source"])
    landed = pa.Table.from_pylist(
        [
            {
                "topic": "a",
                "partition": 0,
                "offset": o,
                "timestamp": NOW,
                "landed_at": NOW,
                "key": None,
                "value": VALUE,
                "headers": [{"key": "ShardId", "value": b"1"}],
            }
            for o in (7, 8, 9)
        ],
        pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("landed_at", pa.timestamp("us", "UTC")),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        ),
    )
    write_deltalake(LANDING.at(lake, source="orders"), landed)


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


def test_an_empty_quarantine_is_no_error(lake, capsys):
    assert run(["quarantine", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_show_gives_reason_and_bytes(rows, capsys):
    assert run(["quarantine", "show", "a/0/7", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [r["reason"] for r in data["reasons"]] == ["torn"]
    assert (data["value_bytes"], data["key_bytes"]) == (len(VALUE), None)
    dumped = bytes.fromhex("".join(line[10:57] for line in data["value"]))
    assert dumped == VALUE


def test_nothing_from_the_wire_commands_the_terminal(rows, capsys):
    assert run(["quarantine", "show", "a/0/9"]) == 0
    assert run(["quarantine", "list"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("a/0/8", "nothing is in quarantine"),
        ("b/1/7", "isn't in landing/stock"),
        ("a'--/x", "topic/partition/offset"),
    ],
)
def test_an_address_without_a_row_is_told(rows, capsys, lake, address, told):
    assert run(["quarantine", "show", address]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["my.topic-1/3/42", "my.topic-1[3]@42", "my.topic-1:3:42"])
def test_addresses(text):
    assert parse_address(text) == ("my.topic-1", 3, 42)


def test_a_cut_dump_says_how_much_is_missing():
    assert list(hexdump(b"abc" * 10, 16)) == [
        "00000000  61 62 63 61 62 63 61 62 63 61 62 63 61 62 63 61  abcabcabcabcabca",
        "… 14 more bytes (--all)",
    ]
    assert list(hexdump(None)) == []
