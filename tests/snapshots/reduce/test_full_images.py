"""Whole images folded by workers: which tables are so, and that they come to what fold.py makes of them."""

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.lake import data_files
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.lake.store import File
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.reduce import full_images, images, latest_by_key
from cdc_platform.snapshots.reduce.fold import fold, profile
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, SourceTable, read
from tests.lakes import file_at, store_at

COLUMNS = [("a", "int"), ("b", "varchar(9)"), ("d", "date"), ("at", "timestamp"), ("n", "decimal(12,2)")]
KEYS = ("a", "b")


def columns(keys=KEYS, **types):
    return [TableColumn(n, parse_type(types.get(n, t)), n in keys) for n, t in COLUMNS]


def row(a, b, d="2026-11-20", at="2026-11-20 01:02:03.5Z", n="1.50"):
    return {"a": a, "b": b, "d": d, "at": at, "n": n}


def change(op, image, pos, **rest):
    key = {k: image[k] for k in KEYS}
    order = {"epoch": 0, "file": 1, "pos": Decimal(pos), "event": 0, "row": 0, "landed": pos}
    told = {"db": "d", "table": "t", "op": op, "key": key, "before": image, "after": image, "order_key": order}
    told |= {"before": None} if op == "insert" else {"after": None} if op == "delete" else {}
    place = {"topic": "t", "partition": 0, "offset": pos, "entry_index": 0, "row_index": 0}
    return {**place, **told, **rest}


def batch(changes):
    maps = lambda c: {k: list(v.items()) if k in ("key", "before", "after") and v else v for k, v in c.items()}  # noqa: E731
    return pa.RecordBatch.from_pylist([maps(c) for c in changes], CHANGELOG_FILE)


def surveyed(changes, cs=None):
    """What a worker says of one file."""
    table = full_images._table(("d", "t"), columns() if cs is None else cs)
    [found] = images.Survey((table,))(iter([batch(changes)]), {})
    return found


PLAIN = [
    change("insert", row("1", "x"), 5),
    change("update", row("1", "x", n=None), 6),
    change("delete", row("1", "x"), 7),
]


def test_whole_images_with_told_keys_are_plain():
    assert surveyed(PLAIN) == {
        "changes": 3,
        "deletes": 1,
        "truncates": 0,
        "truncated": None,
        "orders": [[0, 1, 5, 0, 0, 5], [0, 1, 7, 0, 0, 7]],
        "keys_range": [1, 1],
        "untied": True,
        "spans": [],
    }
    assert surveyed([*PLAIN, change("insert", row("1", "x"), 8, table="other")])["changes"] == 3
    assert surveyed([change("insert", row("1", "x"), 8, table="other")])["changes"] == 0
    assert surveyed(PLAIN, columns(("b", "a")))["keys_range"] == [1, 1]
    assert surveyed([change("insert", row("1", "x", d=None, at=None), 5)])["changes"] == 1
    assert surveyed(list(reversed(PLAIN)))["orders"] == [[0, 1, 5, 0, 0, 5], [0, 1, 7, 0, 0, 7]]


@pytest.mark.parametrize(
    "odd",
    [
        change("insert", row("1", "x", d="2026-02-30"), 8),
        change("insert", row("1", "x", d="0000-00-00"), 8),
        change("insert", row("1", "x", d="0000-01-01"), 8),
        change("insert", row("1", "x", at="2026-11-20 25:02:03Z"), 8),
        change("insert", row("1", "x", at="2026-11-20 01:02:03"), 8),
        change("insert", row("no number", "x"), 8),
        change("insert", row("1", "x"), 8, key=None),
        change("insert", row("1", "x"), 8, key={"a": "1"}),
        change("insert", row("1", "x"), 8, key={"a": None, "b": "x"}),
        change("insert", row("1", "x"), 8, after=None),
        change("insert", row("1", "x"), 8, after={"a": "1", "b": "x"}),
        change("insert", row("1", "x"), 8, after=dict(reversed(row("1", "x").items()))),
        change("insert", row("1", "x"), 8, after={**row("1", "x"), "more": None}),
        change("update", row("1", "x"), 8, after=row("2", "x")),
        change("update", row("1", "x"), 8, after=row("1", None)),
        change("insert", row("1", "x"), 8, order_key={**PLAIN[0]["order_key"], "pos": Decimal(2**63)}),
    ],
)
def test_one_odd_change_makes_a_table_odd(odd):
    assert surveyed([*PLAIN, odd]) is None
    assert surveyed([*PLAIN, {**odd, "table": "other"}]) is not None


