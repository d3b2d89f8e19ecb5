"""The Connect server that `ui` keeps warm, found by the command line."""

import json
import os
import socket
from dataclasses import asdict

import pytest

from cdc_platform.setup.process_start import start_of
from cdc_platform.spark import connect


@pytest.fixture
def noted(make_config):
    """Notes a server with this process's number on a port that answers; the configuration."""
    config = make_config([{"name": "a", "format": "debezium", "topics": ["t"]}])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def note(created):
            server = connect.Server(f"sc://localhost:{port}", port, os.getpid(), created, "token")
            connect._private(connect._file(config), json.dumps(asdict(server)))
            return config

        yield note


def test_it_is_found_after_the_clock_was_set(noted, clock_set):
    config = noted(start_of(os.getpid()))
    clock_set(60)
    assert connect.living(config)


def test_it_is_found_where_a_version_before_noted_it(noted):
    assert connect.living(noted(1.5))


def test_another_process_of_its_number_is_not_taken_for_it(noted):
    assert connect.living(noted(f"{start_of(os.getpid())}0")) is None
