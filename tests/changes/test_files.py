"""Data files of `changes` and the statistics in their footers."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cdc_platform import tables
from cdc_platform.changes.files import statistics_of
from tests.changelog.feed import Feed, SourceTable, position
from tests.lakes import file_at

ORDERS = SourceTable("shop", "orders", [("id", "int"), ("note", "text")])


@pytest.mark.spark
def test_a_file_without_statistics_is_read_for_them(spark, make_config):
    """As Spark wrote them in lakes of earlier versions."""
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    for file in (1, 2, 3):
        row = {"id": str(file), "note": None}
        feed.say({"kind": "begin", **position(file, 1)}, ORDERS.stated(), ORDERS.insert((file, 5), row))
    changes = Path(tables.CHANGES.at(feed.config.lake, format="debezium", source="s"))
    files = sorted(map(str, changes.rglob("*.parquet")))
    expected = statistics_of(spark, [file_at(f) for f in files])
    assert sorted(g["file"] for s in expected for g in s["groups"] if g["kind"] == "row") == [1, 2, 3]
    for path in files[:2]:
        rows = pq.read_table(path)
        pq.write_table(rows.drop_columns([n for n in rows.column_names if n == "retold"]), path)
    assert statistics_of(spark, [file_at(f) for f in files]) == expected
