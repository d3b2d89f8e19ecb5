"""Drivers of the end-to-end tests: processes of their own, none left behind."""

import pytest

from tests import s3_server
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
def in_a_bucket(s3, tmp_path, monkeypatch):
    """What puts a lake in a bucket, with credentials that the driver's environment alone has."""
    monkeypatch.setenv("CDC_TEST_KEY", s3_server.KEY)
    monkeypatch.setenv("CDC_TEST_SECRET", s3_server.SECRET)
    storage = {"endpoint": s3.endpoint, "access_key": "${CDC_TEST_KEY}", "secret_key": "${CDC_TEST_SECRET}"}
    return {"lake": f"s3a://{s3_server.BUCKET}/{tmp_path.name}", "storage": storage}
