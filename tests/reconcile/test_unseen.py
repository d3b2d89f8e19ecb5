"""Tables of a real MariaDB of which nothing ever came: `reconcile` of a whole source names them. No Spark: none has a
snapshot."""

import pytest

from cdc_platform.config import Config
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.table import table_of
from cdc_platform.reconcile.binlog import FOREIGN_KEYS, risks_of
from cdc_platform.reconcile.run import NO_SNAPSHOT, against_server
from cdc_platform.reconcile.server import Server, dsn_from
from tests.reconcile.server import Server as MariaDb


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Server:
    mariadb.run(
        "CREATE DATABASE unseen",
        "CREATE TABLE unseen.plain (id INT PRIMARY KEY)",
        "CREATE TABLE unseen.versions (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES unseen.plain (id) "
        "ON DELETE CASCADE) WITH SYSTEM VERSIONING",
        "CREATE TABLE unseen.told (id INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, "
        "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
        "CREATE TABLE unseen.left_out (id INT PRIMARY KEY)",
        "CREATE VIEW unseen.a_view AS SELECT 1 AS one",
        "CREATE DATABASE unseen_2",
        "CREATE TABLE unseen_2.other (id INT PRIMARY KEY)",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_DSN", mariadb.dsn)
        return Server(dsn_from("A_DSN"))


def _config(make_config, *include: str) -> Config:
    tables = {"include": list(include), "exclude": ["*.left_out"]}
    return make_config([{"name": "s", "format": "debezium", "topics": ["t"], "tables": tables}])


@pytest.mark.parametrize(
    ("include", "tables"),
    [
        (["unseen.*", "gone.*"], ["unseen.plain", "unseen.told", "unseen.versions"]),
        (["unseen.p*", "unseen_2.other"], ["unseen.plain", "unseen_2.other"]),
        (["unseen_?.*", "u[n]seen.*", "*"], []),  # they name no database
    ],
)
def test_tables_of_which_nothing_ever_came(make_config, server, include, tables):
    config = _config(make_config, *include)
    found = against_server(None, config, config.source("s"), server)  # type: ignore[arg-type]
    assert [(r.table, r.problems, r.equal) for r in found] == [(name, [NO_SNAPSHOT], False) for name in tables]


def test_foreign_keys_of_a_table_with_system_versioning(make_config, server):
    source = _config(make_config, "unseen.versions").source("s")
    assert {r.name: r.value for r in risks_of(server, source)}[FOREIGN_KEYS] == "unseen.versions (p: ON DELETE CASCADE)"


@pytest.mark.parametrize("name", ["versions", "told"])
def test_a_table_with_system_versioning_isnt_loaded(make_config, server, name):
    config = _config(make_config, "unseen.*")
    with pytest.raises(LoadRefused, match=rf"unseen\.{name} has SYSTEM VERSIONING: .*tables\.exclude"):
        table_of(config, config.source("s"), server, "unseen", name)
    assert table_of(config, config.source("s"), server, "unseen", "plain").text == "unseen.plain"
