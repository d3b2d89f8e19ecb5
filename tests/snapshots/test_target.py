"""The Delta tables of one source table: made, evolved, made anew."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.mysql.types import parse_type
from cdc_platform.resources import lake
from cdc_platform.snapshots import target as targets
from cdc_platform.snapshots.columns import TableColumn
from cdc_platform.snapshots.target import Target, prepare
from tests.changelog.feed import Feed, Image, SourceTable

pytestmark = pytest.mark.spark


def columns(**types: str) -> list[TableColumn]:
    return [TableColumn(name, parse_type(type_), name == "id") for name, type_ in types.items()]


@pytest.mark.parametrize("anew", [False, True], ids=["added", "made anew"])
def test_the_first_datetime_column_of_a_table(spark: Any, make_config: Any, anew: bool) -> None:
    target = Target.of(make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s", "d", "t")
    prepare(spark, target, columns(id="int"))
    key = "datetime" if anew else "int"
    prepare(spark, target, columns(id=key, at="datetime(6)"), anew=anew)
    found = {f.name: f.dataType.simpleString() for f in lake.read(spark, target.snapshot).schema.fields}
    assert found["at"] == "timestamp_ntz"
    assert found["id"] == ("timestamp_ntz" if anew else "int")


def marked(snapshot: str) -> bool:
    """Whether the newest commit marks rows as deleted; False: it wrote their files anew."""
    newest = max(Path(snapshot, "_delta_log").glob("*.json"))
    return any(json.loads(line).get("add", {}).get("deletionVector") for line in newest.read_text().splitlines())


@pytest.mark.parametrize("keys", [("id",), ()], ids=["by key", "without a key"])
def test_rows_are_marked_once_the_table_is_large(spark: Any, make_config: Any, monkeypatch: Any, keys: Any) -> None:
    table = SourceTable("d", "t", [("id", "int"), ("a", "int")], keys)
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    one: Image = {"id": "1", "a": "1"}
    others = [table.insert((1, 10 + i), {"id": str(i), "a": "2"}) for i in range(2, 9)]
    feed.say(table.stated(), table.insert((1, 10), one), *others)
    feed.catch_up()
    for size, pos in ((targets.SMALL, 20), (0, 30)):
        monkeypatch.setattr(targets, "SMALL", size)
        feed.say(table.update((1, pos), one, one := {"id": "1", "a": str(pos)}))
        feed.catch_up()
        assert marked(feed.target("d", "t").snapshot) == (size == 0)
        assert sorted(r["a"] for r in feed.live("d", "t")) == [*[2] * 7, pos]
