"""`cdc-platform schema fetch`: the CREATE TABLE statements of a real MariaDB, read back as option schema_file."""

import json

import pytest

from cdc_platform.cli.app import run as cli
from cdc_platform.formats.table_schemas.lookup import TableSchemas
from cdc_platform.formats.table_schemas.states import build
from cdc_platform.formats.tdsql import TdsqlOptions
from tests.reconcile.server import Server as MariaDb

CONFIG = {
    "lake": "lake",
    "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    "sources": [
        {"name": "shop", "format": "tdsql", "topics": ["t"], "tables": {"include": ["fetched.*"], "exclude": ["*.tmp"]},
         "reconcile": {"dsn_env": "A_DSN"}},
        {"name": "other", "format": "tdsql", "topics": ["u"]},
    ],
}  # fmt: skip


@pytest.fixture
def cdc(mariadb: MariaDb, tmp_path, monkeypatch, capsys):
    mariadb.run(
        "CREATE DATABASE IF NOT EXISTS fetched",
        "CREATE OR REPLACE TABLE fetched.`a;b` (id BIGINT UNSIGNED PRIMARY KEY, e ENUM('it''s','x;y'),"
        " n DECIMAL(12,4))",
        "CREATE OR REPLACE TABLE fetched.tmp (id INT)",
        "CREATE OR REPLACE VIEW fetched.v AS SELECT 1 AS one",
    )
    monkeypatch.setenv("A_DSN", mariadb.dsn)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdc.yaml").write_text(json.dumps(CONFIG))

    def run(*args):
        return cli(list(args)), capsys.readouterr()

    return run


def test_tables_of_a_source_are_written_as_a_schema_file(cdc, tmp_path):
    code, said = cdc("schema", "fetch", "shop", "--json")
    assert code == 0, said.err
    told = json.loads(said.out)
    assert told["tables"] == ["fetched.a;b"]
    schemas = TableSchemas(build(TdsqlOptions(schema_file=told["file"]), []))
    columns = schemas.steady("fetched", "a;b")
    assert columns.types == {"id": "bigint(20) unsigned", "e": "enum('it''s','x;y')", "n": "decimal(12,4)"}
    assert columns.key == ("id",)


def test_a_file_that_is_there_is_kept(cdc, tmp_path):
    (tmp_path / "mine.sql").write_text("CREATE TABLE t (id INT)")
    code, said = cdc("schema", "fetch", "shop", "--out", "mine.sql")
    assert code == 2
    assert "is there already" in said.err
    assert (tmp_path / "mine.sql").read_text() == "CREATE TABLE t (id INT)"


def test_a_source_without_server_says_what_to_name(cdc):
    code, said = cdc("schema", "fetch", "other")
    assert code == 2
    assert "sources.other.reconcile.dsn_env" in said.err
