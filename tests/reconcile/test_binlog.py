"""What a server's binlog may leave out, told by its variables; no Spark."""

from pathlib import Path

import pytest

from cdc_platform.config import Source, parse_config
from cdc_platform.reconcile.binlog import FOREIGN_KEYS, NAMES, risks, risks_of
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


def test_foreign_keys_that_change_rows_of_a_followed_table(
    mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_DSN", mariadb.dsn)
    server = Server(dsn_from("A_DSN"))
    mariadb.run(
        "CREATE DATABASE fk",
        "CREATE TABLE fk.parents (id INT PRIMARY KEY)",
        "CREATE TABLE fk.lines (id INT PRIMARY KEY, p INT, q INT, CONSTRAINT gone FOREIGN KEY (p) REFERENCES "
        "fk.parents (id) ON DELETE CASCADE ON UPDATE SET NULL, "
        "CONSTRAINT kept FOREIGN KEY (q) REFERENCES fk.parents (id))",
        "CREATE TABLE fk.others (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES fk.parents (id) ON DELETE SET NULL)",
    )
    try:
        source = _source(tmp_path, "fk.lines", "fk.parents")
        found = {r.name: r.value for r in risks_of(server, source)}
        assert found[FOREIGN_KEYS] == "fk.lines (p: ON DELETE CASCADE, ON UPDATE SET NULL)"
        assert "fk.others" in {r.name: r.value for r in risks_of(server, _source(tmp_path, "fk.*"))}[FOREIGN_KEYS]
        assert FOREIGN_KEYS not in {r.name for r in risks_of(server, _source(tmp_path, "fk.parents"))}
        variables = server.variables
        monkeypatch.setattr(server, "variables", lambda names: variables(names) | {"innodb_native_foreign_keys": "OFF"})
        assert FOREIGN_KEYS not in {r.name for r in risks_of(server, source)}, "MySQL 9.6 writes them to its binlog"
    finally:
        mariadb.run("DROP DATABASE fk")


def _source(folder: Path, *include: str) -> Source:
    source = {"name": "s", "format": "canal", "topics": ["t"], "tables": {"include": list(include)}}
    return parse_config({"lake": str(folder), "sources": [source]}, folder / "cdc.yaml").sources[0]
