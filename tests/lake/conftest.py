"""Fixtures of the tests of a lake's stores."""

from collections.abc import Iterator

import pytest

from cdc_platform.lake import object_files


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Requests that fail are given up soon, those that hang after four seconds."""
    monkeypatch.setitem(object_files._RETRIES, "max_retries", 1)
    monkeypatch.setitem(object_files._CLIENT, "timeout", "4s")
    object_files._client.cache_clear()
    yield
    object_files._client.cache_clear()
