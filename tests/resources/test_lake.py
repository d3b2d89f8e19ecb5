"""Tables that several writers share."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_platform.resources import lake
from cdc_platform.tables import CHANGELOG, LINEAGES, QUARANTINE

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table", [CHANGELOG, QUARANTINE], ids=lambda t: t.path)
def test_writers_that_start_at_once_make_one_table(spark, tmp_path, table):
    path = table.at(str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: lake.ensure(spark, table, path), range(4)))
    assert made == [path] * 4
    history = spark.sql(f"DESCRIBE HISTORY {lake.delta(path)}").collect()
    assert [row["operation"] for row in history] == ["CREATE TABLE"]


def test_a_table_that_cannot_be_made_is_told(spark, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Exception, match="file"):
        lake.ensure(spark, CHANGELOG, str(tmp_path / "file" / "changelog"))


def test_rows_of_a_batch_that_are_there_are_not_written_again(spark, tmp_path):
    path = lake.ensure(spark, LINEAGES, str(tmp_path / "lineages"))
    schema = lake.read(spark, path).schema
    for source, batch in (("a", 1), ("a", 2), ("b", 1), ("a", 1), ("b", 1)):
        rows = spark.createDataFrame([(source, "1", 0, batch, None, None)], schema)
        lake.append_batch(rows, path, f"source = '{source}' AND batch = {batch}")
    there = lake.read(spark, path).select("source", "batch").collect()
    assert sorted(map(tuple, there)) == [("a", 1), ("a", 2), ("b", 1)]
