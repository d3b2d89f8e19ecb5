"""Several tables of the source in one snapshot: each row tells its origin, and what happens to one of them touches its
own rows only; taken up at once or in pieces, in order or late."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.errors import TableStopped
from cdc_platform.snapshots.routing import merged
from cdc_platform.snapshots.run import rebuild
from tests.changelog.feed import Feed, SourceTable, position, read
from tests.explain.agreement import of_every_row

ROUTES = {r"shop_[0-9]+\.order_.*": "shop.orders"}


def ddl(sql: str, pos: int, db: str) -> dict[str, Any]:
    return {"kind": "ddl", "db": db, "ddl": sql, **position(1, pos)}


def shard(n: int, *columns: str, keys: tuple[str, ...] = ("id",), name: str = "order_x") -> SourceTable:
    return SourceTable(f"shop_{n}", name, [tuple(c.split(" ", 1)) for c in columns], keys)  # type: ignore[misc]


def truncate(table: SourceTable, pos: int, **rest: Any) -> dict[str, Any]:
    return table.change("truncate", (1, pos), None, None, **rest)


def row(**cells: Any) -> dict[str, Any]:
    return {k: None if v is None else str(v) for k, v in cells.items()}


ONE, TWO = (shard(n, "id bigint", "a int") for n in (1, 2))

STORIES: dict[str, tuple[list[Any], list[list[Any]]]] = {
    "the same keys in two tables": (
        [
            ONE, TWO,
            ONE.insert((1, 10), row(id=1, a=10)), TWO.insert((1, 11), row(id=1, a=20)),
            ONE.insert((1, 12), row(id=2, a=12)), TWO.insert((1, 13), row(id=2, a=22)),
            TWO.insert((1, 14), row(id=3, a=23)),
            ONE.update((1, 20), row(id=1, a=10), row(id=1, a=11)),
            TWO.delete((1, 21), row(id=1, a=20)),
            TWO.update((1, 22), row(id=2, a=22), row(id=9, a=22)),
            ONE.update((1, 23), row(id=2, a=12), row(id=3, a=12)),
        ],
        [["shop_1", 1, 11], ["shop_1", 3, 12], ["shop_2", 3, 23], ["shop_2", 9, 22]],
    ),
    "DDL on one table, then on the other": (
        [
            ONE, TWO, ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=2)),
            ddl("ALTER TABLE order_x ADD b VARCHAR(9) NOT NULL DEFAULT 'n' AFTER id, MODIFY a BIGINT", 20, "shop_1"),
            (one := shard(1, "id bigint", "b varchar(9)", "a bigint")),
            one.insert((1, 30), row(id=2, b="x", a=2**40)), TWO.insert((1, 31), row(id=2, a=3)),
            TWO.update((1, 32), row(id=2, a=3), row(id=5, a=4)),
            ddl("ALTER TABLE order_x MODIFY a BIGINT, ADD b VARCHAR(9) AFTER id", 40, "shop_2"),
            (two := shard(2, "id bigint", "b varchar(9)", "a bigint")),
            two.update((1, 50), row(id=1, b=None, a=2), row(id=1, b="y", a=2**41)),
        ],
        [["shop_1", 1, "n", 1], ["shop_1", 2, "x", 2**40], ["shop_2", 1, "y", 2**41], ["shop_2", 5, None, 4]],
    ),
    "one of two loses a column that the other keeps": (
        [
            ONE, TWO, ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=2)),
            ddl("ALTER TABLE order_x DROP a", 20, "shop_1"), (less := shard(1, "id bigint")),
            less.insert((1, 30), row(id=2)), less.update((1, 31), row(id=2), row(id=3)),
        ],
        [["shop_1", 1, None], ["shop_1", 3, None], ["shop_2", 1, 2]],
    ),
    "TRUNCATE of one": (
        [
            ONE, TWO, ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=2)),
            ONE.insert((1, 12), row(id=2, a=1)), truncate(ONE, 20), ONE.insert((1, 30), row(id=2, a=7)),
            TWO.insert((1, 31), row(id=4, a=4)),
        ],
        [["shop_1", 2, 7], ["shop_2", 1, 2], ["shop_2", 4, 4]],
    ),
    "TRUNCATE of all": (
        [
            ONE, TWO, ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=2)),
            truncate(ONE, 20), truncate(TWO, 21),
        ],
        [],
    ),
    "DROP of one, and another joins": (
        [
            ONE, TWO, ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=2)),
            ddl("DROP TABLE order_x", 20, "shop_1"),
            ddl("CREATE TABLE order_y (id BIGINT PRIMARY KEY, a INT)", 21, "shop_1"),
            (y := shard(1, "id bigint", "a int", name="order_y")), y.insert((1, 30), row(id=1, a=5)),
        ],
        [["shop_1", 1, 5], ["shop_2", 1, 2]],
    ),
    "a table leaves by RENAME, another one comes in": (
        [
            ONE, TWO, ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=2)),
            (new := shard(1, "id bigint", "a int", name="new")), new.insert((1, 12), row(id=8, a=8)),
            ddl("RENAME TABLE order_x TO old, new TO order_x", 20, "shop_1"),
            ONE.update((1, 30), row(id=8, a=8), row(id=8, a=9)),
        ],
        [["shop_1", 8, 9], ["shop_2", 1, 2]],
    ),
}  # fmt: skip


def events_of(story: list[Any]) -> list[dict[str, Any]]:
    return [e.stated() | {"lineage": "1"} if isinstance(e, SourceTable) else e for e in story]


def of_shop(number: int, story: list[Any]) -> list[dict[str, Any]]:
    """The events of a story, in databases and a binlog file of its own."""
    shapes = {e.version: replace(e, db=own(number, e.db)) for e in story if isinstance(e, SourceTable)}
    shapes |= {t.version: replace(t, db=own(number, t.db)) for t in (ONE, TWO)}
    events: list[dict[str, Any]] = []
    for e in story:
        if isinstance(e, SourceTable):
            events.append(shapes[e.version].stated() | {"lineage": "1"})
        else:
            known = {"schema_version": shapes[e["schema_version"]].version} if "schema_version" in e else {}
            events.append({**e, **known, "db": own(number, e["db"]), **position(number, e["binlog_pos"])})
    return events


def own(number: int, db: str) -> str:
    """shop_1 of the 12th story: s12_1."""
    return db.replace("shop", f"s{number}")


def told(feed: Feed, db: str = "shop") -> list[list[Any]]:
    """Rows with their origin's database first."""
    rows = read(feed.target(db, "orders").snapshot.uri()).to_pylist()
    found = [[r["_cdc_db"], *(v for k, v in r.items() if not k.startswith("_cdc_"))] for r in rows]
    return sorted(found, key=repr)


