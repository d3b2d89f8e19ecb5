"""Snapshots made anew together: each is what it would be made by itself, whatever is left of it in between."""

from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.lake import stores
from cdc_platform.snapshots import rebuild_together
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.schema import alter
from cdc_platform.snapshots.schema.history import History
from cdc_platform.tables import Name
from tests.changelog.feed import Feed
from tests.snapshots.test_ddl import STORIES, ddl, of_shop, versions

pytestmark = pytest.mark.spark


def shop(feed: Feed, names: list[str]) -> None:
    """Tables with rows that came, changed and went."""
    for number, name in enumerate(names):
        table = versions("id bigint", "a int", "b varchar(9)", name=name)
        at = [(1, 10 * number + i + 10) for i in range(5)]
        feed.say(
            table.stated() | {"lineage": "1"},
            *(table.insert(at[n], {"id": str(n), "a": str(n), "b": "x"}) for n in range(3)),
            table.update(at[3], {"id": "1", "a": "1", "b": "x"}, {"id": "1", "a": "9", "b": "y"}),
            table.delete(at[4], {"id": "2", "a": "2", "b": "x"}),
        )
        feed.unify()
    feed.snapshot()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Name]:
    """Tables that were made together."""
    found: list[Name] = []
    bring_up = rebuild_together.together.bring_up

    def seen(*args: Any) -> Any:
        done = bring_up(*args)
        found.extend(done if args[1] and args[1][0].anew else ())
        return done

    monkeypatch.setattr(rebuild_together.together, "bring_up", seen)
    return found


def by_themselves(feed: Feed, names: list[Name]) -> dict[Name, list[list[str]]]:
    """What is kept of tables after each was made anew."""
    for name in names:
        snapshots.rebuild(feed.spark, feed.config, feed.source, *name)
    return {name: feed.kept(name[0], [name[1]]) for name in names}


