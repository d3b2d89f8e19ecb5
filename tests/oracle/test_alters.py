"""What an ALTER TABLE whose columns take each other's names makes of a row: a real database says it, too."""

import tempfile
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.effects import Effect, effects
from tests.oracle import server

pytestmark = pytest.mark.oracle

MADE = "CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(9), c varchar(9))"
ROW = {"id": "1", "a": "5", "b": "keep", "c": "see"}
PARTS = (
    *("DROP a", "DROP COLUMN b", "CHANGE a b int", "CHANGE b a varchar(20)", "CHANGE COLUMN a x int FIRST"),
    *("RENAME COLUMN b TO a", "RENAME COLUMN a TO c", "RENAME COLUMN c TO b", "ADD a bigint DEFAULT 7"),
    *("ADD COLUMN b int NOT NULL DEFAULT 3 AFTER id", "ADD b varchar(3) DEFAULT 'n' FIRST", "MODIFY c text AFTER id"),
    *("ADD y int AFTER c", "DROP PRIMARY KEY, ADD PRIMARY KEY (a)"),
)


@pytest.fixture(scope="module")
def cursor() -> Iterator[Any]:
    if reason := server.missing():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(prefix="oracle") as folder,
        server.running(Path(folder)) as running,
        running.connect() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE DATABASE alters")
        cursor.execute("USE alters")
        yield cursor


def theirs(cursor: Any, alter: str) -> tuple[dict[str, Any], list[str]] | None:
    """The row behind the statement, its columns in order, and the key; None: the server refuses it."""
    for sql in ("DROP TABLE IF EXISTS t", MADE, "INSERT INTO t VALUES (1, 5, 'keep', 'see')"):
        cursor.execute(sql)
    try:
        cursor.execute(f"ALTER TABLE t {alter}")
    except pymysql.err.MySQLError:
        return None
    cursor.execute("SHOW COLUMNS FROM t")
    columns = cursor.fetchall()
    cursor.execute("SELECT * FROM t")
    [row] = cursor.fetchall()
    names = [c[0] for c in columns]
    told = {n: None if v is None else str(v) for n, v in zip(names, row, strict=True)}
    return told, [c[0] for c in columns if c[3] == "PRI"]


def ours(effect: Effect) -> tuple[dict[str, Any], list[str]]:
    """The same by our own reading."""
    row = {effect.renamed.get(n, n): v for n, v in ROW.items() if n not in effect.dropped}
    row |= {a.name: a.fill for a in effect.added}
    return {c.name: row[c.name] for c in effect.columns}, [c.name for c in effect.columns if c.key]


@pytest.mark.parametrize("step", [19, pytest.param(3, marks=pytest.mark.thorough)])
def test_names_are_those_from_before_the_statement(cursor: Any, step: int) -> None:
    alters = [", ".join(p) for n in (2, 3) for p in permutations(PARTS, n)][::step]
    made = [(alter, found) for alter in alters if (found := theirs(cursor, alter)) is not None]
    sql = [(f"d{i}", s) for i, (alter, _) in enumerate(made) for s in (MADE, f"ALTER TABLE t {alter}")]
    found = {e.after[0]: e for e in effects([Statement(*s) for s in sql]) if e.after and e.at % 2}
    told = [(alter, there, found[f"d{i}"]) for i, (alter, there) in enumerate(made)]
    wrong = [
        (alter, there, got)
        for alter, there, effect in told
        if not effect.unknown and (list((got := ours(effect))[0].items()), got[1]) != (list(there[0].items()), there[1])
    ]
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(effect.unknown is None for _, _, effect in told) > 200 / step