def two_feeds(spark: Any, make_config: Any, **rules: Any) -> tuple[Feed, Feed]:
    rules = {"routes": ROUTES, **rules}
    sources = [{"name": n, "format": "canal", "topics": ["t"], "tables": rules} for n in ("whole", "parts")]
    config = make_config(sources)
    return Feed(spark, config, "whole"), Feed(spark, config, "parts")


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.parametrize("at_once", [False, True], ids=["steps", "at once"])
def test_the_stories_end_as_told(spark: Any, make_config: Any, at_once: bool) -> None:
    """Every story with all its events in one run; or up to its position 20, the event there, and the rest in a run
    each; then two of them made anew."""
    numbers = range(1, len(STORIES) + 1)
    routes = {rf"s{n}_[0-9]+\.order_.*": f"s{n}.orders" for n in numbers}
    feed, _ = two_feeds(spark, make_config, routes=routes)
    stages: list[list[dict[str, Any]]] = [[], [], []]
    expected = {}
    for n, (name, (story, rows)) in zip(numbers, STORIES.items(), strict=True):
        events = of_shop(n, story)
        expected[name] = sorted(([own(n, db), *cells] for db, *cells in rows), key=repr)
        first = next(i for i, e in enumerate(events) if (e.get("binlog_pos") or 0) >= 20)
        for stage, some in zip(stages, (events[:first], events[first : first + 1], events[first + 1 :]), strict=True):
            stage.extend(some)

    def found() -> dict[str, list[list[Any]]]:
        return {name: told(feed, f"s{n}") for n, name in zip(numbers, STORIES, strict=True)}

    for some in [[e for stage in stages for e in stage]] if at_once else stages:
        feed.say(*some)
        feed.catch_up()
    assert found() == expected
    explained, wrong = of_every_row(feed.config, feed.source)
    assert (explained > 15, wrong) == (True, [])
    assert not any(feed.has(f"s{n}_{i}", "order_x") for n in numbers for i in (1, 2))
    for n in (2, 4):
        rebuild(spark, feed.config, feed.source, f"s{n}", "orders")
    assert found() == expected


