"""Column mapping and deletion vectors come when a table first needs them, and never with `tables.readers: any`."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform.errors import ConfigError
from cdc_platform.snapshots.apply import append, replace_rows
from cdc_platform.snapshots.run import rebuild
from cdc_platform.snapshots.schema import features
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, SourceTable, position
from tests.reading import protocol

spark_test = pytest.mark.spark

T = SourceTable("shop", "t", [("id", "bigint"), ("a", "int"), ("b", "varchar(9)")])
ANY, FAST = {"shop.*": "any"}, {"shop.*": "fast"}
NEITHER = {"columnMapping", "deletionVectors"}


def cell(i: int, a: Any = 0, **more: Any) -> dict[str, Any]:
    return {"id": str(i), "a": str(a), "b": f"b{i}", **more}


def ddl(sql: str, pos: int) -> dict[str, Any]:
    return {"kind": "ddl", "db": "shop", "ddl": sql, **position(1, pos)}


@pytest.fixture
def feed(spark: Any, make_config: Any) -> Any:
    """`feed(readers)`: the same lake, from configurations with these `tables.readers`."""

    def make(readers: dict[str, str]) -> Feed:
        source = {"name": "s", "format": "debezium", "topics": ["t"], "tables": {"readers": readers}}
        return Feed(spark, make_config([source]), "s", *_COUNTS)

    from itertools import count

    _COUNTS = (count(), count(), count())
    return make


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is taken for large."""
    monkeypatch.setattr(features, "SMALL", 0)


def named(feed: Feed, table: str = "t", version: int | None = None) -> set[str]:
    """Which of the two features a snapshot's protocol names."""
    protocol = DeltaTable(feed.target("shop", table).snapshot.uri(), version=version).protocol()
    every = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    assert (protocol.min_reader_version == 1) is not bool(every & {*NEITHER, "timestampNtz"})
    return every & NEITHER


def vectors(feed: Feed, table: str = "t") -> list[Path]:
    return list(Path(feed.target("shop", table).snapshot.uri()).glob("deletion_vector_*"))


def seen(feed: Feed, table: str = "t") -> list[list[Any]]:
    """Rows as Spark reads them; delta-rs must read the same."""
    rows = delta_sql.read(feed.spark, feed.target("shop", table).snapshot)
    names = [n for n in rows.columns if not n.startswith("_cdc_")]
    found = sorted(([r[n] for n in names] for r in rows.collect()), key=str)
    assert found == sorted((list(r.values()) for r in feed.live("shop", table)), key=str)
    return found


@spark_test
@pytest.mark.parametrize(
    "readers",
    [{}, *(pytest.param(r, marks=pytest.mark.thorough) for r in (FAST, ANY))],
    ids=["default", "fast", "any"],
)
def test_a_small_table_without_renames_has_neither(feed: Any, readers: dict[str, str]) -> None:
    one = feed(readers)
    one.say(T.stated(), *(T.insert((1, 10 + i), cell(i)) for i in range(4)))
    one.catch_up()
    one.say(T.update((1, 20), cell(1), cell(1, 5)), T.delete((1, 21), cell(2)))
    one.catch_up()
    wide = SourceTable("shop", "t", [*T.columns, ("at", "datetime(6)")])
    one.say(wide.stated(), wide.insert((1, 30), cell(9, at="2026-01-01 00:00:00")))
    one.catch_up()
    assert named(one) == set()
    assert [r[:2] for r in seen(one)] == [[0, 0], [1, 5], [3, 0], [9, 0]]


@pytest.mark.thorough
@spark_test
@pytest.mark.usefixtures("large")
def test_vectors_come_with_the_first_row_that_changes_and_never_for_any(feed: Any, monkeypatch: Any) -> None:
    fast = feed({"shop.u": "any"})
    u = SourceTable("shop", "u", T.columns)
    for t in (T, u):
        fast.say(t.stated(), *(t.insert((1, 10 + i), cell(i)) for i in range(5)))
    fast.catch_up()
    fast.say(*(t.insert((1, 20), cell(8)) for t in (T, u)))
    fast.catch_up()
    assert named(fast) == named(fast, "u") == set()  # nothing took a row's place
    kept, done = replace_rows.replace, []
    monkeypatch.setattr(append.replace_rows, "replace", lambda *a, **k: (done.append(kept(*a, **k)), done[-1])[1])
    for n in (1, 2):
        fast.say(*(t.update((1, 20 + n), cell(n), cell(n, 7)) for t in (T, u)))
        fast.catch_up()
        assert (named(fast), named(fast, "u")) == ({"deletionVectors"}, set())
        assert (len(vectors(fast)), len(vectors(fast, "u"))) == (n, 0)
    assert done and all(done)  # the first; then the tables go together
    late = [t.update((1, 15), cell(3), cell(3, 4), partition=1) for t in (T, u)]  # older than what is there: MERGE
    fast.say(*late)
    fast.catch_up()
    assert (named(fast), named(fast, "u"), vectors(fast, "u")) == ({"deletionVectors"}, set(), [])
    assert seen(fast) == seen(fast, "u") == [[i, {1: 7, 2: 7, 3: 4}.get(i, 0), f"b{i}"] for i in (0, 1, 2, 3, 4, 8)]


