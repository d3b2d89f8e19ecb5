"""Snapshots as the platform writes them, one for each thing that a reader may read wrongly: vectors, names, types,
statistics, checkpoints, what others did to them in between."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from tests.reading.source_tables import Table

Told = Callable[[Table], Iterator[None]]
"""What happens to a table; after each `yield` the platform has caught up."""


class Case(NamedTuple):
    """vectors: whether the newest version has some, and whether the protocol has the feature; mapped: the same of column
    mapping. by_spark: no vector is of the platform's own commits."""

    told: Told
    what: str
    vectors: bool
    marks: bool
    mapped: bool
    by_spark: bool


CASES: dict[str, Case] = {}


def case(
    what: str, *, vectors: bool = True, marks: bool | None = None, mapped: bool = False, by_spark: bool = False
) -> Callable[[Told], Told]:
    def add(told: Told) -> Told:
        marked = vectors if marks is None else marks
        CASES[told.__name__] = Case(told, what, vectors, marked, mapped, by_spark)
        return told

    return add


_PLAIN = {"id": "int", "a": "varchar(40)"}


def _rows(n: int, first: int = 0) -> list[dict[str, str | None]]:
    return [{"id": str(i), "a": f"a{i}"} for i in range(first, first + n)]


@case("no rows yet", vectors=False)
def no_rows(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(1))
    t.delete("0")
    yield


@case("rows that were inserted only", vectors=False)
def inserted(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(5))
    yield


@case("a vector")
def vector(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(9))
    yield
    t.update("3", a="new")
    t.delete("4")
    yield


@case("a vector on a vector, and one on that")
def vector_on_vector(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(9))
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
    t.has(_PLAIN)
    t.insert(*_rows(100))
    yield
    t.delete("0", "99", *(str(i) for i in range(40, 60)))
    yield


@case("more rows marked than not, with gaps, over 65,536")
def many_rows(t: Table) -> Iterator[None]:
    t.has({"id": "int"})
    t.insert(*({"id": str(i)} for i in range(66_000)))
    yield
    t.delete(*(str(i) for i in range(66_000) if i % 1000))
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
    t.has(_PLAIN)
    t.insert(*_rows(4))
    yield
    t.insert(*_rows(4, 10))
    yield
    t.delete("0", "1")
    t.delete("10")
    yield
    t.delete("2", "3")
    yield


@case("all rows gone, by vectors", vectors=False, marks=True)
def emptied(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(4))
    yield
    t.delete("0")
    yield
    t.delete("1", "2", "3")
    yield


@case("RENAME COLUMN after a vector, and a vector after it", mapped=True)
def renamed(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(6))
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


@case("a column that was dropped, and another of its name", mapped=True)
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
    t.has(_PLAIN)
    t.insert(*_rows(4))
    yield
    t.ddl("ADD COLUMN n INT DEFAULT 7")
    t.rows = {k: {**r, "n": "7"} for k, r in t.rows.items()}
    t.has({**_PLAIN, "n": "int"})
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
    t.has(_PLAIN)
    t.insert(*_rows(4))
    yield
    t.delete("1")
    yield
    t.truncate()
    t.insert(*_rows(3, 10))
    yield
    t.delete("11")
    yield


@case("rows replaced, then others inserted only")
def appended_after(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(4))
    yield
    t.update("1", a="new")
    yield
    t.insert(*_rows(4, 20))
    yield


@case("rows that changed several times in one batch")
def twice_in_a_batch(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(5))
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


