"""Canonical text of every value of the matrix → the snapshot's column, through Spark, in one job."""

import math
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import functions as F

from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.columns import TableColumn
from tests.formats.types_matrix import KINDS

YEAR_0 = ("date", "datetime(6)", "timestamp")
"""Types whose row of the year 0 is added to the matrix: MySQL stores it, no other date type has it."""


def told() -> tuple[list[TableColumn], list[dict[str, str | None]], list[dict[str, Any]]]:
    """Columns c0… of all kinds; images (a value of each kind, those of kinds with fewer values absent; the last all
    NULL), and what the snapshot must hold."""
    columns = [TableColumn(f"c{n}", parse_type(kind.type), False) for n, kind in enumerate(KINDS)]
    columns += [TableColumn(f"y{n}", parse_type(t), False) for n, t in enumerate(YEAR_0)]
    images: list[dict[str, str | None]] = []
    held: list[dict[str, Any]] = []
    for i in range(max(len(kind.values) for kind in KINDS)):
        some = {f"c{n}": kind.values[i] for n, kind in enumerate(KINDS) if i < len(kind.values)}
        images.append({name: value.text for name, value in some.items()})
        held.append({name: value.held for name, value in some.items()})
    images[0] |= {"y0": "0000-12-31", "y1": "0000-01-01 00:00:00.5", "y2": "0000-01-01 00:00:00Z"}
    images.append({c.name: None for c in columns})
    held.append({})
    return columns, images, held


def exact(value: Any) -> Any:
    """A value as one that tells -0.0 from 0.0, and 1.0 from 1."""
    if isinstance(value, float):
        return math.copysign(1, value), value
    return (type(value), value) if not isinstance(value, datetime) else value


@pytest.mark.spark
def test_every_value_of_every_type_is_held_as_the_source_has_it(spark: Any) -> None:
    columns, images, held = told()
    frame = spark.createDataFrame(list(enumerate(images)), "i INT, after MAP<STRING, STRING>")
    dates = [c for c in columns if c.type.family in ("date", "datetime", "timestamp")]
    shown = frame.select(
        "i",
        *(c.value(c.text("after")).alias(c.name) for c in columns),
        F.struct(*(c.invalid("after").alias(c.name) for c in dates)).alias("invalid"),
    )
    types = {f.name: f.dataType.simpleString() for f in shown.schema.fields}
    assert [types[f"c{n}"] for n in range(len(KINDS))] == [kind.spark for kind in KINDS]
    found = {row["i"]: row for row in shown.toArrow().to_pylist()}
    for i, wanted in enumerate(held):
        got = {c.name: exact(found[i][c.name]) for c in columns if found[i][c.name] is not None}
        assert got == {name: exact(value) for name, value in wanted.items() if value is not None}, i
        invalid = {name for name, flag in found[i]["invalid"].items() if flag}
        assert invalid == {c.name for c in dates if images[i].get(c.name) and wanted.get(c.name) is None}, i