def killed_before_they_are_in_place(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends while it makes tables."""
    with monkeypatch.context() as killed:
        killed.setattr(rebuild_together.together, "bring_up", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            feed.catch_up()


def states(feed: Feed) -> dict[tuple[str, str], dict[str, Any]]:
    """What is noted last of each table."""
    rows = sorted(feed.rows(tables.TABLE_STATE), key=lambda r: (r["rebuild"], r["batch"]))
    return {(r["db"], r["table"]): {n: r[n] for n in r if n not in ("batch", "rebuild", "at")} for r in rows}


@pytest.mark.thorough
def test_each_is_what_it_would_be_by_itself(spark: Any, make_config: Any, made: list[Name]) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    later: list[dict[str, Any]] = []
    for number, (story, _) in enumerate(STORIES.values(), 1):
        events = of_shop(number, story)
        middle = next(i for i, e in enumerate(events) if e["kind"] == "ddl")
        feed.say(*events[:middle])
        later += events[middle : middle + 1]
    feed.catch_up()
    feed.say(*later)
    feed.catch_up()
    assert len(made) >= 3
    together, noted = {name: feed.kept(name[0], [name[1]]) for name in made}, states(feed)
    assert together == by_themselves(feed, made)
    assert states(feed) == noted


@pytest.mark.thorough
def test_a_type_changes_in_some_tables_and_rows_come_after_it(spark: Any, make_config: Any, made: list[Name]) -> None:
    names = ["a", "b", "c"]
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shop(feed, names)
    for number, name in enumerate(names):
        wide = versions("id bigint", "a varchar(20)", "b varchar(9)", name=name)
        feed.say(ddl(f"ALTER TABLE {name} MODIFY a VARCHAR(20)", 100 + 10 * number), wide.stated() | {"lineage": "1"})
        feed.say(wide.insert((1, 101 + 10 * number), {"id": "7", "a": "seven", "b": "z"}))
    feed.catch_up()
    assert sorted(made) == [("shop", n) for n in names]
    for name in names:
        rows = [list(r.values()) for r in feed.live("shop", name)]
        assert sorted(rows) == [[0, "0", "x"], [1, "9", "y"], [7, "seven", "z"]]
        assert [t["_k0"] for t in feed.tombstones("shop", name)] == [2]
    assert {r["decision"] for r in feed.rows(tables.SCHEMA_CHANGES)} == {"rebuilt"}
    carried = tables.CARRIED.at(stores.lake(feed.config), source="s")
    assert not [name for name in carried.below("") if name.endswith(".parquet")], "no row stays there"


@pytest.mark.thorough
def test_a_kill_while_they_are_made_loses_nothing_and_shows_nothing(
    spark: Any, make_config: Any, made: list[Name], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b"]
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shop(feed, names)
    feed.say(*(ddl(f"ALTER TABLE {n} MODIFY a VARCHAR(20)", 100 + i) for i, n in enumerate(names)))
    killed_before_they_are_in_place(feed, monkeypatch)
    assert [sorted(r["a"] for r in feed.live("shop", n)) for n in names] == [[0, 9]] * 2, "as they were"
    feed.snapshot()
    assert sorted(made) == [("shop", n) for n in names]
    assert {n: feed.kept("shop", [n[1]]) for n in made} == by_themselves(feed, made)
    assert [sorted(r["a"] for r in feed.live("shop", n)) for n in names] == [["0", "9"]] * 2


@pytest.mark.thorough
def test_a_value_that_does_not_fit_stops_its_table_alone(spark: Any, make_config: Any, made: list[Name]) -> None:
    names = ["a", "b", "c"]
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shop(feed, names)
    feed.say(
        ddl("ALTER TABLE a MODIFY b INT", 100),  # the server made what it liked of 'x'
        *(ddl(f"ALTER TABLE {n} MODIFY a BIGINT UNSIGNED", 101 + i) for i, n in enumerate(names[1:])),
    )
    feed.catch_up()
    assert feed.state("shop", "a")[0] == "stopped"
    assert sorted(made) == [("shop", "b"), ("shop", "c")]
    assert all(feed.state("shop", n) == ("live", None) for n in names[1:])
    assert [sorted(r["a"] for r in feed.live("shop", n)) for n in names[1:]] == [[0, 9]] * 2


@pytest.mark.thorough
def test_a_long_changelog_is_read_table_by_table(
    spark: Any, make_config: Any, made: list[Name], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shop(feed, ["a", "b"])
    monkeypatch.setattr(rebuild_together, "_MOST_BYTES", 1)
    feed.say(*(ddl(f"ALTER TABLE {n} MODIFY a VARCHAR(20)", 100 + i) for i, n in enumerate(["a", "b"])))
    feed.catch_up()
    assert made == []
    assert [sorted(r["a"] for r in feed.live("shop", n)) for n in ("a", "b")] == [["0", "9"]] * 2


def test_a_killed_rebuild_is_made_once_more_whatever_its_columns_look_like(
    spark: Any, make_config: Any, made: list[Name], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column has the name of one that goes: a table of today's columns looks as if the rename had been done."""
    names = ["a", "b"]
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shop(feed, names)
    feed.say(*(ddl(f"ALTER TABLE {n} DROP b, CHANGE a b INT", 100 + i) for i, n in enumerate(names)))
    killed_before_they_are_in_place(feed, monkeypatch)
    feed.snapshot()
    assert sorted(made) == [("shop", n) for n in names]
    assert [sorted(tuple(r.items()) for r in feed.live("shop", n)) for n in names] == [
        [(("id", 0), ("b", 0)), (("id", 1), ("b", 9))]
    ] * 2
    assert feed.state("shop", "a") == ("live", None)


@pytest.mark.parametrize("killed_at", [pytest.param("decision", marks=pytest.mark.thorough), "value"])
def test_statements_that_were_followed_are_not_once_more(
    spark: Any, make_config: Any, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shop(feed, ["a"])
    swap = ("CHANGE a tmp INT", "CHANGE b a VARCHAR(9)", "CHANGE tmp b INT", "ADD n INT NOT NULL DEFAULT 5")
    feed.say(*(ddl(f"ALTER TABLE a {what}", 100 + i) for i, what in enumerate(swap)))
    with monkeypatch.context() as killed:
        place = (History, "keep") if killed_at == "decision" else (alter, "_fill")
        killed.setattr(*place, lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            feed.catch_up()
    feed.snapshot()
    rows = sorted(tuple(r.items()) for r in feed.live("shop", "a"))
    assert rows == [(("id", n), ("b", v), ("a", text), ("n", 5)) for n, v, text in ((0, 0, "x"), (1, 9, "y"))]
    assert {r["decision"] for r in feed.rows(tables.SCHEMA_CHANGES)} == {"applied"}


@pytest.mark.thorough
def test_a_table_with_a_feature_of_others_is_not_made_anew_by_each_batch(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shop(feed, ["a"])
    spark.sql(f"ALTER TABLE delta.`{feed.target('shop', 'a').snapshot.uri()}` ADD CONSTRAINT c CHECK (id >= 0)")
    table = versions("id bigint", "a int", "b varchar(9)", name="a")
    feed.say(table.insert((1, 100), {"id": "8", "a": "8", "b": "z"}))
    feed.catch_up()
    assert sorted(r["id"] for r in feed.live("shop", "a")) == [0, 1, 8]
    assert {r["rebuild"] for r in feed.rows(tables.TABLE_STATE)} == {0}
    feed.say(ddl("ALTER TABLE a ADD n INT", 110))
    feed.catch_up()
    assert sorted((r["id"], r["n"]) for r in feed.live("shop", "a")) == [(0, None), (1, None), (8, None)]
    assert [r["decision"] for r in feed.rows(tables.SCHEMA_CHANGES)] == ["rebuilt"]
    path = feed.target("shop", "a").snapshot
    newest = DeltaTable(path.uri()).version()
    counted = [DeltaTable(path.uri(), version=v).to_pyarrow_table().num_rows for v in range(newest + 1)]
    assert counted[-1] == 3 and 0 not in counted[counted.index(2) :], "Spark took its rows over by one commit"
    assert not [p for p in path.below("") if p.startswith("rebuild-")]
