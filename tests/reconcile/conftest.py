"""One MariaDB for all tests of this package."""

from collections.abc import Iterator

import pytest

from tests.reconcile.server import Server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    server = Server(tmp_path_factory.mktemp("mariadb"))
    try:
        yield server.start()
    finally:
        server.stop()
