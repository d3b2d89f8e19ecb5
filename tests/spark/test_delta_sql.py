"""Tables that several writers share."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.types import StructType

from cdc_platform.lake import delta_table
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHANGELOG, LINEAGES, QUARANTINE
from tests.lakes import store_at

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table", [CHANGELOG, QUARANTINE], ids=lambda t: t.path)
def test_writers_that_start_at_once_make_one_table(spark, tmp_path, table):
    path = table.at(store_at(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: delta_sql.ensure(table, path), range(4)))
    assert made == [path] * 4
    history = spark.sql(f"DESCRIBE HISTORY {delta_sql.delta(path)}").collect()
    assert [row["operation"] for row in history] == ["CREATE TABLE"]


_OLD = """source STRING, format STRING, decoder_version STRING, room STRING, topic STRING, `partition` INT,
  `offset` BIGINT, entry_index INT, row_index INT, db STRING, `table` STRING, reason STRING, landed_at TIMESTAMP,
  quarantined_at TIMESTAMP, resolved_at TIMESTAMP"""
"""Columns of quarantine in lakes of version 0.1."""


def test_columns_that_an_earlier_table_lacks_are_added_once_and_its_rows_stay(spark, tmp_path):
    path = QUARANTINE.at(store_at(tmp_path))
    delta_sql.create(spark, path, _OLD, QUARANTINE.properties, QUARANTINE.comment, QUARANTINE.partition_by)
    spark.sql(f"INSERT INTO {delta_sql.delta(path)} (source, topic, reason) VALUES ('shop', 't', 'no JSON')")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: delta_sql.ensure(QUARANTINE, path), range(4))) == [path] * 4
    schema, wanted = delta_sql.read(spark, path).schema, StructType.fromDDL(QUARANTINE.ddl)
    assert [(f.name, f.dataType) for f in schema] == [(f.name, f.dataType) for f in wanted]
    assert [schema[n].metadata for n in QUARANTINE.added] == [wanted[n].metadata for n in QUARANTINE.added]
    added = [
        r for r in spark.sql(f"DESCRIBE HISTORY {delta_sql.delta(path)}").collect() if "ADD COLUMN" in r["operation"]
    ]
    assert len(added) == 1
    row = {"source": "shop", "reason": "new", "schema": "s", "key": {"id": "1"}, "column": "c"}
    delta_table.append_rows(path, [row])
    rows = delta_sql.read(spark, path).select("reason", "schema", "key", "column").collect()
    assert sorted(map(tuple, rows)) == [("new", "s", {"id": "1"}, "c"), ("no JSON", None, None, None)]


def test_a_table_that_cannot_be_made_is_told(spark, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Exception, match="file"):
        delta_sql.ensure(CHANGELOG, store_at(tmp_path / "file" / "changelog"))


def test_rows_of_a_batch_that_are_there_are_not_written_again(spark, tmp_path):
    path = delta_sql.ensure(LINEAGES, store_at(tmp_path / "lineages"))
    for source, batch in (("a", 1), ("a", 2), ("b", 1), ("a", 1), ("b", 1)):
        row = {"source": source, "lineage": "1", "epoch": 0, "batch": batch}
        delta_table.append_rows(path, [row], of=f"source = '{source}' AND batch = {batch}")
    there = delta_sql.read(spark, path).select("source", "batch").collect()
    assert sorted(map(tuple, there)) == [("a", 1), ("a", 2), ("b", 1)]
