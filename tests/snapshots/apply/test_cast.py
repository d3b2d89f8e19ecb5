"""Texts read by Arrow come to what Spark's casts make of them, or are left to Spark."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.apply.cast import typed
from cdc_platform.snapshots.schema.columns import TableColumn
from tests.lakes import store_at

TYPES = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "int unsigned",
    "bigint unsigned",
    "year",
    "bit(1)",
    "bit(9)",
    "boolean",
    "float",
    "double",
    "decimal(12,2)",
    "decimal(38,10)",
    "decimal(5)",
    "decimal(65,2)",
    "date",
    "datetime(6)",
    "timestamp",
    "time",
    "time(3)",
    "varchar(9)",
    "enum('a')",
    "json",
    "varbinary(9)",
    "point",
)
_ODD = st.sampled_from(
    [
        *("", " ", "0", "-0", "00", "+1", " 1", "1 ", "0x1F", "1e3", "1.", ".5", "1.50", "-0.00", "1_0", "١"),
        *("true", "TRUE", "t", "false", "yes", "NaN", "Infinity", "inf", "1e400", "-1e400", "1e-400", "3.5e38"),
        *("127", "128", "-129", "32768", "2147483648", "9223372036854775808", "18446744073709551615", "-1"),
        *("1234567890.12", "12345678901.12", "1.005", "99999", "100000", "0.0000000001", "1" * 29, "1" * 38),
        *("0000-00-00", "0000-01-01", "0001-01-01", "1582-10-10", "9999-12-31", "2026-02-30", "2026-1-2"),
        *("20260102", "2026-01-02T03:04:05", "2026-01-02 03:04:05", "2026-01-02 03:04:05.5", "0001-01-01 00:00:00"),
        *("9999-12-31 23:59:59.999999", "2026-01-02 24:00:00", "2026-01-02 03:04:60", "1582-10-10 00:00:00.000001"),
        *("2026-01-02 03:04:05Z", "0001-01-01 00:00:00.5Z", "2026-01-02 03:04:05+00:00", "2026-01-02 03:04:05z"),
        *(
            "-838:59:59",
            "01:02:03.5",
            "-00:00:00.001",
            "01:02:03.",
            "AA==",
            "AB==",
            "AA",
            "AAAA",
            "A A=",
            "AA=A",
            "=",
            "é",
            "a" * 9,
        ),
    ]
)
_NUMBERS = st.integers(-(10**20), 10**20).map(str) | st.floats().map(repr)
_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**12), max_value=10**12).map(
    lambda d: f"{d:f}"
)
_TIMES = st.datetimes().map(lambda d: d.isoformat(sep=" "))
_TEXTS = _ODD | _NUMBERS | _DECIMALS | _TIMES | _TIMES.map("{}Z".format) | st.dates().map(str) | st.text(max_size=3)


def _column(type_):
    return TableColumn("c", parse_type(type_), False)


def _arrow_type(spark, type_):
    column = _column(type_)
    return spark.sql(f"SELECT CAST(NULL AS {column.spark}) AS c").toArrow().schema.field("c").type


def _read(texts, type_, to):
    """By Arrow, each by itself; "Spark": left to it."""
    out = []
    for text in texts:
        try:
            out.append(typed(pa.array([text], pa.string()), parse_type(type_), to))
        except ValueError:
            out.append("Spark")
    return out


LIKE_OTHERS = (
    *("smallint", "int", "int unsigned", "boolean", "double", "decimal(38,10)", "decimal(5)", "time(3)"),
    *("enum('a')", "json"),
)
"""Types that are read as others of the list are."""


@pytest.mark.spark
@pytest.mark.parametrize(
    "type_", [pytest.param(t, marks=[pytest.mark.thorough] if t in LIKE_OTHERS else []) for t in TYPES]
)
@settings(deadline=None, max_examples=3, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXTS, min_size=60, max_size=160))
def test_what_arrow_reads_is_what_spark_reads(spark, tmp_path_factory, type_, texts):
    """Compared where both end: Arrow's in a file that Spark reads."""
    to = _arrow_type(spark, type_)
    texts = list(dict.fromkeys(texts))
    mine = _read(texts, type_, to)
    read = [(t, m) for t, m in zip(texts, mine, strict=True) if not isinstance(m, str)]
    if not read:
        return
    folder = tmp_path_factory.mktemp("typed")
    schema = pa.schema([("text", pa.string()), ("mine", to)])
    out = Output(Sink(store_at(folder), schema, ("text",), ()))
    values = pa.concat_arrays([m for _, m in read])
    out.write(pa.RecordBatch.from_arrays([pa.array([t for t, _ in read], pa.string()), values], schema=schema))
    done = out.close()
    rows = spark.read.schema(f"text STRING, mine {_column(type_).spark}").parquet(f"{folder}/{done.path}")
    told = rows.select("text", "mine", _column(type_).value(F.col("text")).alias("spark"))
    # Floats of either sign, times of any year: as bytes, for Python has not all of them.
    assert told.where(~F.col("mine").eqNullSafe(F.col("spark"))).collect() == []
    assert told.where(F.col("mine").cast("string") != F.col("spark").cast("string")).collect() == []
    assert told.where(F.col("mine").isNotNull()).count() == len(read)


USUAL = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "int unsigned", "bigint unsigned"), ("0", "7", "127")),
    "year": ("1999", "0"),
    "bit(1)": ("0", "1"),
    "bit(9)": ("0", "511"),
    "boolean": ("true", "false", "1"),
    "float": ("1.5", "-0.0", "1e10", "3.4028235e+38"),
    "double": ("1.5", "1e-300", "1.7976931348623157e308"),
    "decimal(12,2)": ("1.50", "-0.01", "9999999999.99", "1.5", "3"),
    "decimal(38,10)": ("1.5000000000", "-1234567890123456789012345678.0123456789"),
    "decimal(5)": ("99999",),
    "decimal(65,2)": ("1.50",),
    "date": ("2026-11-20", "0001-01-01", "9999-12-31"),
    "datetime(6)": ("2026-11-20 01:02:03", "2026-11-20 01:02:03.000001", "0001-01-01 00:00:00"),
    "timestamp": ("2026-11-20 01:02:03Z", "1970-01-01 00:00:00.5Z"),
    "time": ("-838:59:59",),
    "time(3)": ("-838:59:59", "838:59:58.999", "00:00:00.5", "00:00:00.500000"),
    "varchar(9)": ("", "é"),
    "enum('a')": ("a",),
    "json": ('{"a": 1.10}',),
    "varbinary(9)": ("", "AA=="),
    "point": ("AAAA",),
}


@pytest.mark.spark
@pytest.mark.parametrize("type_", TYPES)
def test_what_formats_usually_tell_is_not_left_to_spark(spark, type_):
    texts = pa.array([None, *USUAL[type_], None], pa.string())
    found = typed(texts, parse_type(type_), _arrow_type(spark, type_))
    assert found.is_null().to_pylist() == [True, *[False] * len(USUAL[type_]), True]
    nothing = typed(pa.array([None], pa.string()), parse_type(type_), _arrow_type(spark, type_))
    assert nothing.to_pylist() == [None]
