"""`reconcile`: what people see, and which uses are refused, without a server."""

import re
from pathlib import Path

import pytest

from cdc_platform.cli.app import run
from cdc_platform.cli.output import show
from cdc_platform.cli.reconcile import shown
from cdc_platform.reconcile.binlog import Risk
from cdc_platform.reconcile.result import Cell, Difference, TableResult

YAML = """
lake: ./lake
kafka: {bootstrap.servers: "h:1"}
sources:
  - {name: shop, format: debezium, topics: [a], tables: {include: ["shop.*"]}}
  - {name: stock, format: debezium, topics: [b], reconcile: {dsn_env: STOCK_DSN}}
"""


@pytest.fixture
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cdc.yaml").write_text(YAML)
    monkeypatch.setenv("CDC_CONFIG", str(tmp_path / "cdc.yaml"))
    monkeypatch.delenv("STOCK_DSN", raising=False)


def test_people_see_both_rows_column_by_column(capsys):
    changed = Difference(
        "changed",
        {"id": "7"},
        1,
        1,
        [Cell("id", "7", "7", False), Cell("note", "", None, True), Cell("more", "NULL", "\x1b[31m", True)],
    )
    extra = Difference("extra", {"id": "8"}, 0, 1, [Cell("id", None, "8", True)])
    result = TableResult("shop.orders", version=4, changed=1, extra=1, differences=[changed, extra])
    result.position = {"file": "bin.7", "position": 99, "gtid": None, "exact": False}
    result.not_compared = {"doc": "json"}
    risk = Risk("binlog_format", "MIXED", "statements may stand there")
    show(shown("shop", "server", [result], [risk]), as_json=False)
    out = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert 'shop.orders id="7" changed note "" NULL <<<' in rows
    assert 'shop.orders id="7" changed id "7" "7"' in rows
    assert 'shop.orders id="8" extra id (no row) "8" <<<' in rows
    assert any("about bin.7:99" in r for r in rows)
    assert "shop.orders doc json" in rows
    assert "binlog_format MIXED statements may stand there" in rows
    assert "\x1b" not in out


def test_a_long_value_is_cut_and_its_row_stands_upright(capsys):
    changed = Difference("changed", {"id": "7"}, 1, 1, [Cell("more", "NULL", "x" * 300, True)])
    show(shown("shop", "server", [TableResult("shop.orders", changed=1, differences=[changed])]), as_json=False)
    out = capsys.readouterr().out
    assert "(300 characters)" in out
    assert re.search("^column +more$", out, re.M)
    assert re.search('^expected +"NULL"$', out, re.M)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nope"], "no source is called 'nope'; valid: shop, stock"),
        (["shop"], "nothing tells how to reach the database of 'shop'; valid: sources[].reconcile.dsn_env"),
        (["stock"], "STOCK_DSN: this environment variable must hold the DSN"),
        (["shop", "orders"], "'orders' is no table; valid: db.table"),
        (["shop", "depot.bins"], "no chosen source keeps depot.bins"),
        (["stock", "--at", "GTID 1"], "'GTID 1' is no position; valid: now"),
        (["shop", "shop.orders", "--export", "x.csv", "--at", "noon"], "'noon' is no time; valid: 2026-11-20T12"),
        (["shop", "shop.orders", "--export", "x.csv", "--at", "2999-01-01"], "2999-01-01 00:00:00Z is to come"),
        (["stock", "--version", "3"], "go with an export only"),
        (["stock", "--export", "x.csv"], "an export is of one table; valid: db.table"),
    ],
)
def test_a_use_that_cant_work_is_refused_with_what_would(_config, capsys, arguments, told):
    assert run(["reconcile", *arguments]) == 2
    assert told in capsys.readouterr().err
