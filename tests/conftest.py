"""Fixtures of the whole suite: one broker, one Spark session, a lake of its own for every test."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from cdc_platform.config import Config, parse_config
from cdc_platform.config.storage import Storage
from cdc_platform.kafka.broker import BrokerInfo, start, stop
from cdc_platform.setup.ports import free_port
from tests import dagster_history, jvm, properties, s3_server
from tests.kafka_topics import Kafka

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

settings.register_profile("platform", deadline=None)  # a busy machine is no defect
settings.load_profile("platform")


def pytest_configure(config: pytest.Config) -> None:
    properties.take(config.option.markexpr)
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        jvm.launch(config)


def pytest_collection_finish() -> None:
    if "dagster" in sys.modules:  # else no test of this run has it
        dagster_history.quicken()


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


@pytest.fixture
def clock_set(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock by some seconds, as far as psutil tells: when the system started, and processes after that."""
    import psutil

    system: Any = psutil._psplatform  # type: ignore[attr-defined]
    told = system.boot_time()
    return lambda seconds: monkeypatch.setattr(system, "boot_time", lambda: told + seconds)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    """A running embedded broker of this test session's own, on a free port."""
    home = tmp_path_factory.mktemp("broker")
    yield start(home, free_port())
    stop(home)


@pytest.fixture(scope="session")
def kafka(broker: BrokerInfo) -> Kafka:
    return Kafka(broker.bootstrap_servers)


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


@pytest.fixture(scope="session")
def s3_process() -> Iterator[s3_server.Server]:
    """The S3 server of the test run, or of its worker."""
    with s3_server.running() as server:
        yield server


@pytest.fixture
def s3(s3_process: s3_server.Server) -> Iterator[s3_server.Server]:
    """The S3 server, without faults."""
    s3_process.reset()
    yield s3_process
    s3_process.reset()


@pytest.fixture
def s3_storage(s3: s3_server.Server) -> Storage:
    """`storage:` for the bucket `lake` of the S3 server."""
    return Storage.model_validate(
        {"endpoint": s3.endpoint, "access_key": s3_server.KEY, "secret_key": s3_server.SECRET, "region": "us-east-1"}
    )


@pytest.fixture
def in_a_bucket(s3: s3_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What puts a lake in a bucket, with credentials that the driver's environment alone has."""
    monkeypatch.setenv("CDC_TEST_KEY", s3_server.KEY)
    monkeypatch.setenv("CDC_TEST_SECRET", s3_server.SECRET)
    storage = {"endpoint": s3.endpoint, "access_key": "${CDC_TEST_KEY}", "secret_key": "${CDC_TEST_SECRET}"}
    return {"lake": f"s3a://{s3_server.BUCKET}/{tmp_path.name}", "storage": storage}


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An empty lake's store: a folder's, then an S3 bucket's."""
    from cdc_platform.lake import stores

    if request.param == "folder":
        return stores.of(str(tmp_path / "lake"), Storage())
    return stores.of(f"s3a://{s3_server.BUCKET}/{uuid.uuid4()}", request.getfixturevalue("s3_storage"))


@pytest.fixture
def s3_store(s3_storage: Storage) -> Any:
    """An empty lake's store in an S3 bucket."""
    from cdc_platform.lake import stores

    return stores.of(f"s3://{s3_server.BUCKET}/{uuid.uuid4()}", s3_storage)


@pytest.fixture
def on_s3(s3_store: Any) -> Callable[[Config], Config]:
    """The same configuration, of an empty lake in an S3 bucket."""
    return lambda config: config.model_copy(update={"lake": s3_store.uri(), "storage": s3_store.storage})
