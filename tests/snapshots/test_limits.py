"""What a feed can't tell of a table's columns stands in the table's own metadata, as long as no option settles it."""

import json
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform.results import StageResult
from tests.changelog.feed import Feed, SourceTable

pytestmark = pytest.mark.spark

PAID = SourceTable("shop", "paid", [("id", "int"), ("at", "timestamp(3)"), ("day", "datetime")])
PLAIN = SourceTable("shop", "plain", [("id", "int")])


def said(feed: Feed, table: str) -> dict[str, list[str]]:
    found = DeltaTable(feed.target("shop", table).snapshot.uri()).metadata().configuration
    return json.loads(found.get("cdc.limits", "{}"))


def test_a_table_says_what_its_feed_cannot_tell_until_an_option_settles_it(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    cells: dict[str, str | None] = {"id": "1", "at": "2026-11-20 01:02:03Z", "day": "2026-11-20 01:02:03"}
    feed.say(PAID.stated() | {"lineage": "1"}, PAID.insert((1, 10), cells))
    feed.say(PLAIN.stated() | {"lineage": "1"}, PLAIN.insert((1, 11), {"id": "1"}))
    result: StageResult = feed.catch_up()
    assert list(said(feed, "paid")) == ["at"] and "time_zone" in said(feed, "paid")["at"][0]
    assert said(feed, "plain") == {}
    assert str(result.tables["shop.paid"]["limits"]).startswith("at: it may come as text without a zone")
    assert "limits" not in result.tables["shop.plain"]
    zoned = feed.source.model_copy(update={"options": {"time_zone": "UTC"}})
    feed.config = feed.config.model_copy(update={"sources": [zoned]})
    feed.say(PAID.insert((1, 20), {**cells, "id": "2"}))
    result = feed.catch_up()
    assert said(feed, "paid") == {} and "limits" not in result.tables["shop.paid"]


@pytest.mark.thorough
def test_tables_that_dtle_told_have_its_limits(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    for at, (name, info) in enumerate({"one": {"writer": "dtle"}, "two": None}.items()):
        table = SourceTable("shop", name, [("id", "int"), ("n", "decimal(9,2)")])
        feed.say(table.stated() | {"lineage": "1", "info": info}, table.insert((1, 10 + at), {"id": "1", "n": "1.00"}))
    feed.catch_up()
    assert said(feed, "one") == {"n": ["negative decimals whose leading bit is set arrive as positive ones"]}
    assert said(feed, "two") == {}
