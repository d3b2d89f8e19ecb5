"""Columns changed by metadata alone: what Spark makes of the same statements, and reads of the rows."""

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_platform.lake import metadata_commits, new_tables
from cdc_platform.lake.columns import COLUMN_MAPPING, MAPPING, NTZ, Columns
from cdc_platform.lake.store import Store
from cdc_platform.tables import Table
from cdc_platform.tables.columns import BIGINT, STRING, Array, Column, Struct, scalar
from tests.lakes import store_at

TABLE = Table(
    "",
    "A table",
    (
        Column("id", BIGINT, "its key"),
        Column("a", STRING),
        Column("b", scalar("decimal(9,2)"), "a sum"),
        Column("place", Struct((("file", BIGINT), ("within", Array(Struct((("n", BIGINT),))))))),
    ),
)


def field(name: str, type_: str, comment: str = "") -> dict[str, Any]:
    [made] = new_tables.fields(Table("", "", (Column(name, scalar(type_), comment),)))
    return made


@pytest.fixture
def table(store: Store) -> Store:
    new_tables.create(store.at("t"), TABLE)
    return store.at("t")


def changed(path: Store, *steps: Any) -> bool:
    def change(columns: Columns) -> bool:
        for step in steps:
            step(columns)
        return True

    return metadata_commits.change_columns(path, change)


def numbers(of: Any) -> list[int]:
    """Numbers that a schema's fields have, those within fields, too."""
    if isinstance(of, dict):
        own = [of["delta.columnMapping.id"]] if "delta.columnMapping.id" in of else []
        return own + [n for v in of.values() for n in numbers(v)]
    return [n for v in of for n in numbers(v)] if isinstance(of, list) else []


def test_a_column_more_asks_nothing_of_readers_until_one_needs_it(table: Store) -> None:
    before = DeltaTable(table.uri(), storage_options=table.options)
    assert changed(table, lambda c: c.add(field("n", "int", "a number"), 1))
    now = DeltaTable(table.uri(), storage_options=table.options)
    assert [f.name for f in now.schema().fields] == ["id", "n", "a", "b", "place"]
    assert now.schema().fields[1].metadata == {"comment": "a number"}
    assert now.protocol() == before.protocol()
    assert (now.metadata().id, now.metadata().description) == (before.metadata().id, "A table")
    assert changed(table) and now.version() == DeltaTable(table.uri(), storage_options=table.options).version()
    assert changed(table, lambda c: c.add(field("at", "timestamp_ntz"), 0))
    protocol = DeltaTable(table.uri(), storage_options=table.options).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == [NTZ] and {NTZ, "appendOnly", "invariants"} == {*protocol.writer_features}


def test_a_name_that_files_cant_have_and_renames_map_the_columns(table: Store) -> None:
    assert changed(table, lambda c: c.add(field("a b", "int"), 4))
    now = DeltaTable(table.uri(), storage_options=table.options)
    assert now.metadata().configuration[MAPPING] == "name"
    assert {COLUMN_MAPPING, NTZ} == {*now.protocol().reader_features}
    schema = json.loads(now.schema().to_json())
    found = numbers(schema)
    assert sorted(found) == list(range(1, 9)) and now.metadata().configuration["delta.columnMapping.maxColumnId"] == "8"
    assert changed(table, lambda c: c.drop("a"), lambda c: c.add(field("a", "int"), 1))
    again = json.loads(DeltaTable(table.uri(), storage_options=table.options).schema().to_json())
    assert [f["name"] for f in again["fields"]] == ["id", "a", "b", "place", "a b"]
    assert again["fields"][1]["metadata"]["delta.columnMapping.id"] == 9
    assert again["fields"][1]["metadata"]["delta.columnMapping.physicalName"] not in ("a", "id")


