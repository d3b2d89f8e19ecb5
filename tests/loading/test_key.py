"""Tables of a real MariaDB gone through by their primary keys, a row at a time: every row once. No Spark."""

import pytest

from cdc_platform.formats.loaded import LogPosition
from cdc_platform.loading.proof import Event, Evidence
from cdc_platform.loading.run import read
from cdc_platform.loading.table import Table, table_of
from cdc_platform.loading.view import opened
from cdc_platform.reconcile.server import Server, dsn_from
from tests.loading.world import DSN_ENV
from tests.oracle.session import DB

pytestmark = pytest.mark.oracle

WORDS = (
    *("AB", "AB\t", "AC", "AB\n1", "AB\r", "Straße 1", "Strasz 1", "Strassenbahn", "Strase 2", "Müller", "Mueller"),
    *("", "\0x", "x\t", "x", "\u200b", "a\u00ad", "aÄ", "ae", "Æ", "日本", "👍", "fg", "o'b", "\\", "%", "Zz", "İ"),
    *("ch", "cz", "c", "chh", "hc", "C", "a cH", "Cc a", "cHS", "Ac\t", "ác", "Č", "č1", "CH", "Ch", "sSc", "S cs"),
)
LONG = tuple(c * 600 + end for c in ("x", "ß") for end in ("c", "a", "b", "ab", "é", "a\t"))
KEYS = {
    "beginning": ("id varchar(400) COLLATE utf8mb4_unicode_ci", "id(6)"),
    "german": ("id varchar(400) CHARACTER SET latin1 COLLATE latin1_german2_ci", "id(6)"),
    "newest": ("id text COLLATE utf8mb4_uca1400_ai_ci", "id(4)"),
    "of_char": ("id char(60) COLLATE utf8mb4_unicode_ci", "id(5)"),
    "czech": ("id varchar(60) CHARACTER SET latin2 COLLATE latin2_czech_cs", "id(5)"),
    "gbk": ("id varchar(60) CHARACTER SET gbk", "id(2)"),
    "utf16": ("id varchar(60) CHARACTER SET utf16 COLLATE utf16_unicode_ci", "id(6)"),
    "of_two": ("n int, id varchar(60) COLLATE utf8mb4_unicode_ci", "n, id(6)"),
    "in_front": ("n enum('b','a') NOT NULL DEFAULT 'a', id varchar(60) COLLATE utf8mb4_unicode_ci", "id(6), n"),
    "char_bin": ("id char(60) COLLATE utf8mb4_nopad_bin", "id"),
    "char_unicode": ("id char(60) COLLATE utf8mb4_unicode_nopad_ci", "id"),
    "char_latin": ("id char(60) CHARACTER SET latin1 COLLATE latin1_swedish_nopad_ci", "id"),
    "char_newest": ("id char(60) COLLATE utf8mb4_uca1400_nopad_as_cs", "id"),
    "passes": (
        "n enum('b','a') NOT NULL DEFAULT 'a', id char(60) CHARACTER SET cp1250 COLLATE cp1250_czech_cs",
        "n, id",
    ),
    "with_enum": ("n enum('b','a') NOT NULL DEFAULT 'a', id char(60) COLLATE utf8mb4_unicode_ci", "n, id"),
    "by_index": ("id varchar(60) COLLATE utf8mb4_unicode_ci", "id"),
    "char_by_index": ("id char(60) COLLATE utf8mb4_unicode_ci", "id"),
    "bytes": ("id varbinary(60)", "id(4)"),
    "long_key": ("id varchar(768) COLLATE utf8mb4_unicode_ci", "id(767)"),
    "long_text": ("n enum('b','a') NOT NULL DEFAULT 'a', id varchar(700) COLLATE utf8mb4_unicode_ci", "n, id"),
    "long_bytes": ("id blob", "id(3000)"),
}


@pytest.fixture
def gone_through(db, make_config, monkeypatch):
    """`gone_through(name, chunk_rows)`: the rows of a table of the server as a load reads them, and the last key's
    texts."""
    monkeypatch.setenv(DSN_ENV, db.dsn)
    config, server = make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), Server(dsn_from(DSN_ENV))

    def read_all(name: str, chunk_rows: int) -> tuple[list[tuple], Table, list[str] | None]:
        table = table_of(config, config.source("s"), server, DB, name)
        rows: list[tuple] = []
        after = None
        with opened(server, _newest(db)) as view:
            while some := read(view, table.select(after, chunk_rows)):
                rows += [row[: len(table.columns)] for row in some]
                after = [str(t) for t in some[-1][len(table.columns) :]]
                assert len(rows) < 1000
        return rows, table, after

    return read_all


def _newest(db) -> Evidence:
    """The end of the log, of which a load asks whether it is the feed's."""
    [(file, pos, *_)] = db._asked("SHOW MASTER STATUS")
    at = LogPosition(file, int(pos), None)
    return Evidence("s", 0, (Event("t/0/0", at.file, at.pos, None, None),))


@pytest.mark.parametrize("name", KEYS)
def test_every_row_is_read_once(db, gone_through, name):
    columns, key = KEYS[name]
    db.run(f"CREATE TABLE {name} ({columns}, v int, PRIMARY KEY ({key}))", "SET SESSION sql_mode = ''")
    for word in LONG if name.startswith("long") else WORDS:
        db._sql(f"INSERT IGNORE INTO {name} SET id = %s", [word])
    db.run("SET SESSION sql_mode = DEFAULT")
    rows, *_ = gone_through(name, 1)
    whole, *_ = gone_through(name, 1000)
    assert len(whole) == db._asked(f"SELECT count(*) FROM {name}")[0][0] > 5
    assert sorted(rows) == sorted(whole)


def test_what_a_load_went_on_behind_by_another_order_isnt_gone_on_behind(db, gone_through):
    db.run("CREATE TABLE other_order (id varchar(60) COLLATE utf8mb4_unicode_ci, PRIMARY KEY (id(6)))")
    db.run("INSERT INTO other_order VALUES ('a'), ('b')")
    _, table, after = gone_through("other_order", 1)
    assert after == ["0x62"]
    assert table.goes_on(after)
    assert not table.goes_on(["62"]), "as earlier versions wrote it"


def test_a_key_that_an_index_serves_goes_by_it(db, gone_through):
    db.run(
        "CREATE TABLE served (id char(60) COLLATE utf8mb4_unicode_ci, n varchar(9), b blob, PRIMARY KEY (id, n, b(9)))"
    )
    _, table, _ = gone_through("served", 1)
    assert [part.by_bytes for part in table.key] == [False, False, False]
