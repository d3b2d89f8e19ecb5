"""A private MariaDB for a test: its own folder and port, loopback only, row-based binlog."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_platform.setup.ports import free_port

USER, PASSWORD = "reader", "p@ss/word:1"


def program(*names: str) -> str:
    """Path of the first of these programs; skips the test with what to install where there is none."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    pytest.skip(f"there is no {names[0]}: apt-get install -y --no-install-recommends mariadb-server")


class Server:
    """`start()`, then `dsn` and `run(sql, …)`, then `stop()`."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Of an account that may only read."""
        return f"mysql://{USER}:p%40ss%2Fword%3A1@127.0.0.1:{self.port}"

    def start(self) -> "Server":
        data, log = self.folder / "data", self.folder / "mariadb.log"
        user = [f"--user={os.environ.get('USER') or 'root'}"] if os.getuid() == 0 else []
        install = [program("mariadb-install-db", "mysql_install_db"), "--no-defaults", f"--datadir={data}", *user]
        subprocess.run(
            [*install, "--auth-root-authentication-method=normal", "--skip-test-db"], check=True, capture_output=True
        )
        command = [program("mariadbd", "mysqld"), "--no-defaults", *user, f"--datadir={data}"]
        command += [f"--socket={self.socket}", f"--pid-file={data / 'pid'}", f"--port={self.port}"]
        command += ["--bind-address=127.0.0.1", "--server-id=7", "--log-bin=mysql-bin", "--binlog-format=ROW"]
        command += ["--character-set-server=utf8mb4", "--innodb-buffer-pool-size=16M", "--skip-name-resolve"]
        with open(log, "wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        end = time.monotonic() + 60
        while True:
            try:
                self.run("SELECT 1")
                break
            except pymysql.err.OperationalError:
                assert self._process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-3000:]
                time.sleep(0.1)
        self.run(
            f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {USER}@'127.0.0.1'",
        )
        return self

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    def run(self, *statements: str) -> list[Any]:
        """Statements as root, in UTC, any value allowed; rows of the last."""
        connection = pymysql.connect(unix_socket=str(self.socket), user="root", charset="utf8mb4", autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