def test_what_a_table_asks_that_is_not_known_is_refused(table: Store) -> None:
    other = DeltaTable(table.uri(), storage_options=table.options)
    other.alter.add_constraint({"positive": "id > 0"})
    assert not changed(table, lambda c: c.map())
    assert not metadata_commits.empty_out(table, TABLE)
    assert not changed(table.at("none"), lambda c: c.map())


def test_a_table_without_rows_has_the_columns_that_it_is_given(table: Store) -> None:
    row = pa.table({"id": [1], "a": ["x"]})
    options = {"schema_mode": "merge", "storage_options": table.options}
    write_deltalake(table.uri(), row, mode="append", **options)
    assert metadata_commits.configure(table, {"cdc.limits": "few"})
    other = Table("", "", (Column("k 1", STRING, "its key"), Column("a", BIGINT)))
    assert metadata_commits.empty_out(table, other)
    now = DeltaTable(table.uri(), storage_options=table.options)
    assert (now.file_uris(), [f.name for f in now.schema().fields]) == ([], ["k 1", "a"])
    assert now.metadata().configuration["cdc.limits"] == "few"
    version = now.version()
    assert metadata_commits.empty_out(table, other)
    assert DeltaTable(table.uri(), storage_options=table.options).version() == version, "it is so already"
    assert metadata_commits.empty_out(table.at("none"), other)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["c", "d", "e f"]), st.sampled_from(["int", "timestamp_ntz"])),
        st.tuples(st.just("rename"), st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y", "a"])),
        st.tuples(st.just("drop"), st.sampled_from(["a", "b", "x"]), st.just("")),
        st.tuples(st.just("first"), st.sampled_from(["b", "c", "x"]), st.just("")),
    ),
    min_size=1,
    max_size=5,
)


def as_step(columns: Columns, what: str, name: str, more: str) -> None:
    there = name in columns.names
    if what == "add" and not there:
        columns.add(field(name, more), len(columns.names))
    elif what == "rename" and there and more not in columns.names:
        columns.map()
        columns.rename(name, more)
    elif what == "drop" and there:
        columns.map()
        columns.drop(name)
    elif what == "first" and there:
        columns.move(name, 0)


def by_spark(spark: Any, path: Store, what: str, name: str, more: str) -> None:
    names, table = spark.read.format("delta").load(path.uri()).columns, f"delta.`{path.uri()}`"
    there = name in names
    mapped = f"ALTER TABLE {table} SET TBLPROPERTIES ('{MAPPING}' = 'name', 'delta.feature.timestampNtz' = 'supported')"
    if what == "add" and not there:
        if " " in name:
            spark.sql(mapped)
        elif more == "timestamp_ntz":
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS (`{name}` {more})")
    elif what == "rename" and there and more not in names:
        spark.sql(mapped)
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN `{name}` TO `{more}`")
    elif what == "drop" and there:
        spark.sql(mapped)
        spark.sql(f"ALTER TABLE {table} DROP COLUMN `{name}`")
    elif what == "first" and there:
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN `{name}` FIRST")


@pytest.mark.spark
@pytest.mark.thorough
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None)
@given(STEPS)
def test_it_is_what_spark_makes_of_the_same(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    ours, theirs = store_at(folder / "ours"), store_at(folder / "theirs")
    for path in (ours, theirs):
        new_tables.create(path, TABLE)
        insert = f"INSERT INTO delta.`{path.uri()}` VALUES (1, 'x', 1.5, named_struct('file', 1, 'within', array()))"
        spark.sql(insert)
    for step in steps:
        assert changed(ours, lambda c, step=step: as_step(c, *step))
        by_spark(spark, theirs, *step)
    frames = [spark.read.format("delta").load(p.uri()) for p in (ours, theirs)]
    assert frames[0].schema == frames[1].schema
    for path in (ours, theirs):
        rows = spark.read.format("delta").load(path.uri())
        rows.write.format("delta").mode("append").save(path.uri())
    found = [sorted(map(repr, spark.read.format("delta").load(p.uri()).collect())) for p in (ours, theirs)]
    assert found[0] == found[1] and len(found[0]) == 2
