"""What rows hold in a column that ALTER TABLE adds: a real database says it, too."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.effects import effects
from tests.oracle import server

pytestmark = pytest.mark.oracle

NUMBERS = ("5", "+5", "-5", "- 5", "5.6", "1.005", "-.5", "1e1", "'5'", "'5.60'", "TRUE", "false", "NULL", "007")
WORDS = ("'a'", '"b"', "'it''s'", "'a\\nb'", "'a ' ", "''", "'a' 'b'", "N'a'", "_utf8mb4'a'", "_latin1 X'E9'", "1 + 1")
BITS = (
    "b'101'",
    "B'1'",
    "0b11",
    "b''",
    "X'05'",
    "0x05",
    "x'61'",
    "(1 + 1)",
    "repeat('a', 2)",
    "'a' COLLATE utf8mb4_bin",
)
MOMENTS = (
    "'2020-01-02'",
    "'2020-1-2 3:4:5'",
    "'2020-01-02 03:04:05.6'",
    "20200102",
    "'11:12:13'",
    "NOW()",
    "current_date",
)
TYPES = (
    *("bit(5)", "int", "tinyint(1)", "int(6) unsigned zerofill", "bigint unsigned", "decimal(10,2)", "decimal(5,0)"),
    *("float", "double", "year", "varchar(20)", "char(9)", "text", "varbinary(9)", "binary(3)", "blob", "json"),
    *("enum('a','b','5')", "set('a','b')", "date", "datetime", "datetime(3)", "time", "time(1)", "timestamp(3) NULL"),
)
LISTED = {
    "ADD a bit(1) NOT NULL DEFAULT b'1', ADD COLUMN b int NOT NULL DEFAULT 3, ADD c varchar(9)": ("1", "3", None),
    r"ADD a enum('q ','x') DEFAULT 'q  ', ADD b enum('q','50\%') DEFAULT '50\%', ADD c varchar(9) DEFAULT 'a\%b\_\q'": (
        *("q", r"50\%", r"a\%b\_q"),
    ),
    "ADD (a bit(2) DEFAULT b'10', b enum('x,y','z') DEFAULT 'x,y', c int NOT NULL)": ("2", "x,y", "0"),
    "ADD a int /* DEFAULT 7, ADD */ DEFAULT 8 COMMENT 'DEFAULT 9', ADD b date, ADD INDEX (id)": ("8", None),
    "ADD `default` int DEFAULT 1, ADD b varchar(9) DEFAULT 'x) , y', ADD c decimal(4,1) NULL": ("1", "x) , y", None),
    "ADD a int, ALTER COLUMN id SET DEFAULT 4, ADD c int DEFAULT 6, DEFAULT CHARACTER SET utf8mb4": (None, "6"),
    "ADD a int DEFAULT 1 FIRST, MODIFY id bigint NOT NULL DEFAULT 7, ADD c int NOT NULL": ("1", "0"),
    "ADD COLUMN (a int DEFAULT 1, KEY (a)), ADD IF NOT EXISTS b int DEFAULT 2, ADD (c int NULL)": ("1", "2", None),
}


@pytest.fixture(scope="module")
def ask() -> Iterator[Any]:
    if reason := server.missing():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(prefix="oracle") as folder,
        server.running(Path(folder)) as running,
        running.connect() as connection,
        connection.cursor() as cursor,
    ):

        def ask(*statements: str) -> tuple[Any, ...]:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchone() or ()

        ask("CREATE DATABASE IF NOT EXISTS defaults", "USE defaults", "SET sql_mode = ''")
        yield ask


def held(ask: Any, alter: str, names: tuple[str, ...], types: tuple[str, ...]) -> tuple[Any, ...]:
    """What the row that was there holds in the new columns."""
    ask(
        "DROP TABLE IF EXISTS t",
        "CREATE TABLE t (id int NOT NULL)",
        "INSERT INTO t VALUES (1)",
        f"ALTER TABLE t {alter}",
    )
    shown = (f"`{n}` + 0" if t.startswith("bit") else f"CAST(`{n}` AS CHAR)" for n, t in zip(names, types, strict=True))
    found = ask(f"SELECT {', '.join(shown)} FROM t")
    return tuple(None if v is None else str(v) for v in found)


def told(alters: list[str]) -> list[Any]:
    """Our own reading, one table per statement."""
    sql = [
        (f"d{i}", s) for i, a in enumerate(alters) for s in ("CREATE TABLE t (id int NOT NULL)", f"ALTER TABLE t {a}")
    ]
    found = {e.after[0]: e for e in effects([Statement(*s) for s in sql]) if e.after and e.at % 2}
    return [found.get(f"d{i}") for i in range(len(alters))]


def same(type_: str, ours: str | None, theirs: str | None) -> bool:
    if ours is None or theirs is None or ours == theirs:
        return ours == theirs
    if type_ == "float":
        return f"{float(ours):.6g}" == f"{float(theirs):.6g}"  # as the server shows it
    if type_ == "double" or "zerofill" in type_:
        return float(ours) == float(theirs)
    return type_.startswith(("datetime", "time")) and ours.rstrip("0").rstrip(".") == theirs.rstrip("0").rstrip(".")


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_default_is_what_the_database_fills_in_or_is_not_told(ask: Any, step: int) -> None:
    cases = [(t, d) for t in TYPES for d in (*NUMBERS, *WORDS, *BITS, *MOMENTS)][::step]
    wrong, compared = [], 0
    for (type_, default), effect in zip(cases, told([f"ADD x {t} DEFAULT {d}" for t, d in cases]), strict=True):
        try:
            [theirs] = held(ask, f"ADD x {type_} DEFAULT {default}", ("x",), (type_,))
        except pymysql.err.MySQLError:
            continue  # no default of this type
        if effect is None or effect.unknown or not effect.added[0].told:
            continue
        compared += 1
        if not same(type_, effect.added[0].fill, theirs):
            wrong.append((type_, default, effect.added[0].fill, theirs))
    assert not wrong, "\n".join(map(str, wrong))
    assert compared > 150 / step


def test_common_defaults_are_told(ask: Any) -> None:
    common = {
        "bit(1)": "b'0'",
        "int": "5",
        "decimal(9,2)": "1.5",
        "varchar(9)": "'a'",
        "enum('a','b')": "'b'",
        "double": "0",
    }
    found = told([f"ADD x {t} NOT NULL DEFAULT {d}" for t, d in common.items()])
    for (type_, default), effect in zip(common.items(), found, strict=True):
        [theirs] = held(ask, f"ADD x {type_} NOT NULL DEFAULT {default}", ("x",), (type_,))
        assert effect.added[0].told
        assert same(type_, effect.added[0].fill, theirs), type_


def test_each_column_of_a_statement_has_its_own_default(ask: Any) -> None:
    for (alter, expected), effect in zip(LISTED.items(), told(list(LISTED)), strict=True):
        names, types = tuple(a.name for a in effect.added), tuple(a.type for a in effect.added)
        assert all(a.told for a in effect.added), alter
        assert tuple(a.fill for a in effect.added) == held(ask, alter, names, types) == expected