@pytest.mark.thorough
@pytest.mark.spark
def test_rows_older_than_a_truncate_or_a_drop_come_late_and_a_batch_comes_again(spark: Any, make_config: Any) -> None:
    feed, other = two_feeds(spark, make_config)
    keys = enumerate(((ONE, 3), (TWO, 3), (TWO, 6)))
    late = [t.insert((1, 12 + i), row(id=n, a=n), partition=1) for i, (t, n) in keys]
    for f, end in ((feed, truncate(ONE, 20)), (other, ddl("drop table order_x", 20, "shop_1"))):
        f.say(*events_of([ONE, TWO]), ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=1)))
        f.catch_up()
        f.say(end, TWO.delete((1, 21), row(id=6, a=6)))
        f.catch_up()
        f.say(*late)
        f.catch_up()
        assert told(f) == [["shop_2", 1, 1], ["shop_2", 3, 3]]
        f.forget_last_commit("snapshots")
        f.snapshot()
        assert told(f) == [["shop_2", 1, 1], ["shop_2", 3, 3]]


@pytest.mark.thorough
@pytest.mark.spark
def test_the_key_may_be_configured_and_the_target_may_be_a_table_itself(spark: Any, make_config: Any) -> None:
    feed, _ = two_feeds(spark, make_config, keys={"shop.orders": ["a", "id"]}, include=["shop_*.*", "shop.*"])
    plain = [shard(n, "id bigint", "a int", keys=()) for n in (1, 2)]
    itself = SourceTable("shop", "orders", [("id", "bigint"), ("a", "int")], ())
    feed.say(
        *events_of([*plain, itself]),
        *(t.insert((1, 10 + i), row(id=1, a=i)) for i, t in enumerate((*plain, itself))),
        plain[0].update((1, 20), row(id=1, a=0), row(id=1, a=9)),
    )
    feed.catch_up()
    assert feed.state("shop", "orders") == ("live", None)
    assert told(feed) == [["shop", 1, 2], ["shop_1", 1, 9], ["shop_2", 1, 1]]


REFUSED: dict[str, tuple[SourceTable, str]] = {
    "another type": (shard(2, "id bigint", "a varchar(9)"), "column 'a' is varchar(9), in the tables before it int"),
    "float as double": (shard(2, "id float"), "column 'id' is float, in the tables before it bigint"),
    "another key": (
        shard(2, "id bigint", "a int", keys=("id", "a")),
        "its key is ['a', 'id'], that of the tables before",
    ),
    "no key": (shard(2, "id bigint", "a int", keys=()), "the messages tell no key; name one in cdc.yaml: tables.keys:"),
    "the origin's name": (shard(2, "id bigint", "_CDC_db int"), "column name '_CDC_db' can't be kept"),
    "another spelling": (shard(2, "id bigint", "A int"), "column 'A' is spelled 'a' in the tables before it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_column_lists_that_do_not_go_together_are_refused_by_name(make_config: Any, name: str) -> None:
    table, reason = REFUSED[name]
    source = make_config([{"name": "s", "format": "canal", "topics": ["t"]}]).source("s")
    with pytest.raises(TableStopped) as caught:
        merged(source, ("shop", "orders"), {("shop_1", "order_x"): ONE.json, ("shop_2", "order_x"): table.json})
    assert caught.value.reason.startswith(f"shop_2.order_x: {reason}")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("int(11)", "bigint(20)", "bigint(20)"),
        ("bigint unsigned", "int", "bigint unsigned"),
        ("mediumint", "int(11)", "mediumint"),
        ("decimal(10,2)", "decimal(9,4)", "decimal(12,4)"),
        ("varchar(9)", "enum('a')", "varchar(9)"),
        ("datetime(3)", "datetime(6)", "datetime(3)"),
        ("DECIMAL(65,30)", "decimal(65,30)", "DECIMAL(65,30)"),
    ],
)
def test_types_that_hold_the_values_of_both_are_found(make_config: Any, one: str, other: str, both: str) -> None:
    source = make_config([{"name": "s", "format": "canal", "topics": ["t"]}]).source("s")
    lists = {(f"shop_{n}", "t"): shard(n, "id int", f"v {t}", f"c{n} int").json for n, t in ((1, one), (2, other))}
    found = merged(source, ("shop", "orders"), lists)
    told = [(c["name"], c["type"], c["key"]) for c in json.loads(found.columns)]
    assert told[:4] == [("id", "int", True), ("v", both, False), ("c2", "int", False), ("c1", "int", False)]
    assert [n for n, _, key in told if key] == ["id", "_cdc_db", "_cdc_table"]
    assert found.lacking == {("shop_1", "t"): ["c2"], ("shop_2", "t"): ["c1"]}


