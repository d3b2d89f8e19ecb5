"""Messages that were decoded again: what had been used of them stays once, the rest takes its place."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.changes import files
from cdc_platform.config import parse_config
from cdc_platform.formats.events import event_batch
from cdc_platform.lake import held_rows, stores
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


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("format", ["canal", "canal_json"])
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


def in_part(bad: dict[int, str]) -> list[dict[str, Any]]:
    """A message of four rows, of which these entries can't be read."""
    events: list[dict[str, Any]] = [KEYED.stated() | {"offset": 5}]
    for entry in range(4):
        at = {"offset": 5, "entry_index": entry}
        if entry in bad:
            told = {"kind": "error", "reason": bad[entry], "db": "d", "table": "keyed"}
            events.append({**at, **told, **position(1, 10 * entry)})
        else:
            events.append(KEYED.insert((1, 10 * entry), {"id": str(entry), "v": "1"}, **at))
    return events


@pytest.mark.thorough
def test_what_still_holds_of_a_message_is_held_once(spark: Any, tmp_path: Path):
    source = {"name": "s", "format": "canal", "topics": ["t"]}
    feed = Feed(spark, parse_config({"lake": str(tmp_path), "sources": [source]}, tmp_path / "cdc.yaml"), "s")

    def held() -> list[tuple[int, str]]:
        rows = feed.rows(tables.QUARANTINE)
        return sorted((r["entry_index"], r["reason"]) for r in rows if r["resolved_at"] is None)

    feed.say(*in_part({1: "half a row", 2: "half a row", 3: "x"}))
    feed.catch_up()
    assert held() == [(1, "half a row"), (2, "half a row"), (3, "x")]
    for left in ({2: "half a row", 3: "x"}, {3: "another reason"}):
        retell(feed, *in_part(left))
        feed.unify()
        assert held() == sorted(left.items())
    assert [(h["table"], h["rows"]) for h in held_rows.by_table(feed.config)] == [("keyed", 1)]
    retell(feed, *in_part({}))
    feed.catch_up()
    assert held() == [] and len(feed.live("d", "keyed")) == 4
