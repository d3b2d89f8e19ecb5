"""The broker's server.properties and its first format."""

import secrets
import subprocess
import tempfile
from base64 import urlsafe_b64encode
from pathlib import Path

HOST = "127.0.0.1"
NODE_ID = 1
MAX_MESSAGE = 64 * 1024 * 1024  # vendors' messages reach 10 MB and more; the demo's rows 2 MB

# One node: internal topics have one replica and few partitions (50, the default, cost seconds at first use).
_FIXED = {
    "process.roles": "broker,controller",
    "node.id": NODE_ID,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "data",  # below the working folder: no path for a properties file to misread
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "num.partitions": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "message.max.bytes": MAX_MESSAGE,
    "replica.fetch.max.bytes": MAX_MESSAGE,
    "fetch.max.bytes": MAX_MESSAGE,
    "log.retention.ms": -1,  # drop nothing that was published; a topic may say otherwise
    "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,  # the default is a quarter of our heap
    "num.network.threads": 2,
    "num.io.threads": 4,
}

_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a Java that ends after a second or two: it compiles nothing at length, 1.5 s of CPU instead of 2.7."""


def write_properties(home: Path, port: int, controller_port: int) -> Path:
    """Writes `home`/server.properties for these ports, both on loopback."""
    own = {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        # Static voters, so that the controller's port may change from start to start.
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
    }
    path = home / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in (_FIXED | own).items()))
    return path


def new_cluster_id() -> str:
    """A Kafka cluster id: 16 random bytes in URL-safe base64. A leading dash would read as an option."""
    while (text := urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")).startswith("-"):
        pass
    return text


def cluster_id(home: Path) -> str | None:
    """The id in the formatted storage below `home`; None: not formatted."""
    try:
        lines = (home / "data" / "meta.properties").read_text().splitlines()
    except OSError:
        return None
    return dict(line.split("=", 1) for line in lines if "=" in line).get("cluster.id")


def format_storage(home: Path, java: list[str], properties: Path) -> str:
    """Formats the storage below `home` unless that was done; gives the tool's words when it failed, else "".

    `java` is the command up to the main class. Formatted beside and renamed: a kill leaves no half storage.
    """
    if cluster_id(home):
        return ""
    with tempfile.TemporaryDirectory(dir=home, prefix="format-") as work:
        tool = ["kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(properties)]
        done = subprocess.run(
            [java[0], *_BRIEF, *java[1:], *tool],
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return (done.stdout + done.stderr).strip()
        Path(work, "data").rename(home / "data")
    return ""
