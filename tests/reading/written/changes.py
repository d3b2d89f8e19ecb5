"""By the changes of their rows and columns."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from tests.reading.source_tables import Table
from tests.reading.written.case import PLAIN, case, rows


@case("no rows yet", vectors=False)
def without_rows(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(1))
    t.delete("0")
    yield


@case("rows that were inserted only", vectors=False)
def inserted(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(5))
    yield


@case("a vector")
def vector(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(9))
    yield
    t.update("3", a="new")
    t.delete("4")
    yield


@case("a vector on a vector, and one on that")
def vector_on_vector(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(9))
    yield
    t.delete("1")
    yield
    t.delete("2", "3")
    yield
    t.update("0", a="new")
    t.delete("8")
    yield


@case("vectors of first and last rows, and of neighbours")
def edges(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(100))
    yield
    t.delete("0", "99", *(str(i) for i in range(40, 60)))
    yield


@case("rows marked here and there, beyond row 65,536, too")
def beyond_a_container(t: Table) -> Iterator[None]:
    t.has({"id": "int"})
    t.insert(*({"id": str(i)} for i in range(66_000)))
    yield
    t.delete(*(str(i) for i in {*range(0, 66_000, 131), *range(65_500, 65_600)}))
    yield


@case("a long run of rows that Spark marked, and a vector on it")
def marked_by_spark(t: Table) -> Iterator[None]:
    t.has({"id": "int"})
    t.insert(*({"id": str(i)} for i in range(1000)))
    yield
    t.delete("999")
    yield
    t.sql("DELETE FROM {} WHERE id BETWEEN 100 AND 800")
    t.rows = {k: r for k, r in t.rows.items() if not 100 <= int(k[0] or 0) <= 800}
    t.delete("801")
    yield


@case("a file of several row groups")
def row_groups(t: Table) -> Iterator[None]:
    t.has({"id": "int", "v": "longtext"})
    t.insert(*({"id": str(i), "v": f"{i:04d}" * 125_000} for i in range(40)))
    yield
    files = Path(t.snapshot.uri()).glob("*.parquet")
    assert max(pq.read_metadata(f).num_row_groups for f in files) > 1
    t.delete("0", "38", "39")
    t.update("37", v="new")
    yield


@case("a file that vectors emptied beside one that they didn't", marks=True)
def emptied_file(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(4))
    yield
    t.insert(*rows(4, 10))
    yield
    t.delete("0", "1")
    t.delete("10")
    yield
    t.delete("2", "3")
    yield


@case("all rows gone, by vectors", vectors=False, marks=True)
def emptied(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(4))
    yield
    t.delete("0")
    yield
    t.delete("1", "2", "3")
    yield


@case("RENAME COLUMN after a vector, and a vector after it", mapped=True)
def renamed(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(6))
    yield
    t.delete("1")
    yield
    t.ddl("RENAME COLUMN a TO b")
    t.rows = {k: {"id": r["id"], "b": r["a"]} for k, r in t.rows.items()}
    t.has({"id": "int", "b": "varchar(40)"})
    t.update("2", b="new")
    yield
    t.delete("3")
    t.insert({"id": "9", "b": None})
    yield


@case("two columns that take each other's names", mapped=True)
def swapped(t: Table) -> Iterator[None]:
    t.has({"id": "int", "a": "int", "b": "int"})
    t.insert({"id": "1", "a": "10", "b": "20"}, {"id": "2", "a": "11", "b": "21"})
    yield
    for rename in ("a TO c", "b TO a", "c TO b"):
        t.ddl(f"RENAME COLUMN {rename}")
    t.rows = {k: {"id": r["id"], "b": r["a"], "a": r["b"]} for k, r in t.rows.items()}
    t.has({"id": "int", "b": "int", "a": "int"})
    t.update("1", a="5")
    yield


@case("a column that was dropped, and another of its name", vectors=False, marks=True, mapped=True)
def dropped_and_added(t: Table) -> Iterator[None]:
    t.has({"id": "int", "a": "varchar(9)", "b": "int"})
    t.insert({"id": "1", "a": "old", "b": "1"}, {"id": "2", "a": "old", "b": "2"})
    yield
    t.ddl("DROP COLUMN b")
    t.rows = {k: {"id": r["id"], "a": r["a"]} for k, r in t.rows.items()}
    t.has({"id": "int", "a": "varchar(9)"})
    t.update("1", a="x")
    yield
    t.ddl("ADD COLUMN b INT")
    t.rows = {k: {**r, "b": None} for k, r in t.rows.items()}
    t.has({"id": "int", "a": "varchar(9)", "b": "int"})
    t.insert({"id": "3", "a": "y", "b": "7"})
    yield
    t.delete("2")
    yield


@case("the same where any reader is to read it", vectors=False)
def any_dropped_and_added(t: Table) -> Iterator[None]:
    return dropped_and_added(t)


@case("a column that was added, with a default, and a vector")
def added(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(4))
    yield
    t.ddl("ADD COLUMN n INT DEFAULT 7")
    t.rows = {k: {**r, "n": "7"} for k, r in t.rows.items()}
    t.has({**PLAIN, "n": "int"})
    t.insert({"id": "9", "a": None, "n": None})
    yield
    t.delete("1")
    yield


@case("INT that became BIGINT")
def widened(t: Table) -> Iterator[None]:
    t.has({"id": "int", "n": "int"})
    t.insert({"id": "1", "n": str(2**31 - 1)}, {"id": "2", "n": str(-(2**31))}, {"id": "3", "n": None})
    yield
    t.ddl("MODIFY n BIGINT")
    t.has({"id": "int", "n": "bigint"})
    t.insert({"id": "4", "n": str(2**63 - 1)})
    yield
    t.delete("2")
    yield


@case("INT that became VARCHAR: the snapshot was made anew")
def made_anew(t: Table) -> Iterator[None]:
    t.has({"id": "int", "n": "int"})
    t.insert({"id": "1", "n": "5"}, {"id": "2", "n": "-6"})
    yield
    t.delete("2")
    yield
    t.ddl("MODIFY n VARCHAR(9)")
    t.has({"id": "int", "n": "varchar(9)"})
    t.insert({"id": "3", "n": "x"}, {"id": "4", "n": "y"})
    yield
    t.delete("3")
    yield


@case("TRUNCATE between rows", marks=True)
def truncated(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(4))
    yield
    t.delete("1")
    yield
    t.truncate()
    t.insert(*rows(3, 10))
    yield
    t.delete("11")
    yield


@case("rows replaced, then others inserted only")
def appended_after(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(4))
    yield
    t.update("1", a="new")
    yield
    t.insert(*rows(4, 20))
    yield


@case("rows that changed several times in one batch", by_spark=True)
def twice_in_a_batch(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(5))
    yield
    t.update("1", a="x")
    t.update("1", a="y")
    t.delete("2")
    t.insert({"id": "2", "a": "again"})
    t.insert({"id": "9", "a": "x"})
    t.delete("9")
    t.update("3", id="30")
    yield


@case("a key of several columns, with NULL beside it")
def two_keys(t: Table) -> Iterator[None]:
    t.has({"k": "int", "l": "varchar(9)", "v": "int"}, keys=("k", "l"))
    t.insert(*({"k": str(i % 2), "l": f"é{i}", "v": None if i % 3 else str(i)} for i in range(8)))
    yield
    t.update("1", "é3", v=None)
    t.delete(("0", "é4"))
    yield
