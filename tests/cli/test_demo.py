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
from tests import s3_server


def cli(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("cdc-platform")
    around = {**{k: v for k, v in os.environ.items() if k != "CDC_CONFIG"}, **env}
    return subprocess.run(
        [program, *args], capture_output=True, text=True, timeout=1500, check=False, env=around, cwd=cwd
    )


@pytest.mark.thorough
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


@pytest.fixture
def on_s3(s3, tmp_path):
    """`on_s3(lake, …)`: the demo of two formats in the tests' bucket, reached by the environment; what is empty isn't
    set."""
    keys = {"AWS_ACCESS_KEY_ID": s3_server.KEY, "AWS_SECRET_ACCESS_KEY": s3_server.SECRET}

    def demo(lake: str, **other: str) -> subprocess.CompletedProcess[str]:
        few = ("--transactions", "5", "--master", "local[2]", "--format", "canal_json", "--format", "tencent_dts")
        reached = {**keys, "AWS_ENDPOINT_URL": s3.endpoint, **other}
        return cli("demo", "--lake", lake, *few, cwd=tmp_path, **{k: v for k, v in reached.items() if v})

    return demo


@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
@pytest.mark.thorough
def test_the_demo_on_s3_ends_equal(s3, on_s3, tmp_path):
    lake = f"s3://{s3_server.BUCKET}/{tmp_path.name}"
    done = on_s3(lake)
    assert done.returncode == 0, done.stderr + done.stdout
    assert EQUAL in done.stdout.splitlines()[0]
    for table in TABLES:
        assert [line.split()[2:] for line in done.stdout.splitlines() if line.startswith(table)] == [["equal"] * 2]
    assert f"{lake}/snapshots/shop_dts/shop/orders" in done.stdout
    assert not (tmp_path / ".cdc/demo/lake").exists()
    logs = s3.keys(s3_server.BUCKET, f"{tmp_path.name}/snapshots")
    assert {f"{tmp_path.name}/snapshots/shop_dts/{t.replace('.', '/')}/_delta_log/{0:020d}.json" for t in TABLES} < logs
    told = [done.stdout, done.stderr, *(f.read_text(errors="replace") for f in tmp_path.rglob("*") if f.is_file())]
    assert not [text for text in told if s3_server.SECRET in text]
    again = on_s3(lake)
    assert again.returncode == 1
    assert "is in use" in again.stderr


@pytest.mark.s3
@pytest.mark.parametrize(
    ("bucket", "other", "says"),
    [
        ("none", {}, "there is no such bucket"),
        (s3_server.BUCKET, {"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "AWS_ENDPOINT_URL of the environment: must be like"),
        (s3_server.BUCKET, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "the address of `storage.endpoint`, or of AWS_"),
        (s3_server.BUCKET, {"AWS_SECRET_ACCESS_KEY": ""}, "there are no credentials: give them"),
    ],
)
def test_a_demo_tells_at_once_what_its_store_lacks(on_s3, tmp_path, bucket, other, says):
    done = on_s3(f"s3://{bucket}/{tmp_path.name}", **other)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ") and says in done.stderr
    assert "Traceback" not in done.stderr and s3_server.SECRET not in done.stderr
    assert not (tmp_path / ".cdc/demo/cdc.yaml").exists()


@pytest.mark.s3
def test_a_demo_refuses_a_store_that_lets_two_writers_win(s3, on_s3, tmp_path):
    s3.fault("unconditional", method="PUT", times=100_000)
    done = on_s3(f"s3://{s3_server.BUCKET}/{tmp_path.name}")
    assert done.returncode == 2
    assert "error: lake: " in done.stderr and "conditional writes (If-None-Match)" in done.stderr
