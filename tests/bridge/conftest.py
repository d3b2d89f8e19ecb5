"""A canal server double and bridges that point at it."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from cdc_platform.config import Config
from cdc_platform.config.bridges import Bridge
from tests.bridge.double import CanalDouble

SOURCES = [{"name": "s", "format": "debezium", "topics": ["s"]}]
Setup = Callable[..., Config]


@pytest.fixture
def canal() -> Iterator[CanalDouble]:
    """A running double with five entries: three batches."""
    with CanalDouble(feed=[b"entry-%d" % i for i in range(5)]) as double:
        yield double


@pytest.fixture
def make_bridge(canal: CanalDouble) -> Callable[..., Bridge]:
    """`make_bridge(**changes)`: a bridge to the double, impatient."""

    def make(**changes: Any) -> Bridge:
        return Bridge.model_validate(
            {
                "name": "shop",
                "servers": [canal.address],
                "destination": canal.destination,
                "topic": "canal-shop",
                "username": canal.username,
                "password": canal.password,
                "timeout_s": 0.5,
                "wait_ms": 10,
                "max_backoff_s": 0.1,
                **changes,
            }
        )

    return make


@pytest.fixture
def setup(canal: CanalDouble, make_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> Setup:
    """`setup(bootstrap, **changes)`: a Config with one impatient bridge to the double and a topic of its own."""
    monkeypatch.setenv("CANAL_PASSWORD", canal.password)

    def make(bootstrap: str, **changes: Any) -> Config:
        bridge = {
            "name": "shop",
            "servers": [canal.address],
            "destination": canal.destination,
            "topic": f"canal-{uuid4().hex}",
            "username": canal.username,
            "password": "${CANAL_PASSWORD}",
            "timeout_s": 0.5,
            "wait_ms": 10,
            "max_backoff_s": 0.1,
            **changes,
        }
        return make_config(SOURCES, kafka={"bootstrap.servers": bootstrap}, bridges=[bridge])

    return make
