"""The lake's tables as they are made, by Spark and by delta-rs, and as lakes have them that were made before."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.lake import delta_table
from cdc_platform.spark import delta_sql
from cdc_platform.tables.columns import shown
from tests.lakes import store_at

BEFORE = json.loads(Path(__file__).with_name("lakes_of_0_1.json").read_text())
"""Per path the partition columns, properties and columns (name, type) of a table that version 0.1 made. Stays as it is:
lakes have such tables."""


UPKEEP = ("delta.checkpointInterval", "delta.logRetentionDuration")
"""Properties of which new lakes have other values than those of 0.1: how often and how long a log is kept concerns no
reader."""


def test_every_table_is_among_all():
    assert {t.path for t in vars(tables).values() if isinstance(t, tables.Table)} == {t.path for t in tables.ALL}
    assert len({t.path for t in tables.ALL}) == len(tables.ALL)


def test_every_column_is_described():
    assert [(t.path, c.name) for t in tables.ALL for c in t.columns if not c.meaning] == []


@pytest.mark.parametrize("path", BEFORE)
def test_a_table_of_an_earlier_lake_is_as_it_was(path):
    before = BEFORE[path]
    [table] = [t for t in tables.ALL if t.path == path]
    columns, had = [(c.name, shown(c.type)) for c in table.columns], [tuple(c) for c in before["columns"]]
    assert columns[: len(had)] == had, "columns of tables that exist keep their place and type"
    lacking = {name for name, _ in columns[len(had) :]}
    assert lacking <= set(table.added), "`ensure` has to add what an earlier table lacks"
    assert list(table.partition_by) == before["partition_by"]
    own = {k: v for k, v in table.properties.items() if k not in UPKEEP}
    had = {k: v for k, v in before["properties"].items() if k not in UPKEEP}
    assert own == had, "tables that exist keep the properties they were made with"


def test_tables_need_no_heavy_import():
    program = (
        "import sys, cdc_platform.tables; print(*{'pyarrow', 'pyspark', 'deltalake', 'dagster'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.spark
@pytest.mark.parametrize("by", ["delta-rs", pytest.param("Spark", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("table", tables.ALL, ids=lambda t: t.path.partition("/")[0])
def test_a_table_is_made_once_and_as_it_is_described(spark, tmp_path, table, by):
    path = table.at(store_at(tmp_path), source="a-b", format="debezium")
    assert not delta_table.exists(path)
    for _ in range(2):
        if by == "Spark":
            delta_sql.create(spark, path, table.ddl, table.properties, table.comment, table.partition_by)
        assert delta_sql.ensure(table, path) == path
    history = spark.sql(f"DESCRIBE HISTORY {delta_sql.delta(path)}").collect()
    assert [r["operation"] for r in history] == ["CREATE TABLE"]

    fields = delta_sql.read(spark, path).schema.fields
    told = [(f.name, f.dataType.simpleString(), f.metadata.get("comment", ""), f.nullable) for f in fields]
    assert told == [
        (c.name, shown(c.type).replace(": ", ":").replace(", ", ","), c.comment, True) for c in table.columns
    ]
    detail = spark.sql(f"DESCRIBE DETAIL {delta_sql.delta(path)}").collect()[0]
    assert (detail["partitionColumns"], detail["description"]) == (list(table.partition_by), table.comment)
    assert {k: detail["properties"].get(k) for k in table.properties} == table.properties
    assert pa.schema(DeltaTable(path.uri()).schema().to_arrow()).equals(table.arrow())
