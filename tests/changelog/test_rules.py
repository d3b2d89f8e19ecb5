"""Rules of the configuration say the same as column expressions and in Python."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from cdc_platform.changelog import rules
from cdc_platform.config import Tables

NAMES = st.text(st.sampled_from(list("aAb1_.*?[]!^$\\|&~-#{}()+ \n\r\t\u2028\"'`%é漢🙂")), max_size=6)
PATTERNS = st.text(st.sampled_from(list("aAb1_.**??[]!^-$\\|&~#{}()+ \nàé漢🙂")), max_size=8)


def as_java(names: list[tuple[str, ...]], spark: Any, tables: list[Tables]) -> list[list[bool]]:
    rows = [(*name, None) if len(name) == 2 else (name[0], name[2], name[1]) for name in names]
    frame = spark.createDataFrame(rows, "db STRING, `table` STRING, schema STRING").coalesce(1)
    columns = [rules.wanted(t).alias(f"w{i}") for i, t in enumerate(tables)]
    return [list(r) for r in frame.select(*columns).collect()]


def samples(strategy: Any, n: int, seed: int) -> list[Any]:
    """`n` drawn values: one Spark job judges them all."""
    drawn: list[Any] = []

    @settings(max_examples=n, database=None, derandomize=True)
    @given(strategy)
    def draw(value: Any) -> None:
        drawn.append(value)

    draw()
    return drawn[:n]


@pytest.mark.spark
def test_patterns_agree_with_the_configuration(spark: Any) -> None:
    names = [
        *samples(st.tuples(NAMES, NAMES), 150, 1),
        ("shop", "orders"),
        ("shop", "orders\n"),
        ("shop", ""),
        ("", "orders"),
        ("shop", "sales", "orders"),
    ]
    drawn = samples(st.tuples(st.lists(PATTERNS, min_size=1, max_size=3), st.lists(PATTERNS, max_size=2)), 100, 2)
    unchecked = Tables.model_construct  # also patterns that the configuration refuses: both ways must agree on any
    tables = [unchecked(include=i, exclude=e) for i, e in drawn] + [
        unchecked(),
        unchecked(include=[]),
        unchecked(include=["shop.*"], exclude=["*.orders"]),
        unchecked(include=["shop.orders"]),
        unchecked(include=["*.[ab[c]*"]),
        unchecked(include=["a[!b].*", "[]].?"]),
        unchecked(exclude=["*\n"]),
        unchecked(include=["SHOP.*"]),
        unchecked(include=["*漢*"]),
        unchecked(include=["a.🙂?"]),
        unchecked(include=["s?op.o*s"]),
        *(unchecked(include=[f"{db}.{table}"]) for db, table in names[:20]),
    ]
    found = as_java(names, spark, tables)
    wrong = [
        (t.include, t.exclude, name, got)
        for name, row in zip(names, found, strict=True)
        for t, got in zip(tables, row, strict=True)
        if got != t.wanted(*name)
    ]
    assert not wrong, wrong[:5]
    assert 0 < sum(map(sum, found)) < len(names) * len(tables), "both answers occur"


def test_every_pattern_matches_whole_names_only() -> None:
    assert re.search(r"\\z$", rules._java_regex("shop.*")), "\\Z of Java would let a newline at the end pass"


@pytest.mark.spark
def test_configured_keys_come_from_the_row_before(spark: Any) -> None:
    tables = Tables(keys={"shop.audit": ["b", "a"], 'shop.a"`; --': ["x"]})
    rows = [
        (
            "shop",
            "audit",
            {"id": "9"},
            {"a": "1", "b": "2", "c": "3"},
            {"a": "5", "b": "6"},
            {"b": "2", "a": "1"},
        ),
        ("shop", "audit", None, None, {"a": "5", "b": None}, {"b": None, "a": "5"}),
        (
            "shop",
            "audit",
            None,
            {"c": "1"},
            {"a": "5", "b": "6"},
            {"b": "6", "a": "5"},
        ),  # a before image without the key
        ("shop", 'a"`; --', None, {"x": "1"}, None, {"x": "1"}),
        ("shop", "orders", {"id": "9"}, {"a": "1"}, None, {"id": "9"}),
        ("shop2", "audit", None, {"a": "1", "b": "1"}, None, None),
    ]
    frame = spark.createDataFrame(
        [r[:5] for r in rows],
        "db STRING, `table` STRING, key MAP<STRING, STRING>, before MAP<STRING, STRING>, after MAP<STRING, STRING>",
    )
    frame = frame.withColumn("schema", F.lit(None).cast("string")).coalesce(1)
    assert [r["k"] for r in frame.select(rules.key(tables).alias("k")).collect()] == [r[5] for r in rows]
