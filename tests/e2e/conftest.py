"""Drivers of the end-to-end tests: processes of their own, none left behind."""

import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.e2e.e2e_shop import Process


@pytest.fixture
def process():
    """Starts drivers; none is left behind."""
    started = []

    def start(config, *stages, env=None):
        started.append(Process(config, *stages, env=env))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def rounds_of():
    """`rounds_of(file)` starts a process for the one source of a cdc.yaml; what it returns does a round of all stages
    there and gives its seconds."""
    with ExitStack() as ended:

        def start(file):
            command = [sys.executable, "-m", "tests.e2e.rounds", str(file)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            ended.enter_context(process)
            ended.callback(process.stdin.close)

            def one():
                process.stdin.write("\n")
                process.stdin.flush()
                line = next((line for line in process.stdout if line.startswith("round ")), None)
                assert line, "the process has ended"
                return float(line.split()[1])

            return one

        yield start
