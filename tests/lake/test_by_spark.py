"""Tables that several writers share."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.types import StructType

from cdc_platform.lake import by_spark, delta_table
from cdc_platform.tables import CHANGELOG, LINEAGES, QUARANTINE

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table", [CHANGELOG, QUARANTINE], ids=lambda t: t.path)
def test_writers_that_start_at_once_make_one_table(spark, tmp_path, table):
    path = table.at(str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: by_spark.ensure(spark, table, path), range(4)))
    assert made == [path] * 4
    history = spark.sql(f"DESCRIBE HISTORY {by_spark.delta(path)}").collect()
    assert [row["operation"] for row in history] == ["CREATE TABLE"]


_OLD = """source STRING, format STRING, decoder_version STRING, room STRING, topic STRING, `partition` INT,
  `offset` BIGINT, entry_index INT, row_index INT, db STRING, `table` STRING, reason STRING, landed_at TIMESTAMP,
  quarantined_at TIMESTAMP, resolved_at TIMESTAMP"""
"""Columns of quarantine in lakes of version 0.1."""


@pytest.mark.parametrize("seen", [True, False], ids=["by delta-rs", "by Spark"])
def test_columns_that_an_earlier_table_lacks_are_added_once_and_its_rows_stay(spark, tmp_path, monkeypatch, seen):
    path = QUARANTINE.at(str(tmp_path))
    by_spark.create(spark, path, _OLD, QUARANTINE.properties, QUARANTINE.comment, QUARANTINE.partition_by)
    spark.sql(f"INSERT INTO {by_spark.delta(path)} (source, topic, reason) VALUES ('shop', 't', 'no JSON')")
    if not seen:
        monkeypatch.setattr(delta_table, "is_table", lambda _: False)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: by_spark.ensure(spark, QUARANTINE, path), range(4))) == [path] * 4
    schema, wanted = by_spark.read(spark, path).schema, StructType.fromDDL(QUARANTINE.columns)
    assert [(f.name, f.dataType) for f in schema] == [(f.name, f.dataType) for f in wanted]
    assert [schema[n].metadata for n in QUARANTINE.added] == [wanted[n].metadata for n in QUARANTINE.added]
    added = [
        r for r in spark.sql(f"DESCRIBE HISTORY {by_spark.delta(path)}").collect() if "ADD COLUMN" in r["operation"]
    ]
    assert len(added) == 1
    row = {"source": "shop", "reason": "new", "schema": "s", "key": {"id": "1"}, "column": "c"}
    by_spark.append_rows(spark, path, [row])
    rows = by_spark.read(spark, path).select("reason", "schema", "key", "column").collect()
    assert sorted(map(tuple, rows)) == [("new", "s", {"id": "1"}, "c"), ("no JSON", None, None, None)]


def test_a_table_that_cannot_be_made_is_told(spark, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Exception, match="file"):
        by_spark.ensure(spark, CHANGELOG, str(tmp_path / "file" / "changelog"))


def test_rows_of_a_batch_that_are_there_are_not_written_again(spark, tmp_path):
    path = by_spark.ensure(spark, LINEAGES, str(tmp_path / "lineages"))
    schema = by_spark.read(spark, path).schema
    for source, batch in (("a", 1), ("a", 2), ("b", 1), ("a", 1), ("b", 1)):
        rows = spark.createDataFrame([(source, "1", 0, batch, None, None)], schema)
        by_spark.append_batch(rows, path, f"source = '{source}' AND batch = {batch}")
    there = by_spark.read(spark, path).select("source", "batch").collect()
    assert sorted(map(tuple, there)) == [("a", 1), ("a", 2), ("b", 1)]
