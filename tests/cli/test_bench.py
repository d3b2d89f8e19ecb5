import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform.bench import bench, chain, plot
from cdc_platform.bench import settings as told
from cdc_platform.bench.figures import CHAIN, IDLE, RAW, Trial, ratios, stage_rows, whole
from cdc_platform.bench.meter import Reading, measured
from cdc_platform.cli.app import run

STAGES = ("landing", "envelopes", "changes", "changelog", "snapshots")


def trial(raw, *seconds):
    stages = {RAW: Reading(raw, 2 * raw, 100_000_000)}
    stages |= {name: Reading(s, s, 200_000_000) for name, s in zip(STAGES, seconds, strict=True)}
    stages[CHAIN] = whole([stages[name] for name in STAGES])
    stages[IDLE] = Reading(1.5, 1, 100_000_000)
    return Trial("debezium", 1000, 50_000_000, 1.0, stages)


def test_the_chain_is_its_stages_one_after_another():
    assert whole([Reading(1, 2, 30), Reading(4, 5, 20)]) == Reading(5, 7, 30)


def test_figures_of_stages():
    rows = stage_rows(1000, [trial(2, 3, 0, 1, 1, 5), trial(4, 3, 0, 1, 1, 15), trial(3, 3, 0, 1, 1, 10)])
    by_stage = {r["stage"]: r for r in rows}
    assert list(by_stage) == [RAW, *STAGES, CHAIN, IDLE]
    assert by_stage[RAW] == {
        "format": "debezium", "stage": RAW, "seconds": 3, "min_s": 2, "max_s": 4, "events_per_s": 333,
        "mb_per_s": 16.7, "cpu_s": 6, "peak_mb": 100,
    }  # fmt: skip
    assert by_stage["envelopes"]["events_per_s"] is None
    assert (by_stage[IDLE]["seconds"], by_stage[IDLE]["events_per_s"]) == (1.5, None)
    assert (by_stage[CHAIN]["seconds"], by_stage[CHAIN]["peak_mb"]) == (15, 200)


def test_ratios_are_per_trial_and_then_the_median():
    found = ratios([trial(2, 3, 0, 1, 1, 5), trial(5, 3, 1, 3, 3, 15), trial(1, 6, 0, 1, 1, 10)])
    assert found["raw_to_log"] == 0.4  # of 2/5, 5/10, 1/8
    assert found["chain_to_raw"] == 5.0  # of 10/2, 25/5, 18/1


def test_the_meter_counts_children():
    code = "import time; x = bytearray(150_000_000)\nwhile time.process_time() < 0.5: pass"
    with measured() as reading:
        subprocess.run([sys.executable, "-c", code + "\ntime.sleep(1.5)"], check=True)
    assert reading.seconds >= 2
    assert 0.5 <= reading.cpu_s < reading.seconds + 2
    assert reading.peak_bytes > 150_000_000


@pytest.mark.thorough
def test_the_meter_counts_workers_that_nobody_waited_for():
    busy = "import time\nwhile time.process_time() < 2.5: pass"
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        f"subprocess.Popen([sys.executable, '-c', {busy!r}]); time.sleep(7)"
    )
    with measured() as reading:
        subprocess.run([sys.executable, "-c", code], check=True)
    assert reading.cpu_s >= 1


def test_an_unknown_format_is_told(capsys):
    assert run(["bench", "--format", "xml", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["type"], error["valid"]) == ("ConfigError", list(told.FORMATS))


@pytest.mark.parametrize(
    ("options", "valid"),
    [
        (["--what", "nothing"], list(told.WHAT)),
        (["--plot", "figures.xls"], list(plot.KINDS)),
        (["--topic", "t", "--format", "canal"], ["--topic T --servers HOST:PORT"]),
        (["--topic", "t", "--servers", "h:1"], [f"--format {f}" for f in told.FORMATS]),
    ],
)
def test_options_that_do_not_go_together_are_told(capsys, options, valid):
    assert run(["bench", *options, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["valid"] == valid


def test_the_picture_names_every_stage_of_every_format(tmp_path):
    took = {RAW: 1.0, "landing": 2.0, "envelopes": 0.0, "changes": 4.0, "changelog": 2.0, "snapshots": 1.0}
    stages = [{"format": f, "stage": s, "seconds": t} for f in ("canal", "tdsql") for s, t in took.items()]
    plot.check(tmp_path / "p.svg")
    plot.save({"stages": stages}, tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    assert all(f">{text}<" in drawn for text in ("canal", "tdsql", *took))
    plot.save({"stages": stages}, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
def test_a_small_benchmark(tmp_path):
    program = Path(sys.executable).with_name("cdc-platform")
    options = ["--format", "debezium", "--rows", "300", "--keys", "70", "--master", "local[2]", "--repeats", "1"]
    options += ["--table", "3000", "--changes", "200", "--plot", str(tmp_path / "p.svg")]
    done = subprocess.run(
        [program, "bench", "--json", "--folder", str(tmp_path), *options],
        capture_output=True, text=True, timeout=1500, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [r["stage"] for r in found["stages"]] == [RAW, *STAGES, CHAIN, IDLE]
    assert found["differences"] == []
    assert found["ratios"][0]["records"] == 300
    assert [(r["rows"], r["keys"]) for r in found["increments"]] == [(3000, "recent"), (3000, "random")]
    assert [p.name for p in tmp_path.iterdir()] == ["p.svg"]


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
def test_the_way_of_changes_through_the_running_platform_is_timed(tmp_path):
    settings = told.Settings(("latency",), rate=5, seconds=20, folder=tmp_path)
    found = bench.run_bench(settings, str)
    assert found["differences"] == []
    [row] = found["latency"]
    assert (row["rate"], row["changes"]) == (5, 100)
    assert 0 < row["p50_s"] <= row["p99_s"] <= row["max_s"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
def test_a_snapshot_that_is_not_the_truth_is_told(spark, tmp_path, monkeypatch):
    real = chain.bench_truth
    monkeypatch.setattr(chain, "bench_truth", lambda rows, keys: real(rows, keys, seed=1))
    settings = told.Settings(("chain",), ("debezium",), repeats=1, rows=40, keys=8, master="local[2]", folder=tmp_path)
    found = bench.run_bench(settings, str)
    assert any("'name'" in line for line in found["differences"])


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.e2e
def test_explanations_are_timed_and_a_wrong_one_is_told(spark, tmp_path, monkeypatch):
    settings = told.Settings(("explain",), rows=400, keys=50, master="local[2]", folder=tmp_path)
    found = bench.run_bench(settings, str)
    assert (found["differences"], found["stages"]) == ([], [])
    assert [(r["what"], r["found"] > 0) for r in found["explain"]] == [
        ("a key", True), ("a key that never came", False), ("a GTID", True),
    ]  # fmt: skip
    monkeypatch.setattr("cdc_platform.bench.explained._NEVER", 1)
    assert bench.run_bench(settings, str)["differences"] == ["explain: a key that never came is answered wrongly"]
