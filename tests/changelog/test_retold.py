"""Messages that were decoded again: what had been used of them stays once, the rest takes its place."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.changes import files
from cdc_platform.config import parse_config
from cdc_platform.formats.events import event_batch
from cdc_platform.lake import stores
from cdc_platform.spark.arrow_tasks import spark_schema
from tests.changelog.feed import LANDED, Feed, SourceTable, as_event, position

pytestmark = pytest.mark.spark

KEYED = SourceTable("d", "keyed", [("id", "int"), ("v", "int")])
COUNTED = SourceTable("d", "counted", [("v", "int")], keys=())


def retell(feed: Feed, *events: dict[str, Any]) -> None:
    """One commit of events that were decoded again."""
    batch = event_batch([as_event({"landed_at": LANDED, **e}) for e in events])
    table = pa.Table.from_batches([batch.append_column("retold", pa.array([True] * len(events)))])
    changes = tables.CHANGES.at(stores.lake(feed.config), format=feed.source.format, source=feed.name)
    files.append(feed.spark.createDataFrame(table, spark_schema(files.CHANGE)), changes)


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("format", [pytest.param("canal", marks=pytest.mark.thorough), "canal_json"])
def test_what_was_used_of_a_message_is_used_once(spark: Any, tmp_path: Path, format: str, times: int):
    source = {"name": "s", "format": format, "topics": ["t"]}
    feed = Feed(spark, parse_config({"lake": str(tmp_path), "sources": [source]}, tmp_path / "cdc.yaml"), "s")
    rows = [
        COUNTED.insert((1, 10), {"v": "7"}, offset=5, entry_index=0),
        KEYED.insert((1, 20), {"id": "1", "v": "1"}, offset=5, entry_index=1),
        COUNTED.insert((1, 30), {"v": "7"}, offset=5, entry_index=2),
    ]
    bad = {"kind": "error", "reason": "not yet", "offset": 5, "entry_index": 2, "db": "d", "table": "counted"}
    stated = [COUNTED.stated() | {"offset": 5}, KEYED.stated() | {"offset": 5}]
    feed.say(*stated, *rows[:2], {**bad, **position(1, 30)})
    feed.catch_up()
    assert feed.live("d", "counted") == [{"v": 7}]
    for _ in range(times):
        retell(feed, *stated, *rows)
        feed.catch_up()
        assert feed.live("d", "counted") == [{"v": 7}] * 2
        assert feed.live("d", "keyed") == [{"id": 1, "v": 1}]
        assert len(feed.rows(tables.CHANGELOG)) == 3
