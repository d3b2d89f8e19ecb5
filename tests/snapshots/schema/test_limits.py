"""What a feed can't tell of a table's columns stands in the table's own metadata, as long as no option settles it."""

import json
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform.formats.events import columns_json
from cdc_platform.results import StageResult
from cdc_platform.snapshots.schema import limits
from cdc_platform.tables import LOADED, SCHEMA_HISTORY
from tests.changelog.feed import Feed, SourceTable, position
from tests.rows import add

PAID = SourceTable("shop", "paid", [("id", "int"), ("at", "timestamp(3)"), ("day", "datetime")])
PLAIN = SourceTable("shop", "plain", [("id", "int")])


def said(feed: Feed, table: str) -> dict[str, list[str]]:
    found = DeltaTable(feed.target("shop", table).snapshot.uri()).metadata().configuration
    return json.loads(found.get("cdc.limits", "{}"))


@pytest.mark.spark
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
@pytest.mark.spark
def test_tables_that_dtle_told_have_its_limits(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    for at, (name, info) in enumerate({"one": {"writer": "dtle"}, "two": None}.items()):
        table = SourceTable("shop", name, [("id", "int"), ("n", "decimal(9,2)")])
        feed.say(table.stated() | {"lineage": "1", "info": info}, table.insert((1, 10 + at), {"id": "1", "n": "1.00"}))
    feed.catch_up()
    assert said(feed, "one") == {"n": ["negative decimals whose leading bit is set arrive as positive ones"]}
    assert said(feed, "two") == {}


@pytest.mark.thorough
@pytest.mark.spark
def test_a_table_says_which_foreign_keys_change_its_rows_without_a_message(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    kids = [SourceTable("shop", name, [("id", "int"), ("p", "int")]) for name in ("kid", "old", "plain")]
    made = {
        k.name: f"CREATE TABLE {k.name} (id INT PRIMARY KEY, p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id)"
        + (" ON DELETE CASCADE)" if k.name != "plain" else ")")
        for k in kids
    }
    for at, kid in enumerate(kids):
        info = {"snapshot": "true"} if kid.name == "kid" else {}  # as Debezium describes tables when it begins
        ddl = {"kind": "ddl", "db": "shop", "ddl": made[kid.name], "info": info, **position(1, 10 + at)}
        feed.say(ddl, kid.stated() | {"lineage": "1"}, kid.insert((1, 20 + at), {"id": "1", "p": "1"}))
    feed.say({"kind": "ddl", "db": "shop", "ddl": "ALTER TABLE old DROP FOREIGN KEY f", **position(1, 30)})
    result: StageResult = feed.catch_up()
    [text] = said(feed, "kid")["*"]
    assert text.startswith("foreign key f (p: ON DELETE CASCADE): ") and "without a message" in text
    assert "foreign key f" in str(result.tables["shop.kid"]["limits"])
    assert said(feed, "old") == said(feed, "plain") == {}


@pytest.mark.spark
def test_a_column_says_that_null_may_arrive_as_its_default(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    paid = SourceTable("shop", "paid", [("id", "int"), ("v", "varchar(9)")])
    listed = [{"name": "id", "type": "int", "key": True}, {"name": "v", "type": "varchar(9)", "key": False}]
    columns = columns_json([listed[0], {**listed[1], "limits": ["null as default"]}])
    feed.say(paid.stated() | {"lineage": "1", "columns": columns}, paid.insert((1, 10), {"id": "1", "v": "new"}))
    feed.say({"kind": "ddl", "db": "shop", "ddl": "ALTER TABLE paid RENAME COLUMN v TO w", **position(1, 30)})
    feed.catch_up()
    assert list(said(feed, "paid")) == ["w"] and "replace_null_with_default" in said(feed, "paid")["w"][0]


def test_a_load_states_what_the_tables_own_tool_told(make_config: Any) -> None:
    config = make_config([{"name": "s", "format": "debezium", "topics": ["s"]}])
    told = {"source": "s", "kind": "message", "db": "shop", "table": "t", "topic": "s", "info": {"writer": "dtle"}}
    loaded = {**told, "topic": LOADED, "info": {"load": "b.000001:900 (load 0.0)"}}
    add(config.lake, SCHEMA_HISTORY, told, loaded)
    assert limits._writers(config, config.source("s")) == {("shop", "t"): {"dtle"}}
