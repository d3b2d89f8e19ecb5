"""Several partitions of a feed without positions: source times relate them, down to their grain."""

from datetime import timedelta
from typing import Any

import pytest

from cdc_platform.errors import TableStopped
from cdc_platform.snapshots.run import rebuild
from tests.changelog.feed import LANDED, Feed, SourceTable, position

pytestmark = pytest.mark.spark

ORDERS = SourceTable("shop", "orders", [("id", "int"), ("v", "text")])
LINES = SourceTable("shop", "lines", [("id", "int")])


@pytest.fixture
def feed(spark: Any, make_config: Any) -> Feed:
    found = Feed(spark, make_config([{"name": "s", "format": "canal_json", "topics": ["t"]}]), "s")
    found.say(ORDERS.stated(), LINES.stated())
    return found


def at(change: dict[str, Any], partition: int, offset: int, second: int) -> dict[str, Any]:
    """A change as canal's JSON tells it: without a position."""
    time = LANDED + timedelta(seconds=second)
    return {**change, **position(None, None, None), "partition": partition, "offset": offset, "source_time": time}


def insert(i: int, v: str) -> dict[str, Any]:
    return ORDERS.insert((None, None), {"id": str(i), "v": v})


def update(i: int, old: str, new: str) -> dict[str, Any]:
    return ORDERS.update((None, None), {"id": str(i), "v": old}, {"id": str(i), "v": new})


TRUNCATE = {**ORDERS.change("truncate", (None, None)), "key": None, "schema_version": None}

in_one_run_or_two = pytest.mark.parametrize(
    "whole", [pytest.param(True, marks=pytest.mark.thorough), False], ids=["one run", "two runs"]
)


def live(feed: Feed) -> list[tuple]:
    return sorted(tuple(r.values()) for r in feed.live("shop", "orders"))


@in_one_run_or_two
def test_a_key_that_moves_to_another_partition_goes_by_source_times(feed: Feed, whole: bool) -> None:
    """Partitions were added: the newer change has the lower offset."""
    feed.say(at(insert(1, "a"), 0, 50, 0), at(update(1, "a", "b"), 0, 51, 5))
    if not whole:
        feed.catch_up()
    feed.say(at(update(1, "b", "c"), 1, 3, 9))
    feed.catch_up()
    assert (feed.state("shop", "orders")[0], live(feed)) == ("live", [(1, "c")])


@in_one_run_or_two
def test_changes_of_a_key_in_two_partitions_at_one_time_stop_the_table(feed: Feed, whole: bool) -> None:
    feed.say(at(insert(1, "a"), 0, 50, 0), at(insert(2, "x"), 1, 0, 0), at(update(1, "a", "b"), 0, 51, 5))
    if not whole:
        feed.catch_up()
    feed.say(at(update(1, "b", "c"), 1, 3, 5))
    feed.catch_up()
    state, reason = feed.state("shop", "orders")
    assert state == "stopped" and "nothing says which is newer" in str(reason)


def test_in_one_partition_a_time_that_goes_back_changes_nothing(feed: Feed) -> None:
    """A transaction that began long ago commits late: its time is its statement's."""
    feed.say(at(insert(1, "a"), 0, 1, 60), at(insert(2, "x"), 1, 0, 60))
    feed.catch_up()
    feed.say(at(update(1, "a", "b"), 0, 2, 3), at(update(2, "x", "y"), 1, 1, 61))
    feed.catch_up()
    assert live(feed) == [(1, "b"), (2, "y")]


def test_a_truncate_by_another_partition_stops_the_table_until_the_operator_chooses(feed: Feed) -> None:
    feed.say(at(insert(1, "old"), 1, 7, 0), at(TRUNCATE, 0, 0, 5), at(insert(9, "new"), 1, 8, 9))
    feed.catch_up()
    state, reason = feed.state("shop", "orders")
    assert state == "stopped" and "another partition" in str(reason) and "--rebuild" in str(reason)
    rebuild(feed.spark, feed.config, feed.source, "shop", "orders")
    assert (feed.state("shop", "orders")[0], live(feed)) == ("live", [(9, "new")])


@pytest.mark.thorough
def test_a_truncate_in_the_second_of_a_row_can_not_be_chosen(feed: Feed) -> None:
    feed.say(at(insert(1, "old"), 1, 7, 5), at(TRUNCATE, 0, 0, 5))
    feed.catch_up()
    with pytest.raises(TableStopped, match="same source time"):
        rebuild(feed.spark, feed.config, feed.source, "shop", "orders")
    assert feed.state("shop", "orders")[0] == "stopped"


