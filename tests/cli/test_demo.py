import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform.cli.app import run
from cdc_platform.cli.demo_story import EQUAL
from cdc_platform.config import load_config
from cdc_platform.demo.run import compared
from cdc_platform.feeds.shop import TABLES
from cdc_platform.feeds.workload import Workload
from cdc_platform.formats import FORMATS


def cli(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("cdc-platform")
    around = {**{k: v for k, v in os.environ.items() if k != "CDC_CONFIG"}, **env}
    return subprocess.run(
        [program, *args], capture_output=True, text=True, timeout=1500, check=False, env=around, cwd=cwd
    )


def test_missing_jars_are_told_with_what_mends_it(tmp_path):
    done = cli("demo", "--folder", str(tmp_path / "demo"), "--json", CDC_JARS=str(tmp_path / "none"))
    assert done.returncode == 2
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
    """A demo of all formats that ran to its end: what it printed, and its folder."""
    home = tmp_path_factory.mktemp("demo")
    done = cli("demo", "--transactions", "12", "--master", "local[2]", "--seed", "3", cwd=home)
    assert done.returncode == 0, done.stderr + done.stdout
    return done, home


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
@pytest.mark.thorough
def test_the_demo_ends_equal_and_tells_its_story(finished):
    done, home = finished
    lines = done.stdout.splitlines()
    paths = lines.index("Where to look")  # below it stand paths of this machine
    assert EQUAL in lines[0] and max(map(len, lines[:paths])) <= 100
    formats = next(line.split()[2:] for line in lines if line.startswith("table "))
    assert set(formats) == set(FORMATS)
    for table in TABLES:
        assert [line.split()[2:] for line in lines if line.startswith(table)] == [["equal"] * len(FORMATS)]
    assert lines[-1].endswith("cdc-platform ui") and "CDC_CONFIG" not in lines[-1]
    assert "\x1b" not in done.stdout + done.stderr
    assert "WARN" not in done.stderr and "Traceback" not in done.stderr
    cuts = cli("cut", "list", "--json", cwd=home)  # without a cdc.yaml: the demo's
    kinds = {row["source"]: row["kind"] for row in reversed(json.loads(cuts.stdout))}
    assert {source for source, kind in kinds.items() if kind == "transaction"} == {
        "shop_dts",
        "shop_canal",
        "shop_tdsql",
    }
    broker = cli("broker", "status", "--home", str(home / ".cdc/demo/.cdc/broker"), "--json")
    assert json.loads(broker.stdout)["state"] == "stopped"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
@pytest.mark.thorough
def test_one_wrong_cell_is_the_only_finding_of_each_feed(finished):
    _, home = finished
    shop = Workload(3, 12)
    shop.advance(12 // 3)  # the increment
    config = load_config(home / ".cdc/demo/cdc.yaml")
    assert compared(config, shop.truth)[1] == []

    customers = shop.truth["shop.customers"]
    key = next(iter(customers))
    customers[key] = {**customers[key], "visits": 99}
    rows, differences = compared(config, shop.truth)
    wrong = [(r["source"], r["table"]) for r in rows if not r["equal"]]
    assert wrong == [(source.name, "shop.customers") for source in config.sources]
    cells = [line for line in differences if "'visits'" in line]
    assert len(cells) == len(wrong) == 6
    assert all("expected 99" in cell for cell in cells)
