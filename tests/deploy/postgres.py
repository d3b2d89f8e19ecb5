"""A PostgreSQL of the test's own, of the distribution's packages."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc_platform.setup.ports import free_port

PASSWORD = "s3cret"


def programs() -> Path | None:
    """The folder of initdb and pg_ctl: the newest of Debian's, or on PATH; None: there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@dataclass(frozen=True, slots=True)
class Server:
    """A running server with an empty database `dagster` of a user `dagster`."""

    port: int
    bin: Path

    @property
    def env(self) -> dict[str, str]:
        """What the entrypoints want to know."""
        return {"DAGSTER_PG_PORT": str(self.port), "DAGSTER_PG_PASSWORD": PASSWORD}

    def ask(self, sql: str) -> str:
        """The answer to a query, without a header."""
        command = [
            self.bin / "psql",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            "dagster",
            "-At",
            "-c",
            sql,
            "dagster",
        ]
        env = os.environ | {"PGPASSWORD": PASSWORD}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def server() -> Iterator[Server]:
    """Run one. PostgreSQL refuses root, so root runs it as the packages' user, in a folder that this user may reach."""
    found = programs()
    assert found is not None
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="postgres-") as temp:
        folder = Path(temp)
        if as_user:
            shutil.chown(folder, "postgres")
        yield from _run(folder, found, as_user)


def _run(folder: Path, found: Path, as_user: list[str]) -> Iterator[Server]:
    data, port = folder / "data", free_port()
    (folder / "password").write_text(PASSWORD)

    def run(program: str, *args: str) -> None:
        command = [*as_user, str(found / program), *args]
        subprocess.run(command, check=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    login = ("-U", "dagster", f"--pwfile={folder / 'password'}", "-A", "scram-sha-256")
    run("initdb", "-D", str(data), *login)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
    run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        made = Server(port, found)
        env = os.environ | {"PGPASSWORD": PASSWORD}
        at = ["-h", "127.0.0.1", "-p", str(port), "-U", "dagster", "dagster"]
        subprocess.run([str(found / "createdb"), *at], env=env, check=True)
        yield made
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
