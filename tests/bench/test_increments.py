"""Increments of a benchmark's table, and that a wrong cell doesn't pass."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.bench.increments import Table, measurements
from cdc_platform.config import parse_config
from cdc_platform.spark import delta_sql

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_a_table_in_increments_equals_what_they_say_and_a_difference_shows(spark: Any, tmp_path: Path) -> None:
    source = {"name": "bench", "format": "canal_json", "topics": ["none"]}
    config = parse_config({"lake": str(tmp_path / "lake"), "sources": [source]}, tmp_path / "cdc.yaml")
    table = Table(spark, config, config.sources[0], 1000)
    table.fill()
    assert [(f["keys"], f["rows"]) for f in measurements(table, 60, 1)] == [("recent", 1000), ("random", 1000)]
    assert table.differences() == []
    spark.sql(f"UPDATE {delta_sql.delta(table.path)} SET name = 'other' WHERE id = 5")
    assert table.differences() == ["1000 rows: 1 missing", "1000 rows: 1 too many"]
