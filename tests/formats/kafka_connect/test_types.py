"""Connect's and Debezium's schema fields → type text and canonical text of values."""

import base64
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats.kafka_connect import values as cv
from cdc_platform.formats.kafka_connect.bare import bare_column
from cdc_platform.formats.kafka_connect.dialect import Dialect
from cdc_platform.formats.kafka_connect.other_types import POSTGRESQL
from cdc_platform.formats.kafka_connect.types import column, mysql_type
from cdc_platform.formats.texts import BAD, Number, number_text
from cdc_platform.mysql.types import parse_type

C, T, D = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
N = Number


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


DAY_US = 86_400_000_000
CASES = [
    # type, name, parameters, JSON value, type text, canonical text
    ("int8", None, {}, -128, "tinyint", "-128"),
    ("int16", None, {}, 32767, "smallint", "32767"),
    ("int32", None, {}, -5, "int", "-5"),
    ("int64", None, {}, 9223372036854775807, "bigint", "9223372036854775807"),
    ("float", None, {}, N("5.099999904632568"), "float", "5.1"),
    ("float32", None, {}, N("3.140000104904175"), "float", "3.14"),
    ("float32", None, {}, N("1.6777216E7"), "float", "16777216.0"),  # text of a 32-bit float, as of any other
    ("float", None, {}, 5, "float", "5.0"),
    ("double", None, {}, N("5.099999904632568"), "double", "5.099999904632568"),
    ("float64", None, {}, N("1E20"), "double", "1e+20"),
    ("double", None, {}, 5, "double", "5.0"),
    ("boolean", None, {}, True, "boolean", "1"),
    ("boolean", None, {}, False, "boolean", "0"),
    ("string", None, {}, "1.50", "longtext", "1.50"),
    ("bytes", None, {}, "3q2+7w==", "longblob", "3q2+7w=="),
    (
        "bytes",
        C + "Decimal",
        {"scale": "2", "connect.decimal.precision": "10"},
        "EjRW",
        "decimal(10,2)",
        "11930.46",
    ),
    (
        "bytes",
        C + "Decimal",
        {"scale": "2"},
        b64((-1).to_bytes(1, "big", signed=True)),
        "decimal(65,2)",
        "-0.01",
    ),
    (
        "bytes",
        C + "Decimal",
        {"scale": "0"},
        b64((2**64 - 1).to_bytes(9, "big")),
        "decimal(65,0)",
        "18446744073709551615",
    ),
    (
        "bytes",
        C + "Decimal",
        {"scale": "4"},
        N("123456789012345678901234567890123.4567"),
        "decimal(65,4)",
        "123456789012345678901234567890123.4567",
    ),
    ("bytes", C + "Decimal", {"scale": "2"}, 7, "decimal(65,2)", "7.00"),
    ("bytes", C + "Decimal", {"scale": "2"}, N("1E50"), "decimal(65,2)", "1" + "0" * 50 + ".00"),
    (
        "struct",
        D + "VariableScaleDecimal",
        {},
        {"scale": 3, "value": b64(b"\x80")},
        "decimal(65,30)",
        "-0.128",
    ),
    ("int32", T + "Date", {}, -719162, "date", "0001-01-01"),
    ("int32", C + "Date", {}, 2932896, "date", "9999-12-31"),
    ("int32", T + "Time", {}, 3_723_004, "time", "01:02:03.004"),
    ("int32", C + "Time", {}, 3_723_000, "time", "01:02:03"),
    ("int64", T + "MicroTime", {}, -2_880_123_100_000, "time", "-800:02:03.1"),
    ("int64", T + "MicroTime", {}, 3_020_399_000_000, "time", "838:59:59"),
    ("int64", T + "NanoTime", {}, 1_500_000_000, "time", "00:00:01.5"),
    ("int64", T + "Timestamp", {}, 1_000, "datetime(3)", "1970-01-01 00:00:01"),
    ("int64", C + "Timestamp", {}, -1, "datetime(3)", "1969-12-31 23:59:59.999"),
    ("int64", T + "MicroTimestamp", {}, -1, "datetime(6)", "1969-12-31 23:59:59.999999"),
    ("int64", T + "MicroTimestamp", {}, -719162 * DAY_US, "datetime(6)", "0001-01-01 00:00:00"),
    ("int64", T + "MicroTimestamp", {}, 2932897 * DAY_US - 1, "datetime(6)", "9999-12-31 23:59:59.999999"),
    ("int64", T + "NanoTimestamp", {}, 1_001_000, "datetime(6)", "1970-01-01 00:00:00.001001"),
    (
        "string",
        T + "ZonedTimestamp",
        {},
        "2026-11-20T01:02:03.500Z",
        "timestamp(6)",
        "2026-11-20 01:02:03.5Z",
    ),
    ("string", T + "ZonedTimestamp", {}, "2026-01-01T07:30:00+08:00", "timestamp(6)", "2025-12-31 23:30:00Z"),
    # A zero TIMESTAMP of a NOT NULL column: MySQL's first real one is a second later.
    ("string", T + "ZonedTimestamp", {}, "1970-01-01T00:00:00Z", "timestamp(6)", "0000-00-00 00:00:00"),
    ("string", T + "ZonedTimestamp", {}, "1970-01-01T00:00:01Z", "timestamp(6)", "1970-01-01 00:00:01Z"),
    ("string", T + "ZonedTimestamp", {}, "2025-12-31T23:30-01:30", "timestamp(6)", "2026-01-01 01:00:00Z"),
    ("string", T + "IsoDate", {}, "2017-09-15Z", "date", "2017-09-15"),
    ("string", T + "IsoTime", {}, "04:05:11.789Z", "time", "04:05:11.789"),
    ("string", T + "IsoTimestamp", {}, "2017-09-15T04:05:11.100Z", "datetime(6)", "2017-09-15 04:05:11.1"),
    ("int32", T + "Year", {}, 2024, "year", "2024"),
    ("bytes", D + "Bits", {"length": "12"}, b64((0xABC).to_bytes(2, "little")), "bit(12)", "2748"),
    ("bytes", D + "Bits", {"length": "64"}, b64(b"\xff" * 8), "bit(64)", "18446744073709551615"),
    ("string", D + "Json", {}, '{"a": 1.10}', "json", '{"a": 1.10}'),
    ("string", D + "Enum", {"allowed": "a,it's"}, "it's", "enum('a','it''s')", "it's"),
    ("string", D + "EnumSet", {"allowed": "a,b\\c"}, "a,b\\c", "set('a','b\\\\c')", "a,b\\c"),
    (
        "struct",
        D + "geometry.Geometry",
        {},
        {"wkb": b64(b"\x01\x02"), "srid": 4326},
        "geometry",
        b64(b"\xe6\x10\x00\x00\x01\x02"),
    ),
    (
        "struct",
        D + "geometry.Point",
        {},
        {"x": N("1.0"), "y": N("2.0"), "wkb": b64(b"\x01"), "srid": None},
        "point",
        b64(b"\x00\x00\x00\x00\x01"),
    ),
    ("array", D + "FloatVector", {}, [N("1.5"), 2, N("5.099999904632568")], "longtext", "[1.5,2.0,5.1]"),
    ("", None, {}, "AAAA", "longtext", "AAAA"),
    ("array", None, {}, [1, N("1.10"), {"a": None}], "longtext", '[1,1.10,{"a":null}]'),
]


