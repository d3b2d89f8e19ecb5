"""What a server makes of values when a column's type changes. No Spark."""

import numpy as np
import pyarrow as pa
import pytest

from cdc_platform.mysql.effects import Retyped
from cdc_platform.snapshots.schema.conversions import (
    Convert,
    Refused,
    conversion,
    may_refuse,
    retyped,
    same_values,
)
from cdc_platform.snapshots.schema.image_columns import ImageColumn


@pytest.mark.parametrize(
    ("before", "after", "text", "made"),
    [
        ("decimal(9,2)", "decimal(9,1)", "1.25", "1.3"),
        ("decimal(9,2)", "decimal(9,1)", "-1.25", "-1.3"),
        ("decimal(9,2)", "decimal(9,0)", "999999.50", "1000000"),
        ("decimal(9,2)", "decimal(9,1)", "spoilt", "spoilt"),
        ("float", "double", "0.1", "0.10000000149011612"),
        ("double", "float", "0.1", "0.1"),
        ("date", "datetime", "2026-01-02", "2026-01-02 00:00:00"),
        ("datetime", "date", "2026-01-02 03:04:05", "2026-01-02"),
        ("int", "bigint", "7", "7"),
        ("date", "datetime", None, None),
        ("varchar(9)", "char(9)", "a  ", "a"),
        ("varchar(9)", "varchar(2)", "漢字😀", "漢字"),
        ("varchar(9)", "varchar(20)", "a ", "a "),
        ("int", "varchar(3)", "12345", "123"),
        ("enum('ab','c')", "varchar(1)", "ab", "a"),
        ("decimal(10,2)", "varchar(20)", "1.5", "1.50"),
        ("decimal(10,2)", "varchar(20)", "-3", "-3.00"),
        ("decimal(10,0)", "varchar(20)", "7", "7"),
        ("int", "tinyint unsigned", "300", "255"),
        ("int", "tinyint unsigned", "-1", "0"),
        ("decimal(9,2)", "decimal(5,2)", "-12345.67", "-999.99"),
        ("decimal(9,2)", "decimal(5,3)", "99.99", "99.990"),
        ("int", "decimal(5,2)", "12345", "999.99"),
        ("int", "decimal(5,2)", "-7", "-7"),
        ("year", "tinyint", "2155", "127"),
        ("year", "int", "2155", "2155"),
        ("double", "float", "-1e300", "-3.4028234663852886e+38"),
        ("decimal(9,2)", "decimal(9,2) unsigned", "-1.50", "0.00"),
        ("decimal(9,2)", "decimal(9,2) unsigned", "1.50", "1.50"),
        ("double", "double unsigned", "-1.5", "0.0"),
        ("int", "decimal(9,1) unsigned", "-1", "0.0"),
        ("bigint unsigned", "bigint", "18446744073709551615", "9223372036854775807"),
        ("bit(8)", "bit(3)", "255", "7"),
        ("set('a','b','c')", "set('c','x','a','b')", "a,c", "c,a"),
        ("set('a','b')", "set('b','a')", "", ""),
        ("varchar(9)", "enum('a','b')", "b", "b"),
        ("varchar(9)", "set('b','a')", "a,b", "b,a"),
        ("varbinary(9)", "varbinary(1)", "YWI=", "YQ=="),
        ("varchar(999)", "text(300)", "x" * 500, "x" * 500),
        ("blob", "blob(3)", "YWJjZA==", "YWJjZA=="),
        ("time", "time(3)", "01:02:03", "01:02:03"),
    ],
)
def test_values_become_what_the_server_makes_of_them(before: str, after: str, text: str | None, made: str) -> None:
    convert = conversion(before, after)
    assert convert is not None
    assert convert(pa.array([text], pa.string())).to_pylist() == [made]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("12345678901234567890123456789.1250", "12345678901234567890123456789.13"),
        ("-0.004", "0.00"),
        ("-0.005", "-0.01"),
    ],
)
def test_decimals_of_any_length_are_rounded_and_zero_has_no_sign(text: str, made: str) -> None:
    convert = carry_rule("decimal(38,4)", "decimal(38,2)")
    assert convert(pa.array([text], pa.string())).to_pylist() == [made]


def carry_rule(before: str, after: str) -> Convert:
    found = conversion(before, after)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int(5) unsigned zerofill", "varchar(9)"),
        ("float", "float(7,3)"),
        ("time(3)", "time"),
        ("varchar(40)", "uuid"),
        ("json", "varchar(9)"),
        ("varbinary(9)", "binary(9)"),
        ("varchar(9)", "varbinary(9)"),
        ("enum('a','b')", "enum('a')"),
        ("nonsense", "int"),
    ],
)
def test_what_no_feed_tells(before: str, after: str) -> None:
    assert conversion(before, after) is None


@pytest.mark.parametrize(("before", "after"), [("varchar(9)", "varchar(10)"), ("time(3)", "time(3)"), ("int", "int")])
def test_changes_that_rewrite_nothing(before: str, after: str) -> None:
    assert same_values(Retyped(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [("time", "time(3)"), ("varchar(9)", "char(9)"), ("varchar(9)", "varchar(8)"), ("int", "bigint")],
)
def test_changes_that_rewrite_something(before: str, after: str) -> None:
    assert not same_values(Retyped(before, after))


def test_characters_that_the_new_character_set_lacks() -> None:
    types = Retyped("varchar(9)", "varchar(9)", charset="latin1")
    assert not same_values(types)
    assert retyped(of("é漢", None, "abc"), types).to_pylist() == ["é?", None, "abc"]
    with pytest.raises(Refused):
        retyped(of("漢"), Retyped("enum('漢')", "enum('漢')", charset="latin1"))
    with pytest.raises(Refused):
        retyped(of("é"), types._replace(charset="armscii8"))


def of(*texts: str | None, there: bool = True) -> ImageColumn:
    return ImageColumn(pa.array(texts, pa.string()), np.full(len(texts), there))


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("OPEN", "varchar(9)", "enum('open')"),
        ("2", "varchar(9)", "enum('a','b')"),
        ("a,z", "varchar(9)", "set('a','b')"),
        ("x" * 300, "text", "tinytext"),
        ("x" * 300, "text", "text(100)"),
    ],
)
def test_values_of_which_the_server_may_have_made_anything_are_refused(text: str, before: str, after: str) -> None:
    types = Retyped(before, after)
    assert may_refuse(types)
    with pytest.raises(Refused):
        retyped(of("", None, text), types)


@pytest.mark.parametrize(
    ("type_", "filled"),
    [
        ("int", "0"),
        ("decimal(9,2)", "0.00"),
        ("varchar(9)", ""),
        ("enum('a','b')", ""),
        ("date", "0000-00-00"),
        ("time(3)", "00:00:00"),
        ("binary(3)", "AAAA"),
        ("uuid", "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_nulls_of_a_column_that_is_not_null_since(type_: str, filled: str) -> None:
    types = Retyped(type_, type_, filled=True)
    assert retyped(of(None, filled), types).to_pylist() == [filled, filled]
    assert retyped(of(None, there=False), types).to_pylist() == [None]
    assert not may_refuse(types)


def test_nulls_of_a_timestamp_become_a_time_that_no_feed_tells() -> None:
    types = Retyped("timestamp", "timestamp", filled=True)
    assert may_refuse(types)
    assert retyped(of("2026-01-02 03:04:05Z"), types).to_pylist() == ["2026-01-02 03:04:05Z"]
    with pytest.raises(Refused, match="NOT NULL"):
        retyped(of(None), types)
