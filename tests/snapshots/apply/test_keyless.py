"""Tables without a key: as many equal rows as the source has, in whatever order and however often it is told."""

import random
import time
from base64 import b64decode, b64encode
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from cdc_platform import tables
from tests.changelog.feed import Feed, Image, SourceTable, position

pytestmark = pytest.mark.spark

COLUMNS = [("a", "int"), ("b", "varbinary(4)"), ("c", "decimal(40,2)"), ("d", "double"), ("e", "datetime(6)")]
BARE = SourceTable("shop", "bare", COLUMNS, ())
KEYED = SourceTable("shop", "bare", COLUMNS, ("a",))
CUT = SourceTable("shop", "cut", [("a", "int")], ())
LATE = SourceTable("shop", "late", [("a", "int")], ())
GROWS = SourceTable("shop", "grows", [("a", "int")], ())
GROWN = SourceTable("shop", "grows", [("a", "int"), ("n", "varchar(9)")], ())
HALF = SourceTable("shop", "half", [("a", "int"), ("b", "int")], ())
CANAL = SourceTable("shop", "canal", [("a", "int"), ("b", "int")], ())
SOURCES = ("ordered", "shuffled")


def row(n: int) -> Image:
    """One of few contents, so that rows are often equal; half of them differ in one cell, a NULL or a byte."""
    return {
        "a": str(n % 2),
        "b": b64encode(bytes([0, 255][: n % 3])).decode(),
        "c": None if n % 4 == 0 else f"{n % 2}.50",
        "d": "-0.1",
        "e": f"2026-11-20 00:00:00.00000{n % 2}".rstrip("0").rstrip("."),
    }


def cells(image: Image) -> tuple[Any, ...]:
    at = image["e"] and datetime.fromisoformat(image["e"])
    return (int(image["a"] or 0), b64decode(image["b"] or ""), image["c"], -0.1, at)


def workload(seed: int) -> tuple[list[dict[str, Any]], Counter]:
    """Changes in the source's order, and the rows there are in the end."""
    dice, there, changes = random.Random(seed), [], []
    for pos in range(10, 90):
        op = dice.choice(["insert", "insert", "update", "delete"]) if there else "insert"
        if op == "insert":
            there.append(row(dice.randrange(12)))
            changes.append(BARE.insert((1, pos), there[-1]))
            continue
        old = there.pop(dice.randrange(len(there)))
        if op == "delete":
            changes.append(BARE.delete((1, pos), old))
        else:
            there.append(row(dice.randrange(12)))
            changes.append(BARE.update((1, pos), old, there[-1]))
    return changes, Counter(cells(r) for r in there)


CHANGES, TRUTH = workload(7)


ALONE = ("grows", "canal")
"""Tables that only the long tests look at."""


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.thorough)], ids=["some tables", "all"]
)
def feeds(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Feed]:
    from cdc_platform.config import parse_config

    formats = zip(SOURCES, ("canal", "dataworks"), strict=True)  # DataWorks' changes may come in any order
    sources = [{"name": n, "format": f, "topics": ["t"]} for n, f in formats]
    config = parse_config({"lake": str(tmp_path_factory.mktemp("multiset")), "sources": sources})
    feeds = {n: Feed(spark, config, n) for n in SOURCES}
    shuffled = random.Random(3).sample(CHANGES, len(CHANGES))
    more = {
        "ordered": (
            [
                *(t.stated() for t in (BARE, CUT, GROWS, HALF, CANAL)),
                *(CUT.insert((1, 200 + i), {"a": "1"}) for i in range(3)),
                *(GROWS.insert((1, 200 + i), {"a": "1"}) for i in range(2)),
                HALF.insert((1, 200), {"a": "1", "b": "1"}),
                *(CANAL.insert((1, 200 + i), {"a": "1", "b": b}) for i, b in enumerate("122")),
            ],
            [
                {**CUT.change("truncate", (1, 210)), "schema_version": None},
                *(CUT.insert((1, 211 + i), {"a": "2"}) for i in range(2)),
                CUT.delete((1, 220), {"a": "2"}),
                {"kind": "ddl", "db": "shop", "ddl": "alter table grows add n varchar(9) default 'x'", "lineage": "1"}
                | position(1, 210),
                GROWN.stated(),
                GROWN.delete((1, 211), {"a": "1", "n": "x"}),
                GROWN.insert((1, 212), {"a": "1", "n": None}),
                HALF.change("update", (1, 210), None, {"a": "1", "b": "2"}),
                # Canal's JSON tells of the row before just what has changed, MySQL's minimal images of the row after.
                CANAL.update((1, 210), {"b": "1"}, {"a": "1", "b": "3"}),
                CANAL.update((1, 211), {"a": "1", "b": "2"}, {"a": "4"}),
            ],
        ),
        "shuffled": (
            [BARE.stated(), LATE.stated(), *(LATE.insert((1, p), {"a": "1"}) for p in (200, 220))],
            [
                LATE.delete((1, 205), {"a": "1"}),
                {**LATE.change("truncate", (1, 210)), "schema_version": None},
                LATE.insert((1, 204), {"a": "7"}),
            ],
        ),
    }
    for name, changes in (("ordered", CHANGES), ("shuffled", shuffled)):
        feed = feeds[name]
        for part, rest in zip((changes[:60], changes[60:]), more[name], strict=True):
            its = [e for e in rest if request.param or (e["kind"] != "ddl" and e["table"] not in ALONE)]
            feed.say(*({"lineage": "1", **e} for e in its), *part)
            feed.catch_up()
    return feeds


