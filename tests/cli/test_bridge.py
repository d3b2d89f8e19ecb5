"""`cdc-platform bridge`: the command line itself; the work is tested in tests/bridge."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_platform.cli.app import run
from tests.bridge.double import CanalDouble

Write = Callable[..., list[str]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(bridge, …)`: a cdc.yaml with these bridges; the options that name it."""
    monkeypatch.setenv("CANAL_PASSWORD", "a secret")

    def make(*bridges: dict[str, Any]) -> list[str]:
        file = tmp_path / "cdc.yaml"
        sources = [{"name": "s", "format": "debezium", "topics": ["s"]}]
        file.write_text(yaml.safe_dump({"lake": "lake", "sources": sources, "bridges": list(bridges)}))
        return ["--config", str(file), "--json"]

    return make


def _bridge(server: str = "127.0.0.1:1") -> dict[str, Any]:
    login = {"username": "canal", "password": "${CANAL_PASSWORD}"}
    return {"name": "shop", "servers": [server], "destination": "shop", "topic": "canal-shop", **login}


def _error(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)["error"]


def test_without_bridges_it_says_where_they_go(write: Write, capsys: pytest.CaptureFixture[str]):
    assert run(["bridge", "canal", *write()]) == 2
    assert _error(capsys)["key"] == "bridges"


def test_an_unknown_name_is_told_with_the_known_ones(write: Write, capsys: pytest.CaptureFixture[str]):
    assert run(["bridge", "canal", "shoe", *write(_bridge())]) == 2
    assert _error(capsys)["valid"] == ["shop"]


def test_kafka_must_be_named(write: Write, capsys: pytest.CaptureFixture[str]):
    assert run(["bridge", "canal", *write(_bridge())]) == 2
    assert _error(capsys)["key"] == "kafka.bootstrap.servers"


def test_unsubscribe_only_by_name(write: Write, capsys: pytest.CaptureFixture[str]):
    with CanalDouble() as canal:
        options = write(_bridge(canal.address))
        assert run(["bridge", "canal", "--unsubscribe", *options]) == 2
        assert "by name" in _error(capsys)["message"]
        assert canal.seen == []
        assert run(["bridge", "canal", "--unsubscribe", "shop", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {"unsubscribed": ["shop"]}
