"""Starts, stops and finds the embedded Kafka's process."""

import json
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from filelock import FileLock, Timeout

from cdc_platform.errors import CdcError
from cdc_platform.kafka.broker.settings import HOST, NODE_ID, cluster_id, format_storage, write_properties
from cdc_platform.setup.jars import broker_classpath
from cdc_platform.setup.java import find_java
from cdc_platform.setup.ports import free_port, is_free

DEFAULT_PORT = 9092
_TERM_WAIT_S = 30
_LOG4J = Path(__file__).with_name("log4j2.properties")


class BrokerError(CdcError):
    """The embedded broker can't be started or stopped. Fields: `home`, `problem`."""

    def __init__(self, home: Path, problem: str):
        self.home, self.problem = str(home), problem
        super().__init__(f"embedded broker in {home}: {problem}")


@dataclass(frozen=True)
class BrokerInfo:
    """The broker of one home. None: `port` when never started; `pid` and `started_at` (UTC) when stopped."""

    home: Path
    port: int | None
    pid: int | None = None
    started_at: datetime | None = None
    already_running: bool = False
    answers: bool = False

    @property
    def running(self) -> bool:
        """Whether its process lives (`answers`: whether it also serves)."""
        return self.pid is not None

    @property
    def bootstrap_servers(self) -> str | None:
        """What clients connect to."""
        return f"{HOST}:{self.port}" if self.port else None

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self.home / "broker.log"


def default_home(config: Path) -> Path:
    """Where the broker of this cdc.yaml keeps its data: .cdc/broker beside it."""
    return config.expanduser().absolute().parent / ".cdc" / "broker"


def _state(home: Path) -> dict:
    try:
        return json.loads((home / "broker.json").read_text())
    except (OSError, ValueError):
        return {}


def _save_state(home: Path, state: dict) -> None:
    beside = home / "broker.json.new"
    beside.write_text(json.dumps(state))
    beside.replace(home / "broker.json")


def _mark(home: Path) -> str:
    return f"-Dcdc.broker.home={home}"


_LOOKS = 10


def _process(home: Path) -> psutil.Process | None:
    """Our live broker. The noted process number may by now be somebody else's: the command line must be ours
    (a start time would do less: it moves when the clock is set). On a busy machine the kernel at times gives a part
    of a command line or none of it, so that one look without the mark proves nothing."""
    if not (pid := _state(home).get("pid")):
        return None
    for _ in range(_LOOKS):
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            if _mark(home) in process.cmdline():
                return process
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            return None
        except psutil.Error:
            pass
        time.sleep(0.05)
    return None


def _answers(home: Path, port: int, timeout_s: float = 2) -> bool:
    """Whether this home's own broker serves metadata on `port` and counts itself as alive."""
    with socket.socket() as probe:  # spares librdkafka's complaints while nobody listens
        probe.settimeout(timeout_s)
        if probe.connect_ex((HOST, port)):
            return False
    client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0, "socket.timeout.ms": 5000})
    try:
        found = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return found.cluster_id == cluster_id(home) and NODE_ID in found.brokers


def _info(home: Path, process: psutil.Process | None, already: bool = False, answers: bool = False) -> BrokerInfo:
    port = _state(home).get("port")
    if process is None:
        return BrokerInfo(home, port)
    started = datetime.fromtimestamp(process.create_time(), UTC).replace(microsecond=0)
    return BrokerInfo(home, port, process.pid, started, already, answers)


def _owner(port: int) -> str:
    with suppress(psutil.Error):
        for link in psutil.net_connections("tcp"):
            if link.status == psutil.CONN_LISTEN and link.laddr.port == port and link.pid:  # type: ignore[union-attr]
                return f" by process {link.pid} ({psutil.Process(link.pid).name()})"
    return ""


def _java(home: Path) -> list[str]:
    return [
        str(find_java().binary),
        *("-Xms256m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"),
        f"-Dlog4j2.configurationFile={_LOG4J}",
        "-Dlog4j.shutdownHookEnabled=false",  # else the log ends before the broker's own shutdown is written
        f"-Dcdc.broker.log={home / 'broker.log'}",
        *("-cp", broker_classpath()),
    ]


