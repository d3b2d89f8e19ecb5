"""Reads of a real MariaDB; no Spark."""

import pymysql
import pytest

from cdc_platform.mysql.types import parse_type
from cdc_platform.reconcile import statements
from cdc_platform.reconcile.columns import Pairing, pair
from cdc_platform.reconcile.errors import SourceRefused
from cdc_platform.reconcile.frames import state
from cdc_platform.reconcile.server import Server, dsn_from
from cdc_platform.reconcile.texts import float_text
from tests.reconcile.server import Server as MariaDb

KEYS = {
    "f": ("float", ["0.1", "1e10", "-3.25"]),
    "d": ("double", ["1e23", "-5e-10", "0"]),
    "n": ("decimal(65,30)", ["1.5", "-0.000000000000000000000000000001", "2"]),
    "z": ("int(8) zerofill", ["7", "0", "4294967295"]),
    "dt": ("datetime(3)", ["'2026-01-01 00:00:00.5'", "'1999-01-01'", "'0000-00-00'"]),
    "ts": ("timestamp", ["'2026-01-01'", "'1999-01-01'", "'2000-01-01 00:00:01'"]),
    "l": ("varchar(9) character set latin1", ["'é'", "'z'", "''"]),
    "g": ("varchar(9) character set gbk", ["'中'", "'a\\''", "'A'"]),
    "u": ("varchar(9) collate utf8mb4_unicode_ci", ["'🙂'", "'a'", "'ß'"]),
    "b": ("varbinary(5)", ["X'00'", "X'0000'", "X''"]),
    "bt": ("bit(9)", ["1", "2", "511"]),
    "e": ("enum('x','y','z')", ["'x'", "'y'", "'z'"]),
    "t": ("time(2)", ["'-01:00:00'", "'100:00:00.25'", "'00:00:00'"]),
    "y": ("year", ["0", "1999", "2155"]),
}


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Server:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_DSN", mariadb.dsn)
        return Server(dsn_from("A_DSN"))


def _pairing(server: Server, db: str, table: str) -> Pairing:
    columns = server.columns(db, table)
    return pair(columns, {c.name: parse_type(c.type_text).spark for c in columns})


@pytest.mark.parametrize("name", KEYS)
def test_rows_are_found_by_keys_of_any_type(mariadb: MariaDb, server: Server, name: str) -> None:
    type_, values = KEYS[name]
    mariadb.run(
        "CREATE DATABASE IF NOT EXISTS k",
        f"CREATE TABLE k.{name} (k {type_}, v INT, PRIMARY KEY (k))",
        f"INSERT INTO k.{name} VALUES {', '.join(f'({v}, {i})' for i, v in enumerate(values))}",
    )
    pairing = _pairing(server, "k", name)
    with server.view("k", name, pairing) as view:
        rows = view.digests(4, range(4))
    assert len({kd for kd, _, _ in rows}) == 3
    states = {kd: state(1, h, h) for kd, h, _ in rows}
    by_index = {kd: ([text], False) for kd, _, text in rows}
    zero_date = name == "dt"  # is NULL to us: no key, so found by its digest alone
    assert len(server.states_now("k", name, pairing, by_index)) == 3 - zero_date
    assert server.states_now("k", name, pairing, {kd: (keys, True) for kd, (keys, _) in by_index.items()}) == states
    assert server.states_now("k", name, pairing, {kd: (["?"], True) for kd in states}) == states
    assert sorted(int(r[3]) for r in server.rows("k", name, pairing, {kd: (["?"], True) for kd in states})) == [0, 1, 2]


def test_floats_have_the_same_text_in_sql_and_python(mariadb: MariaDb, server: Server) -> None:
    values = [m * 10.0**e * s for m in (1, 1 / 3, 9.999999999999999, 1.1) for e in range(-310, 309, 7) for s in (1, -1)]
    values += [0.0, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, 2.0**53, 2.0**53 + 2, 123456789012345.0]
    mariadb.run(
        "CREATE DATABASE IF NOT EXISTS k",
        "CREATE TABLE k.floats (id INT PRIMARY KEY, v DOUBLE)",
        f"INSERT INTO k.floats VALUES {', '.join(f'({i}, {v!r})' for i, v in enumerate(values))}",
    )
    column = _pairing(server, "k", "floats").pairs[1]
    found = mariadb.run(f"SELECT id, {statements.cell(column)} FROM k.floats ORDER BY id")
    assert [text for _, text in found] == [float_text(v) for v in values]


def test_a_view_writes_nothing_and_stays_as_it_was(mariadb: MariaDb, server: Server) -> None:
    mariadb.run(
        "CREATE DATABASE IF NOT EXISTS k", "CREATE TABLE k.held (id INT PRIMARY KEY)", "INSERT INTO k.held VALUES (1)"
    )
    pairing = _pairing(server, "k", "held")
    with server.view("k", "held", pairing) as view:
        before = view.sums(4)
        mariadb.run("INSERT INTO k.held VALUES (2)")
        assert view.sums(4) == before
        assert sum(n for n, _, _ in before[0].values()) == 1
    with server.view("k", "held", pairing) as later:
        assert sum(n for n, _, _ in later.sums(4)[0].values()) == 2
        assert later.position and view.position and later.position["position"] > view.position["position"]
    with pytest.raises(SourceRefused, match=r"READ ONLY|denied"), server.view("k", "held", pairing) as view:
        view._cursor.execute("DELETE FROM k.held")


def test_a_table_altered_meanwhile_is_refused_not_misread(mariadb: MariaDb, server: Server) -> None:
    mariadb.run("CREATE DATABASE IF NOT EXISTS k", "CREATE TABLE k.altered (id INT PRIMARY KEY, v INT)")
    pairing = _pairing(server, "k", "altered")
    with (
        pytest.raises(SourceRefused, match="definition has changed") as caught,
        server.view("k", "altered", pairing) as view,
    ):
        mariadb.run("ALTER TABLE k.altered MODIFY v VARCHAR(9)")
        view.sums(4)
    assert caught.value.retriable
    assert not isinstance(caught.value, pymysql.err.MySQLError)
