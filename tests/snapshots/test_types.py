"""Canonical text of every value of the matrix → the snapshot's column, through Spark, in one job."""

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F

from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.schema.columns import TableColumn
from tests.formats.types_matrix import KINDS, Value

CAST = [kind for kind in KINDS if kind.type not in {f"bit({n})" for n in range(3, 63)}]
"""The other BITs are all one to Spark."""

MORE: list[tuple[str, str, str, Any]] = [  # MySQL type, canonical text, Spark type, value
    ("float(7,3)", "0.1", "float", 0.10000000149011612),
    ("float(30)", "0.1", "double", 0.1),
    ("decimal(38,38)", "0." + "0" * 37 + "1", "decimal(38,38)", Decimal("1e-38")),
    ("decimal(5,2)", "1.2000", "decimal(5,2)", Decimal("1.20")),
    ("decimal(5,0)", "7", "decimal(5,0)", Decimal(7)),
    ("boolean", "0", "boolean", False),
    ("time", "25:00:00", "string", "25:00:00"),
    ("time", "25:00:00.50", "string", "25:00:00.50"),
    ("time(3)", "-25:00:00", "string", "-25:00:00.000"),
    ("time(3)", "25:00:00.5", "string", "25:00:00.500"),
    ("date", "2026-00-01", "date", None),
    ("datetime(3)", "2026-11-31 10:00:00.5", "timestamp_ntz", None),
    ("datetime", "2026-11-20 24:00:00", "timestamp_ntz", None),
    ("timestamp", "0000-00-00 00:00:00Z", "timestamp", None),
    ("timestamp", "2021-02-31 00:00:00 +08:00", "timestamp", None),
    # MySQL stores dates of the year 0; no other date type has it.
    ("date", "0000-12-31", "date", None),
    ("datetime(6)", "0000-01-01 00:00:00.5", "timestamp_ntz", None),
    ("timestamp", "0000-01-01 00:00:00Z", "timestamp", None),
]


def told() -> tuple[list[TableColumn], list[dict[str, str | None]], list[dict[str, Any]]]:
    """Columns c0… of all types; images (a value of each type, those of types with fewer values absent; the last all
    NULL), and what the snapshot must hold."""
    kinds = [(kind.type, kind.spark, kind.values) for kind in CAST]
    kinds += [(type_, spark, (Value(None, text, held),)) for type_, text, spark, held in MORE]
    columns = [TableColumn(f"c{n}", parse_type(type_), False) for n, (type_, *_) in enumerate(kinds)]
    assert [c.spark for c in columns] == [spark for _, spark, _ in kinds]
    images: list[dict[str, str | None]] = []
    held: list[dict[str, Any]] = []
    for i in range(max(len(values) for *_, values in kinds)):
        some = {f"c{n}": values[i] for n, (*_, values) in enumerate(kinds) if i < len(values)}
        images.append({name: value.text for name, value in some.items()})
        held.append({name: value.held for name, value in some.items()})
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
    assert all(types[c.name] == c.spark for c in columns)
    found = {row["i"]: row for row in shown.toArrow().to_pylist()}
    for i, wanted in enumerate(held):
        got = {c.name: exact(found[i][c.name]) for c in columns if found[i][c.name] is not None}
        assert got == {name: exact(value) for name, value in wanted.items() if value is not None}, i
        invalid = {name for name, flag in found[i]["invalid"].items() if flag}
        assert invalid == {c.name for c in dates if images[i].get(c.name) and wanted.get(c.name) is None}, i