def test_truncates_are_plain_and_the_last_one_is_told():
    def emptied(pos: int) -> dict:
        return change("truncate", row("1", "x"), pos, key=None, before=None, after=None)

    found = surveyed([emptied(8), *PLAIN, emptied(3)])
    assert (found["changes"], found["deletes"], found["truncates"]) == (5, 1, 2)
    assert found["truncated"] == [0, 1, 8, 0, 0, 8]
    assert found["orders"] == [[0, 1, 3, 0, 0, 3], [0, 1, 8, 0, 0, 8]]
    assert surveyed([emptied(8)])["keys_range"] is None
    assert surveyed([emptied(8), change("insert", row("1", "x"), 9, after=None)]) is None


def test_truncates_alone_are_of_any_columns():
    """A TRUNCATE names no version of its table's columns, so a file notes it by itself."""
    table = full_images._table(("d", "t"), columns())
    at = [[0, 1, 9, 0, 0, 9]]
    alone = {"changes": 1, "deletes": 0, "truncates": 1, "truncated": at[0], "orders": at * 2, "keys_range": None}
    rows = {**table.as_noted(), "changes": 2, "deletes": 0, "orders": [[0, 1, 5, 0, 0, 5]] * 2, "keys_range": [3, 4]}
    groups = [{"db": "d", "table": "t", "plain": p} for p in (rows, alone)]
    found = full_images._noted(table, {file_at("/f"): groups})
    assert isinstance(found, full_images.FullImages)
    assert (found.figures.changes, found.figures.low_key, found.figures.high_key) == (3, 3, 4)
    assert tuple(map(int, found.figures.truncated_at)) == tuple(at[0])
    groups[1]["plain"] = None  # an earlier version noted nothing of it
    assert full_images._noted(table, {file_at("/f"): groups}) is None


def test_a_date_that_does_not_exist_is_no_key():
    """Of a delete, too, which has no image after it."""
    gone = row("1", "x", d="0000-00-00")
    told = change("delete", gone, 8, key={"a": "1", "d": gone["d"]})
    assert surveyed([told], columns(("a", "d"))) is None
    fine = change("delete", row("1", "x"), 8, key={"a": "1", "d": "2026-11-20"})
    assert surveyed([fine], columns(("a", "d")))["deletes"] == 1


def test_rows_that_came_into_a_table_without_a_key_are_plain_and_nothing_else_is():
    came = [change(op, row("1", "x"), pos, key=None, before=None) for op, pos in (("read", 7), ("insert", 5))]
    found = surveyed(came, columns(()))
    assert (found["changes"], found["deletes"], found["keys_range"]) == (2, 0, [5, 7]), "offsets are told, not keys"
    image = row("1", "x")
    partial = {"a": "1", "b": "x"}
    for odd in (
        change("update", image, 8, key=None),
        change("delete", image, 8, key=None),
        change("insert", image, 8, key=None, after=partial),
        change("insert", row("1", "x", d="2026-02-30"), 8, key=None),
    ):
        assert surveyed([*came, odd], columns(())) is None
    emptied = change("truncate", image, 9, key=None, before=None, after=None)
    found = surveyed([*came, emptied], columns(()))
    assert (found["changes"], found["truncated"]) == (3, [0, 1, 9, 0, 0, 9])


