"""Drivers of the end-to-end tests: processes of their own, none left behind."""

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
