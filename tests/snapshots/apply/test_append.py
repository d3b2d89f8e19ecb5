"""First loads written by workers: the rows are right, and Spark reads, prunes, merges and reshapes them as its own."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_platform.snapshots import together
from cdc_platform.snapshots.apply import merge
from cdc_platform.snapshots.reduce import full_images
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, SourceTable
from tests.lakes import store_at

pytestmark = pytest.mark.spark

WIDE = SourceTable(
    "shop",
    "wide",
    [
        ("id", "bigint"),
        ("Größe, (1)", "varchar(99)"),
        ("price", "decimal(12,2)"),
        ("rate", "float"),
        ("day", "date"),
        ("at", "datetime(6)"),
        ("stamp", "timestamp(6)"),
        ("on", "bit(1)"),
        ("raw", "varbinary(9)"),
        ("big", "bigint unsigned"),
        ("tiny", "tinyint"),
    ],
)
_NAMES = [n for n, _ in WIDE.columns]
_LONG = "a" * 31 + "é" + "z" * 40


def row(i, **cells):
    texts = (
        str(i),
        f"{_LONG}{i}",
        f"{i}.50",
        f"{i}.25",
        f"2026-01-{i:02d}",
        f"2026-01-{i:02d} 01:02:03.0009",
        f"2026-01-{i:02d} 01:02:03.0009Z",
        str(i % 2),
        "AA==",
        str(2**64 - i),
        str(-i),
    )
    return {**dict(zip(_NAMES, texts, strict=True)), **cells}


@pytest.fixture(autouse=True, scope="module")
def divided():
    """As with many changes: what each file of the changelog tells becomes a file of the snapshot."""
    with pytest.MonkeyPatch.context() as some:
        some.setattr(full_images, "_FEW", 1)
        some.setattr(together, "_FEW", 0)
        yield


@pytest.fixture
def feed(spark, make_config):
    return Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")


def _first(feed, *more):
    """Nine rows in three files of the changelog, of which one is deleted again."""
    feed.say(WIDE.stated(), *(WIDE.insert((1, i), row(i)) for i in (1, 2, 3)))
    feed.unify()
    feed.say(WIDE.stated(), *(WIDE.insert((1, i), row(i)) for i in (4, 5, 6)), WIDE.delete((1, 7), row(3)))
    feed.unify()
    feed.say(WIDE.stated(), *(WIDE.insert((1, i), row(i)) for i in (10, 11, 12)), *more)
    feed.unify()
    return feed.snapshot()


def _files(feed):
    path = feed.target("shop", "wide").snapshot.uri()
    return {p.relative_to(path).as_posix() for p in Path(path).rglob("*.parquet")}, set(DeltaTable(path).file_uris())


def _closed(monkeypatch):
    monkeypatch.setattr(merge, "apply", None)


def test_workers_write_the_first_rows_of_a_snapshot(feed, spark, monkeypatch):
    with monkeypatch.context() as closed:
        _closed(closed)
        _first(feed)
    there, named = _files(feed)
    assert len(there) == len(named) == 3
    found = delta_sql.read(spark, feed.target("shop", "wide").snapshot)
    made = spark.createDataFrame(
        [row(i) for i in (1, 2, 4, 5, 6, 10, 11, 12)], ", ".join(f"`{n}` STRING" for n in _NAMES)
    )
    casts = {"raw": "to_binary(raw, 'base64')"}
    types = {f.name: f.dataType.simpleString() for f in found.schema.fields}
    wanted = made.selectExpr(*(f"{casts.get(n, f'CAST(`{n}` AS {types[n]})')} AS `{n}`" for n in _NAMES))
    assert sorted(map(repr, found.select(*(f"`{n}`" for n in _NAMES)).collect())) == sorted(map(repr, wanted.collect()))
    orders = {r["id"]: r["pos"] for r in found.selectExpr("id", "_cdc_order.pos AS pos").collect()}
    assert orders == {i: i for i in (1, 2, 4, 5, 6, 10, 11, 12)}
    assert [t["_k0"] for t in feed.tombstones("shop", "wide")] == [3]


@pytest.mark.parametrize(
    ("condition", "ids", "files"),
    [
        ("id = 11", [11], 1),
        ("id BETWEEN 2 AND 4", [2, 4], 2),
        ("price > 11.49", [11, 12], 1),
        ("rate < 1.5", [1], 1),
        ("day >= DATE'2026-01-10'", [10, 11, 12], 1),
        ("at > TIMESTAMP_NTZ'2026-01-12 01:02:03.0008'", [12], 1),
        ("at >= TIMESTAMP_NTZ'2026-01-12 01:02:03.0009'", [12], 1),
        ("at < TIMESTAMP_NTZ'2026-01-02'", [1], 1),
        ("stamp >= TIMESTAMP'2026-01-12 01:02:03.0009Z'", [12], 1),
        ("stamp < TIMESTAMP'2026-01-02 00:00:00Z'", [1], 1),
        ("big = 18446744073709551606", [10], 1),
        ("tiny < -11", [12], 1),
        ("_cdc_order.pos = 5", [5], 1),
        ("`Größe, (1)` = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaé" + "z" * 40 + "12'", [12], 3),
        ("`Größe, (1)` > 'b'", [], 0),
        ("`Größe, (1)` IS NULL", [], 0),
    ],
)
def test_spark_finds_rows_by_what_the_log_tells_of_files(feed_once, spark, condition, ids, files):
    found = delta_sql.read(spark, feed_once.target("shop", "wide").snapshot).where(condition)
    assert sorted(r["id"] for r in found.collect()) == ids
    assert len(found.inputFiles()) == files


@pytest.fixture(scope="module")
def feed_once(spark, divided, tmp_path_factory):
    from cdc_platform.config import parse_config

    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    config = parse_config({"lake": str(tmp_path_factory.mktemp("lake")), "kafka": kafka, "sources": [source]})
    feed = Feed(spark, config, "s")
    _first(feed)
    return feed


@pytest.mark.thorough
def test_later_batches_merge_into_what_workers_wrote_and_ddl_reshapes_it(feed, spark):
    _first(feed)
    path = feed.target("shop", "wide").snapshot.uri()
    feed.say(WIDE.update((2, 1), row(1), row(1, price="0.01")), WIDE.delete((2, 2), row(12)))
    feed.say(WIDE.insert((2, 3), row(13, **{"Größe, (1)": None})))
    feed.catch_up()
    found = {r["id"]: r for r in delta_sql.read(spark, store_at(path)).collect()}
    assert sorted(found) == [1, 2, 4, 5, 6, 10, 11, 13]
    assert (str(found[1]["price"]), str(found[2]["price"]), found[13]["Größe, (1)"]) == ("0.01", "2.50", None)
    spark.sql(f"ALTER TABLE {delta_sql.delta(store_at(path))} RENAME COLUMN tiny TO small")
    spark.sql(f"ALTER TABLE {delta_sql.delta(store_at(path))} DROP COLUMN raw")
    spark.sql(f"OPTIMIZE {delta_sql.delta(store_at(path))}")
    rows = {r["id"]: r for r in delta_sql.read(spark, store_at(path)).collect()}
    assert {i: r["small"] for i, r in rows.items()} == {i: -i for i in found}
    assert rows[4]["at"] == found[4]["at"]


@pytest.mark.thorough
def test_what_workers_cannot_read_is_sparks_to_read(feed, monkeypatch):
    asked = []
    apply = merge.apply
    monkeypatch.setattr(merge, "apply", lambda *a, **k: (asked.append(1), apply(*a, **k)))
    _first(feed, WIDE.insert((1, 13), row(13, tiny="+7")))
    assert asked
    assert {r["id"]: r["tiny"] for r in feed.live("shop", "wide")}[13] == 7
    there, named = _files(feed)
    assert len(named) == 3
    assert len(there) <= 5  # those of tasks that had no such text stay until VACUUM


@pytest.mark.thorough
def test_a_value_that_does_not_fit_stops_the_table_with_its_reason(feed):
    _first(feed, WIDE.insert((1, 13), row(13, tiny="128")))
    state, reason = feed.state("shop", "wide")
    assert (state, "128" in reason) == ("stopped", True)
    assert feed.live("shop", "wide") == []


@pytest.mark.thorough
def test_a_batch_done_again_changes_nothing(feed):
    _first(feed)
    kept = feed.kept("shop", ["wide"])
    feed.forget_last_commit("snapshots")
    feed.snapshot()
    assert feed.kept("shop", ["wide"]) == kept
