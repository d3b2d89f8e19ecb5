"""What is killed at one of its writes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cdc_platform.lake import batches, commits, delta_table
from cdc_platform.lake.store import Store


class Killed(BaseException):
    """As if the process had gone."""


def dies(monkeypatch: pytest.MonkeyPatch, lake: str, where: str, work: Callable[[], Any], *, done: bool) -> None:
    """Work that is killed instead of a write (done: behind it). where: a table's path in the lake, or a log of a
    stage's batches (`_checkpoints/changelog/s commits`)."""
    hit = []

    def one(write: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if name(*args) != where:
                return write(*args, **named)
            hit.append(where)
            if done:
                write(*args, **named)
            raise Killed

        return call

    def table(path: Store, *_: Any) -> str:
        return path.uri().removeprefix(f"{lake}/")

    def batch(path: Store, log: str, *_: Any) -> str:
        return f"{table(path)} {log}"

    with monkeypatch.context() as patched:
        patched.setattr(commits.log_state, "commit", one(commits.log_state.commit, table))
        patched.setattr(delta_table, "merge", one(delta_table.merge, table))
        patched.setattr(batches.checkpoints, "note", one(batches.checkpoints.note, batch))
        with pytest.raises(Killed):
            work()
    assert hit, f"nothing is written to {where}"


_PROGRAM = """
import importlib, os, signal, sys
from cdc_platform.cli.app import main
module, function, call, behind = sys.argv.pop(1).split()
module, left = importlib.import_module(module), iter(range(int(call)))
own = getattr(module, function)
def dies(*given, **more):
    last = next(left, None) is None
    if last and behind == "False":
        os.kill(os.getpid(), signal.SIGKILL)
    done = own(*given, **more)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
setattr(module, function, dies)
main()
"""


def process(where: str, arguments: list[str], *, behind: bool = False) -> bool:
    """`cdc-platform` with these arguments as a process that is killed (SIGKILL) before a call of a function, or behind
    it. where: module, function, how many calls of it come before. Returns whether it came to that."""
    command = [sys.executable, "-c", _PROGRAM, f"{where} {behind}", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ})
    assert done.returncode in (-signal.SIGKILL, 0), done.stderr[-3000:]
    return done.returncode != 0