def _launch(home: Path, port: int) -> None:
    """Formats the storage at first, starts the process in a session of its own and notes it."""
    if not is_free(port):
        raise BrokerError(home, f"port {port} is in use{_owner(port)}; name another with --port")
    controller = port + 1 if port < 65535 and is_free(port + 1) else free_port()
    properties = write_properties(home, port, controller)
    java = _java(home)
    if problem := format_storage(home, java, properties):
        raise BrokerError(home, f"the storage can't be formatted: {problem}")
    with open(home / "broker.out", "wb") as out:
        process = subprocess.Popen(
            [*java, _mark(home), "kafka.Kafka", str(properties)],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal that started it must not end it
        )
    _save_state(home, {"pid": process.pid, "port": port, "controller_port": controller})


def _tail(home: Path) -> str:
    texts = []
    for name in ("broker.out", "broker.log"):
        with suppress(OSError):
            texts += (home / name).read_text(errors="replace").splitlines()[-200:]
    told = [line for line in texts if "ERROR" in line or "FATAL" in line or "Exception" in line]
    return " | ".join((told or texts)[-4:])


def _kill(process: psutil.Process, wait_s: float) -> None:
    """SIGTERM, and SIGKILL when that wasn't enough."""
    with suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(wait_s)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(10)


def _await(home: Path, port: int, deadline: float) -> psutil.Process:
    while process := _process(home):
        if _answers(home, port):
            return process
        if time.monotonic() > deadline:
            _kill(process, 5)
            raise BrokerError(home, f"no answer on port {port} in time, so it was stopped: {_tail(home)}")
        time.sleep(0.1)
    raise BrokerError(home, f"it ended while starting: {_tail(home)}")


def _lock(home: Path, timeout_s: float) -> FileLock:
    home.mkdir(parents=True, exist_ok=True)
    return FileLock(home / "broker.lock", timeout=timeout_s)


def start(home: Path, port: int | None = DEFAULT_PORT, timeout_s: float = 120) -> BrokerInfo:
    """Starts the broker whose data lies in `home` and returns when it answers; does nothing when it runs.

    `port` None: the one used last, else DEFAULT_PORT. Raises BrokerError where the port is taken, where the
    broker already runs on another port, where it ends or doesn't answer within `timeout_s` seconds;
    SetupError without Java or jars.
    """
    home = home.expanduser().absolute()
    try:
        with _lock(home, timeout_s + _TERM_WAIT_S):
            deadline = time.monotonic() + timeout_s
            last = _state(home).get("port")
            running = _process(home) is not None
            if running and port not in (None, last):
                raise BrokerError(home, f"it already runs on port {last}, not {port}; stop it first")
            port = port or last or DEFAULT_PORT
            if not running:
                _launch(home, port)
            return _info(home, _await(home, port, deadline), already=running, answers=True)
    except Timeout:
        raise BrokerError(home, "another command is still starting or stopping it") from None
    except OSError as error:  # no right to write there, disk full, something else in its place
        raise BrokerError(home, str(error)) from error


def stop(home: Path) -> tuple[BrokerInfo, bool]:
    """Stops the broker cleanly (a clean stop spares the next start the recovery); second: whether it ran."""
    home = home.expanduser().absolute()
    if not home.is_dir():
        return BrokerInfo(home, None), False
    try:
        with _lock(home, 60 + _TERM_WAIT_S):
            process = _process(home)
            if process:
                _kill(process, _TERM_WAIT_S)
            return _info(home, None), process is not None
    except Timeout:
        raise BrokerError(home, "another command is still starting or stopping it") from None


def status(home: Path) -> BrokerInfo:
    """What runs in `home` now. Waits two seconds at most for an answer."""
    home = home.expanduser().absolute()
    process = _process(home)
    port = _state(home).get("port")
    return _info(home, process, answers=bool(process and port and _answers(home, port)))
