"""One MariaDB for this package."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loading.world import Database
from tests.oracle import server
from tests.shadow.world import Pair


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    if reason := server.missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="shadow") as folder, server.running(Path(folder)) as running:
        yield Database(running)


@pytest.fixture
def feeds(spark, broker, db, tmp_path) -> Callable[..., Pair]:
    """`feeds(of, by)`: two feeds, by their formats, of the package's MariaDB."""

    def make(of: str, by: str, **more: Any) -> Pair:
        return Pair(spark, broker.bootstrap_servers, db, tmp_path, of, by, **more)

    return make
