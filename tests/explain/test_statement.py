"""Changes as SQL: what they say, and that a server takes it for the same."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from cdc_platform.explain.statement import PREAMBLE, ddl, literal, statement
from tests.docs.pages import ROOT
from tests.oracle import server

COLUMNS = [
    {"name": "id", "type": "bigint(20) unsigned", "key": True},
    {"name": "we`ird", "type": "varchar(200)", "key": False},
]


def change(op: str, **images: Any) -> dict[str, Any]:
    return {"op": op, "db": "shop", "schema": None, "table": "t`", "key": None, "before": None, "after": None, **images}


LITERALS = [
    ("18446744073709551615", "bigint unsigned", "18446744073709551615"),
    ("-1.50", "decimal(9,2)", "-1.50"),
    ("1e-7", "double", "1e-7"),
    ("no number", "int", "'no number'"),
    ("true", "boolean", "TRUE"),
    ("AAE=", "blob", "X'0001'"),
    ("", "blob", "X''"),
    ("no base64", "blob", "'no base64'"),
    ("2026-11-20 01:02:03.123456Z", "timestamp(6)", "'2026-11-20 01:02:03.123456'"),
    ("12", "varchar(9)", "'12'"),
    ("it's \\ \n\0\r\x1a\t\b", None, r"'it''s \\ \n\0\r\Z\t\b'"),
    ("a\u202eb", "varchar(9)", "_utf8mb4 X'61E280AE62'"),
    ("\x0b\x1b", "text", "_utf8mb4 X'0B1B'"),
    (None, "int", "NULL"),
    ("x", "frobnicate", "'x'"),
]


@pytest.mark.parametrize(("text", "type_", "expected"), LITERALS)
def test_a_text_as_a_literal(text: str | None, type_: str | None, expected: str):
    assert literal(text, type_) == expected


def test_each_operation():
    key, row = {"id": "7"}, {"id": "7", "we`ird": "x"}
    assert statement(change("insert", key=key, after=row), COLUMNS) == (
        "INSERT INTO `shop`.`t``` (`id`, `we``ird`) VALUES (7, 'x');"
    )
    assert statement(change("read", key=key, after=row), COLUMNS).startswith("INSERT INTO")
    assert statement(change("update", key=key, before=row, after={"id": "8"}), COLUMNS) == (
        "UPDATE `shop`.`t``` SET `id` = 8 WHERE `id` = 7;"
    )
    assert statement(change("delete", key=key, before=row), COLUMNS) == "DELETE FROM `shop`.`t``` WHERE `id` = 7;"
    assert statement(change("delete", before={"id": "7", "we`ird": None}), COLUMNS) == (
        "DELETE FROM `shop`.`t``` WHERE `id` = 7 AND `we``ird` IS NULL LIMIT 1;"
    )
    assert statement(change("update", key=key, after={}), COLUMNS) == "-- the update tells of no column"
    assert statement(change("delete", before={}), COLUMNS) == "-- the delete doesn't tell which row"
    assert statement(change("insert", after=row, schema="public"), COLUMNS).startswith("-- no statement: ")
    assert statement(change("truncate"), []) == "TRUNCATE TABLE `shop`.`t```;"
    assert ddl({"db": "shop", "ddl": "DROP TABLE t; "}) == "USE `shop`;\nDROP TABLE t;"
    assert ddl({"db": None, "ddl": "ALTER TABLE t ADD x INT -- note;"}) == "ALTER TABLE t ADD x INT -- note\n;"


def test_the_page_says_what_a_script_begins_with():
    page = (ROOT / "docs" / "explain.md").read_text()
    assert [line for line in PREAMBLE.splitlines() if f"  {line}\n" not in page] == []


VALUES: dict[str, tuple[str, str, Any]] = {
    "i": ("bigint unsigned", "18446744073709551615", 2**64 - 1),
    "d": ("decimal(38,18)", "99999999999999999999.000000000000000001", "99999999999999999999.000000000000000001"),
    "t": ("varchar(200)", "it's \\ \n\0\r\x1a\t\b \"`é😀", "it's \\ \n\0\r\x1a\t\b \"`é😀"),
    "t2": ("varchar(200)", "a\x1b\u202e\u2028\x85😀'\\", "a\x1b\u202e\u2028\x85😀'\\"),
    "fs": ("float", "1.1", 1.1),
    "z": ("date", "0000-00-00", "0000-00-00"),
    "b": ("blob", b64encode(bytes(range(256))).decode(), bytes(range(256))),
    "bi": ("bit(10)", "513", b"\x02\x01"),
    "ts": ("timestamp(6)", "2026-11-20 01:02:03.123456Z", "2026-11-20 01:02:03.123456"),
    "dt": ("datetime(6)", "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"),
    "tm": ("time(6)", "-838:59:59.000000", "-838:59:59.000000"),
    "y": ("year", "2026", 2026),
    "e": ("enum('a','it''s')", "it's", "it's"),
    "f": ("double", "1.7976931348623157e+308", 1.7976931348623157e308),
    "j": ("json", '{"a": "it\'s"}', '{"a": "it\'s"}'),
    "n": ("int", None, None),  # type: ignore[dict-item]
}
"""Column → type, canonical text, what the server gives back (dates and decimals as text)."""


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    if why := server.missing():
        pytest.skip(why)
    with server.running(tmp_path_factory.mktemp("mariadb")) as running:
        yield running


def test_a_server_takes_each_value_for_what_it_is(mariadb: server.Server):
    columns = [{"name": "id", "type": "int", "key": True}]
    columns += [{"name": n, "type": t, "key": False} for n, (t, _, _) in VALUES.items()]
    texts = {"id": "1", **{n: text for n, (_, text, _) in VALUES.items()}}
    said = change("insert", key={"id": "1"}, after=texts) | {"table": "t"}
    again = change("update", key={"id": "1"}, after=texts | {"id": "2"}) | {"table": "t"}
    as_text = ", ".join(f"CAST(`{n}` AS CHAR)" if n in ("d", "ts", "dt", "tm", "z") else f"`{n}`" for n in VALUES)
    with mariadb.connect(client_flag=65536) as link, link.cursor() as cursor:  # several statements
        cursor.execute("SET GLOBAL time_zone = '+05:00'")
        cursor.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        types = ", ".join(f"`{c['name']}` {c['type']} NULL" for c in columns[1:])
        cursor.execute(f"CREATE TABLE shop.t (id INT PRIMARY KEY, {types})")
        for one in (*PREAMBLE.splitlines(), statement(said, columns), statement(again, columns)):
            cursor.execute(one)
        cursor.execute(f"SELECT id, {as_text} FROM shop.t")
        assert list(cursor.fetchall()) == [(2, *(expected for _, _, expected in VALUES.values()))]
        cursor.execute(statement(change("delete", before=texts | {"id": "2"}) | {"table": "t"}, columns))
        cursor.execute("SELECT count(*) FROM shop.t")
        assert cursor.fetchone() == (0,)


def test_what_a_server_takes_for_equal_or_for_a_number_to_give_is_told_apart(mariadb: server.Server):
    columns = [{"name": "id", "type": "int", "key": True}, {"name": "v", "type": "varchar(9)", "key": False}]
    with mariadb.connect() as link, link.cursor() as cursor:
        for one in (
            *PREAMBLE.splitlines(),
            "CREATE DATABASE IF NOT EXISTS told",
            "CREATE TABLE told.t (id INT NOT NULL AUTO_INCREMENT, v VARCHAR(9), KEY (id)) COLLATE utf8mb4_general_ci",
            *(
                statement(change("insert", after={"id": "0", "v": v}) | {"db": "told", "table": "t"}, columns)
                for v in "aAB"
            ),
            statement(change("delete", before={"id": "0", "v": "A"}) | {"db": "told", "table": "t"}, columns),
        ):
            cursor.execute(one)
        cursor.execute("SELECT id, v FROM told.t")
        assert sorted(cursor.fetchall()) == [(0, "B"), (0, "a")]
