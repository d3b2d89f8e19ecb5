"""A server whose log tells a part of rows: which tables can be loaded all the same. A real MariaDB, no Spark."""

from contextlib import nullcontext

import pytest

from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.images import check_whole
from cdc_platform.loading.table import table_of
from cdc_platform.reconcile.server import Server, dsn_from
from tests.loading.world import DSN_ENV
from tests.oracle.session import DB

pytestmark = pytest.mark.oracle

TABLES = {
    "short": "(id int NOT NULL PRIMARY KEY, v varchar(9), d datetime(3))",
    "long_value": "(id int NOT NULL PRIMARY KEY, v mediumtext)",
    "document": "(id int NOT NULL PRIMARY KEY, v json)",
    "long_key": "(id blob NOT NULL, v int, PRIMARY KEY (id(9)))",
    "without_key": "(id int, v mediumtext)",
}


@pytest.fixture(scope="module", autouse=True)
def tables(db):
    db.run(*(f"CREATE TABLE {name} {definition}" for name, definition in TABLES.items()))


@pytest.mark.parametrize(
    ("image", "refused"),
    [
        ("FULL", []),
        ("FULL_NODUP", []),  # of MariaDB 11.4: the row before is whole
        ("NOBLOB", ["long_value", "document"]),
        ("MINIMAL", ["short", "long_value", "document", "long_key"]),
        (None, []),  # a server that lacks the variable writes all
    ],
)
def test_what_the_log_tells_of_a_row(db, make_config, monkeypatch, image, refused):
    monkeypatch.setenv(DSN_ENV, db.dsn)
    source = (config := make_config([{"name": "s", "format": "canal", "topics": ["t"]}])).source("s")
    server = Server(dsn_from(DSN_ENV))
    made = [table_of(config, source, server, DB, name) for name in TABLES]
    if image in ("NOBLOB", "MINIMAL"):
        db.run(f"SET GLOBAL binlog_row_image = '{image}'")
    else:
        monkeypatch.setattr(server, "variables", lambda _: {"binlog_row_image": image} if image else {})
    try:
        for table in made:
            told = rf"binlog_row_image is {image} at the server: .* row of {table.text} changes.*SET GLOBAL"
            with pytest.raises(LoadRefused, match=told) if table.name in refused else nullcontext():
                check_whole(source, server, [table])
    finally:
        db.run("SET GLOBAL binlog_row_image = 'FULL'")