def test_rows_that_come_after_a_truncate_of_their_second_stop_the_table(feed: Feed) -> None:
    feed.say(at(insert(1, "old"), 0, 1, 0), at(TRUNCATE, 0, 2, 5))
    feed.catch_up()
    feed.say({**ORDERS.stated(), "partition": 2, "offset": 0}, at(insert(2, "when"), 2, 1, 5))
    feed.catch_up()
    state, reason = feed.state("shop", "orders")
    assert state == "stopped" and "TRUNCATE" in str(reason)


@pytest.mark.parametrize(("first", "second"), [(50, 3), pytest.param(3, 50, marks=pytest.mark.thorough)])
@in_one_run_or_two
def test_without_source_times_partitions_of_a_key_are_not_compared(
    feed: Feed, whole: bool, first: int, second: int
) -> None:
    feed.say({**at(insert(1, "a"), 0, first, 0), "source_time": None})
    feed.say({**at(insert(2, "x"), 1, 0, 0), "source_time": None})
    if not whole:
        feed.catch_up()
    feed.say({**at(update(1, "a", "b"), 1, second, 0), "source_time": None})
    feed.catch_up()
    assert feed.state("shop", "orders")[0] == "stopped"


def test_a_truncate_by_the_rows_own_partition_has_its_place(feed: Feed) -> None:
    feed.say(at(insert(1, "old"), 1, 7, 5), at(TRUNCATE, 1, 8, 5), at(insert(2, "new"), 1, 9, 5))
    feed.catch_up()
    assert live(feed) == [(2, "new")]


@pytest.mark.thorough
@pytest.mark.parametrize("partition", [0, 1], ids=["of the rows", "another"])
def test_a_truncate_without_a_position_beside_rows_that_have_one(spark: Any, make_config: Any, partition: int) -> None:
    """In the rows' partition it stands where it came; in another nothing says where."""
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    feed.say(ORDERS.stated())
    told = [{**ORDERS.insert((1, 10 * i), {"id": str(i), "v": "a"}), "partition": 0, "offset": 10 + i} for i in (1, 2)]
    feed.say(*told, at(TRUNCATE, partition, 13, 5))
    feed.say({**ORDERS.insert((1, 50), {"id": "3", "v": "b"}), "partition": 0, "offset": 14})
    feed.catch_up()
    state, reason, *_ = feed.state("shop", "orders")
    if partition == 0:
        assert (state, live(feed)) == ("live", [(3, "b")])
    else:
        assert state == "stopped"
        assert reason is not None
        assert "without a position came by another partition" in reason


@pytest.fixture
def binlog(spark: Any, make_config: Any) -> Feed:
    """A feed with positions."""
    found = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    found.say(ORDERS.stated(), LINES.stated())
    return found


def placed(change: dict[str, Any], partition: int, offset: int, pos: int, second: int) -> dict[str, Any]:
    """A change that tells its place in the binlog."""
    return {**at(change, partition, offset, second), **position(1, pos)}


@pytest.mark.thorough
@in_one_run_or_two
@pytest.mark.parametrize("pos", [150, 300])
def test_rows_with_a_place_and_a_truncate_without_one_by_another_partition(binlog: Feed, whole: bool, pos: int) -> None:
    """Nothing says which was first, be the row's place behind those before the TRUNCATE or ahead of them."""
    binlog.say(placed(insert(1, "a"), 0, 0, 100, 0), placed(insert(2, "b"), 0, 1, 200, 5), at(TRUNCATE, 0, 2, 6))
    binlog.say(placed(insert(3, "c"), 0, 3, 210, 7))
    if not whole:
        binlog.catch_up()
        assert live(binlog) == [(3, "c")]
    binlog.say(placed(insert(4, "d"), 1, 0, pos, 5))
    binlog.catch_up()
    state, reason = binlog.state("shop", "orders")
    assert state == "stopped" and "TRUNCATE without a position" in str(reason)
    with pytest.raises(TableStopped, match="TRUNCATE without a position"):
        rebuild(binlog.spark, binlog.config, binlog.source, "shop", "orders")


@pytest.mark.thorough
def test_a_truncate_without_a_place_stands_where_it_came_in_the_one_partition_of_its_rows(binlog: Feed) -> None:
    binlog.say(placed(insert(1, "a"), 0, 0, 100, 0), at(TRUNCATE, 0, 1, 6), placed(insert(2, "b"), 0, 2, 200, 7))
    binlog.say(placed(LINES.insert((None, None), {"id": "1"}), 1, 0, 150, 5))
    binlog.catch_up()
    binlog.say(placed(insert(3, "c"), 0, 3, 300, 9), placed(LINES.insert((None, None), {"id": "2"}), 1, 1, 310, 9))
    binlog.catch_up()
    assert (binlog.state("shop", "orders")[0], live(binlog)) == ("live", [(2, "b"), (3, "c")])
    assert len(binlog.live("shop", "lines")) == 2
