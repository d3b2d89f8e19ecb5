"""Canonical text → typed values at the limits of every family of MySQL types; misfits by name."""

import base64
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException

from cdc_platform.errors import TableStopped
from cdc_platform.formats.events import columns_json
from cdc_platform.mysql.types import FAMILIES, parse_type
from cdc_platform.snapshots.columns import TableColumn, columns_of, order_sql

LIMITS: list[tuple[str, str, str, Any]] = [  # MySQL type, canonical text, Spark type, value
    ("tinyint", "-128", "tinyint", -128),
    ("tinyint(1)", "127", "tinyint", 127),
    ("tinyint unsigned", "255", "smallint", 255),
    ("smallint", "-32768", "smallint", -32768),
    ("smallint unsigned", "65535", "int", 65535),
    ("mediumint", "-8388608", "int", -8388608),
    ("mediumint unsigned", "16777215", "int", 16777215),
    ("int", "-2147483648", "int", -(2**31)),
    ("int(10) unsigned", "4294967295", "bigint", 2**32 - 1),
    ("bigint", "-9223372036854775808", "bigint", -(2**63)),
    ("bigint(20) unsigned", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
    (
        "decimal(38,10)",
        "-" + "9" * 28 + "." + "9" * 10,
        "decimal(38,10)",
        Decimal("-" + "9" * 28 + "." + "9" * 10),
    ),
    ("decimal(65,30)", "9" * 35 + "." + "1" * 30, "string", "9" * 35 + "." + "1" * 30),
    ("decimal(38,38)", "0." + "0" * 37 + "1", "decimal(38,38)", Decimal("1e-38")),
    ("decimal(5,2)", "-0.05", "decimal(5,2)", Decimal("-0.05")),
    ("decimal(5,2)", "1.2000", "decimal(5,2)", Decimal("1.20")),
    ("decimal(5,0)", "7", "decimal(5,0)", Decimal(7)),
    ("float", "3.4028235e+38", "float", 3.4028234663852886e38),
    ("float", "1.17549435e-38", "float", 1.1754943508222875e-38),
    ("float(7,3)", "0.1", "float", 0.10000000149011612),
    ("float(30)", "0.1", "double", 0.1),
    ("double", "1.7976931348623157e+308", "double", 1.7976931348623157e308),
    ("double", "-5e-324", "double", -5e-324),
    ("bit(1)", "1", "boolean", True),
    ("bit(64)", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
    ("boolean", "0", "boolean", False),
    ("year", "1901", "smallint", 1901),
    ("year", "0000", "smallint", 0),
    ("year", "2155", "smallint", 2155),
    ("date", "1000-01-01", "date", date(1000, 1, 1)),
    ("date", "9999-12-31", "date", date(9999, 12, 31)),
    ("date", "2024-02-29", "date", date(2024, 2, 29)),
    (
        "datetime(6)",
        "9999-12-31 23:59:59.999999",
        "timestamp_ntz",
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    ("datetime", "1000-01-01 00:00:00", "timestamp_ntz", datetime(1000, 1, 1)),
    ("timestamp(6)", "1970-01-01 00:00:01Z", "timestamp", datetime(1970, 1, 1, 0, 0, 1)),
    ("timestamp(6)", "2038-01-19 03:14:07.999999Z", "timestamp", datetime(2038, 1, 19, 3, 14, 7, 999999)),
    ("time(6)", "-838:59:59.000001", "string", "-838:59:59.000001"),
    ("time", "25:00:00", "string", "25:00:00"),
    ("varbinary(3)", "AP8=", "binary", b"\x00\xff"),
    ("blob", "", "binary", b""),
    ("point", base64.b64encode(bytes(25)).decode(), "binary", bytes(25)),
    ("varchar(10)", "é漢🙂\n' ", "string", "é漢🙂\n' "),
    ("char(3)", "", "string", ""),
    ("json", '{"a": 1.10}', "string", '{"a": 1.10}'),
    ("enum('a','b''c')", "b'c", "string", "b'c"),
    ("set('x','y')", "x,y", "string", "x,y"),
]
INVALID = [
    ("date", "0000-00-00"),
    ("date", "2026-02-30"),
    ("date", "2026-00-01"),
    ("datetime", "0000-00-00 00:00:00"),
    ("datetime(3)", "2026-11-31 10:00:00.5"),
    ("timestamp", "0000-00-00 00:00:00Z"),
    ("datetime", "2026-11-20 24:00:00"),
]
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


def test_limits_cover_every_family() -> None:
    assert {parse_type(t).family for t, *_ in LIMITS} == set(FAMILIES.values())


@pytest.mark.spark
def test_values_at_the_limits(spark: Any) -> None:
    image = {f"c{i}": text for i, (_, text, _, _) in enumerate(LIMITS)}
    image |= {f"n{i}": None for i in range(len(LIMITS))}
    frame = spark.createDataFrame([(image,)], "after MAP<STRING, STRING>")
    told = [column(t, f"c{i}") for i, (t, *_) in enumerate(LIMITS)]
    nulls = [column(t, f"n{i}") for i, (t, *_) in enumerate(LIMITS)]
    absent = [column(t, f"a{i}") for i, (t, *_) in enumerate(LIMITS)]
    shown = frame.select(*(c.value(c.text("after")).alias(c.name) for c in (*told, *nulls, *absent)))
    assert [f.dataType.simpleString() for f in shown.schema.fields[: len(LIMITS)]] == [s for _, _, s, _ in LIMITS]
    row = shown.toArrow().to_pylist()[0]
    found = {(t, text): row[f"c{i}"] for i, (t, text, *_) in enumerate(LIMITS)}
    found = {k: v.replace(tzinfo=None) if isinstance(v, datetime) else v for k, v in found.items()}
    assert found == {(t, text): value for t, text, _, value in LIMITS}
    assert all(v is None for k, v in row.items() if k[0] in "na")


@pytest.mark.spark
def test_timestamps_keep_their_instant_in_any_session_time_zone(spark: Any) -> None:
    at = column("timestamp")
    frame = spark.createDataFrame([({"c": "2026-11-20 01:02:03.5Z"},)], "after MAP<STRING, STRING>")
    found = frame.select(at.value(at.text("after")).alias("c")).toArrow().to_pylist()[0]["c"]
    assert found.utcoffset() == timedelta(0)
    assert found.replace(tzinfo=None) == datetime(2026, 11, 20, 1, 2, 3, 500000)


@pytest.mark.spark
def test_dates_that_do_not_exist_become_null_and_are_counted(spark: Any) -> None:
    image = {f"c{i}": text for i, (_, text) in enumerate(INVALID)}
    frame = spark.createDataFrame([({**image, "good": "2026-11-20", "none": None},)], "after MAP<STRING, STRING>")
    columns = [column(t, f"c{i}") for i, (t, _) in enumerate(INVALID)] + [
        column("date", n) for n in ("good", "none", "absent")
    ]
    values = frame.select(*(c.value(c.text("after")).alias(c.name) for c in columns)).toArrow().to_pylist()[0]
    flags = frame.select(*(c.invalid("after").alias(c.name) for c in columns)).toArrow().to_pylist()[0]
    assert {k for k, v in values.items() if v is not None} == {"good"}
    assert {k for k, v in flags.items() if v} == set(image)


@pytest.mark.spark
@pytest.mark.parametrize(("type_text", "text"), MISFITS)
def test_other_misfits_raise_and_name_the_value(spark: Any, type_text: str, text: str) -> None:
    c = column(type_text)
    with pytest.raises(PySparkException) as caught:
        spark.createDataFrame([({"c": text},)], "after MAP<STRING, STRING>").select(c.value(c.text("after"))).collect()
    assert text in str(caught.value).splitlines()[0]


def test_columns_keep_the_sources_order_and_keys() -> None:
    found = columns_of("s", "d", "t", listed(("b", "int", True), ('`a"', "text", False), ("A", "date", True)), None)
    assert [(c.name, c.spark, c.key) for c in found] == [
        ("b", "int", True),
        ('`a"', "string", False),
        ("A", "date", True),
    ]


def test_configured_keys_win() -> None:
    found = columns_of("s", "d", "t", listed(("id", "int", True), ("a", "int", False), ("b", "int", False)), ["b", "a"])
    assert [c.name for c in found if c.key] == ["a", "b"]


@pytest.mark.parametrize(
    ("columns", "keys", "reason"),
    [
        ([("id", "int", False)], None, "tables.keys: {'d.t': [...]}"),
        ([("id", "int", True), ("p", "tsvector", False)], None, "column 'p': unknown MySQL type 'tsvector'"),
        ([("id", "int", True)], ["nope"], "configured key columns ['nope'] are not in the table"),
        ([("id", "int", True), ("_CDC_order", "int", False)], None, "column name '_CDC_order' can't be kept"),
        ([("id", "int", True), ("", "int", False)], None, "column name '' can't be kept"),
    ],
)
def test_a_table_that_cant_be_kept_says_why(columns: Any, keys: Any, reason: str) -> None:
    with pytest.raises(TableStopped) as caught:
        columns_of("s", "d", "t", listed(*columns), keys)
    assert reason in caught.value.reason
    assert (caught.value.source, caught.value.db, caught.value.table) == ("s", "d", "t")


def test_order_in_sql_is_nothing_but_numbers() -> None:
    order = {"epoch": 1, "file": 1_000_000, "pos": Decimal(2**64 - 1), "event": 0, "row": 2, "landed": 9}
    assert order_sql(order) == (
        "named_struct('epoch', CAST(1 AS BIGINT), 'file', CAST(1000000 AS BIGINT), "
        "'pos', CAST(18446744073709551615 AS DECIMAL(20,0)), "
        "'event', CAST(0 AS BIGINT), 'row', CAST(2 AS BIGINT), 'landed', CAST(9 AS BIGINT))"
    )
    with pytest.raises(ValueError, match="invalid literal"):
        order_sql({**order, "row": "1); DROP TABLE x"})
