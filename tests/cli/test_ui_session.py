"""Who holds the state beside cdc.yaml, and what a killed `ui` leaves behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdc_platform.cli.ui_session import MARK, UiRunning, session
from cdc_platform.config import Config, parse_config

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(99)"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    raw = {"lake": "./lake", "sources": [{"name": "orders", "format": "tencent_dts", "topics": ["a"]}]}
    return parse_config(raw, tmp_path / "cdc.yaml")


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`program(mark, code)`: a running one with that mark."""
    started = []

    def start(mark: str, code: str = "import time; print(1, flush=True); time.sleep(99)") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code]
        made = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, MARK: mark}, start_new_session=True)
        started.append(made)
        assert made.stdout and made.stdout.readline() == b"1\n"
        return made

    yield start
    for one in started:
        one.kill()
        one.wait()
        one.stdout.close()


def test_what_a_killed_session_left_is_ended_and_nothing_else(config, program, monkeypatch):
    monkeypatch.setattr("cdc_platform.cli.ui_session.STOP_S", 1.0)
    config.state_dir.mkdir(parents=True)
    (config.state_dir / "ui.json").write_text(json.dumps({"mark": "killed", "own_broker": True}))
    left, stubborn, other = program("killed"), program("killed", STUBBORN), program("of another cdc.yaml")
    with session(config) as own:
        assert (own.left, own.own_broker) == (2, True)
        assert left.poll() is not None
        assert stubborn.poll() is not None
        assert other.poll() is None
        assert own.mark not in ("killed", "")


def test_a_session_that_ended_leaves_nothing_to_the_next(config):
    with session(config) as own:
        own.own_broker = True
        own.save()
    with session(config) as again:
        assert (again.left, again.own_broker) == (0, False)
        assert again.mark != own.mark


def test_one_session_at_a_time(config):
    with session(config), pytest.raises(UiRunning, match="is running on"), session(config):
        pass
    with session(config):
        pass


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mark": null}'])
def test_a_file_cut_short_is_no_session(config, text):
    config.state_dir.mkdir(parents=True)
    (config.state_dir / "ui.json").write_text(text)
    with session(config) as own:
        assert (own.left, own.own_broker) == (0, False)
