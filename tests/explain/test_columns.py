"""Which texts are values of a column, and what is said of others."""

import pyarrow as pa
import pytest

from cdc_platform.errors import ConfigError
from cdc_platform.explain.columns import Column

US = pa.timestamp("us")


@pytest.mark.parametrize(
    ("type_", "told", "to", "example"),
    [
        ("bigint(20) unsigned", "abc", pa.decimal128(20, 0), "k=7"),
        ("tinyint", "300", pa.int8(), "k=7"),
        ("decimal(9,2)", "much", pa.decimal128(9, 2), "k=7"),
        ("date", "today", pa.date32(), "k=2026-11-20"),
        ("datetime(6)", "2026-11-20", US, "k=2026-11-20 12:00:00"),
        ("timestamp", "2026-11-20 12:00:00", pa.timestamp("us", "UTC"), "k=2026-11-20 12:00:00Z"),
        ("varbinary(4)", "no base64!", pa.binary(), "k=AAE="),
    ],
)
def test_a_text_that_is_no_value_is_told_with_the_type_and_an_example(
    type_: str, told: str, to: pa.DataType, example: str
) -> None:
    column = Column("k", type_, key=True)
    with pytest.raises(ConfigError) as raised:
        column.value(told, to)
    assert (raised.value.key, raised.value.valid) == ("KEY", (example,))
    assert raised.value.problem == f"{told!r} is no value of k, which is {type_}"
    name, _, value = example.partition("=")
    assert (name, column.value(value, to).null_count) == ("k", 0)


def test_what_has_no_example() -> None:
    for column, told, problem in (
        (Column("k", "varchar(9)", key=True), None, "NULL is no value of k, which is varchar(9)"),
        (Column("k", None, key=True), "x", "'x' is no value of k, of which the feed tells no type"),
    ):
        with pytest.raises(ConfigError) as raised:
            column.value(told, pa.int64())
        assert (raised.value.problem, raised.value.valid) == (problem, ())


def test_integers_are_checked_before_anything_is_looked_for() -> None:
    column = Column("id", "int", key=True)
    assert [column.canonical(told) for told in ("7", "007", "-3")] == ["7", "7", "-3"]
    for told in ("abc", "", "1.5"):
        with pytest.raises(ConfigError, match="is no value of id, which is int; valid: id=7"):
            column.canonical(told)
    assert Column("id", "varchar(9)", key=True).canonical("007") == "007"
