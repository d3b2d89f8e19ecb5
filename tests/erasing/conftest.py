"""One MariaDB for this package, and worlds as those of loads."""

from tests.loading.conftest import db, world

__all__ = ["db", "world"]
