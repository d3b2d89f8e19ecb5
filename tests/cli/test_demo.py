import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform.cli.app import run


def cli(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("cdc-platform")
    around = {**os.environ, **env}
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=550, check=False, env=around)


def test_missing_jars_are_told_with_what_mends_it(tmp_path):
    done = cli("demo", "--folder", str(tmp_path / "demo"), "--json", CDC_JARS=str(tmp_path / "none"))
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "SetupError"
    assert "make setup" in error["message"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("x")
    assert run(["demo", "--folder", str(tmp_path)]) == 1
    assert "won't be wiped" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "x"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
def test_the_demo_ends_equal(tmp_path):
    folder = tmp_path / "demo"
    done = cli("demo", "--folder", str(folder), "--transactions", "20", "--master", "local[2]", "--seed", "3")
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.splitlines()[-1] == "all snapshots equal the source"
    assert "ui" in done.stdout
    broker = cli("broker", "status", "--home", str(folder / ".cdc/broker"), "--json")
    assert json.loads(broker.stdout)["state"] == "stopped"