def test_tables_with_a_collation_are_not_asked_about():
    assert full_images._table(("d", "t"), [TableColumn("b", parse_type("varchar(9)"), True, "UTF8_LCASE")]) is None
    assert full_images._table(("d", "t"), columns()) is not None


@pytest.mark.parametrize(
    ("type_", "one", "others"),
    [
        ("bigint", ("0", "-1", "9223372036854775807"), ("00", "01", "-0", "+1", "1.0", "0x1", " 1", "")),
        ("bigint unsigned", ("18446744073709551615",), ("018446744073709551615",)),
        ("decimal(9,2)", ("0.00", "-1.50", "12.30"), ("1.5", "1", "01.50", "1.500", "+1.50", "-0.00", "1e2")),
        ("decimal(5)", ("5", "0"), ("5.0", "05")),
        ("date", ("2026-11-20",), ("2026-11-20 ", "20261120", "2026-1-20")),
        ("datetime(6)", ("2026-11-20 01:02:03", "2026-11-20 01:02:03.05"), ("2026-11-20 01:02:03.50",)),
        ("timestamp", ("2026-11-20 01:02:03Z",), ("2026-11-20 01:02:03+00:00", "2026-11-20T01:02:03Z")),
        ("varbinary(9)", ("", "AA==", "AAA=", "AAAA", "AAAAAQ=="), ("AB==", "AAB=", "AA", "AA=", "A A=")),
        ("varchar(9)", ("", "a\nb ", "é"), ()),
        ("year", ("1999",), ("01999",)),
    ],
)
def test_keys_are_plain_in_the_one_spelling_of_their_value(type_, one, others):
    cs = columns(("b",), b=type_)
    fine = [change("insert", row("1", text), 5, key={"b": text}) for text in one]
    assert surveyed(fine, cs)["changes"] == len(one)
    for text in others:
        assert surveyed([*fine, change("insert", row("1", text), 6, key={"b": text})], cs) is None, text
        told = change("insert", row("1", text), 6, key={"a": "1"})
        assert surveyed([told], columns(("a",), b=type_)) is not None or "date" in type_ or "time" in type_


@pytest.mark.parametrize("type_", ["float", "double", "bit(1)", "bit(9)", "boolean", "json", "point"])
def test_keys_whose_values_have_several_spellings_are_not_plain(type_):
    assert full_images._table(("d", "t"), columns(("b",), b=type_)) is None
    assert full_images._table(("d", "t"), columns(("a",), b=type_)) is not None


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ({}, True),
        ({"names": ["a"]}, False),
        ({"keys": ["a"]}, False),
        ({"spelled": ["", ""]}, False),  # the key had other types in that version
        ({"dates": []}, False),  # what is a date now wasn't one
        ({"dates": None}, None),  # a file from before that was noted
    ],
)
def test_notes_are_believed_where_they_are_of_the_same_table(noted, said):
    table = full_images._table(("d", "t"), columns())
    note = {**table.as_noted(), **noted}
    note |= {"changes": 1, "deletes": 0, "orders": [[0, 1, 5, 0, 0, 5]] * 2, "keys_range": None}
    note = {k: v for k, v in note.items() if v is not None or k == "keys_range"}
    found = full_images._noted(table, {file_at("/f"): [{"db": "d", "table": "t", "plain": note}]})
    assert (isinstance(found, full_images.FullImages) or found) == said


class Files:
    """Changelog files as workers write them."""

    def __init__(self, spark, folder):
        self.spark, self.path = spark, store_at(folder / "changelog")
        delta_sql.create(spark, self.path, tables.CHANGELOG.ddl, {}, "", ("source",))
        self.files = {}

    def add(self, *groups):
        """A file of row groups."""
        out = Output(Sink(self.path, CHANGELOG_FILE, (), (), (("source", "s"),)))
        for group in groups:
            out.write(batch(group))
            out.flush()
        self.files[File(self.path, out.close().path)] = None

    def folded(self, cs):
        """By fold.py, and by workers."""
        rows = delta_sql.rows_of(self.spark, self.path, list(self.files), source="s").where("db = 'd' AND table = 't'")
        figures = profile(rows, cs, told_keys=True)
        general = fold(rows, cs, figures, partial=False)
        found = full_images.survey(self.spark, self.files, {("d", "t"): cs})["d", "t"]
        assert found.figures == figures
        return general, full_images.fold(self.spark, found, cs)


