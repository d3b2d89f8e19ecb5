"""Histories of tables without a key, kept up batch by batch: the same as of all changes at once."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform.lake import stores
from cdc_platform.snapshots.apply import beside
from cdc_platform.tables import HISTORY_PATH
from tests.changelog.feed import Feed, Image, SourceTable
from tests.snapshots.test_row_history import history, path, source

pytestmark = pytest.mark.spark

COLUMNS = [("op", "int"), ("content", "double"), ("b", "varbinary(4)"), ("_v0", "varchar(9)")]
"""Names as those that frames have on the way."""
LOG = SourceTable("shop", "log", COLUMNS, ())
KEYED = SourceTable("shop", "keyed", COLUMNS, ("op",))
BATCHES = (30, 20, 1, 12)


def row(n: int) -> Image:
    """One of few contents, alike but for a cell."""
    return {"op": str(n % 2), "content": ["0.0", "-0.0", None][n % 3], "b": "AAE=", "_v0": "x" if n < 6 else " x"}


def workload(seed: int, count: int) -> list[dict[str, Any]]:
    """Changes of a table with many equal rows, some of rows that it hasn't."""
    dice, rows, found = random.Random(seed), list[int](), list[dict[str, Any]]()
    for pos in range(10, 10 + count):
        what, new = dice.random(), dice.randrange(8)
        if what < 0.5 or not rows:
            rows.append(new)
            found.append(LOG.insert((1, pos), row(new)))
            continue
        old = rows.pop(dice.randrange(len(rows))) if what < 0.95 else dice.randrange(8)
        if what < 0.7 or what >= 0.95:
            found.append(LOG.delete((1, pos), row(old)))
        else:
            rows.append(new)
            found.append(LOG.update((1, pos), row(old), row(new)))
    return found


@pytest.fixture
def feed(spark: Any, make_config: Callable[..., Any]) -> Feed:
    return Feed(spark, make_config([source(["shop.*"])]), "s")


def made_anew(feed: Feed, table: str = "log") -> list[str]:
    """The history that all changes make together."""
    beside.not_whole(feed.spark, HISTORY_PATH.of(stores.lake(feed.config), "s", ("shop", table)))
    feed.catch_up()
    return kept(feed, table)


def kept(feed: Feed, table: str = "log") -> list[str]:
    return sorted(map(repr, history(feed, table)))


def times_made(feed: Feed) -> int:
    """How often it was made from the changelog."""
    commits = DeltaTable(path(feed, "log")).history()
    return sum(c.get("operationParameters", {}).get("mode") == "Overwrite" for c in commits)


@pytest.mark.parametrize(
    ("seed", "batches"), [(1, (30, 20)), *(pytest.param(n, BATCHES, marks=pytest.mark.thorough) for n in (2, 3, 4))]
)
def test_batch_by_batch_it_is_as_of_all_changes_at_once(feed: Feed, seed: int, batches: tuple[int, ...]) -> None:
    told = iter(workload(seed, sum(batches)))
    for size in batches:
        feed.say(LOG.stated() | {"lineage": "1"}, *(next(told) for _ in range(size)))
        feed.catch_up()
    assert times_made(feed) == 1
    assert kept(feed) == made_anew(feed)
    assert times_made(feed) == 2


@pytest.mark.thorough
def test_batches_of_one_run(spark: Any, make_config: Callable[..., Any]) -> None:
    feed = Feed(spark, make_config([{**source(["shop.*"]), "max_bytes_per_batch": "1"}]), "s")
    feed.say(LOG.stated() | {"lineage": "1"}, *(LOG.insert((1, 10 + n), row(n)) for n in (0, 0, 1, 2)))
    feed.catch_up()
    for changes in (
        [LOG.delete((1, 20), row(0)), LOG.update((1, 21), row(0), row(3))],
        [LOG.insert((1, 30), row(4)), LOG.update((1, 31), row(2), row(5))],
    ):
        feed.say(*changes)
        feed.unify()
    feed.snapshot()
    assert times_made(feed) == 1
    assert kept(feed) == made_anew(feed)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([LOG.delete((1, 50), row(0))], [LOG.insert((1, 40), row(0), partition=1)]),
        ([LOG.insert((1, 50), row(0))], [LOG.delete((1, 40), row(0), partition=1)]),
        ([LOG.insert((1, 45), row(0)), LOG.delete((1, 50), row(0))], [LOG.insert((1, 40), row(0), partition=1)]),
        ([LOG.change("truncate", (1, 50))], [LOG.insert((1, 40), row(0), partition=1)]),
        ([LOG.insert((1, 50), row(1))], [LOG.change("truncate", (1, 60)), LOG.insert((1, 70), row(1))]),
        ([LOG.insert((1, 50, n), row(0), offset=99) for n in (0, 0)], [LOG.delete((1, 60), row(0))]),
    ],
    ids=["its delete was there", "older delete", "older of two", "emptied before", "emptied", "at one place"],
)
def test_what_batches_do_not_tell_makes_it_anew(
    feed: Feed, first: list[dict[str, Any]], then: list[dict[str, Any]]
) -> None:
    feed.say(LOG.stated() | {"lineage": "1"}, LOG.insert((1, 10), row(7)))
    for changes in (first, then):
        feed.say(*changes)
        feed.catch_up()
    assert times_made(feed) > 1
    assert kept(feed) == made_anew(feed)


@pytest.mark.thorough
@pytest.mark.parametrize("last", [LOG.insert((1, 30), row(0)), LOG.delete((1, 30), row(0))], ids=["insert", "delete"])
def test_a_killed_batch_is_brought_once(feed: Feed, last: dict[str, Any]) -> None:
    feed.say(LOG.stated() | {"lineage": "1"}, *(LOG.insert((1, 10 + n), row(0)) for n in range(3)))
    feed.catch_up()
    feed.say(LOG.update((1, 20), row(0), row(0)), last)
    feed.catch_up()
    once = kept(feed)
    feed.forget_last_commit("history")
    feed.snapshot()
    assert kept(feed) == once


@pytest.mark.thorough
def test_columns_may_be_called_as_those_of_frames(feed: Feed) -> None:
    feed.say(KEYED.stated() | {"lineage": "1"}, KEYED.insert((1, 10), row(1)))
    feed.catch_up()
    feed.say(KEYED.update((1, 20), row(1), row(3)))
    feed.catch_up()
    ended, now = sorted(history(feed, "keyed"), key=lambda r: r["_cdc_order_to"] is None)
    assert (ended["op"], ended["content"], now["op"], now["content"]) == (1, -0.0, 1, 0.0)
