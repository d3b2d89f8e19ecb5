"""A MariaDB of the test's own: the distribution's server in a temporary folder, binlog with full rows and names."""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from cdc_platform.setup.ports import free_port

SERVER_ID = 223344
_START_S = 60
_OPTIONS = {
    "log-bin": "mysql-bin",
    "server-id": SERVER_ID,
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    # Names, signs, charsets and labels in the binlog itself: a reader needn't ask the live schema, which has moved on.
    "binlog-row-metadata": "FULL",
    "max-binlog-size": 128 * 1024,
    "sync-binlog": 0,
    "innodb-flush-log-at-trx-commit": 0,
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "performance-schema": "OFF",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    # Strict, so that no value is bent on its way in; zero dates stay allowed.
    "sql-mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
    "bind-address": "127.0.0.1",
}


def missing() -> str | None:
    """Why there can be no server here, in one line; None: there can."""
    lacking = [name for name in ("mariadbd", "mariadb-install-db") if _program(name) is None]
    return (
        f"{lacking[0]} is not installed: apt-get install -y --no-install-recommends mariadb-server" if lacking else None
    )


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. Its root has no password and may come from this machine only."""

    socket: str
    port: int

    @property
    def settings(self) -> dict[str, Any]:
        """What PyMySQL needs to connect."""
        return {"unix_socket": self.socket, "user": "root", "charset": "utf8mb4"}

    def connect(self, **more: Any) -> pymysql.Connection:
        """A new connection that commits by itself."""
        return pymysql.connect(**self.settings, autocommit=True, **more)


@contextmanager
def running(folder: Path, **options: str | int) -> Iterator[Server]:
    """A server in `folder` (empty, short path: a socket's name has 107 bytes at most). It dies with this process.
    options: more of its own, or others, with `_` for `-`."""
    daemon, install = _program("mariadbd"), _program("mariadb-install-db")
    assert daemon and install
    user = ["--user=root"] if os.getuid() == 0 else []
    data, socket, log, port = folder / "data", folder / "s", folder / "log", free_port()
    common = ["--no-defaults", f"--datadir={data}", f"--tmpdir={folder}", *user]
    made = [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-log-bin"]
    subprocess.run(made, check=True, capture_output=True, timeout=_START_S)
    command = [daemon, *common, f"--socket={socket}", f"--port={port}", f"--pid-file={folder / 'pid'}"]
    given = _OPTIONS | {name.replace("_", "-"): value for name, value in options.items()}
    command += [f"--{name}={value}" for name, value in given.items()]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=die_with_parent)  # noqa: PLW1509 (one call of libc)
    try:
        server = Server(str(socket), port)
        wait(server, process, log)
        yield server
    finally:
        process.kill()  # nothing of it is needed any more
        process.wait(30)


def die_with_parent() -> None:
    """What a process does that isn't to outlive its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers."""
    end = time.monotonic() + _START_S
    while True:
        try:
            server.connect().close()
            return
        except pymysql.err.OperationalError:
            assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