def told(frame):
    return sorted(repr(r) for r in frame.collect())


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2))])
def test_workers_fold_as_spark_does(spark, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(data_files, "_BATCH_ROWS", 7)
    monkeypatch.setattr(latest_by_key, "_HELD", (20, 12)[seed // 2])  # there are 9 keys: windows are joined, or aren't
    monkeypatch.setattr(latest_by_key, "_PART_ROWS", (1000, 50)[seed % 2])
    monkeypatch.setattr(latest_by_key, "_STREAM_BYTES", (1 << 20, 300)[seed // 2])
    dice = random.Random(seed)
    files = Files(spark, tmp_path)
    pos = list(range(1, 400))
    if seed % 2:
        dice.shuffle(pos)  # a file whose changes don't stand in their order
    for _ in range(6):  # files, which are fewer tasks
        groups = []
        for _ in range(dice.choice((1, 3))):
            some = [pos.pop(0) for _ in range(dice.randrange(1, 40))]
            groups.append([_any(dice, p) for p in some])
        files.add(*groups)
    general, mine = files.folded(columns())
    assert mine.columns == general.columns
    assert len(told(general)) > 5
    assert told(mine) == told(general)


def _any(dice, pos):
    image = row(
        dice.choice("123"),
        dice.choice(("", "x", "é")),
        dice.choice((None, "2026-11-20", "0001-01-01", "9999-12-31")),
        dice.choice((None, "1970-01-01 00:00:00Z", "2026-11-20 01:02:03.000001Z")),
        dice.choice((None, "-0.00", "9999999999.99")),
    )
    found = change(dice.choice(("insert", "update", "delete", "read")), image, pos)
    return {**found, "table": dice.choice(("t", "t", "t", "other"))}


@pytest.mark.spark
def test_a_batch_comes_to_the_snapshot_by_workers(spark, make_config, monkeypatch):
    """And it does: the general way is closed."""
    shop = SourceTable("shop", "orders", [("id", "int"), ("at", "datetime"), ("note", "text")])
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    at = "2026-11-20 01:02:03"
    feed.say(shop.stated(), *(shop.insert((1, i), {"id": str(i), "at": at, "note": f"n{i}"}) for i in range(1, 9)))
    feed.say(
        shop.update((2, 1), {"id": "1", "at": at, "note": "n1"}, {"id": "1", "at": None, "note": "new"}),
        shop.delete((2, 2), {"id": "2", "at": at, "note": "n2"}),
        shop.insert((2, 3), {"id": "2", "at": at, "note": "again"}),
        shop.delete((2, 4), {"id": "3", "at": at, "note": "n3"}),
    )
    with monkeypatch.context() as closed:
        closed.setattr("cdc_platform.snapshots.table_batch.profile", None)
        closed.setattr("cdc_platform.snapshots.table_batch.fold", None)
        feed.catch_up()
        feed.say(shop.update((3, 1), {"id": "4", "at": at, "note": "n4"}, {"id": "4", "at": at, "note": "merged"}))
        feed.say(shop.delete((3, 2), {"id": "5", "at": at, "note": "n5"}))
        feed.catch_up()
    assert feed.state("shop", "orders") == ("live", None)
    rows = sorted((r["id"], r["note"], r["at"] is None) for r in feed.live("shop", "orders"))
    assert rows == [
        (1, "new", True),
        (2, "again", False),
        (4, "merged", False),
        *((i, f"n{i}", False) for i in (6, 7, 8)),
    ]
    assert {g["_k0"] for g in read(feed.target("shop", "orders").tombstones.uri()).to_pylist()} == {3, 5}
