"""What differs between two versions of a table, with odd names and values, with a key and without."""

from typing import Any

import pytest

from cdc_platform.spark import row_diff
from cdc_platform.spark.row_diff import Sides

pytestmark = pytest.mark.spark

SIDES = Sides("in_use", "replay", "only_in_use", "only_in_replay", "differing")
ORDER = "named_struct('epoch', 0L, 'file', 1L, 'pos', CAST({n} AS DECIMAL(20,0)), 'event', 0L, 'row', 0L, 'landed', 0L)"


def frame(spark: Any, columns: str, *rows: tuple[Any, ...]) -> Any:
    """Rows whose `_cdc_order` tells their number."""
    made = spark.createDataFrame([(*r, i) for i, r in enumerate(rows)], f"{columns}, _n INT")
    return made.selectExpr("*", f"{ORDER.format(n='_n')} AS _cdc_order").drop("_n")


def test_rows_with_a_key(spark: Any):
    columns = "`kind` INT, `a``b` STRING, `in_use` BINARY, `x.y` DOUBLE, gone INT"
    u = frame(
        spark, columns,
        (1, "", b"\0", 0.0, 1), (2, None, None, float("nan"), 1), (3, "x", b"", 1.0, 1), (4, "", b"", None, 1),
    )  # fmt: skip
    r = frame(
        spark,
        "`kind` BIGINT, `a``b` STRING, `in_use` BINARY, `x.y` DOUBLE, new INT",
        *((1, None, b"\0", -0.0, 1), (2, None, None, float("nan"), 1), (3, "x", b"\1", 1.0, 1), (5, "n", None, 2.0, 1)),
    )
    wrong = row_diff.of(u, r, ["kind"], SIDES)
    assert row_diff.counts(wrong) == {"only_in_use": 1, "only_in_replay": 1, "differing": 2}
    assert row_diff.columns(wrong) == [
        {"column": "a`b", "rows": 1},
        {"column": "in_use", "rows": 1},
        {"column": "x.y", "rows": 1},
    ]
    assert row_diff.samples(wrong, 9) == [
        {"kind": "differing", "rows": 1, "key": {"kind": "1"}, "cells": [
            {"column": "a`b", "in_use": "", "replay": None}, {"column": "x.y", "in_use": "0.0", "replay": "-0.0"},
        ]},
        {"kind": "differing", "rows": 1, "key": {"kind": "3"}, "cells": [
            {"column": "in_use", "in_use": "", "replay": "AQ=="},
        ]},
        {"kind": "only_in_use", "rows": 1, "key": {"kind": "4"}, "cells": [
            {"column": "a`b", "in_use": "", "replay": None}, {"column": "in_use", "in_use": "", "replay": None},
            {"column": "x.y", "in_use": None, "replay": None},
        ]},
        {"kind": "only_in_replay", "rows": 1, "key": {"kind": "5"}, "cells": [
            {"column": "a`b", "in_use": None, "replay": "n"}, {"column": "in_use", "in_use": None, "replay": None},
            {"column": "x.y", "in_use": None, "replay": "2.0"},
        ]},
    ]  # fmt: skip
    assert len(row_diff.samples(wrong, 1)) == 1
    assert row_diff.samples(wrong, 0) == []


def test_a_key_of_several_columns_some_of_them_null(spark: Any):
    u = frame(spark, "a INT, b STRING, v INT", (1, None, 1), (1, "", 2), (None, "x", 3))
    r = frame(spark, "a INT, b STRING, v INT", (1, "", 2), (None, "x", 4), (1, None, 1))
    wrong = row_diff.of(u, r, ["a", "b"], SIDES)
    assert row_diff.counts(wrong) == {"only_in_use": 0, "only_in_replay": 0, "differing": 1}
    assert [s["key"] for s in row_diff.samples(wrong, 9)] == [{"a": None, "b": "x"}]


def test_rows_without_a_key_are_counted(spark: Any):
    u = frame(spark, "a STRING, b INT", ("x", 1), ("x", 1), ("x", 1), (None, None), ("", None), ("same", 1))
    r = frame(spark, "a STRING, b INT", ("x", 1), ("same", 1), (None, None), (None, None), ("null", None))
    wrong = row_diff.of(u, r, [], SIDES)
    assert row_diff.counts(wrong) == {"only_in_use": 3, "only_in_replay": 2, "differing": 0}
    assert row_diff.columns(wrong) == []
    told = [
        (s["kind"], s["rows"], [(c["in_use"], c["replay"]) for c in s["cells"]]) for s in row_diff.samples(wrong, 9)
    ]
    assert sorted(told, key=repr) == [
        ("only_in_replay", 1, [(None, "null"), (None, None)]),
        ("only_in_replay", 1, [(None, None), (None, None)]),
        ("only_in_use", 1, [("", None), (None, None)]),
        ("only_in_use", 2, [("x", None), ("1", None)]),
    ]
