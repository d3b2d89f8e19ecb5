"""Fixtures of the whole suite: one broker, one Spark session, a lake of its own for every test."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.config import Config, parse_config
from cdc_platform.kafka.broker import BrokerInfo, start, stop
from cdc_platform.setup.ports import free_port
from tests import jvm

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        jvm.launch(config)


_WAIT = ("automation", "bridge", "broker", "cli")
"""Folders of tests that start processes and wait for them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that wait among those that compute, so that no core is idle; the short ones last, so that no worker is left
    alone with a long one."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    groups: dict[str, list[list[pytest.Item]]] = {"spark": [], "waiting": [], "short": []}
    for path, its in files.items():
        spark = any(item.get_closest_marker("spark") for item in its)
        groups["spark" if spark else "waiting" if path.parent.name in _WAIT else "short"].append(its)
    spread = [
        ((i + 0.5) / len(some), its) for some in (groups["spark"], groups["waiting"]) for i, its in enumerate(some)
    ]
    spread.sort(key=lambda placed: placed[0])
    items[:] = [item for its in (*(its for _, its in spread), *groups["short"]) for item in its]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    """A running embedded broker of this test session's own, on a free port."""
    home = tmp_path_factory.mktemp("broker")
    yield start(home, free_port())
    stop(home)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one Spark session of the test run, or of its worker, made as the platform makes it."""
    from cdc_platform.spark.session import open_session

    if shared := jvm.session():
        yield shared
        return
    own = open_session(jvm.config(tmp_path_factory.mktemp("spark")))
    yield own
    own.stop()


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., Config]:
    """`make_config(sources, **rest)`: a Config whose lake is the test's own folder."""

    def make(sources: list[dict[str, Any]], **rest: Any) -> Config:
        return parse_config({"lake": str(tmp_path / "lake"), "sources": sources, **rest}, tmp_path / "cdc.yaml")

    return make
