import json
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform.setup.ports import free_port

pytestmark = pytest.mark.broker


def cli(*args: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("cdc-platform")
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.thorough
def test_start_status_stop(tmp_path):
    place = ["--config", str(tmp_path / "cdc.yaml"), "--json"]
    port = free_port()

    started = cli("broker", "start", "--port", str(port), *place)
    try:
        assert started.returncode == 0, started.stdout
        assert json.loads(started.stdout)["bootstrap_servers"] == f"127.0.0.1:{port}"
        assert "starting" in started.stderr

        status = json.loads(cli("broker", "status", *place).stdout)
        assert (status["state"], status["answers"]) == ("running", True)
        assert status["home"] == str(tmp_path / ".cdc" / "broker")

        clash = cli("broker", "start", "--port", str(free_port()), *place)
        assert clash.returncode == 1
        error = json.loads(clash.stdout)["error"]
        assert error["type"] == "BrokerError"
        assert error["home"] == status["home"]
    finally:
        stopped = cli("broker", "stop", *place)
    assert json.loads(stopped.stdout)["was_running"] is True
    assert json.loads(cli("broker", "status", *place).stdout)["state"] == "stopped"
    assert cli("broker", "stop", *place).returncode == 0


def test_a_bad_port_is_a_usage_error():
    done = cli("broker", "start", "--port", "70000", "--json")
    assert done.returncode == 2
    assert "65535" in json.loads(done.stdout)["error"]["message"]
