"""canal's own Java server and a MariaDB, started for a test. Jars come from Maven by the Ivy that pyspark carries
(once, into the user's cache), MariaDB from the distribution."""

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from cdc_platform.setup.java import find_java

VERSION = "1.1.7"  # the last on Maven Central
SOURCE = Path(__file__).with_name("CanalServer.java")
USERNAME, PASSWORD = "canal", "a secret"  # as CanalServer.java sets them
_FETCH_S = 900


class Missing(Exception):
    """Something the machine lacks, and how to get it."""


def jars() -> list[Path]:
    """canal.server and all that it needs; fetched at first. Raises Missing with Ivy's words."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdc-platform" / "canal-server"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / VERSION
    with open(cache / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(cache, target)
    # slf4j may have one binding only; logback is the one canal uses.
    return [f for f in sorted(target.glob("*.jar")) if not f.name.startswith("slf4j-log4j12")]


def _fetch(cache: Path, target: Path) -> None:
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    work = cache / "work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "home").mkdir(parents=True)
    command = [
        *(str(find_java().binary), f"-Duser.home={work / 'home'}", "-jar", str(ivy), "-cache", str(work / "ivy")),
        *("-dependency", "com.alibaba.otter", "canal.server", VERSION, "-types", "jar", "bundle"),
        *("-retrieve", str(work / "out") + "/[artifact]-[revision].[ext]"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    if done.returncode:
        raise Missing(f"canal.server {VERSION} could not be fetched from Maven:\n{done.stdout[-2000:]}")
    (work / "out").rename(target)
    shutil.rmtree(work)


def _program(*names: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    raise Missing(f"there is no {names[0]}: apt-get install -y --no-install-recommends mariadb-server")


def _until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-3000:]
        time.sleep(0.2)


class Database:
    """A running MariaDB with a row-based binlog."""

    def __init__(self, socket: Path, port: int):
        self.socket, self.port = socket, port

    def run(self, sql: str) -> None:
        """Statements, separated by semicolons."""
        client = _program("mariadb", "mysql")
        subprocess.run([client, "-uroot", "-S", str(self.socket)], input=sql.encode(), check=True)

    def ask(self, sql: str) -> str:
        """The rows of a query, tab-separated."""
        client = _program("mariadb", "mysql")
        command = [client, "-uroot", "-N", "-B", "-S", str(self.socket), "-e", sql]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def answers(self) -> bool:
        """Whether it takes connections."""
        client = _program("mariadb", "mysql")
        command = [client, "-uroot", "-S", str(self.socket), "-e", "SELECT 1"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def database(folder: Path, port: int) -> Iterator[Database]:
    """A MariaDB of its own in `folder`, with the account canal/canal that canal reads the binlog with."""
    user = [f"--user={os.environ.get('USER') or 'root'}"] if os.getuid() == 0 else []
    data, log = folder / "data", folder / "mariadb.log"
    install = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", *user]
    subprocess.run(
        [*install, "--auth-root-authentication-method=normal", "--skip-test-db"], check=True, capture_output=True
    )
    command = [_program("mariadbd"), "--no-defaults", *user, f"--datadir={data}", f"--socket={data / 's'}"]
    command += [f"--port={port}", "--bind-address=127.0.0.1", "--server-id=1", f"--pid-file={data / 'pid'}"]
    command += ["--log-bin=mysql-bin", "--binlog-format=ROW", "--character-set-server=utf8mb4"]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        found = Database(data / "s", port)
        _until(found.answers, process, log)
        for host in ("%", "localhost"):
            found.run(
                f"CREATE USER canal@'{host}' IDENTIFIED BY 'canal';"
                f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO canal@'{host}';"
            )
        yield found
    finally:
        process.terminate()
        process.wait(60)


class CanalServer:
    """canal's server; `start` and `kill` as often as wanted, positions stay in `folder`."""

    def __init__(self, folder: Path, port: int, database_port: int, destination: str):
        self._log, self._meta, self.port = folder / "canal.log", folder / "meta" / destination / "meta.dat", port
        classpath = os.pathsep.join(str(f) for f in jars())
        arguments = [str(port), str(database_port), str(folder / "meta"), destination]
        self._command = [str(find_java().binary), "-Xmx512m", "-cp", classpath, str(SOURCE), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it reads the binlog."""
        with open(self._log, "wb") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)
        _until(self._reads, self._process, self._log)

    def kill(self) -> None:
        """Ends it without a good-bye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """Its log since the last start."""
        return self._log.read_text(errors="replace")

    def positions(self) -> str:
        """What it has written down of its clients' positions, as JSON."""
        return self._meta.read_text() if self._meta.is_file() else ""

    def _reads(self) -> bool:
        text = self.log()
        return "\nready" in "\n" + text and "find start position successfully" in text