def found(feed: Feed) -> Counter:
    return Counter(tuple(r.values()) for r in feed.live("shop", "bare"))


@pytest.mark.parametrize("name", SOURCES)
def test_there_are_as_many_equal_rows_as_at_the_source(feeds: dict[str, Feed], name: str) -> None:
    assert feeds[name].state("shop", "bare") == ("live", None)
    assert found(feeds[name]) == TRUTH
    assert any(n > 1 for n in TRUTH.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ordered", "shuffled"])
def test_a_batch_done_again_changes_nothing(feeds: dict[str, Feed], name: str) -> None:
    feeds[name].forget_last_commit("snapshots")
    feeds[name].snapshot()
    assert found(feeds[name]) == TRUTH
    assert feeds["ordered"].live("shop", "cut") == [{"a": 2}]
    assert feeds["shuffled"].live("shop", "late") == [{"a": 1}]


def test_a_truncate_takes_what_is_older(feeds: dict[str, Feed]) -> None:
    assert feeds["ordered"].live("shop", "cut") == [{"a": 2}]


def test_after_a_late_truncate_the_table_is_made_anew(feeds: dict[str, Feed]) -> None:
    states = [r["state"] for r in feeds["shuffled"].rows(tables.TABLE_STATE) if r["table"] == "late"]
    assert "stale" in states
    assert feeds["shuffled"].state("shop", "late") == ("live", None)
    assert feeds["shuffled"].live("shop", "late") == [{"a": 1}]


@pytest.mark.thorough
@pytest.mark.parametrize("feeds", [True], indirect=True)
def test_rows_from_before_a_ddl_statement_are_found_by_their_cells_of_today(feeds: dict[str, Feed]) -> None:
    grows = feeds["ordered"].live("shop", "grows")
    assert sorted(grows, key=repr) == [{"a": 1, "n": "x"}, {"a": 1, "n": None}]


@pytest.mark.thorough
@pytest.mark.parametrize("feeds", [True], indirect=True)
def test_images_that_tell_a_part_are_taken_together(feeds: dict[str, Feed]) -> None:
    rows = sorted(tuple(r.values()) for r in feeds["ordered"].live("shop", "canal"))
    assert rows == [(1, 2), (1, 3), (4, 2)]


def test_a_change_that_does_not_tell_the_row_before_stops_the_table(feeds: dict[str, Feed]) -> None:
    state, reason = feeds["ordered"].state("shop", "half")
    assert state == "stopped"
    assert "name a key in cdc.yaml: tables.keys: {'shop.half': [...]}" in str(reason)


@pytest.mark.thorough
def test_deletes_of_rows_that_never_came_are_told(feeds: dict[str, Feed]) -> None:
    feed = feeds["ordered"]
    feed.say(CUT.delete((1, 300), {"a": "9"}), CUT.insert((1, 301), {"a": "9"}))
    feed.catch_up()
    state, reason = feed.state("shop", "cut")
    assert state == "live"
    assert str(reason).startswith("1 rows were deleted that have never come")
    assert sorted(r["a"] for r in feed.live("shop", "cut")) == [2, 9]


@pytest.mark.thorough
def test_a_table_that_gets_a_key_is_made_anew(feeds: dict[str, Feed]) -> None:
    """Told by messages alone."""
    feed = feeds["shuffled"]
    rows = {k: row(int(k)) for k in "01"}
    feed.say(
        {**BARE.change("truncate", (1, 300)), "schema_version": None},
        KEYED.stated(),
        *(KEYED.insert((1, 301 + i), r) for i, r in enumerate(rows.values())),
        KEYED.update((1, 310), rows["1"], {**rows["1"], "c": "9.00"}),
    )
    feed.catch_up()
    assert feed.state("shop", "bare") == ("live", None)
    assert found(feed) == Counter([cells(rows["0"]), cells({**rows["1"], "c": "9.00"})])
    assert (
        "_cdc_address" not in feed.spark.read.format("delta").load(feed.target("shop", "bare").snapshot.uri()).columns
    )


@pytest.mark.thorough
def test_a_table_of_many_columns_takes_no_longer(spark: Any, make_config: Any) -> None:
    """Spark's planner weighed 2^columns ways to write the digest of a row: one with 22 columns didn't end."""
    wide = SourceTable("shop", "wide", [(f"c{i}", "int") for i in range(60)], ())
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    rows = [{f"c{i}": str(n) for i in range(60)} for n in range(3)]
    feed.say(wide.stated() | {"lineage": "1"}, *(wide.insert((1, 10 + n), r) for n, r in enumerate(rows)))
    feed.catch_up()
    started = time.monotonic()
    feed.say(wide.delete((1, 20), rows[1]), wide.insert((1, 21), rows[0]))
    feed.catch_up()
    assert sorted(r["c59"] for r in feed.live("shop", "wide")) == [0, 0, 2]
    assert time.monotonic() - started < 120
