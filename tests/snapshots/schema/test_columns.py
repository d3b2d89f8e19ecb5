"""Columns of a snapshot: misfits by name, keys, order. Their values: see test_types.py."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException

from cdc_platform.config import Source
from cdc_platform.errors import TableStopped
from cdc_platform.formats.events import columns_json
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.schema.columns import TableColumn, columns_of, order_sql

MISFITS = [
    ("tinyint", "128"),
    ("tinyint unsigned", "32768"),
    ("int", "1.5"),
    ("int", "12x"),
    ("int", "0x"),
    ("bigint", "9223372036854775808"),
    ("bigint unsigned", "100000000000000000000"),
    ("decimal(5,2)", "1000.00"),
    ("decimal(5,2)", "1.005"),
    ("decimal(5,0)", "0.4"),
    ("double", "1e400"),
    ("float", "-1e39"),
    ("double", "NaN"),
    ("double", "abc"),
    ("bit(1)", "2"),
    ("bit(8)", "0x1"),
    ("year", "99999"),
    ("blob", "not base64!"),
]


def column(type_text: str, name: str = "c") -> TableColumn:
    return TableColumn(name, parse_type(type_text), False)


def listed(*columns: tuple[str, str, bool]) -> str:
    return columns_json([{"name": n, "type": t, "key": k} for n, t, k in columns])


@pytest.mark.spark
def test_timestamps_keep_their_instant_in_any_session_time_zone(spark: Any) -> None:
    at = column("timestamp")
    frame = spark.createDataFrame([({"c": "2026-11-20 01:02:03.5Z"},)], "after MAP<STRING, STRING>")
    found = frame.select(at.value(at.text("after")).alias("c")).toArrow().to_pylist()[0]["c"]
    assert found.utcoffset() == timedelta(0)
    assert found.replace(tzinfo=None) == datetime(2026, 11, 20, 1, 2, 3, 500000)


@pytest.mark.spark
@pytest.mark.parametrize(("type_text", "text"), MISFITS)
def test_other_misfits_raise_and_name_the_value(spark: Any, type_text: str, text: str) -> None:
    c = column(type_text)
    with pytest.raises(PySparkException) as caught:
        spark.createDataFrame([({"c": text},)], "after MAP<STRING, STRING>").select(c.value(c.text("after"))).collect()
    assert text in str(caught.value).splitlines()[0]


def source(keys: list[str] | None = None) -> Source:
    told: Any = {"keys": {"d.t": keys}} if keys else {}
    return Source(name="s", format="canal", topics=["t"], tables=told)


def test_columns_keep_the_sources_order_and_keys() -> None:
    found = columns_of(source(), ("d", "t"), listed(("b", "int", True), ('`a"', "text", False), ("A", "date", True)))
    assert [(c.name, c.spark, c.key) for c in found] == [
        ("b", "int", True),
        ('`a"', "string", False),
        ("A", "date", True),
    ]


def test_configured_keys_win() -> None:
    found = columns_of(
        source(["b", "a"]), ("d", "t"), listed(("id", "int", True), ("a", "int", False), ("b", "int", False))
    )
    assert [c.name for c in found if c.key] == ["a", "b"]


@pytest.mark.parametrize(
    ("columns", "keys", "reason"),
    [
        ([("id", "int", True), ("p", "tsvector", False)], None, "column 'p': unknown MySQL type 'tsvector'"),
        ([("id", "int", True)], ["nope"], "configured key columns ['nope'] are not in the table"),
        ([("id", "int", True), ("_CDC_order", "int", False)], None, "column name '_CDC_order' can't be kept"),
        ([("id", "int", True), ("_cdc_address", "int", False)], None, "column name '_cdc_address' can't be kept"),
        ([("id", "int", True), ("", "int", False)], None, "column name '' can't be kept"),
    ],
)
def test_a_table_that_cant_be_kept_says_why(columns: Any, keys: Any, reason: str) -> None:
    with pytest.raises(TableStopped) as caught:
        columns_of(source(keys), ("d", "t"), listed(*columns))
    assert reason in caught.value.reason
    assert (caught.value.source, caught.value.name) == ("s", ("d", "t"))


def test_order_in_sql_is_nothing_but_numbers() -> None:
    order = {"epoch": 1, "file": 1_000_000, "pos": Decimal(2**64 - 1), "event": 0, "row": 2, "landed": 9}
    assert order_sql(order) == (
        "named_struct('epoch', CAST(1 AS BIGINT), 'file', CAST(1000000 AS BIGINT), "
        "'pos', CAST(18446744073709551615 AS DECIMAL(20,0)), "
        "'event', CAST(0 AS BIGINT), 'row', CAST(2 AS BIGINT), 'landed', CAST(9 AS BIGINT))"
    )
    with pytest.raises(ValueError, match="invalid literal"):
        order_sql({**order, "row": "1); DROP TABLE x"})
