import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform.cli.app import run
from cdc_platform.config import load_config
from cdc_platform.demo.run import compared
from cdc_platform.demo.workload import Workload


def cli(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("cdc-platform")
    around = {**os.environ, **env}
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=1500, check=False, env=around)


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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A demo that ran to its end, and its folder."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    small = ("--format", "tencent_dts", "--transactions", "12", "--master", "local[2]", "--seed", "3")
    done = cli("demo", "--json", "--folder", str(folder), *small)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout), folder


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
@pytest.mark.thorough
def test_the_demo_ends_equal(finished):
    told, folder = finished
    assert told["equal"] is True
    assert {(s["run"], s["source"]) for s in told["snapshots"] if s["equal"]} == {(run, "shop_dts") for run in (1, 2)}
    assert {(r["run"], r["room"]) for r in told["rooms"]} >= {(3, "landing"), (1, "snapshots")}
    assert all(r["landed"] == r["accounted"] for r in told["ledger"])
    broker = cli("broker", "status", "--home", str(folder / ".cdc/broker"), "--json")
    assert json.loads(broker.stdout)["state"] == "stopped"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
@pytest.mark.thorough
def test_one_wrong_cell_is_the_only_finding(finished):
    _, folder = finished
    shop = Workload(3, 12)
    shop.advance(12 // 3)  # the increment
    config = load_config(folder / "cdc.yaml")
    assert compared(config, shop.truth)[1] == []

    customers = shop.truth["shop.customers"]
    key = next(iter(customers))
    customers[key] = {**customers[key], "visits": 99}
    rows, differences = compared(config, shop.truth)
    wrong = [(r["source"], r["table"]) for r in rows if not r["equal"]]
    assert wrong == [("shop_dts", "shop.customers")]
    cells = [line for line in differences if "'visits'" in line]
    assert len(cells) == 1
    assert "expected 99" in cells[0]
