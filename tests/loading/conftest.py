"""One MariaDB for this package."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loading.world import DSN_ENV, Database, World
from tests.oracle import server


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    if reason := server.missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="load") as folder, server.running(Path(folder)) as running:
        yield Database(running)


@pytest.fixture
def world(spark, broker, db, tmp_path, monkeypatch) -> Callable[..., World]:
    """`world(format, **rules)`: one over the package's MariaDB."""

    def make(format: str, **rules: Any) -> World:
        monkeypatch.setenv(DSN_ENV, db.dsn)
        return World(spark, broker.bootstrap_servers, db, tmp_path / format, format, **rules)

    return make