@pytest.mark.thorough
@spark_test
@pytest.mark.usefixtures("large")
def test_a_table_without_a_key_is_marked_from_its_first_delete_on(feed: Any) -> None:
    bare = SourceTable("shop", "t", T.columns, ())
    one = feed({"shop.u": "any"})
    u = SourceTable("shop", "u", T.columns, ())
    for t in (bare, u):
        one.say(t.stated(), *(t.insert((1, 10 + i), cell(i)) for i in range(4)))
    one.catch_up()
    assert named(one) == named(one, "u") == set()
    one.say(*(t.delete((1, 20), cell(2)) for t in (bare, u)))
    one.catch_up()
    assert (named(one), named(one, "u"), vectors(one, "u")) == ({"deletionVectors"}, set(), [])
    assert seen(one) == seen(one, "u") == [[i, 0, f"b{i}"] for i in (0, 1, 3)]


@pytest.mark.thorough
@spark_test
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("readers", [FAST, ANY], ids=["fast", "any"])
def test_renames_and_drops(feed: Any, readers: dict[str, str]) -> None:
    """Files from before keep their columns; workers and MERGE write beside them."""
    one = feed(readers)
    one.say(T.stated(), *(T.insert((1, 10 + i), cell(i)) for i in range(4)))
    one.catch_up()
    version = DeltaTable(one.target("shop", "t").snapshot.uri()).version()
    one.say(ddl("ALTER TABLE t CHANGE a n INT, DROP b, ADD c VARCHAR(9) DEFAULT 'new' FIRST", 20))
    one.say(ddl("ALTER TABLE t ADD b INT", 21))
    new = SourceTable("shop", "t", [("c", "varchar(9)"), ("id", "bigint"), ("n", "int"), ("b", "int")])

    def row(i: int, n: int, b: int | None = None) -> dict[str, Any]:
        return {"c": "new", "id": str(i), "n": str(n), "b": None if b is None else str(b)}

    one.say(new.stated(), new.update((1, 30), row(1, 0), row(1, 5, 6)), new.insert((1, 31), row(9, 9)))
    one.catch_up()
    expected = [["new", i, {1: 5, 9: 9}.get(i, 0), {1: 6}.get(i)] for i in (0, 1, 2, 3, 9)]
    assert seen(one) == expected
    one.say(new.update((1, 25), row(2, 0), row(2, 3)), new.update((1, 40), row(3, 0), row(3, 8)))
    one.catch_up()
    assert seen(one) == [[c, i, {2: 3, 3: 8}.get(i, n), b] for c, i, n, b in expected]
    assert named(one) == (NEITHER if readers == FAST else set())
    assert bool(vectors(one)) is (readers == FAST)
    old = delta_sql.read(one.spark, one.target("shop", "t").snapshot)
    before = one.spark.read.format("delta").option("versionAsOf", version).load(one.target("shop", "t").snapshot.uri())
    assert before.columns[:3] == ["id", "a", "b"] and before.count() == 4
    assert old.columns[:4] == ["c", "id", "n", "b"]


