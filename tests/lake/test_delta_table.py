"""Queries over the platform's small tables: delta-rs and Spark must answer alike."""

import os
import shutil
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform import tables
from cdc_platform.lake import answers, delta_table, looks
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql
from tests.changelog.feed import SourceTable
from tests.lakes import store_at
from tests.rows import add

TABLE = SourceTable("n", "items", [("id", "int"), ("v", "varchar(20)")])


def by_spark(spark: Any, sql: str, **paths: Store) -> list[dict[str, Any]]:
    frames = {name: spark.read.format("delta").load(path.spark_uri()) for name, path in paths.items()}
    return [row.asDict(recursive=True) for row in spark.sql(sql.replace('"', "`"), **frames).collect()]


@pytest.mark.spark
def test_structs_with_nulls_are_compared_alike(spark, tmp_path):
    path = store_at(tmp_path / "t")
    order = tables.ORDER_TYPE
    rows = [
        (1, 5, (1, 2, Decimal(30), 0, 0, 7)),
        (1, 9, (1, 2, Decimal(4), 9, 9, 9)),
        (1, 7, None),
        (2, None, None),
        (2, 3, None),
        (3, None, (0, -1, Decimal(2**63), 0, 0, 0)),
        (3, None, (0, -1, Decimal(2**63 + 1), 0, 0, 0)),
    ]
    spark.createDataFrame(rows, f"k INT, n INT, o {order}").write.format("delta").save(path.uri())
    highest = "max(CASE WHEN n IS NOT NULL THEN named_struct('n', n, 'k', k) END)"
    sql = f"SELECT k, max(o) AS o, {highest} AS s FROM {{t}} GROUP BY k"
    found = delta_table.ask(sql, t=path)
    key = lambda r: r["k"]  # noqa: E731
    assert sorted(found, key=key) == sorted(by_spark(spark, sql, t=path), key=key)
    assert {r["k"]: r["o"] and int(r["o"]["pos"]) for r in found} == {1: 30, 2: None, 3: 2**63 + 1}
    assert {r["k"]: r["s"] and r["s"]["n"] for r in found} == {1: 9, 2: 3, 3: None}


@pytest.mark.spark
def test_a_folder_without_a_commit_is_no_table(spark, tmp_path):
    path = store_at(tmp_path / "t")
    spark.range(3).write.format("delta").save(path.uri())
    assert (delta_table.exists(path), delta_table.version(path)) == (True, 0)
    assert not delta_table.exists(store_at(tmp_path / "none"))
    (tmp_path / "begun" / "_delta_log").mkdir(parents=True)
    assert not delta_table.exists(store_at(tmp_path / "begun"))


@pytest.mark.spark
def test_a_commit_is_seen_at_once(spark, tmp_path):
    path = store_at(tmp_path / "t")
    for n in range(3):
        spark.range(n, n + 1).write.format("delta").mode("append").save(path.uri())
        assert delta_table.version(path) == n
        assert delta_table.ask("SELECT max(id) AS last FROM {t}", t=path) == [{"last": n}]
    delta_sql.ensure(tables.TOPICS, store_at(tmp_path / "topics"))
    assert delta_table.ask("SELECT topic FROM {t}", t=store_at(tmp_path / "topics")) == []
    spark.sql(f"ALTER TABLE {delta_sql.delta(path)} SET TBLPROPERTIES ('cdc.limits' = 'x')")
    assert looks.look(path).properties["cdc.limits"] == "x"


def test_compaction_removes_what_no_version_needs_and_no_file_that_is_being_written(tmp_path):
    path, week = store_at(tmp_path / "lineages"), 7 * 86_400
    for batch in range(4):
        add(tmp_path, tables.LINEAGES, {"source": "s", "batch": batch}, {"source": "t", "batch": batch})
    folder = tmp_path / "lineages" / "source=s"
    [first, *_] = folder.glob("*.parquet")
    being_written, of_a_failed_task = (Path(shutil.copy(first, folder / f"part-{n}.parquet")) for n in "ab")
    os.utime(of_a_failed_task, (time.time() - 2 * week,) * 2)
    delta_table.compact(path, 168, source="s")
    assert len(delta_table.sizes(path)) == 1 + 4
    assert first.exists() and being_written.exists()
    assert not of_a_failed_task.exists()
    assert delta_table.ask("SELECT count(*) AS n FROM {t}", t=path) == [{"n": 8}]
    being_written.unlink()
    delta_table.compact(path, 0, source="t")
    assert len(list(Path(path.uri()).glob("*/*.parquet"))) == len(delta_table.sizes(path)) == 2


def test_what_is_asked_of_each_of_many_tables_is_asked_once(tmp_path, monkeypatch):
    path, answered = store_at(tmp_path / "t"), []
    rows = answers.rows
    monkeypatch.setattr(answers, "rows", lambda table: answered.append(1) or rows(table))
    write_deltalake(path.uri(), pa.table({"n": pa.array(range(800), pa.int64())}))
    asked = [delta_table.ask("SELECT n FROM {t} ORDER BY n", t=path) for _ in range(3)]
    assert asked == [[{"n": n} for n in range(800)]] * 3
    assert len(answered) == 1
    for m in range(40):  # others that are as long don't take memory for ever
        delta_table.ask(f"SELECT n + {m} AS n FROM {{t}}", t=path)
    assert sum(len(one.rows) for one in answers._remembered.values()) <= answers._MOST_ROWS
    delta_table.append_rows(path, [{"n": -1}])
    assert delta_table.ask("SELECT n FROM {t} ORDER BY n", t=path)[0] == {"n": -1}


def test_topics_are_topics():
    assert delta_table.topic("dts-shop.v_2") == "dts-shop.v_2"
    with pytest.raises(ValueError, match="no topic"):
        delta_table.topic("x' OR 1=1 --")


def test_digests_are_digests():
    assert delta_table.digests({"0a", "ff"}) == "'0a', 'ff'"
    with pytest.raises(ValueError, match="no digest"):
        delta_table.digests(["0a", "x' OR 1=1 --"])


@pytest.mark.spark
def test_columns_are_told_as_spark_has_them(spark, tmp_path):
    for number, table in enumerate((tables.CHANGES, tables.CHANGELOG, tables.LANDING)):
        path = store_at(tmp_path / str(number))
        delta_sql.create(spark, path, table.ddl, table.properties, "", table.partition_by)
        assert delta_sql.schema(path) == delta_sql.read(spark, path).schema
