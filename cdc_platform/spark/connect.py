"""A warm local Spark Connect server: a run has its session in about a second instead of ten.

The server listens on loopback and asks every client for a token, which only this user's processes know:
without one anybody on the machine could run code in it. `connect.json` beside cdc.yaml tells the command line
where it is.
"""

import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from cdc_platform.config import Config
from cdc_platform.errors import SetupError
from cdc_platform.setup.packaged import PARENT, in_checkout, setup_command
from cdc_platform.setup.ports import free_port
from cdc_platform.setup.process_start import has_ended, start_of

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the variable's name; server and client read it
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. created: what tells its process from a later one of the same id, if the machine says
    (process_start.start_of); a time where a version before noted it."""

    remote: str
    port: int
    pid: int
    created: str | float | None
    token: str

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to use the server."""
        return {"CDC_SPARK_REMOTE": self.remote, TOKEN: self.token}


def launch(config: Config, log: Path) -> tuple[subprocess.Popen[bytes], Server]:
    """Start the server; it answers some ten seconds later (see `answers`). Raises SetupError without Java
    or jars."""
    from cdc_platform.setup.java import java_env
    from cdc_platform.spark.session import server_config

    port = free_port()
    home = _spark_home()
    properties = {
        **server_config(config),
        "spark.master": config.spark.master,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    token = secrets.token_urlsafe(32)
    # Its workers import cdc_platform, also where a checkout is used that was never installed.
    path = [*([str(PARENT)] if in_checkout() else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        **os.environ,
        **java_env(),
        TOKEN: token,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path),
    }
    command = [
        str(home / "bin" / "spark-submit"),
        "--properties-file",
        str(_write_properties(config, properties)),
        "--class",
        _SERVER,
        "spark-internal",
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            cwd=config.state_dir,
            start_new_session=True,
        )
    server = Server(f"sc://localhost:{port}", port, process.pid, start_of(process.pid), token)
    _private(_file(config), json.dumps(asdict(server)))
    return process, server


def living(config: Config) -> Server | None:
    """The server that `ui` started for this cdc.yaml, when it lives and answers."""
    try:
        server = Server(**json.loads(_file(config).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return server if not has_ended(server.pid, server.created) and answers(server.port) else None


def forget(config: Config) -> None:
    """The server has been stopped."""
    _file(config).unlink(missing_ok=True)


def answers(port: int, timeout_s: float = 0.5) -> bool:
    """Whether something listens on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(timeout_s)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _file(config: Config) -> Path:
    return config.state_dir / "connect.json"


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")  # finds, doesn't import
    if spec is None or spec.origin is None:
        raise SetupError(f"pyspark is not installed. Install it with: {setup_command()}")
    return Path(spec.origin).parent


def _write_properties(config: Config, properties: dict[str, str]) -> Path:
    """A file and not arguments: the list of processes is public, and properties may hold keys of the lake."""
    escape = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})
    lines = (f"{key}={value.translate(escape)}\n" for key, value in properties.items())
    return _private(config.state_dir / "connect.properties", "".join(lines))


def _private(file: Path, content: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(content)
    return file


def with_remote(config: Config, remote: str | None) -> Config:
    """The configuration with its Spark on this Connect server; None changes nothing."""
    if not remote:
        return config
    changed = config.model_copy(update={"spark": config.spark.model_copy(update={"remote": remote})})
    changed._file = config.file
    return changed
