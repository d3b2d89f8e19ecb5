"""A canal server double and bridges that point at it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdc_platform.bridge.settings import Bridge
from tests.bridge.double import CanalDouble


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
