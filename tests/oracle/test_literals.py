"""Bytes of types whose text has a form: a real database says what that is."""

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_platform.formats.tdsql.literals import to_text
from cdc_platform.mysql.types import parse_type
from tests.oracle import server

pytestmark = pytest.mark.oracle


def addresses() -> list[bytes]:
    """Of words that make runs of zeros of all lengths, and what looks like IPv4."""
    dice = random.Random(1)
    words = [[dice.choice([0, 0, 0, 0xFFFF, dice.randrange(1 << 16), 7]) for _ in range(8)] for _ in range(1000)]
    found = [b"".join(w.to_bytes(2, "big") for w in some) for some in words]
    ends = (
        b"",
        b"\1",
        b"\1\0",
        b"\1\2\3",
        b"\1\2\3\4",
        b"\xff\xff\1\2\3\4",
        b"\xff\xff\0\0\1\2\3\4",
        b"\xff\xff\0\0\0\0",
    )
    return [*found, *(end.rjust(16, b"\0") for end in ends)]


def test_bytes_of_an_address_are_its_text() -> None:
    if reason := server.missing():
        pytest.skip(reason)
    stored = addresses()
    with (
        tempfile.TemporaryDirectory(prefix="oracle") as folder,
        server.running(Path(folder)) as running,
        running.connect() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE DATABASE d")
        cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY, a INET6)")
        rows = ",".join(f"({i}, CAST(x'{data.hex()}' AS INET6))" for i, data in enumerate(stored))
        cursor.execute(f"INSERT INTO d.t VALUES {rows}")
        cursor.execute("SELECT CAST(a AS CHAR) FROM d.t ORDER BY id")
        said = [text for (text,) in cursor.fetchall()]
    texts, ok = to_text(pa.array([f"x'{d.hex()}'" for d in stored]), parse_type("inet6"), "UTC", "raw")
    assert all(ok)
    assert texts.to_pylist() == said