@pytest.mark.spark
def test_one_that_does_not_go_with_the_others_stops_their_snapshot_only(spark: Any, make_config: Any) -> None:
    feed, _ = two_feeds(spark, make_config)
    odd = shard(2, "id bigint", "_cdc_db int")
    free = SourceTable("shop_1", "free", [("id", "bigint"), ("_cdc_db", "int")])
    feed.say(
        *events_of([ONE, odd, free]),
        *(t.insert((1, 10 + i), {n: "5" for n, _ in t.columns}) for i, t in enumerate((ONE, odd, free))),
    )
    feed.catch_up()
    assert feed.state("shop", "orders")[0] == "stopped"
    assert "shop_2.order_x: column name '_cdc_db'" in str(feed.state("shop", "orders")[1])
    assert read(feed.target("shop_1", "free").snapshot.uri())["_cdc_db"].to_pylist() == [5]


@pytest.mark.thorough
@pytest.mark.spark
def test_a_new_table_that_fits_joins_without_a_rebuild(spark: Any, make_config: Any) -> None:
    feed, _ = two_feeds(spark, make_config, ddl={"shop.orders": "add_only"})
    feed.say(*events_of([ONE]), ONE.insert((1, 10), row(id=1, a=1)))
    feed.catch_up()
    feed.say(ddl("create table order_x (id bigint primary key, a int)", 20, "shop_2"), *events_of([TWO]))
    feed.say(TWO.insert((1, 30), row(id=1, a=1)))
    feed.catch_up()
    assert told(feed) == [["shop_1", 1, 1], ["shop_2", 1, 1]]
    assert [r["decision"] for r in feed.rows(tables.SCHEMA_CHANGES)] == ["applied"]
    feed.say(ddl("alter table order_x drop a", 40, "shop_2"))
    feed.catch_up()
    assert feed.state("shop", "orders") == ("stopped", "tables.ddl is add_only: alter table order_x drop a")


@pytest.mark.thorough
@pytest.mark.spark
def test_other_routes_bring_what_is_in_the_changelog_already(spark: Any, make_config: Any) -> None:
    feed, _ = two_feeds(spark, make_config, routes={})
    feed.say(*events_of([ONE, TWO]), ONE.insert((1, 10), row(id=1, a=1)), TWO.insert((1, 11), row(id=1, a=2)))
    feed.catch_up()
    assert feed.live("shop_1", "order_x") == [{"id": 1, "a": 1}] and not feed.has("shop", "orders")
    routed = feed.source.model_copy(update={"tables": feed.source.tables.model_copy(update={"routes": ROUTES})})
    unrouted, feed.config = feed.config, feed.config.model_copy(update={"sources": [routed]})
    feed.catch_up()
    assert told(feed) == [["shop_1", 1, 1], ["shop_2", 1, 2]]
    assert feed.state("shop_1", "order_x") == (
        "left_out", "tables.routes keep it in shop.orders; the snapshot stays as it was"
    )  # fmt: skip
    assert feed.in_newest_cut() == ["orders"]
    feed.config = unrouted
    feed.say(ONE.insert((1, 20), row(id=2, a=3)))
    feed.catch_up()
    assert sorted(r["id"] for r in feed.live("shop_1", "order_x")) == [1, 2]
    assert feed.state("shop_1", "order_x") == ("live", None)
    assert feed.state("shop", "orders")[0] == "left_out" and len(told(feed)) == 2
