"""`ui` as a process: all up, all down, and one death ends the rest."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import psutil
import pytest
from dagster import DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from cdc_platform.automation.instance import open_instance
from cdc_platform.cli.ui import loopback_port
from cdc_platform.config import Config, load_config, parse_config
from cdc_platform.setup.ports import free_port

COMMAND = Path(sys.executable).parent / "cdc-platform"


def sources(servers: str) -> Config:
    feed = {"name": "orders", "format": "tencent_dts", "topics": ["a"]}
    return parse_config({"lake": "x", "kafka": {"bootstrap.servers": servers}, "sources": [feed]})


@pytest.mark.parametrize(
    ("servers", "port"),
    [("127.0.0.1:9092", 9092), ("localhost:1", 1), ("kafka.example:9092", None), ("a:1,127.0.0.1:2", None)],
)
def test_the_embedded_broker_is_for_loopback_only(servers, port):
    assert loopback_port(sources(servers)) == port


def test_an_occupied_port_is_told_in_one_line_before_anything_starts(tmp_path):
    (tmp_path / "cdc.yaml").write_text("lake: x\nsources: [{name: orders, format: tencent_dts, topics: [a]}]\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [COMMAND, "ui", "--port", str(port)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert re.fullmatch(rf"error: port {port} is taken; choose another: --port \d+\n", done.stderr)
    assert done.stdout == ""
    assert not (tmp_path / ".cdc" / "broker").exists()
    assert not (tmp_path / ".cdc" / "connect.json").exists()


class Ui:
    """A started `ui` on free ports, in a folder of its own."""

    def __init__(self, folder: Path):
        self.port, self.folder = free_port(), folder
        (folder / "cdc.yaml").write_text(
            f"lake: ./lake\nkafka: {{bootstrap.servers: '127.0.0.1:{free_port()}'}}\n"
            "spark: {master: 'local[1]'}\nsources: [{name: orders, format: tencent_dts, topics: [a]}]\n"
        )
        self.log = folder / "ui.log"
        self.start()

    def start(self) -> None:
        """The process, its output in a log that begins with it."""
        env = {**os.environ, "CDC_CONFIG": str(self.folder / "cdc.yaml")}
        env.pop("DAGSTER_HOME", None)
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [COMMAND, "ui", "--port", str(self.port)], stdout=out, stderr=out, cwd=self.folder, env=env
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 240
        while "ready:" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.5)

    def code_locations(self) -> list[str]:
        """Names of the code locations that the web pages show."""
        query = {"query": "{ workspaceOrError { ... on Workspace { locationEntries { name } } } }"}
        request = Request(f"http://127.0.0.1:{self.port}/graphql", json.dumps(query).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=60) as answer:
            return [entry["name"] for entry in json.load(answer)["data"]["workspaceOrError"]["locationEntries"]]

    def dagster_environments(self) -> list[dict[str, str]]:
        """Environment of the web server's and the daemon's process."""
        children = psutil.Process(self.process.pid).children()
        named = [p for p in children if re.search("dagster-(webserver|daemon)", " ".join(p.cmdline()))]
        assert len(named) == 2
        return [process.environ() for process in named]

    def left(self) -> list[str]:
        """Command lines of processes that belong to this folder."""
        mark = str(self.folder)
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "environ"]):
            env = process.info["environ"] or {}
            if process.pid != os.getpid() and (
                mark in str(process.info["cmdline"]) or env.get("CDC_CONFIG", "").startswith(mark)
            ):
                found.append(f"{process.pid} {process.info['cmdline']}")
        return found


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    started = Ui(tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.terminate()
        started.process.wait(300)


@pytest.mark.thorough
@pytest.mark.e2e
@pytest.mark.spark
def test_ui_starts_everything_and_leaves_nothing_behind(ui):
    ui.wait_ready()
    with urlopen(f"http://127.0.0.1:{ui.port}/server_info", timeout=10) as answer:
        assert "dagster_version" in json.load(answer)
    assert ui.code_locations() == ["cdc"]
    assert {env["CDC_DAGSTER_URL"] for env in ui.dagster_environments()} == {f"http://127.0.0.1:{ui.port}"}
    state = ui.folder / ".cdc" / "connect.json"
    assert state.stat().st_mode & 0o077 == 0
    ui.process.send_signal(signal.SIGINT)
    assert ui.process.wait(300) == 0
    assert not state.exists()
    assert ui.left() == []


@pytest.mark.thorough
@pytest.mark.e2e
@pytest.mark.spark
def test_a_program_that_dies_is_named_and_ends_the_rest(ui):
    ui.wait_ready()
    server = json.loads((ui.folder / ".cdc" / "connect.json").read_text())
    os.kill(server["pid"], signal.SIGKILL)
    assert ui.process.wait(300) == 1
    assert "Spark Connect server ended with code -9" in ui.log.read_text()
    assert ui.left() == []


@pytest.mark.thorough
@pytest.mark.e2e
@pytest.mark.spark
def test_started_after_a_kill_it_ends_what_was_left_and_the_run_that_never_ended(ui):
    ui.wait_ready()
    config = load_config(ui.folder / "cdc.yaml")
    with open_instance(config) as instance:
        tags = {".dagster/grpc_info": "{}"}  # as the launcher marks the runs that it starts
        run_id = create_run_for_test(instance, "catch_up", status=DagsterRunStatus.STARTED, tags=tags).run_id
    ui.process.kill()
    ui.process.wait(60)
    left = ui.left()
    assert left
    ui.start()
    ui.wait_ready()
    assert f"run {run_id} had not ended" in ui.log.read_text()
    assert [line for line in left if line in ui.left() and "cdc.broker.home" not in line] == []
    with open_instance(config) as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.status == DagsterRunStatus.FAILURE
    ui.process.send_signal(signal.SIGINT)
    assert ui.process.wait(300) == 0
    assert ui.left() == []
