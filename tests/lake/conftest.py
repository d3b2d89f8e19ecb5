"""Fixtures of the tests of a lake's stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_platform.config import Config
from cdc_platform.lake import new_tables, object_files, stores
from cdc_platform.tables import OFFSET_LEDGER


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Requests that fail are given up soon, those that hang after four seconds."""
    monkeypatch.setitem(object_files._RETRIES, "max_retries", 1)
    monkeypatch.setitem(object_files._CLIENT, "timeout", "4s")
    object_files._client.cache_clear()
    yield
    object_files._client.cache_clear()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Of a lake with a ledger."""
    source = {"name": "s", "format": "canal", "topics": ["t"]}
    made = Config.model_validate({"lake": str(tmp_path), "sources": [source]})
    new_tables.create(OFFSET_LEDGER.at(stores.lake(made)), OFFSET_LEDGER)
    return made
