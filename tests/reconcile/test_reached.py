"""Whether a server has come as far as the feed. Without Spark."""

from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pymysql.err import MySQLError

from cdc_platform.config import Config, parse_config
from cdc_platform.reconcile.reached import Newest, lacking, newest
from cdc_platform.reconcile.server import Server, dsn_from
from cdc_platform.tables import CHANGES, LOG_EPOCHS
from tests.reconcile.server import Server as MariaDb
from tests.rows import add

MYSQL = {"SELECT GTID_SUBSET": [(1, "u:1-9")], "SELECT @@server_id": [("7",)], "SHOW STATUS": []}
OWN_LOG = {**MYSQL, "SELECT GTID_SUBSET": [(None, "")], "SHOW MASTER STATUS": [("b.000002", 500)]}


class Told:
    """A server with these answers; to everything else it says that it may not be asked."""

    def __init__(self, **answers: list[tuple]):
        self.answers, self.description = answers, (("Name",), ("Seconds_Behind_Source",))

    @contextmanager
    def connected(self):
        yield self

    def execute(self, sql: str, arguments: tuple = ()) -> None:
        self.rows = next((rows for begin, rows in self.answers.items() if sql.startswith(begin)), None)
        if self.rows is None:
            raise MySQLError(1227, "Access denied")

    def fetchone(self) -> tuple | None:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[tuple]:
        return self.rows or []


@pytest.mark.parametrize(
    ("answers", "of", "why"),
    [
        (MYSQL, Newest("u:9", None, 0, None), None),
        ({**MYSQL, "SELECT GTID_SUBSET": [(0, "u:1-8")]}, Newest("u:9", None, 0, None), "lacks transaction u:9"),
        # A primary of before a failover; another set of TDSQL.
        ({**MYSQL, "SELECT GTID_SUBSET": [(0, "v:1-8")]}, Newest("u:9", None, 0, None), "lacks transaction u:9"),
        ({**MYSQL, "SELECT GTID_SUBSET": [(0, "v:1-8")]}, Newest("u:9", None, 0, None, sets=True), None),
        (OWN_LOG, Newest(None, "b.000002", 400, "7"), None),
        (OWN_LOG, Newest(None, "b.000002", 600, "8"), None),
        ({}, None, None),
        ({"SHOW REPLICA STATUS": []}, None, None),
        ({"SHOW REPLICA STATUS": [("r", 0)]}, None, None),
        ({"SHOW REPLICA STATUS": [("r", 21600)]}, None, "21,600 s behind"),
        ({"SHOW SLAVE STATUS": [("r", None)]}, None, "has stopped"),
        ({"SHOW SLAVE STATUS": [("r", None)], "SELECT @@GLOBAL.read_only": [(1,)]}, None, "has stopped"),
        # It was a replica once.
        ({"SHOW SLAVE STATUS": [("r", None)], "SELECT @@GLOBAL.read_only": [(0,)]}, None, None),
        ({**OWN_LOG, "SHOW REPLICA STATUS": [("r", 3)]}, Newest(None, "b.000002", 400, "8"), "3 s behind"),
        ({**MYSQL, "SHOW REPLICA STATUS": [("r", 3)]}, Newest("u:9", None, 0, None), None),
    ],
)
def test_what_says_that_it_is_behind(answers: dict[str, Any], of: Newest | None, why: str | None) -> None:
    found = lacking(Told(**answers), of)  # type: ignore[arg-type]
    assert found is None if why is None else why in str(found)


def test_a_mariadb(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_DSN", mariadb.dsn)
    server = Server(dsn_from("A_DSN"))
    mariadb.run("CREATE DATABASE IF NOT EXISTS reached")
    [(gtid,)] = mariadb.run("SELECT @@GLOBAL.gtid_binlog_pos")
    domain, own, number = gtid.split("-")
    assert lacking(server, None) is None
    assert lacking(server, Newest(gtid, None, 0, None)) is None
    assert lacking(server, Newest(f"9-{own}-1", None, 0, None)) is None, "nothing is told of this domain"
    later = f"{domain}-{own}-{int(number) + 1}"
    assert later in str(lacking(server, Newest(later, None, 0, None)))


def test_the_feeds_newest_change(tmp_path: Path) -> None:
    source = {"name": "s", "format": "canal", "topics": ["t"]}
    config: Config = parse_config({"lake": str(tmp_path), "sources": [source]}, tmp_path / "cdc.yaml")
    assert newest(config, config.source("s")) is None
    at = {"source": "s", "topic": "t", "partition": 0}
    place = {"low_file": 2, "low_pos": Decimal(4), "high_file": 3, "high_pos": Decimal(70)}
    epoch = {**at, "batch": 0, "epoch": 0, "replay": False, "first": 0, "last": 9 << 20, "servers": ["7"], **place}
    add(tmp_path, LOG_EPOCHS, epoch)
    for offset, file, pos, gtid in ((8, 3, 70, "u:8"), (9, 3, 60, "u:7")):
        told = {"binlog_file": f"b.00000{file}", "file_no": file, "binlog_pos": Decimal(pos), "lineage": "7"}
        row = {**at, "offset": offset, "kind": "row", "gtid": gtid, **told}
        del row["source"]
        add(tmp_path, CHANGES, row, format="canal", source="s")
    assert newest(config, config.source("s")) == Newest("u:8", "b.000003", 70, "7")
