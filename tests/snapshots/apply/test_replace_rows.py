"""Rows that changes take the place of, found by key and marked by workers: Spark then reads what MERGE would leave."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from cdc_platform.lake import commits, deletion_vectors
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.snapshots import together
from cdc_platform.snapshots.apply import prepare, replace_rows
from cdc_platform.snapshots.apply.replace_rows import DataFile, Keep, Keys, Mark
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, SourceTable
from tests.lakes import file_at, store_at

# Workers' part: no Spark.

VALUES = {
    pa.int64(): lambda i: i - 5,
    pa.int8(): lambda i: i,
    pa.string(): lambda i: f"k{i}",
    pa.binary(): lambda i: bytes([i]),
    pa.decimal128(12, 2): lambda i: Decimal(i) / 4,
    pa.decimal128(20, 0): Decimal,
    pa.date32(): lambda i: date(2026, 1, 1) + timedelta(i),
    pa.timestamp("us"): lambda i: datetime(2026, 1, 1) + timedelta(microseconds=i),
    pa.timestamp("us", "UTC"): lambda i: datetime(2026, 1, 1) + timedelta(microseconds=i),
}


NONE = file_at("/none")


def write(path, schema, rows, group):
    columns = [pa.array([r[i] for r in rows], f.type) for i, f in enumerate(schema)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, row_group_size=group)
    return file_at(path)


def found(keys, files):
    out = {}
    for batch in replace_rows.rows_of(keys, files):
        for file, row_ in zip(batch.column("file").to_pylist(), batch.column("at").to_pylist(), strict=True):
            out.setdefault(file, set()).add(row_)
    return {file: sorted(rows_) for file, rows_ in out.items()}


_PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=60)


@pytest.mark.parametrize("type_", VALUES, ids=str)
@pytest.mark.parametrize("width", [1, 2])
@settings(deadline=None, max_examples=15)
@given(rows=_PAIRS, keys=_PAIRS, group=st.integers(1, 20), at_once=st.integers(1, 70))
def test_rows_are_those_whose_key_is_among_the_keys(tmp_path_factory, type_, width, rows, keys, group, at_once):
    folder = tmp_path_factory.mktemp("m")
    schema = pa.schema([("a", type_), ("b", pa.string()), ("c", pa.int32())])
    there = [(VALUES[type_](a), f"b{b}", i) for i, (a, b) in enumerate(rows)]
    wanted = [(VALUES[type_](a), f"b{b}") for a, b in keys]
    half = len(wanted) // 2
    names = ("a", "b")[:width]
    other = pa.schema([("k0", type_), ("k1", pa.string())][:width])
    files = [
        (write(folder / "1", schema, [(*k, 0) for k in wanted[:half]], group), names),
        (write(folder / "2", other, [k[:width] for k in wanted[half:]], group), tuple(other.names)),
    ]
    path = write(folder / "t", schema, there, group)
    with pytest.MonkeyPatch.context() as some:
        some.setattr(replace_rows, "_KEYS", at_once)
        some.setattr(replace_rows, "_ROWS", at_once)
        got = found(Keys(tuple(files), pa.schema([schema.field(n) for n in names])), [DataFile(7, path, 0, 0, None)])
    asked = {k[:width] for k in wanted}
    assert got == ({7: at} if (at := [r[2] for r in there if r[:width] in asked]) else {})


def test_row_groups_without_a_key_are_not_read(tmp_path, monkeypatch):
    schema = pa.schema([("a", pa.int64())])
    path = write(tmp_path / "t", schema, [(i,) for i in range(100)], 10)
    keys = Keys(((write(tmp_path / "k", schema, [(3,), (95,)], 10), ("a",)),), schema)
    read, groups = replace_rows.read, []
    monkeypatch.setattr(replace_rows, "read", lambda unit, *a, **k: (groups.append(unit), read(unit, *a, **k))[1])
    assert found(keys, [DataFile(0, path, 100, 0, None)]) == {0: [3, 95]}
    assert [u.first for u in groups if u.file == path] == [0, 9]


def test_nulls_and_columns_that_a_file_lacks_are_no_keys(tmp_path):
    schema = pa.schema([("a", pa.int64())])
    lacks = write(tmp_path / "1", pa.schema([("z", pa.int64())]), [(1,)], 10)
    nulls = write(tmp_path / "2", schema, [(None,), (1,)], 10)
    keys = Keys(((write(tmp_path / "k", schema, [(1,)], 10), ("a",)),), schema)
    assert found(keys, [DataFile(0, lacks, 1, 0, None), DataFile(1, nulls, 2, 0, None)]) == {1: [1]}


def test_vectors_hold_what_did_not_count_before_and_only_new_rows_are_told(tmp_path):
    with deletion_vectors.Vectors(store_at(tmp_path)) as new:
        before = new.add(replace_rows.BitMap64([1, 2]))
    files = (
        DataFile(0, NONE, 5, 0, before),
        DataFile(1, NONE, 3, 0, None),
        DataFile(2, NONE, 3, 0, before),
        DataFile(3, NONE, 9, 0, None),
    )

    def batch(file, *at):
        return pa.RecordBatch.from_pydict({"file": [file] * len(at), "at": list(at)})

    told = Mark(store_at(tmp_path), files)(
        iter([batch(0, 4), batch(1, 2, 0), batch(2, 2), batch(0, 1, 3), batch(1, 1)]), {}
    )
    [first, second] = told
    assert (first[0], first[2], set(deletion_vectors.read(store_at(tmp_path), first[1]))) == (0, 2, {1, 2, 3, 4})
    assert second == [1, None, 3]


def test_of_files_with_rows_that_go_the_others_are_written_anew(tmp_path):
    schema = pa.schema([("a", pa.int64()), ("more", pa.string())])
    with deletion_vectors.Vectors(store_at(tmp_path)) as new:
        before = new.add(replace_rows.BitMap64([1]))
    paths = [
        write(tmp_path / "0", schema.remove(1), [(i,) for i in range(5)], 2),  # from before `more`
        write(tmp_path / "1", schema, [(i, "x") for i in (10, 11)], 2),
        write(tmp_path / "2", schema, [(i, "y") for i in (20, 21, 22)], 2),
        write(tmp_path / "3", schema, [(30, "z")], 2),
    ]
    files = tuple(DataFile(i, path, 0, 0, before if i in (0, 2) else None) for i, path in enumerate(paths))

    def batch(file, *at):
        return pa.RecordBatch.from_pydict({"file": [file] * len(at), "at": list(at)})

    out = Output(Sink(store_at(tmp_path), schema, ("a",), ()))
    given = [batch(0, 3), batch(1, 0), batch(2, 1), batch(0, 1, 4), batch(1, 1)]
    told = Keep(store_at(tmp_path), files)(iter(given), {"kept": out})
    assert told == [[0, None, 2], [1, None, 2]]  # of the third file that row didn't count before
    written = out.close()
    assert written is not None
    assert pq.read_table(tmp_path / written.path).to_pylist() == [{"a": 0, "more": None}, {"a": 2, "more": None}]


@pytest.mark.parametrize(
    ("told", "ends", "may"),
    [
        ({"minValues": {"c": 1}, "maxValues": {"c": 5}}, (5, 9), True),
        ({"minValues": {"c": 1}, "maxValues": {"c": 5}}, (6, 9), False),
        ({"minValues": {"c": 10}, "maxValues": {"c": 50}}, (6, 9), False),
        ({"minValues": {"c": "b"}, "maxValues": {"c": "c"}}, ("a", "b"), True),
        ({"minValues": {"c": "b"}, "maxValues": {"c": "c"}}, ("d", "z"), False),
        ({"minValues": {"c": "b"}, "maxValues": {"c": "c\U0010ffff"}}, ("cz", "d"), True),
        ({"minValues": {"c": "b"}, "maxValues": {"c": "c"}}, (None, None), True),
        ({"minValues": {"c": 1}, "maxValues": {"c": 5}}, ("6", "9"), True),
        ({"minValues": {}, "maxValues": {}}, (6, 9), True),
        ({}, (6, 9), True),
    ],
)
def test_files_whose_lowest_and_highest_key_is_beyond_the_batch_are_not_read(told, ends, may):
    assert replace_rows._may_meet(told, "c", ends) is may


# All of it, held against MERGE.

KEYS = {
    "int": ("int", str),
    "unsigned": ("bigint unsigned", lambda i: str(2**64 - 1 - i)),
    "text": ("varchar(99)", lambda i: "é" * 40 + str(i)),
    "binary": (
        "varbinary(9)",
        lambda i: ["AA==", "AQ==", "Ag==", "Aw==", "BA==", "BQ==", "Bg==", "Bw==", "CA==", "CQ=="][i],
    ),
    "decimal": ("decimal(12,2)", lambda i: f"{i}.50"),
    "date": ("date", lambda i: f"1000-01-0{i + 1}"[:10] if i < 9 else "9999-12-31"),
    "datetime": ("datetime(6)", lambda i: f"2026-01-01 00:00:00.00000{i}" if i else "2026-01-01 00:00:00"),
    "timestamp": ("timestamp(6)", lambda i: f"2026-01-01 00:00:00.00000{i}Z" if i else "2026-01-01 00:00:00Z"),
    "enum": ("enum('0','1','2','3','4','5','6','7','8','9')", str),
}


def one(kind, name="t"):
    return SourceTable("shop", name, [("id", KEYS[kind][0]), ("n", "int"), ("note", "text")])


TWO = SourceTable("shop", "two", [("note", "text"), ("b", "varchar(9)"), ("id", "int"), ("n", "int")], ("id", "b"))


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """As with many changes: each table goes its own way."""
    monkeypatch.setattr(together, "_FEW", 0)


@pytest.fixture
def marking(brought, monkeypatch):
    """The same of tables that are taken for large."""
    monkeypatch.setattr(prepare.features, "SMALL", 0)
    return brought


@pytest.fixture
def brought(monkeypatch):
    """Which batches were brought in by workers."""
    kept, done = replace_rows.replace, []

    def replace(*a, **k):
        done.append(kept(*a, **k))
        return done[-1]

    monkeypatch.setattr(replace_rows, "replace", replace)
    return done


def feeds(spark, make_config, tmp_path, *names):
    """Sources with the same feed, each with a lake of its own."""
    for name in names:
        config = make_config([{"name": "s", "format": "debezium", "topics": ["t"]}], lake=str(tmp_path / name))
        yield Feed(spark, config, "s")


def batches(table, cells):
    """Four batches: new rows; updates, deletes, what was deleted comes again, some keys twice; deletes of all."""

    def row(i, n):
        cells_ = {**cells(i), "n": str(n), "note": f"{'x' * 50}{n}"}
        return {name: cells_[name] for name, _ in table.columns}

    yield [table.insert((1, 10 + i), row(i, 0)) for i in range(7)]
    yield [
        table.update((2, 10), row(1, 0), row(1, 1)),
        table.update((2, 11), row(1, 1), row(1, 2)),
        table.delete((2, 12), row(2, 0)),
        table.delete((2, 13), row(3, 0)),
        table.insert((2, 14), row(3, 3)),
        table.insert((2, 15), row(8, 4)),
    ]
    yield [
        table.insert((3, 10), row(2, 5)),
        table.delete((3, 11), row(8, 4)),
        table.update((3, 12), row(0, 0), row(0, 6)),
    ]
    yield [table.delete((4, 10 + i), row(i, 9)) for i in range(7)]


def _said(tables):
    """The batches of all tables together: events, and per table those that tell of its rows."""
    of_tables = zip(*(batches(table, cells) for table, cells in tables), strict=True)
    for some in of_tables:
        yield [*(t.stated() for t, _ in tables), *(event for events in some for event in events)], some


def _after(rows, table, events):
    """Rows by key after some events."""
    for event in events:
        key = tuple(event["key"][k] for k in table.keys) if event["key"] else None
        rows.pop(key, None)
        if (now := event["after"]) is not None:
            rows[tuple(now[k] for k in table.keys)] = (now["n"], now["note"])
    return rows


@pytest.mark.thorough
@pytest.mark.spark
def test_keys_of_all_types_are_found(spark, make_config, tmp_path, brought):
    """The first two batches; what the others bring as well does not depend on the type."""
    tables = [(one(kind, kind), lambda i, kind=kind: {"id": KEYS[kind][1](i)}) for kind in KEYS]
    [feed] = feeds(spark, make_config, tmp_path, "lake")
    told = {table.name: {} for table, _ in tables}
    for number, (events, of_tables) in enumerate(islice(_said(tables), 2)):
        feed.say(*events)
        feed.catch_up()
        assert brought == [True] * (number * len(tables))
        for (table, _), some in zip(tables, of_tables, strict=True):
            wanted = sorted(_after(told[table.name], table, some).values())
            assert sorted((str(r["n"]), r["note"]) for r in feed.live("shop", table.name)) == wanted
    rows = [
        delta_sql.read(spark, feed.target("shop", kind).snapshot).selectExpr(f"'{kind}' AS kind", "n", "note")
        for kind in KEYS
    ]
    by_spark = reduce(DataFrame.unionAll, rows).collect()
    assert sorted((r["kind"], str(r["n"]), r["note"]) for r in by_spark) == sorted(
        (kind, *row) for kind, there in told.items() for row in there.values()
    )


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.parametrize("small", [0, prepare.features.SMALL])
def test_what_workers_bring_in_is_what_merge_brings_in(spark, make_config, tmp_path, brought, monkeypatch, small):
    monkeypatch.setattr(prepare.features, "SMALL", small)
    tables = [(one("text", "text"), lambda i: {"id": KEYS["text"][1](i)})]
    tables.append((TWO, lambda i: {"id": str(i % 4), "b": f"b{i}"}))
    names = [t.name for t, _ in tables]
    ours, merged = feeds(spark, make_config, tmp_path, "ours", "merged")
    for number, (events, _) in enumerate(_said(tables)):
        for feed in (ours, merged):
            feed.say(*events)
            feed.unify()
        ours.snapshot()
        with monkeypatch.context() as spark_alone:
            spark_alone.setattr("cdc_platform.snapshots.table_batch.load", lambda *_, **__: False)
            merged.snapshot()
        assert brought == [True] * (number * len(tables))
        for read in (_by_spark(spark, names), lambda feed: feed.kept("shop", names)):
            assert read(ours) == read(merged)
    vectors_ = [p for name in names for p in Path(ours.target("shop", name).snapshot.uri()).glob("deletion_vector_*")]
    assert bool(vectors_) is (small == 0)
    assert [ours.live("shop", name) for name in names] == [[]] * len(names)
    for name in names:
        assert merged.state("shop", name) == ours.state("shop", name) == ("live", None)


def _by_spark(spark, names):
    return lambda feed: [
        sorted(map(repr, delta_sql.read(spark, feed.target("shop", name).snapshot).collect())) for name in names
    ]


ONE = one("int")


def row(i: int, n: Any = 0, **more: Any) -> dict[str, Any]:
    return {"id": str(i), "n": str(n), "note": "x" * 50, **more}


@pytest.fixture
def feed(spark, make_config, tmp_path):
    [feed] = feeds(spark, make_config, tmp_path, "lake")
    feed.say(ONE.stated(), *(ONE.insert((1, 10 + i), row(i)) for i in range(9)))
    feed.catch_up()
    return feed


def _rows(feed):
    return {r["id"]: r["n"] for r in feed.live("shop", "t")}


@pytest.mark.thorough
@pytest.mark.spark
def test_a_batch_done_again_changes_nothing(feed, marking):
    feed.say(
        ONE.stated(), ONE.update((2, 1), row(1), row(1, 5)), ONE.delete((2, 2), row(2)), ONE.insert((2, 3), row(11))
    )
    feed.catch_up()
    kept = feed.kept("shop", ["t"])
    feed.forget_last_commit("snapshots")
    feed.snapshot()
    assert feed.kept("shop", ["t"]) == kept
    assert marking == [True]  # the second time there is nothing older


@pytest.mark.spark
def test_a_batch_killed_between_tombstones_and_rows_is_done_again(feed, marking, monkeypatch):
    feed.say(ONE.stated(), ONE.update((2, 1), row(1), row(1, 5)), ONE.delete((2, 2), row(2)))
    feed.unify()
    with monkeypatch.context() as killed, pytest.raises(RuntimeError):
        killed.setattr(commits, "commit", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("killed")))
        feed.snapshot()
    assert [t["_k0"] for t in feed.tombstones("shop", "t")] == [2]
    assert len(_rows(feed)) == 9
    feed.snapshot()
    assert _rows(feed) == {i: 5 if i == 1 else 0 for i in range(9) if i != 2}
    assert [t["_k0"] for t in feed.tombstones("shop", "t")] == [2]


@pytest.mark.thorough
@pytest.mark.spark
def test_rows_of_a_commit_that_came_in_between_are_looked_at_again(feed, spark, marking, monkeypatch):
    path = feed.target("shop", "t").snapshot.uri()
    commit, tried = commits.commit, []

    def second(*a, **k):
        tried.append(1)
        if len(tried) == 1:  # all files are others now
            spark.sql(f"UPDATE {delta_sql.delta(store_at(path))} SET note = 'new' WHERE true")
        return commit(*a, **k)

    monkeypatch.setattr(commits, "commit", second)
    feed.say(ONE.stated(), ONE.update((2, 1), row(1), row(1, 5)))
    feed.catch_up()
    assert len(tried) == 2
    assert marking == [True]
    assert _rows(feed) == {i: 5 if i == 1 else 0 for i in range(9)}
    assert {r["note"] for r in feed.live("shop", "t")} == {"new", "x" * 50}


@pytest.mark.thorough
@pytest.mark.spark
def test_where_others_write_all_the_time_merge_takes_the_batch(feed, marking, monkeypatch):
    monkeypatch.setattr(commits, "commit", lambda *_, **__: False)
    feed.say(ONE.stated(), ONE.update((2, 1), row(1), row(1, 5)), ONE.delete((2, 2), row(2)))
    feed.catch_up()
    assert marking == [False]
    assert _rows(feed) == {i: 5 if i == 1 else 0 for i in range(9) if i != 2}
    assert [t["_k0"] for t in feed.tombstones("shop", "t")] == [2]


@pytest.mark.thorough
@pytest.mark.spark
def test_changes_older_than_what_is_there_are_for_merge(feed, marking):
    feed.say(ONE.stated(), ONE.update((3, 1), row(1), row(1, 5)))
    feed.catch_up()
    late = ONE.update((2, 1), row(1), row(1, 4), partition=1)
    feed.say(ONE.stated(), late, ONE.update((3, 2), row(2), row(2, 6)))
    feed.catch_up()
    assert marking == [True]
    assert _rows(feed) == {i: {1: 5, 2: 6}.get(i, 0) for i in range(9)}


@pytest.mark.thorough
@pytest.mark.spark
def test_what_spark_marked_before_stays_marked_and_spark_marks_after(feed, spark, marking):
    path = feed.target("shop", "t").snapshot.uri()
    spark.sql(
        f"ALTER TABLE {delta_sql.delta(store_at(path))} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"DELETE FROM {delta_sql.delta(store_at(path))} WHERE id IN (3, 4)")
    feed.say(ONE.stated(), ONE.update((2, 1), row(1), row(1, 5)))
    feed.catch_up()
    spark.sql(f"DELETE FROM {delta_sql.delta(store_at(path))} WHERE id = 7")
    assert _rows(feed) == {i: 5 if i == 1 else 0 for i in range(9) if i not in (3, 4, 7)}
    spark.sql(f"OPTIMIZE {delta_sql.delta(store_at(path))}")
    spark.sql(f"REORG TABLE {delta_sql.delta(store_at(path))} APPLY (PURGE)")
    assert _rows(feed) == {i: 5 if i == 1 else 0 for i in range(9) if i not in (3, 4, 7)}
    feed.say(ONE.stated(), ONE.update((3, 1), row(5), row(5, 6)))
    feed.catch_up()
    assert _rows(feed)[5] == 6
    assert marking == [True, True]


@pytest.mark.thorough
@pytest.mark.spark
def test_a_table_whose_changes_others_follow_is_left_to_spark(feed, spark, marking):
    path = feed.target("shop", "t").snapshot.uri()
    spark.sql(
        f"ALTER TABLE {delta_sql.delta(store_at(path))} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    version = DeltaTable(path).version() + 1
    feed.say(ONE.stated(), ONE.update((2, 1), row(1), row(1, 5)))
    feed.catch_up()
    assert marking == []
    feed_of = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(path)
    assert sorted(r["_change_type"] for r in feed_of.collect()) == ["update_postimage", "update_preimage"]


@pytest.mark.thorough
@pytest.mark.spark
def test_a_new_column_of_the_source_is_there_in_rows_before_and_after(feed, marking):
    wide = SourceTable("shop", "t", [*ONE.columns, ("more", "int")])
    feed.say(
        wide.stated(),
        wide.update((2, 1), row(1), row(1, 5, more="9")),
        wide.update((2, 2), row(2), row(2, 6, more="8")),
    )
    feed.catch_up()
    feed.say(wide.stated(), wide.update((3, 1), row(2, more="8"), row(2, 7, more="7")))
    feed.catch_up()
    assert {r["id"]: (r["n"], r["more"]) for r in feed.live("shop", "t")} == {
        i: {1: (5, 9), 2: (7, 7)}.get(i, (0, None)) for i in range(9)
    }
    assert marking == [True, True]


@pytest.mark.thorough
@pytest.mark.spark
def test_a_text_that_is_sparks_to_read_leaves_the_batch_to_spark(feed, marking):
    feed.say(ONE.stated(), ONE.update((2, 1), row(1), row(1, "+5")), ONE.delete((2, 2), row(2)))
    feed.catch_up()
    assert marking == []
    assert _rows(feed) == {i: 5 if i == 1 else 0 for i in range(9) if i != 2}
    assert [t["_k0"] for t in feed.tombstones("shop", "t")] == [2]


@pytest.mark.thorough
@pytest.mark.spark
def test_a_small_table_is_written_anew_and_stays_few_files(feed, brought):
    for n in range(1, 6):
        feed.say(ONE.stated(), ONE.update((n + 1, 1), row(n, 0), row(n, n)), ONE.insert((n + 1, 2), row(20 + n)))
        feed.catch_up()
    path = feed.target("shop", "t").snapshot.uri()
    assert brought == [True] * 5
    assert list(Path(path).glob("deletion_vector_*")) == []
    assert len(DeltaTable(path).file_uris()) <= 6
    assert _rows(feed) == {**{i: i if i < 6 else 0 for i in range(9)}, **dict.fromkeys(range(21, 26), 0)}


@pytest.mark.spark
def test_a_small_increment_is_one_file_and_one_vector(feed, marking):
    path = feed.target("shop", "t").snapshot.uri()
    feed.say(ONE.stated(), ONE.update((2, 1), row(1), row(1, 5)))
    feed.unify()
    feed.say(ONE.stated(), ONE.update((2, 2), row(2), row(2, 5)))
    feed.unify()
    feed.snapshot()
    assert marking == [True]
    assert len(list(Path(path).rglob("*.parquet"))) == 2 + len(list(Path(path).rglob("*.checkpoint.parquet")))
    assert len(list(Path(path).glob("deletion_vector_*.bin"))) == 1
    [told] = DeltaTable(path).history(1)
    assert json.loads(json.dumps(told["operationMetrics"]))["numTargetRowsReplacedOrDeleted"] == "2"
