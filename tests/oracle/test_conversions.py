"""What ALTER TABLE … MODIFY makes of a column's values, in strict mode and without: a real database says it, too."""

import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
import pytest

from cdc_platform.mysql.charsets import charset_name, with_question_marks
from cdc_platform.mysql.effects import Retyped
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.values import to_text
from cdc_platform.snapshots.schema.conversions import Refused, conversion, retyped
from cdc_platform.snapshots.schema.image_columns import ImageColumn
from tests.oracle import server

pytestmark = pytest.mark.oracle

VALUES = {
    **dict.fromkeys(
        ("int", "smallint unsigned", "bigint", "mediumint", "int(5) zerofill"), ("0", "7", "-1", "300", "70000")
    ),
    **dict.fromkeys(("decimal(10,2)", "decimal(4,1)", "decimal(12,4)"), ("0", "1.50", "-1.25", "99.9", "12345.6")),
    **dict.fromkeys(("float", "double", "float(7,3)"), ("0", "0.1", "-2.5", "123.4567")),
    **dict.fromkeys(
        ("varchar(9)", "char(9)", "varchar(2)", "char(3)", "text", "tinytext", "varchar(300)"),
        ("''", "'a'", "'a '", "'abcdef'", "'2'", "'B'", "'a,b'", "'b,a'", "'é漢'"),
    ),
    **dict.fromkeys(("enum('a','b')", "enum('b','abcdef','a')"), ("'a'", "'b'")),
    **dict.fromkeys(("set('a','b')", "set('b','c','a')"), ("'a'", "'a,b'", "''")),
    **dict.fromkeys(("varbinary(9)", "varbinary(2)", "binary(4)", "blob"), ("''", "'a'", "'abcd'", "'a\\0'")),
    **dict.fromkeys(("bit(8)", "bit(3)"), ("b'0'", "b'101'", "b'11111111'")),
    **dict.fromkeys(("date", "datetime", "datetime(3)"), ("'2026-01-02'", "'2026-12-31 23:59:59.600'", "'0000-00-00'")),
    **dict.fromkeys(("time", "time(3)"), ("'00:00:00'", "'-01:02:03.6'", "'838:59:59'")),
    **dict.fromkeys(("timestamp", "timestamp(3)"), ("'2026-01-02 03:04:05.6'",)),
    "year": ("2026", "0"),
    "uuid": ("'123e4567-e89b-12d3-a456-426655440000'",),
    "inet6": ("'::1'",),
}


@pytest.fixture(scope="module")
def cursor() -> Iterator[Any]:
    if reason := server.missing():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(prefix="oracle") as folder,
        server.running(Path(folder)) as running,
        running.connect(conv={}) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE DATABASE conversions")
        cursor.execute("USE conversions")
        yield cursor


def held(cursor: Any, type_: MySqlType) -> list[str | None]:
    """The column's values in canonical text."""
    shown = {"bit": "x + 0", "float": "CAST(x AS DOUBLE)"}.get(type_.name, "x")
    cursor.execute(f"SELECT {shown} FROM t ORDER BY id")
    found = [v if v is None or isinstance(v, bytes) else str(v) for (v,) in cursor.fetchall()]
    if type_.family == "binary":
        return [
            v if v is None else b64encode(v if isinstance(v, bytes) else v.encode("latin-1")).decode() for v in found
        ]
    texts = [v.decode() if isinstance(v, bytes) else v for v in found]
    made, ok = to_text(pa.array(texts, pa.string()), type_)
    assert ok.all(), texts
    return made.to_pylist()


def alter(cursor: Any, mode: str, values: tuple[str, ...], types: tuple[str, str], null: str) -> Any:
    """Values before and after; None: the server refuses the statement or the values."""
    before, after = types
    cursor.execute("DROP TABLE IF EXISTS t")
    cursor.execute("SET sql_mode = ''")
    cursor.execute(f"CREATE TABLE t (id int, x {before} NULL) CHARACTER SET utf8mb4")
    for i, value in enumerate(values):
        cursor.execute(f"INSERT INTO t VALUES ({i}, {value})".replace("%", "%%"))
    was = held(cursor, parse_type(before))
    cursor.execute(f"SET sql_mode = '{mode}'")
    try:
        cursor.execute(f"ALTER TABLE t MODIFY x {after} {null}")
    except pymysql.err.MySQLError:
        return None
    return was, held(cursor, parse_type(after))


