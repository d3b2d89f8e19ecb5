"""Which process is meant by a number."""

import os
import re
import subprocess
import sys

import pytest

from cdc_platform.setup import process_start
from cdc_platform.setup.process_start import has_ended, start_of


def test_a_process_is_told_from_a_later_one_of_its_number():
    mine = start_of(os.getpid())
    assert mine
    assert mine == start_of(os.getpid())
    assert not has_ended(os.getpid(), mine)
    assert has_ended(os.getpid(), f"{mine}0")
    assert has_ended(os.getpid(), re.sub("^linux:[^:]+", "linux:another-boot", mine))


def test_one_that_has_ended_has_though_nobody_asked_after_it():
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    noted = start_of(process.pid)
    assert process.stdout
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(process.pid, noted)
    assert start_of(process.pid) is None
    process.wait()
    assert has_ended(process.pid, noted)
    assert has_ended(process.pid, None)


@pytest.mark.parametrize("noted", [1.5, "1.5", None, ""])
def test_where_in_doubt_it_has_not_ended(noted):
    """A version before noted a time, which is told differently after the clock was set."""
    assert not has_ended(os.getpid(), noted)


def test_where_the_machine_says_nothing_only_the_number_counts(monkeypatch):
    noted = start_of(os.getpid())
    monkeypatch.setattr(process_start, "_has_proc", lambda: False)
    assert start_of(os.getpid()) is None
    assert not has_ended(os.getpid(), noted)


def test_the_clock_does_not_move_it(clock_set):
    noted = start_of(os.getpid())
    clock_set(86_400)
    assert start_of(os.getpid()) == noted


def test_without_proc_ps_tells(monkeypatch):
    """As on macOS."""
    monkeypatch.setattr(process_start.sys, "platform", "darwin")
    noted = start_of(os.getpid())
    assert re.fullmatch(r"ps:\w{3} \w{3} \d+ [\d:]{8} \d{4}", noted or "")
    assert not has_ended(os.getpid(), noted)
    assert has_ended(os.getpid(), "ps:Thu Jan 1 00:00:00 1970")
