"""What becomes of rows without a change that tells it: a TRUNCATE of a table without a key, a snapshot taken again."""

from decimal import Decimal
from typing import Any

import pytest

from cdc_platform.explain import describe
from cdc_platform.explain.row import explain
from cdc_platform.explain.table import find, parse_key
from cdc_platform.reading.moments import Moment
from tests.changelog.feed import Feed
from tests.snapshots.test_ddl import OLD, taken, versions

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_rows_of_a_table_without_a_key_are_counted_since_it_was_emptied(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    bag = versions("a int", "b decimal(9,2)", name="bag", keys=())
    feed.say(bag.stated() | {"lineage": "1"}, bag.insert((1, 10), {"a": "1", "b": "5.00"}))
    feed.say(bag.change("truncate", (1, 20)), bag.insert((1, 30), {"a": "2", "b": "5.00"}))
    feed.catch_up()
    found = find(feed.config, feed.source, "shop.bag")

    def counted(key: str) -> tuple[int, int]:
        told = describe.contents(feed.config, found, parse_key(found, key), sql=False)
        return told["added"], told["taken"]

    assert feed.live("shop", "bag") == [{"a": 2, "b": Decimal("5.00")}]
    assert [counted(key) for key in ("a=1", "a=2", "b=5")] == [(0, 0), (1, 0), (1, 0)]


def test_a_row_that_a_later_snapshot_lacks_is_not_called_dropped(spark: Any, make_config: Any) -> None:
    source = {"name": "s", "format": "debezium", "topics": ["s"], "options": {"whole_snapshots": True}}
    feed = Feed(spark, make_config([source]), "s")
    for place, ids in (((1, 157), "123"), ((9, 158), "13")):
        feed.say(*taken(OLD, place, ids))
        feed.catch_up()
    assert sorted(r["id"] for r in feed.live("shop", "t")) == [1, 3]
    table = find(feed.config, feed.source, "shop.t")
    told = explain(feed.config, table, parse_key(table, "2"), Moment())
    [why] = describe.explained(feed.config, told, (), every=False, sql=False)["why"]
    assert (why["kind"], why["sure"]) == ("not read", True)
    assert "dropped" not in why["text"]