def told(was: list[str | None], types: Retyped) -> list[str | None] | None:
    """Our own word on it; None: it is refused."""
    try:
        texts = retyped(ImageColumn(pa.array(was, pa.string()), np.ones(len(was), bool)), types)
    except Refused:
        return None
    after = parse_type(types.after)
    if after.family == "binary" or after.family in ("enum", "set"):
        return texts.to_pylist()
    made, ok = to_text(texts, after)
    return [text if fits else None for text, fits in zip(made.to_pylist(), ok.tolist(), strict=True)]


def alike(type_: MySqlType, ours: str | None, theirs: str | None) -> bool:
    """A value that doesn't fit its column is told when it is cast."""
    if ours == theirs or ours is None:
        return ours == theirs or theirs is not None
    if theirs is not None and type_.family in ("decimal", "float"):
        return abs(float(ours) - float(theirs)) <= abs(float(theirs)) * 1e-5
    return False


@pytest.mark.parametrize("mode", ["", "STRICT_ALL_TABLES"])
@pytest.mark.parametrize("step", [14, pytest.param(1, marks=pytest.mark.thorough)])
def test_values_are_what_the_server_made_of_them_or_not_told(cursor: Any, mode: str, step: int) -> None:
    pairs = [(a, b) for a in VALUES for b in VALUES if conversion(a, b) is not None][::step]
    wrong, compared = [], 0
    for before, after in pairs:
        for value in VALUES[before]:
            if (done := alter(cursor, mode, (value,), (before, after), "NULL")) is None:
                continue
            ours = told(done[0], Retyped(before, after))
            compared += ours is not None
            if ours is not None and not alike(parse_type(after), ours[0], done[1][0]):
                wrong.append((before, after, value, ours, done[1]))
    assert not wrong, "\n".join(map(str, wrong))
    assert compared > 300 / step


TEXTS = (
    "abc",
    "é€ß",
    "漢字か",
    "яЯё№",
    "a🙂b",
    "“x”",
    "ＡＢ＼",
    "ñ¿",
    "ığŞ",
    "ąćł",
    "αβ’",
    "שלום",
    "ไทย",
    "碁銹",
    "½²³",
)


@pytest.mark.parametrize("how", ["CONVERT TO CHARACTER SET {}", "MODIFY x varchar(9) CHARACTER SET {}"])
def test_characters_that_a_charset_lacks_become_question_marks(cursor: Any, how: str) -> None:
    cursor.execute("SHOW CHARACTER SET")
    names = [row[0] if isinstance(row[0], str) else row[0].decode() for row in cursor.fetchall()]
    wrong = []
    for charset in names:
        if charset == "binary":
            continue
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute("SET sql_mode = ''")
        cursor.execute("CREATE TABLE t (id int, x varchar(9)) CHARACTER SET utf8mb4")
        cursor.execute("INSERT INTO t VALUES " + ", ".join(f"({i}, '{text}')" for i, text in enumerate(TEXTS)))
        cursor.execute(f"ALTER TABLE t {how.format(charset)}")
        now = held(cursor, parse_type("varchar(9)"))
        for text, theirs in zip(TEXTS, now, strict=True):
            ours = with_question_marks(text, charset)
            if ours != theirs and not (ours is None and charset_name(charset) is None):
                wrong.append((charset, text, ours, theirs))
    assert not wrong, "\n".join(map(str, wrong))
    assert len(names) > 30


@pytest.mark.parametrize("type_", VALUES)
def test_a_null_becomes_what_the_server_made_of_it_or_is_not_told(cursor: Any, type_: str) -> None:
    was, now = alter(cursor, "", ("NULL",), (type_, type_), "NOT NULL")
    ours = told(was, Retyped(type_, type_, filled=True))
    assert ours is None if type_.startswith("timestamp") else ours == now
