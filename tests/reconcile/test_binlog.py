"""What a server's binlog may leave out, told by its variables; no Spark."""

import pytest

from cdc_platform.reconcile.binlog import NAMES, risks
from cdc_platform.reconcile.server import Server, dsn_from
from tests.reconcile.server import Server as MariaDb

SAFE = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "com_xa_rollback": "0"}


def test_a_server_that_writes_whole_rows_has_no_risks() -> None:
    assert risks(SAFE) == []
    assert risks({**SAFE, "binlog_row_value_options": ""}) == []  # MySQL 8
    assert risks({"log_bin": "OFF", "binlog_format": "MIXED"}) == []  # it writes none
    assert risks({}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog_format", "MIXED"),
        ("binlog_row_image", "MINIMAL"),
        ("binlog_row_value_options", "PARTIAL_JSON"),
        ("com_xa_rollback", "3"),
    ],
)
def test_each_other_value_is_told(name: str, value: str) -> None:
    assert [(r.name, r.value) for r in risks({**SAFE, name: value})] == [(name, value)]


def test_a_real_servers_variables_are_read(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_DSN", mariadb.dsn)
    server = Server(dsn_from("A_DSN"))
    told = server.variables(NAMES)
    assert {k: told[k] for k in ("log_bin", "binlog_format", "binlog_row_image")} == {
        k: SAFE[k] for k in ("log_bin", "binlog_format", "binlog_row_image")
    }
    before = int(told["com_xa_rollback"])
    mariadb.run(
        "CREATE DATABASE IF NOT EXISTS k",
        "CREATE TABLE k.prepared (id INT PRIMARY KEY)",
        "XA START 'x'",
        "INSERT INTO k.prepared VALUES (1)",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA ROLLBACK 'x'",
        "SET GLOBAL binlog_row_image = 'MINIMAL'",
    )
    try:
        found = {r.name: r.value for r in risks(server.variables(NAMES))}
    finally:
        mariadb.run("SET GLOBAL binlog_row_image = 'FULL'")
    assert found == {"binlog_row_image": "MINIMAL", "com_xa_rollback": str(before + 1)}
