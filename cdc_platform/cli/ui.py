"""`cdc-platform ui`: broker, warm Spark, Dagster's pages and daemon, started and stopped together."""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.error import URLError
from urllib.request import urlopen

import typer

from cdc_platform.cli.output import printed, progress
from cdc_platform.cli.ui_session import MARK, session
from cdc_platform.config import Config, load_config
from cdc_platform.errors import CdcError
from cdc_platform.setup import ports
from cdc_platform.setup.processes import Group, Program, stop_signals
from cdc_platform.spark import connect
from cdc_platform.units import count

_READY_S = 120
_LAST_PORT = 65_535
_WORKSPACE = {"load_from": [{"python_module": {"module_name": "cdc_platform.definitions", "location_name": "cdc"}}]}


class PortTaken(CdcError):
    """Another program listens on the port of the web pages. Fields: `port`, `free` (one that could be used)."""

    def __init__(self, port: int, free: int):
        self.port, self.free = port, free
        super().__init__(f"port {port} is taken; choose another: --port {free}")


class _Stopped(Exception):
    pass


@printed
def command(
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web pages.")] = 3000,
    broker: Annotated[bool, typer.Option(help="Start the embedded broker, where cdc.yaml points at loopback.")] = True,
) -> None:
    """Start broker, warm Spark, Dagster's web pages and daemon; stop them all on Ctrl-C."""
    loaded = load_config(config)
    if loaded.file != config.expanduser().absolute():
        progress(f"no {config} here: showing the demo's tables ({loaded.file})")
    group = Group()
    with session(loaded) as own, stop_signals() as stopped:
        if own.left:
            progress(f"ended {count(own.left, 'program')} that a killed `cdc-platform ui` left running")
        _check_port(port)
        try:
            if broker:
                own.own_broker = _start_broker(loaded, own.own_broker)
                own.save()
            os.environ[MARK] = own.mark  # not before the broker: whoever kills this finds it running again
            env = _start_spark(loaded, group, stopped)
            _start_dagster(loaded, group, env, port, stopped)
            progress(f"ready: http://127.0.0.1:{port}   (logs in {_logs(loaded)}; Ctrl-C stops everything)")
            while not stopped():
                group.check()
                time.sleep(0.5)
        except _Stopped:
            pass
        finally:
            progress("stopping")
            group.stop()
            connect.forget(loaded)
            if own.own_broker:
                _stop_broker(loaded)


def _check_port(port: int) -> None:
    """Raises PortTaken: before anything is started, not after Spark is up."""
    if not ports.is_free(port):
        above = range(port + 1, _LAST_PORT + 1)
        raise PortTaken(port, next(filter(ports.is_free, above), 0) or ports.free_port())


def _start_broker(config: Config, ours: bool) -> bool:
    """Start the embedded broker where cdc.yaml points at it; whether it is ours to stop. ours: one that runs already
    is, since a killed `ui` started it."""
    from cdc_platform.kafka import broker

    port = loopback_port(config)
    if port is None:
        return False
    progress(f"broker: starting on 127.0.0.1:{port}")
    info = broker.start(config.state_dir / "broker", port)
    ours = ours or not info.already_running
    if not ours:
        progress("broker: was already running, and stays when this ends")
    return ours


def loopback_port(config: Config) -> int | None:
    """Port of the embedded broker that the common bootstrap.servers name; None: they name another cluster."""
    host, _, port = config.kafka.get("bootstrap.servers", "").rpartition(":")
    return int(port) if host in ("127.0.0.1", "localhost") and port.isdigit() else None


def _stop_broker(config: Config) -> None:
    from cdc_platform.kafka import broker

    broker.stop(config.state_dir / "broker")


def _start_spark(config: Config, group: Group, stopped: Callable[[], bool]) -> dict[str, str]:
    """One Spark Connect server for all runs, unless cdc.yaml names one; the environment that points at it."""
    if config.spark.remote:
        return {}
    progress("Spark: starting a Connect server")
    log = _logs(config) / "spark-connect.log"
    process, server = connect.launch(config, log)
    program = group.add(Program("Spark Connect server", process, log))
    group.until(_or_stop(lambda: connect.answers(server.port), stopped), program, _READY_S)
    return server.env


def _start_dagster(config: Config, group: Group, env: dict[str, str], port: int, stopped: Callable[[], bool]) -> None:
    from cdc_platform.automation.instance import dagster_home, end_own_orphans, make_storage

    progress("Dagster: starting web pages and daemon")
    make_storage(config)
    for run_id in end_own_orphans(config):
        progress(f"Dagster: run {run_id} had not ended when `cdc-platform ui` was killed; it is marked as failed")
    env = {
        **env,
        "DAGSTER_HOME": str(dagster_home(config)),
        "CDC_CONFIG": str(config.file),
        "CDC_DAGSTER_URL": f"http://127.0.0.1:{port}",  # where a sensor asks for a reload of the code location
        "PYTHONUNBUFFERED": "1",
    }
    workspace = config.state_dir / "workspace.yaml"
    workspace.parent.mkdir(parents=True, exist_ok=True)
    workspace.write_text(json.dumps(_WORKSPACE), encoding="utf-8")  # JSON is YAML
    programs = Path(sys.executable).parent
    pages = group.start(
        "dagster-webserver",
        [str(programs / "dagster-webserver"), "-h", "127.0.0.1", "-p", str(port), "-w", str(workspace)],
        _logs(config) / "dagster-webserver.log",
        env,
    )
    group.start(
        "dagster-daemon",
        [str(programs / "dagster-daemon"), "run", "-w", str(workspace)],
        _logs(config) / "dagster-daemon.log",
        env,
    )
    group.until(_or_stop(lambda: _serves(port), stopped), pages, _READY_S)


def _or_stop(ready: Callable[[], bool], stopped: Callable[[], bool]) -> Callable[[], bool]:
    def look() -> bool:
        if stopped():
            raise _Stopped
        return ready()

    return look


def _serves(port: int) -> bool:
    with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2) as answer:
        return answer.status == 200
    return False


def _logs(config: Config) -> Path:
    return config.state_dir / "logs"