@pytest.mark.thorough
@spark_test
@pytest.mark.parametrize("readers", [FAST, ANY], ids=["fast", "any"])
def test_names_that_only_column_mapping_allows(feed: Any, readers: dict[str, str]) -> None:
    """There is no other way to keep them: then also for any reader."""
    odd = SourceTable("shop", "t", [("id", "bigint"), ("a b", "int"), ("{c},;(d)=\t\n", "int"), ("e.`f`", "int")])
    one = feed(readers)
    later = SourceTable("shop", "later", T.columns)
    by_ddl = SourceTable("shop", "by_ddl", T.columns)
    one.say(odd.stated(), odd.insert((1, 10), {"id": "1", "a b": "2", "{c},;(d)=\t\n": "3", "e.`f`": "4"}))
    for i, t in enumerate((later, by_ddl)):
        one.say(t.stated(), t.insert((1, 11 + i), cell(1)))
    one.catch_up()
    assert (named(one), named(one, "later"), named(one, "by_ddl")) == ({"columnMapping"}, set(), set())
    wide = SourceTable("shop", "later", [*T.columns, ("more of it", "int")])
    one.say(wide.stated(), wide.insert((1, 20), cell(2, **{"more of it": "3"})))
    one.say(ddl("ALTER TABLE by_ddl CHANGE a `a (new)` INT", 21))
    one.catch_up()
    assert all(named(one, t) == {"columnMapping"} for t in ("t", "later", "by_ddl"))
    assert seen(one) == [[1, 2, 3, 4]]
    assert seen(one, "later") == [[1, 0, "b1", None], [2, 0, "b2", 3]]
    assert [list(r) for r in one.live("shop", "by_ddl")] == [["id", "a (new)", "b"]]


def _earlier(feed: Feed) -> None:
    """As an earlier version made tables: mapped from the first, vectors once they were large."""
    feed.say(T.stated(), *(T.insert((1, 10 + i), cell(i)) for i in range(4)))
    feed.unify()
    made, needs = features.at_creation, features.needs_mapping
    features.needs_mapping = lambda _: True
    features.at_creation = lambda _: {  # type: ignore[assignment]
        "delta.columnMapping.mode": "name",
        "delta.feature.deletionVectors": "supported",
        "delta.enableDeletionVectors": "true",
    }
    try:
        feed.snapshot()
    finally:
        features.at_creation, features.needs_mapping = made, needs
    feed.say(T.update((1, 20), cell(1), cell(1, 5)))
    feed.catch_up()
    assert named(feed) == NEITHER and len(vectors(feed)) == 1


@spark_test
@pytest.mark.thorough
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_tables_of_earlier_versions(feed: Any, killed: bool, monkeypatch: Any) -> None:
    """They go on as they are. For any reader they become plain with the next change, and workers go on writing them."""
    old = feed({})
    _earlier(old)
    old.say(T.update((1, 30), cell(2), cell(2, 6)))
    old.catch_up()
    assert named(old) == NEITHER
    assert [r[1] for r in seen(old)] == [0, 5, 6, 0]
    plain = feed(ANY)
    plain.say(T.update((1, 40), cell(3), cell(3, 7)), T.insert((1, 41), cell(4)))
    if killed:
        kept, steps = features._set, []
        with monkeypatch.context() as broken, pytest.raises(RuntimeError):

            def step(*a: Any, **_: str) -> None:
                steps.append(a)
                raise RuntimeError("killed")

            broken.setattr(features, "_set", step)
            plain.catch_up()
        assert steps and kept is features._set
        assert named(plain) == {"columnMapping"}
        assert [r[1] for r in seen(plain)] == [0, 5, 6, 0]
    plain.catch_up()
    expected = [[i, {1: 5, 2: 6, 3: 7}.get(i, 0), f"b{i}"] for i in range(5)]
    assert (named(plain), seen(plain)) == (set(), expected)
    monkeypatch.setattr("cdc_platform.snapshots.apply.merge.apply", None)
    plain.say(T.update((1, 50), cell(0), cell(0, 9)), T.insert((1, 51), cell(5)))
    plain.catch_up()
    expected = [[i, {0: 9, 1: 5, 2: 6, 3: 7}.get(i, 0), f"b{i}"] for i in range(6)]
    assert (named(plain), seen(plain)) == (set(), expected)
    assert protocol.problems(plain.target("shop", "t").snapshot.uri()) == []  # at no version


@pytest.mark.thorough
@spark_test
def test_a_rebuild_makes_a_table_of_an_earlier_version_plain(feed: Any) -> None:
    _earlier(feed({}))
    plain = feed(ANY)
    rebuild(plain.spark, plain.config, plain.source, "shop", "t")
    assert (named(plain), seen(plain)) == (set(), [[i, {1: 5}.get(i, 0), f"b{i}"] for i in range(4)])
    table = DeltaTable(plain.target("shop", "t").snapshot.uri())
    assert len(table.to_pandas()) == 4


def test_a_wrong_word_names_the_valid_ones(make_config: Any) -> None:
    with pytest.raises(ConfigError, match=r"(?s)readers.*'any' or 'fast'"):
        make_config(
            [{"name": "s", "format": "canal", "topics": ["t"], "tables": {"readers": {"*": "all"}}}],
        )
