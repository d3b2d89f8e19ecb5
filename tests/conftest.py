"""Fixtures of the whole suite: one broker, one Spark session, a lake of its own for every test."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.broker import BrokerInfo, start, stop
from cdc_platform.config import Config, parse_config
from cdc_platform.resources.ports import free_port

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Delta's own fast test settings, and room for many small queries.
FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.log.cacheSize": "3",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    # Compiling code for a query takes longer than running it over a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    """A running embedded broker of this test session's own, on a free port."""
    home = tmp_path_factory.mktemp("broker")
    yield start(home, free_port())
    stop(home)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one Spark session of the test run, made as the platform makes it."""
    from cdc_platform.resources.spark import open_session

    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    config = parse_config(
        {
            "lake": warehouse,
            "spark": {"master": "local[2]", "conf": {**FAST, "spark.sql.warehouse.dir": warehouse}},
            "sources": [{"name": "unused", "format": "debezium", "topics": ["unused"]}],
        }
    )
    session = open_session(config)
    yield session
    session.stop()


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., Config]:
    """`make_config(sources, **rest)`: a Config whose lake is the test's own folder."""

    def make(sources: list[dict[str, Any]], **rest: Any) -> Config:
        return parse_config({"lake": str(tmp_path / "lake"), "sources": sources, **rest}, tmp_path / "cdc.yaml")

    return make