@pytest.mark.parametrize("case", CASES)
def test_schema_name_decides_type_and_text(case):
    kind, name, parameters, value, type_text, text = case
    found = column({"type": kind, "name": name, "parameters": parameters, "field": "c"}, None, Dialect())
    assert found.type_text == type_text
    assert found.convert([value, None, value]) == [text, None, text]
    parse_type(found.type_text)


ARRAYS = [
    (
        {"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "2"}},
        ["AMg=", None, "nw=="],
        "[2.00,null,-0.97]",
    ),
    ({"type": "int32", "name": T + "Date"}, [18262, None], '["2020-01-01",null]'),
    ({"type": "int64", "name": T + "MicroTimestamp"}, [1577836800500000], '["2020-01-01 00:00:00.5"]'),
    ({"type": "int64", "name": T + "MicroTimestamp"}, [9223372036825200000], '["infinity"]'),
    ({"type": "string", "name": T + "ZonedTimestamp"}, ["2020-01-01T00:00:00Z"], '["2020-01-01 00:00:00Z"]'),
    ({"type": "struct", "name": D + "VariableScaleDecimal"}, [{"scale": 1, "value": "Dw=="}], "[1.5]"),
    ({"type": "bytes"}, ["AP8=", None], '["AP8=",null]'),
    ({"type": "string", "name": D + "Json"}, ['{"a": 1}'], '["{\\"a\\": 1}"]'),
    ({"type": "int32"}, [1, None, 3], "[1,null,3]"),
    ({"type": "boolean"}, [True], "[true]"),
    ({"type": "string"}, ["1", 'q"'], '["1","q\\""]'),
]


@pytest.mark.parametrize(("items", "value", "text"), ARRAYS)
def test_items_of_an_array_are_read_as_they_are_alone(items, value, text):
    field = {"type": "array", "items": items, "field": "c"}
    found = column(field, None, Dialect(named=POSTGRESQL))
    assert (found.type_text, found.convert([value, None, []])) == ("longtext", [text, None, "[]"])


def test_an_array_of_items_that_are_not_known_is_refused():
    field = {"type": "array", "items": {"type": "int32", "name": "x.Y"}, "field": "c"}
    with pytest.raises(ValueError, match=r"column .c.: unknown schema type"):
        column(field, None, Dialect(named=POSTGRESQL))
    assert column(field, "longtext", Dialect(named=POSTGRESQL)).convert([[1]]) == ["[1]"]
    dates = {"type": "array", "items": {"type": "int32", "name": T + "Date"}, "field": "c"}
    with pytest.raises(ValueError, match="is no integer"):
        column(dates, None, Dialect(named=POSTGRESQL)).convert([["2020"]])


def test_a_schema_name_that_is_not_known_leaves_text_as_it_is():
    found = column({"type": "string", "name": "x.Y", "field": "c"}, None, Dialect())
    assert (found.type_text, found.convert(["AMg="])) == ("longtext", ["AMg="])
    for kind in ("int32", "bytes", "struct", "array"):
        with pytest.raises(ValueError, match=r"unknown schema type .* option columns can name its type"):
            column({"type": kind, "name": "x.Y", "field": "c"}, None, Dialect())


BAD_VALUES = [
    ("int32", None, {}, "5"),
    ("int32", None, {}, True),
    ("int32", None, {}, N("1.5")),
    ("string", None, {}, 5),
    ("string", None, {}, N("1.5")),
    ("boolean", None, {}, 1),
    ("double", None, {}, N("1e999")),
    ("float", None, {}, N("1e39")),
    ("double", None, {}, "NaN"),
    ("bytes", None, {}, "a-_b"),
    ("bytes", None, {}, "AA="),
    ("bytes", C + "Decimal", {"scale": "2"}, ""),
    ("bytes", C + "Decimal", {"scale": "2"}, N("1.234")),
    ("bytes", C + "Decimal", {"scale": "2"}, N("1e999999999")),
    ("bytes", C + "Decimal", {}, "AA=="),
    ("bytes", C + "Decimal", {"scale": "-1"}, "AA=="),
    ("bytes", C + "Decimal", {"scale": "9" * 30}, 1),
    ("struct", D + "VariableScaleDecimal", {}, {"scale": 10**30, "value": 1}),
    ("bytes", C + "Decimal", {"scale": "999999999"}, "AA=="),
    ("int32", T + "Date", {}, 2932897),
    ("int64", T + "NanoTimestamp", {}, 1),
    ("int64", T + "MicroTimestamp", {}, 2**63),
    ("string", T + "ZonedTimestamp", {}, "2026-11-20T01:02:03"),
    ("string", T + "ZonedTimestamp", {}, "yesterday"),
    ("string", T + "ZonedTimestamp", {}, "2026-11-20T01:02:03.0000001Z"),
    ("string", T + "IsoTimestamp", {}, "2026-11-20T01:02:03+08:00"),
    ("int32", T + "Year", {}, -1),
    ("bytes", D + "Bits", {"length": "3"}, b64(b"\x08")),
    ("struct", D + "geometry.Geometry", {}, {"srid": 1}),
    ("struct", D + "geometry.Geometry", {}, {"wkb": "AA==", "srid": -1}),
    ("struct", T + "StructuredDate", {}, {}),
    ("int64", "com.example.Odd", {}, 5),
    ("struct", "x.Value", {}, {}),
    ("int128", None, {}, 5),
]


@pytest.mark.parametrize(("kind", "name", "parameters", "value"), BAD_VALUES)
def test_what_the_schema_does_not_promise_is_an_error(kind, name, parameters, value):
    with pytest.raises(BAD):
        column({"type": kind, "name": name, "parameters": parameters, "field": "c"}, None, Dialect()).convert([value])


def source_type(kind, length=None, scale=None):
    return {
        "__debezium.source.column.type": kind,
        **({"__debezium.source.column.length": length} if length else {}),
        **({"__debezium.source.column.scale": scale} if scale else {}),
    }


HINTS = [
    # type, name, parameters, option, dialect, value, type text, text
    (
        "int64",
        None,
        source_type("BIGINT UNSIGNED", "20"),
        None,
        {},
        -1,
        "bigint(20) unsigned",
        "18446744073709551615",
    ),
    ("int64", None, {}, "bigint unsigned", {}, -(2**63), "bigint unsigned", "9223372036854775808"),
    ("int64", None, {}, "int unsigned", {}, 4294967295, "int unsigned", "4294967295"),
    ("string", None, source_type("VARCHAR", "255"), None, {}, "x", "varchar(255)", "x"),
    ("string", None, source_type("DECIMAL", "10", "8"), None, {}, "1E-7", "decimal(10,8)", "0.0000001"),
    ("double", None, source_type("DECIMAL", "10", "2"), None, {}, N("1.5"), "double", "1.5"),
    ("double", None, source_type("FLOAT"), None, {}, N("5.099999904632568"), "float", "5.1"),
    (
        "string",
        D + "Enum",
        {"allowed": "a,b", **source_type("ENUM", "1")},
        None,
        {},
        "a",
        "enum('a','b')",
        "a",
    ),
    ("string", None, source_type("BLOB"), None, {}, "3q0=", "blob", "3q0="),
    ("string", None, source_type("BLOB"), None, {}, "3q-_", "blob", "3q+/"),
    ("string", None, {}, "varbinary(3)", {}, "00fffe", "varbinary(3)", "AP/+"),
    ("string", None, source_type("BLOB"), None, {"binary": "hex"}, "dead", "blob", "3q0="),
    ("string", None, {}, "blob", {"binary": "base64-url-safe"}, "3q-_", "blob", "3q+/"),
    ("string", None, {}, "varbinary(4)", {"binary": "base64"}, "3q2+7w==", "varbinary(4)", "3q2+7w=="),
    ("boolean", None, source_type("TINYINT", "1"), None, {}, True, "tinyint(1)", "1"),
    (
        "bytes",
        C + "Decimal",
        {"scale": "0", **source_type("BIGINT UNSIGNED")},
        None,
        {},
        b64(b"\x00" + b"\xff" * 8),
        "bigint unsigned",
        "18446744073709551615",
    ),
    (
        "int64",
        T + "MicroTimestamp",
        source_type("DATETIME", "6"),
        None,
        {},
        0,
        "datetime(6)",
        "1970-01-01 00:00:00",
    ),
    ("string", None, source_type("VECTOR", "3"), None, {}, "x", "longtext", "x"),
    # dtle
    ("int64", T + "MicroTime", {}, "time(3)", {"dtle": True}, 43_200_000_123, "time(3)", "12:00:00.123"),
    ("int64", T + "MicroTime", {}, "time(1)", {"dtle": True}, -5, "time(1)", "-00:00:00.5"),
    (
        "int64",
        T + "Timestamp",
        {},
        None,
        {"dtle": True, "zone": "Asia/Shanghai"},
        1_500,
        "datetime(3)",
        "1970-01-01 08:00:01.5",
    ),
    (
        "string",
        T + "ZonedTimestamp",
        {},
        None,
        {"dtle": True},
        "0001-01-01T00:00:00Z",
        "timestamp(6)",
        "0000-00-00 00:00:00",
    ),
    ("int32", T + "Year", {}, None, {"dtle": True, "snapshot": True}, 124, "year", "2024"),
    ("int32", T + "Year", {}, None, {"dtle": True, "snapshot": True}, 2050, "year", "2050"),
    (
        "int32",
        T + "Year",
        {},
        None,
        {"dtle": True, "snapshot": True, "snapshot_year": True},
        2050,
        "year",
        "1950",
    ),
    ("string", D + "Json", {}, None, {"dtle": True, "text_base64": True}, b64(b"[1]"), "json", "[1]"),
    (
        "string",
        D + "Json",
        {},
        None,
        {"dtle": True, "text_base64": True, "snapshot": True},
        "[1]",
        "json",
        "[1]",
    ),
    (
        "string",
        None,
        {},
        "mediumtext",
        {"dtle": True, "text_base64": True},
        b64("é".encode()),
        "mediumtext",
        "é",
    ),
    ("string", None, {}, None, {"dtle": True, "text_base64": True}, "abcd", "longtext", "abcd"),
]


@pytest.mark.parametrize("case", HINTS)
def test_hints_make_types_exact(case):
    kind, name, parameters, option, dialect, value, type_text, text = case
    field = {"type": kind, "name": name, "parameters": parameters, "field": "c"}
    found = column(field, option, Dialect(**dialect))
    assert (found.type_text, found.convert([value, None])) == (type_text, [text, None])


@pytest.mark.parametrize(
    ("kind", "option"), [("int64", "date"), ("int32", "text"), ("bytes", "int"), ("string", "geometry")]
)
def test_an_option_against_the_message_is_an_error(kind, option):
    with pytest.raises(ValueError, match="option columns says"):
        column({"type": kind, "field": "c"}, option, Dialect())


BARE = [
    (None, {}, N("1.10"), "longtext", "1.10"),
    (None, {}, 12345678901234567890123, "longtext", "12345678901234567890123"),
    (None, {}, True, "longtext", "1"),
    (None, {}, {"a": [1, N("1e5"), None, "x"]}, "longtext", '{"a":[1,1e5,null,"x"]}'),
    ("bigint unsigned", {}, -1, "bigint unsigned", "18446744073709551615"),
    ("tinyint(1)", {}, True, "tinyint(1)", "1"),
    ("tinyint(1)", {}, -128, "tinyint(1)", "-128"),
    ("date", {}, 1, "date", "1970-01-02"),
    ("date", {"temporal": "isostring"}, "2017-09-15Z", "date", "2017-09-15"),
    ("datetime", {}, 1000, "datetime", "1970-01-01 00:00:01"),
    ("datetime(6)", {}, 1000, "datetime(6)", "1970-01-01 00:00:00.001"),
    ("datetime(6)", {"temporal": "connect"}, 1000, "datetime(6)", "1970-01-01 00:00:01"),
    ("datetime(6)", {"temporal": "nanoseconds"}, 1000, "datetime(6)", "1970-01-01 00:00:00.000001"),
    ("datetime(3)", {"temporal": "microseconds"}, 1000, "datetime(3)", "1970-01-01 00:00:00.001"),
    ("time", {}, 1_000_000, "time", "00:00:01"),
    ("time", {"temporal": "adaptive"}, 1000, "time", "00:00:01"),
    ("time(6)", {"temporal": "adaptive"}, 1_000_000, "time(6)", "00:00:01"),
    ("time", {"temporal": "connect"}, 1000, "time", "00:00:01"),
    ("timestamp", {"temporal": "connect"}, "2026-11-20T01:02:03Z", "timestamp", "2026-11-20 01:02:03Z"),
    ("decimal(10,2)", {}, "EjRW", "decimal(10,2)", "11930.46"),
    ("decimal(10,2)", {}, N("1.1"), "decimal(10,2)", "1.10"),
    ("decimal(10,2)", {"decimal": "string"}, "1234", "decimal(10,2)", "1234"),
    ("decimal(10,2)", {"decimal": "double"}, N("12.5"), "double", "12.5"),
    # No option tells the mode: what can be of one only is read.
    ("decimal(12,2)", {}, "1234", "decimal(12,2)", "-26588.24"),  # a text of digits would have ".00"
    ("decimal(10,2)", {}, "1234.00", "decimal(10,2)", "1234.00"),
    ("decimal(10,2)", {}, "-0.05", "decimal(10,2)", "-0.05"),
    ("decimal(20,10)", {}, "0E-10", "decimal(20,10)", "0.0000000000"),
    ("decimal(10,0)", {}, "-123", "decimal(10,0)", "-123"),
    ("decimal(10,0)", {}, "12345", "decimal(10,0)", "12345"),
    ("decimal(10,0)", {}, "12345678", "decimal(10,0)", "12345678"),  # base64 of 14 digits
    ("decimal(5)", {}, "1234", "decimal(5)", "1234"),
    ("decimal", {}, "BNI=", "decimal", "1234"),
    ("decimal(10,0) unsigned", {}, "1234", "decimal(10,0) unsigned", "1234"),  # the other would be negative
    ("decimal(10,0)", {"decimal": "precise"}, "1234", "decimal(10,0)", "-2658824"),
    ("decimal(10,0)", {"decimal": "string"}, "1234", "decimal(10,0)", "1234"),
    ("varbinary(9)", {}, "deadbe", "varbinary(9)", "3q2+"),  # not the length of base64
    ("varbinary(9)", {}, "__79", "varbinary(9)", "//79"),
    ("binary(3)", {}, "abcd", "binary(3)", "abcd"),  # two bytes in hexadecimal digits
    ("binary(4)", {}, "00deadbe", "binary(4)", "AN6tvg=="),  # six bytes in base64
    ("binary(4)", {}, "3q0=", "binary(4)", "3q0AAA=="),
    ("blob", {"binary": "bytes"}, "dead", "blob", "dead"),
    ("blob", {}, "", "blob", ""),
    ("bit(1)", {}, True, "bit(1)", "1"),
    ("bit(9)", {}, b64(b"\x00\x01"), "bit(9)", "256"),
    ("blob", {}, "3q0=", "blob", "3q0="),
    ("blob", {"binary": "hex"}, "dead", "blob", "3q0="),
    ("float", {}, N("5.099999904632568"), "float", "5.1"),
    ("enum('a','b')", {}, "a", "enum('a','b')", "a"),
    ("json", {}, "{}", "json", "{}"),
    ("year", {}, 1999, "year", "1999"),
    ("polygon", {}, {"wkb": "AA==", "srid": None}, "polygon", b64(b"\0" * 5)),
]


@pytest.mark.parametrize(("option", "dialect", "value", "type_text", "text"), BARE)
def test_bare_values_by_the_users_type(option, dialect, value, type_text, text):
    found = bare_column("c", option, Dialect(**dialect))
    assert (found.type_text, found.convert([value, None])) == (type_text, [text, None])


UNTOLD = [
    ("decimal(10,0)", "1234", "decimal_handling_mode"),
    ("decimal(30,0)", "12345678", "decimal_handling_mode"),
    ("blob", "deadbeef", "binary_handling_mode"),
    ("varbinary(2)", "12345678", "binary_handling_mode"),
]


@pytest.mark.parametrize(("told", "value", "option"), UNTOLD)
def test_a_text_that_may_be_written_two_ways_is_refused_with_the_option_that_tells(told, value, option):
    with pytest.raises(ValueError, match=f"option {option} tells which"):
        bare_column("c", told, Dialect()).convert([value])


COUNTS = [
    ("time", {}, 43_201_000),  # 12:00:01 in milliseconds
    ("time(3)", {}, 3_600_001_001),
    ("datetime", {}, 1_700_000_000_500),
    ("datetime(4)", {}, 1_700_000_000_123_456),
]


@pytest.mark.parametrize(("told", "dialect", "value"), COUNTS)
def test_a_count_that_gives_digits_of_a_second_which_the_column_has_not_is_refused(told, dialect, value):
    with pytest.raises(ValueError, match="more digits of a second"):
        bare_column("c", told, Dialect(**dialect)).convert([value])


def test_types_of_schema_change_messages():
    assert mysql_type("INT UNSIGNED", 10, None, ()) == "int(10) unsigned"
    assert mysql_type("DECIMAL", 10, 2, ()) == "decimal(10,2)"
    assert mysql_type("DOUBLE PRECISION", None, None, ()) == "double precision"
    assert mysql_type("ENUM", 1, None, ["a,b", "it's"]) == "enum('a,b','it''s')"
    assert mysql_type("SET", 1, None, ["'a'", "'it''s'"]) == "set('a','it''s')"
    assert parse_type("enum('a,b','it''s')").labels == ("a,b", "it's")
    assert mysql_type("VECTOR", 3, None, ()) is None


@given(st.integers(-(10**70), 10**70), st.integers(0, 30))
def test_decimals_keep_every_digit(unscaled, scale):
    size = max(1, (unscaled.bit_length() + 8) // 8)
    text = cv.decimal_text(scale)(b64(unscaled.to_bytes(size, "big", signed=True)))
    exact = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    assert Decimal(text).compare_total(exact) == 0 or (unscaled == 0 and Decimal(text) == 0)
    assert number_text(text, scale) == text
    assert number_text(f"{unscaled}E-{scale}", scale) == text


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)))
def test_datetimes_round_trip(moment):
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    text = cv.datetime_text(micros, 1_000_000)
    assert datetime.fromisoformat(text) == moment
    assert not text.endswith(".") and not ("." in text and text.endswith("0"))
    assert cv.datetime_text(micros // 1000, 1000) == cv.datetime_text(micros // 1000 * 1000, 1_000_000)
    assert cv.iso_datetime_text(moment.isoformat() + "Z") == text
    assert cv.zoned_text(moment.replace(tzinfo=UTC).isoformat()) == text + "Z"


@given(st.integers(-719162, 2932896))
def test_dates_round_trip(days):
    assert (date.fromisoformat(cv.date_text(days)) - date(1970, 1, 1)).days == days


@given(st.integers(-3_020_399_999_999, 3_020_399_999_999))
def test_times_round_trip(micros):
    text = cv.time_text(micros, 1_000_000)
    hours, minutes, seconds = text.lstrip("-").split(":")
    back = Decimal(hours) * 3600 + Decimal(minutes) * 60 + Decimal(seconds)
    assert (-back if text.startswith("-") else back) * 1_000_000 == micros


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_single_floats_show_their_shortest_text_also_when_widened(value):
    (text,) = cv.floats_text([N(repr(float(np.float32(value))))])
    assert np.float32(text) == np.float32(value)
    assert cv.floats_text([N(text)]) == [text]


@given(st.binary())
def test_bytes_round_trip(data):
    assert base64.b64decode(cv.base64_text(b64(data))) == data
    assert int(cv.bits_text(None)(b64(data))) == int.from_bytes(data, "little")
