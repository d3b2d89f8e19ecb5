"""`tables`, `schema`, `read` on a lake of real Delta tables: what stdout holds, and which exit code ends it."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_platform import tables
from cdc_platform.cli.app import run
from cdc_platform.config import Config, parse_config
from tests.automation.conftest import held, schema_history, table_state

AT = datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC)
ROWS = [
    {"id": 1, "amount": Decimal("10.50"), "note": 'says "hi", twice', "raw": b"\x00\xff", "at": datetime(2026, 1, 2)},
    {"id": 2, "amount": None, "note": "", "raw": None, "at": None},
    {"id": 3, "amount": Decimal("-0.01"), "note": "two\nlines \x1b[31mred", "raw": b"", "at": datetime(2026, 1, 2, 3)},
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        pa.field("note", pa.string(), metadata={"comment": "free text"}),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us")),
        ("_cdc_source_time", pa.timestamp("us", "UTC")),
    ]
)
FEED = {"format": "debezium", "topics": ["t"]}


@pytest.fixture
def config(tmp_path) -> Config:
    raw = {
        "lake": "./lake",
        "sources": [
            {"name": "shop", **FEED, "tables": {"descriptions": {"crm.*": "customers' things"}}},
            {"name": "other", **FEED},
        ],
    }
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    made = parse_config(raw, tmp_path / "cdc.yaml")
    snapshot(made, "shop", "crm", "accounts", ROWS[:2])
    snapshot(made, "shop", "crm", "accounts", ROWS[2:])
    snapshot(made, "shop", "crm", "orders", [])
    snapshot(made, "other", "crm", "orders", ROWS[:1])
    limits = {"cdc.limits": '{"amount": ["digits may be lost"]}'}
    path = tables.SNAPSHOT_PATH.at(made.lake, source="shop", db="crm", table="accounts")
    DeltaTable(path).alter.set_table_properties(limits, raise_if_not_exists=False)
    schema_history(made, ("shop", "crm", "accounts"), ("shop", "crm", "orders"), ("shop", "crm", "later"))
    table_state(made, "shop", "crm.orders", "stopped", "DROP COLUMN seen", rebuild=1)
    held(made, "shop", "crm.accounts")
    return made


def snapshot(config: Config, source: str, db: str, table: str, rows: list[dict]) -> None:
    path = tables.SNAPSHOT_PATH.at(config.lake, source=source, db=db, table=table)
    data = pa.Table.from_pylist([{**row, "_cdc_source_time": AT} for row in rows], SCHEMA)
    write_deltalake(path, data, mode="append")
    table_state(config, source, f"{db}.{table}")


def said(capsys, config: Config, *args: str, code: int = 0) -> str:
    assert run([*args, "--config", str(config.file)]) == code
    return capsys.readouterr().out


def test_all_tables_are_listed(config, capsys):
    rows = json.loads(said(capsys, config, "tables", "--json"))
    assert [(r["source"], r["table"], r["state"], r["rows"], r["held"]) for r in rows] == [
        ("other", "crm.orders", "live", 1, 0),
        ("shop", "crm.accounts", "live", 3, 1),
        ("shop", "crm.later", "waiting", None, 0),
        ("shop", "crm.orders", "stopped", 0, 0),
    ]
    accounts = rows[1]
    assert (accounts["columns"], accounts["key"], accounts["last_change"]) == (5, ["id"], "2026-11-20T01:02:03+00:00")
    assert Path(accounts["path"]).is_dir()
    assert rows[3]["reason"] == "DROP COLUMN seen"
    assert [r["source"] for r in json.loads(said(capsys, config, "tables", "--source", "other", "--json"))] == ["other"]


def test_tables_fit_the_line(config, capsys):
    out = said(capsys, config, "tables")
    assert "crm.accounts" in out
    # A path is one word, however long the lake's is.
    assert max(len(line) for line in out.splitlines() if "SOURCE/DB/TABLE" not in line) <= 100


def test_a_source_that_isn_t_there_is_told_with_the_valid_ones(config, capsys):
    error = json.loads(said(capsys, config, "tables", "--source", "shoop", "--json", code=2))["error"]
    assert (error["key"], error["valid"]) == ("source", ["shop", "other"])


def test_the_columns_of_a_table(config, capsys):
    told = json.loads(said(capsys, config, "schema", "crm.accounts", "--json"))
    assert (told["source"], told["table"], told["version"], told["description"]) == (
        "shop",
        "crm.accounts",
        2,
        "customers' things",
    )
    assert [(c["column"], c["type"], c["key"]) for c in told["columns"]] == [
        ("id", "bigint", 1),
        ("amount", "decimal(12,2)", None),
        ("note", "string", None),
        ("raw", "binary", None),
        ("at", "timestamp_ntz", None),
    ]
    by_name = {c["column"]: c for c in told["columns"]}
    assert (by_name["id"]["source_type"], by_name["amount"]["source_type"]) == ("bigint", None)
    assert (by_name["note"]["comment"], by_name["amount"]["limits"]) == ("free text", ["digits may be lost"])
    everything = json.loads(said(capsys, config, "schema", "crm.accounts", "--all", "--json"))
    assert everything["columns"][-1]["column"] == "_cdc_source_time"


@pytest.mark.parametrize("command", ["schema", "read"])
def test_a_name_that_several_sources_have_needs_the_source(config, capsys, command):
    error = json.loads(said(capsys, config, command, "crm.orders", "--json", code=2))["error"]
    assert (error["key"], error["valid"]) == ("TABLE", ["other", "shop"])
    for args in (["crm.orders", "--source", "other"], ["other/crm.orders"], ["other/crm/orders"]):
        assert json.loads(said(capsys, config, command, *args, "--json"))


@pytest.mark.parametrize("command", ["schema", "read"])
def test_a_table_that_isn_t_there_is_told_with_those_meant(config, capsys, command):
    error = json.loads(said(capsys, config, command, "crm.acounts", "--json", code=2))["error"]
    assert error["valid"][0] == "shop/crm.accounts"
    assert run([command, "crm.later", "--config", str(config.file)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_rows_as_json(config, capsys):
    told = json.loads(said(capsys, config, "read", "crm.accounts", "--json"))
    assert (told["table"], told["version"]) == ("shop/crm.accounts", 2)
    assert told["columns"] == ["id", "amount", "note", "raw", "at"]
    rows = sorted(told["rows"], key=lambda r: r["id"])
    assert rows[0] == {
        "id": 1,
        "amount": "10.50",
        "note": 'says "hi", twice',
        "raw": "AP8=",
        "at": "2026-01-02T00:00:00",
    }
    assert [r["note"] for r in rows] == [r["note"] for r in ROWS]


def test_rows_of_a_version_that_fit_a_condition(config, capsys):
    args = ("read", "crm.accounts", "--json")
    assert len(json.loads(said(capsys, config, *args, "--at", "0"))["rows"]) == 2
    found = json.loads(said(capsys, config, *args, "--where", "amount > 1 AND note LIKE '%hi%'", "--columns", "id, at"))
    assert (found["columns"], found["rows"]) == (["id", "at"], [{"id": 1, "at": "2026-01-02T00:00:00"}])
    assert len(json.loads(said(capsys, config, *args, "--limit", "2"))["rows"]) == 2
    bookkeeping = json.loads(said(capsys, config, *args, "--columns", "_cdc_source_time", "--limit", "1"))
    assert bookkeeping["rows"] == [{"_cdc_source_time": "2026-11-20T01:02:03+00:00"}]


def test_rows_as_csv_tell_null_from_an_empty_text(config, capsys):
    out = said(capsys, config, "read", "crm.accounts", "--format", "csv", "--columns", "id,amount,note")
    lines = {row["id"]: row for row in csv.DictReader(io.StringIO(out))}
    assert {i: row["note"] for i, row in lines.items()} == {str(r["id"]): r["note"] for r in ROWS}
    assert '\n2,,""\n' in out


def test_rows_as_json_lines(config, capsys):
    out = said(capsys, config, "read", "crm.accounts", "--format", "json")
    assert {json.loads(line)["id"] for line in out.splitlines()} == {1, 2, 3}


def test_rows_for_people_hold_no_terminal_commands(config, capsys):
    out = said(capsys, config, "read", "crm.accounts")
    assert "\x1b" not in out
    assert "\\x1b[31mred" in out


def test_rows_of_a_stopped_table_come_with_a_warning(config, capsys):
    assert run(["read", "shop/crm.orders", "--config", str(config.file)]) == 0
    told = capsys.readouterr()
    assert told.out == "no rows\n"
    assert told.err == "warning: shop/crm.orders is stopped: DROP COLUMN seen\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--where", "nope = 1"], "nope"),
        (["--where", "id ="], "crm.accounts"),
        (["--where", "CAST(note AS INT) > 1"], "crm.accounts"),
        (["--columns", "id,nope"], "has no column 'nope'; valid: id, amount, note, raw, at"),
        (["--at", "9"], "has no version 9; valid: up to 2"),
    ],
)
def test_what_can_t_be_read_is_a_usage_error(config, capsys, args, words):
    assert run(["read", "crm.accounts", *args, "--config", str(config.file)]) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert told.out == ""


def test_an_empty_lake_says_so(tmp_path, capsys):
    (tmp_path / "cdc.yaml").write_text(json.dumps({"lake": "./lake", "sources": [{"name": "shop", **FEED}]}))
    assert run(["tables", "--config", str(tmp_path / "cdc.yaml")]) == 0
    assert capsys.readouterr().out == "no table yet: `cdc-platform run` makes them\n"
    assert run(["read", "a.b", "--config", str(tmp_path / "cdc.yaml")]) == 2
    assert "valid: none yet" in capsys.readouterr().err