@case("a checkpoint of delta-rs with vectors in it, and commits after it")
def checkpointed(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.configure(checkpointInterval="2")
    t.delete("1")
    yield
    t.delete("2")
    yield
    t.delete("3")
    t.insert(*_rows(2, 20))
    yield
    t.delete("20")
    yield


@case("the same, and the log before the checkpoint is gone")
def cleaned(t: Table) -> Iterator[None]:
    yield from checkpointed(t)
    log = Path(t.snapshot.uri(), "_delta_log")
    newest = max(int(p.name[:20]) for p in log.glob("*.checkpoint.parquet"))
    for commit in log.glob("*.json"):
        if int(commit.name[:20]) < newest:
            commit.unlink()


@case("Spark's checkpoint with vectors in it, and a commit after it")
def checkpoint_by_spark(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.delete("1")
    yield
    _checkpoint(t)
    t.delete("2")
    yield


@case("a checkpoint in parts, and commits after it")
def checkpoint_in_parts(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.insert(*_rows(8, 20))
    t.delete("1")
    yield
    t.feed.spark.conf.set("spark.databricks.delta.checkpoint.partSize", "1")
    try:
        _checkpoint(t)
    finally:
        t.feed.spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    assert list(Path(t.snapshot.uri()).glob("_delta_log/*.checkpoint.*.parquet"))
    t.delete("2")
    yield


@case("checkpoints of version 2, which the table's owner asked for", by_spark=True)
def checkpoint_of_version_2(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    t.delete("1")
    yield
    _checkpoint(t)
    t.delete("2")
    yield


@case("a change data feed, which the table's owner asked for", vectors=False)
def change_feed(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    t.delete("1")
    yield


@case("OPTIMIZE after vectors, and a vector after it")
def optimized(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.insert(*_rows(8, 20))
    t.delete("1")
    yield
    t.sql("OPTIMIZE {}")
    t.delete("2", "21")
    yield


@case("vectors purged", vectors=False, marks=True)
def purged(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.delete("1")
    yield
    t.sql("REORG TABLE {} APPLY (PURGE)")


@case("an older version restored, and changes after it")
def restored(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.delete("1")
    yield
    marked = t.snapshot.uri(), max(t.snapshot.commits(0))
    t.delete("2")
    yield
    t.sql(f"RESTORE TABLE {{}} TO VERSION AS OF {marked[1]}")
    t.rows["2",] = {"id": "2", "a": "a2"}
    t.delete("3")
    yield


@case("vectors taken away: `readers: any` from then on", vectors=False)
def any_again(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    # As a run with `readers: fast` left it.
    t.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    t.sql("DELETE FROM {} WHERE id = 7")
    del t.rows["7",]
    t.delete("1")
    yield


@case("files written anew: `readers: any`", vectors=False)
def any_rewritten(t: Table) -> Iterator[None]:
    t.has(_PLAIN)
    t.insert(*_rows(8))
    yield
    t.delete("1")
    t.update("2", a="new")
    yield


@case("40 columns, statistics of the first 32")
def wide(t: Table) -> Iterator[None]:
    t.has({"id": "int", **{f"c{i}": "int" for i in range(40)}})
    t.insert(*({"id": str(i), **{f"c{n}": None if n == i else str(n * i) for n in range(40)}} for i in range(5)))
    yield
    t.update("2", c39="5")
    yield


_ODD = (
    "a b",
    "c,;{}()=",
    "e.f",
    'g"h',
    "i'j",
    "k`l",
    "m\\n",
    "é√🙂",
    "p%20q%",
    "r/s",
    "t#u?",
    "SELECT",
    "_v",
    "w:x&y<z>",
)


@case("names of columns with all sorts of characters", mapped=True)
def odd_columns(t: Table) -> Iterator[None]:
    t.has({"id": "int", **dict.fromkeys(_ODD, "varchar(9)")})
    t.insert(*({"id": str(i), **{n: f"{n[:3]}{i}" for n in _ODD}} for i in range(4)))
    yield
    t.update("1", **{"e.f": None, "p%20q%": "new"})
    t.delete("2")
    yield


@case("the same without those that need column mapping")
def odd_columns_unmapped(t: Table) -> Iterator[None]:
    odd = [n for n in _ODD if not set(n) & set(" ,;{}()\n\t=")]
    t.has({"id": "int", **dict.fromkeys(odd, "varchar(9)")})
    t.insert(*({"id": str(i), **{n: f"{n[:3]}{i}" for n in odd}} for i in range(4)))
    yield
    t.update("1", **{"e.f": None, "p%20q%": "new"})
    t.delete("2")
    yield


@case("texts: long ones, empty ones, those that end with the last of all letters")
def texts(t: Table) -> Iterator[None]:
    t.has({"id": "varchar(99)", "v": "text", "w": "text"})
    last = "\U0010ffff"
    keys = [
        "",
        "é" * 40,
        "🙂" * 40,
        "a" * 32,
        "a" * 33,
        "a" * 32 + last * 2 + "z",
        last * 34,
        "\x00\x01",
        "\ud7ff\ue000",
    ]
    t.insert(*({"id": k, "v": k[::-1], "w": k * 99} for k in keys))
    yield
    t.update("a" * 33, v=None)
    t.delete("é" * 40)
    yield


@case("whole numbers of all widths")
def integers(t: Table) -> Iterator[None]:
    bits = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
    columns = {f"{n}{u}": f"{n}{u}" for n in bits for u in ("", " unsigned")}
    t.has({"id": "bigint unsigned", **{n.replace(" ", "_"): k for n, k in columns.items()}})
    low = {n: str(-(2 ** (b - 1))) for n, b in bits.items()} | {f"{n}_unsigned": "0" for n in bits}
    high = {n: str(2 ** (b - 1) - 1) for n, b in bits.items()} | {
        f"{n}_unsigned": str(2**b - 1) for n, b in bits.items()
    }
    t.insert({"id": "0", **low}, {"id": str(2**64 - 1), **high}, {"id": "7"}, {"id": "8"})
    yield
    t.delete("7")
    yield


@case("decimals of many scales")
def decimals(t: Table) -> Iterator[None]:
    kinds = ((1, 0), (5, 5), (9, 0), (9, 2), (10, 2), (18, 18), (19, 0), (30, 30), (38, 0), (38, 10), (38, 30))
    t.has({"id": "decimal(20,5)", **{f"d{p}_{s}": f"decimal({p},{s})" for p, s in kinds}})

    def most(p: int, s: int) -> str:
        return (f"{'9' * (p - s) or '0'}.{'9' * s}").rstrip(".")

    t.insert({"id": "0.00001", **{f"d{p}_{s}": most(p, s) for p, s in kinds}})
    t.insert({"id": "-1.5", **{f"d{p}_{s}": "-" + most(p, s) for p, s in kinds}})
    t.insert(
        {"id": "0", **{f"d{p}_{s}": f"0.{'0' * (s - 1)}1" if s else "0" for p, s in kinds}}, {"id": "3"}, {"id": "4"}
    )
    yield
    t.delete("3")
    yield


@case("floating point: -0, the smallest, the largest")
def floats(t: Table) -> Iterator[None]:
    t.has({"id": "int", "d": "double", "f": "float"})
    told = [("-0.0", "-0.0"), ("5e-324", "1e-45"), ("1.7976931348623157e308", "3.4028234663852886e38"), (None, None)]
    told += [("0.0", "0.0"), ("-2.2250738585072014e-308", "-1.1754943508222875e-38"), ("0.1", "0.25")]
    t.insert(*({"id": str(i), "d": d, "f": f} for i, (d, f) in enumerate(told)))
    yield
    t.delete("6")
    yield


@case("days and times, far ones, too: `timestampNtz`")
def times(t: Table) -> Iterator[None]:
    t.has({"id": "date", "at": "datetime(6)", "zoned": "timestamp(6)", "t": "time(3)", "y": "year"})
    days = [
        "0001-01-01",
        "0999-12-31",
        "1582-10-04",
        "1582-10-15",
        "1883-11-18",
        "1969-12-31",
        "2038-01-20",
        "9999-12-31",
    ]
    for n, day in enumerate(days):
        told = {"at": f"{day} 23:59:59.99999{n}", "zoned": f"{day} 00:00:00.00000{n}Z", "y": str(1901 + n)}
        t.insert({"id": day, **told, "t": f"-838:59:59.00{n}"})
    t.insert({"id": "2000-01-01"}, {"id": "2000-01-02"})
    yield
    t.delete("2000-01-01", "1582-10-04")
    yield


@case("bytes, also as a key, and bits")
def binary(t: Table) -> Iterator[None]:
    t.has({"id": "varbinary(9)", "v": "blob", "b": "bit(1)", "bits": "bit(64)"})
    t.insert(
        {"id": "AP8=", "v": "/wCA", "b": "1", "bits": str(2**64 - 1)}, {"id": "AA==", "v": "", "b": "0", "bits": "0"}
    )
    t.insert({"id": ""}, {"id": "/w=="})
    yield
    t.delete("/w==")
    yield


@case("columns that hold nothing but NULL")
def nulls(t: Table) -> Iterator[None]:
    t.has({"id": "int", "a": "int", "s": "text", "d": "decimal(9,2)", "at": "datetime", "f": "double"})
    t.insert(*({"id": str(i)} for i in range(4)))
    yield
    t.delete("2")
    yield


@case("no key: equal rows are counted", by_spark=True)
def keyless(t: Table) -> Iterator[None]:
    t.has(_PLAIN, keys=())
    t.rows = {}
    for number, a in enumerate(("x", "x", "y", None)):
        row: dict[str, str | None] = {"id": "1", "a": a}
        t.rows[str(number),] = row
        t.said.append(t.now.insert(t.place(), row))
    yield
    t.said.append(t.now.delete(t.place(), t.rows.pop(("0",))))
    yield


def _checkpoint(t: Table) -> None:
    jvm: Any = t.feed.spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(t.feed.spark._jsparkSession, t.snapshot.uri())
    nothing = jvm.scala.Option.empty()
    log.checkpoint(log.update(False, nothing, nothing), nothing)
