"""The `bridges:` section: what is taken, what is refused and how."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.config import Config, parse_config
from cdc_platform.config.bridges import address
from cdc_platform.errors import ConfigError

GOOD = {"name": "shop", "servers": ["canal"], "destination": "example", "topic": "canal-shop"}


def _config(*bridges: dict[str, Any]) -> Config:
    sources = [{"name": "shop", "format": "debezium", "topics": ["t"]}]
    return parse_config({"lake": "x", "sources": sources, "bridges": list(bridges)}, Path("/x/cdc.yaml"))


def test_defaults_are_canals_own():
    bridge = _config(GOOD).bridge("shop")
    assert (bridge.client_id, bridge.batch_size, bridge.wait_ms, bridge.filter) == (1001, 50, 100, "")
    assert address(bridge.servers[0]) == ("canal", 11111)


@pytest.mark.parametrize(
    ("text", "found"),
    [("h:1", ("h", 1)), ("10.0.0.1", ("10.0.0.1", 11111)), ("[::1]:2", ("::1", 2)), ("[::1]", ("::1", 11111))],
)
def test_addresses(text: str, found: tuple[str, int]):
    assert address(text) == found


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"servers": []}, "bridges[0].servers", "at least 1"),
        ({"servers": ["h:0"]}, "bridges[0].servers", "host:port"),
        ({"servers": ["http://h:1"]}, "bridges[0].servers", "host:port"),
        ({"topic": "a b"}, "bridges[0].topic", "topic name"),
        ({"name": "1"}, "bridges[0].name", "start with a letter"),
        ({"begin": {}}, "bridges[0].begin", "either time, or file and position"),
        ({"begin": {"file": "a.000001"}}, "bridges[0].begin", "either time, or file and position"),
        ({"begin": {"time": "2026-11-20T00:00:00"}}, "bridges[0].begin.time", "timezone"),
        ({"client_id": 40000}, "bridges[0].client_id", "32767"),  # a Java short
        ({"kind": "maxwell"}, "bridges[0].kind", "'canal'"),
        ({"colour": 1}, "bridges[0].colour", "unknown key; valid: name, kind, servers"),
    ],
)
def test_a_bad_value_is_named(change: dict[str, Any], key: str, words: str):
    with pytest.raises(ConfigError) as caught:
        _config({**GOOD, **change})
    assert caught.value.key == key
    assert words in str(caught.value)


def test_names_and_topics_differ():
    with pytest.raises(ConfigError, match="same name"):
        _config({**GOOD, "name": "a-b"}, {**GOOD, "name": "a_b", "topic": "other"})
    with pytest.raises(ConfigError, match="same topic"):
        _config(GOOD, {**GOOD, "name": "other"})


@pytest.mark.parametrize("written", ["hunter2", "x${CANAL_PASSWORD}", 42])
def test_a_password_written_out_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, written: object):
    monkeypatch.setenv("CANAL_PASSWORD", "geheim")
    with pytest.raises(
        ConfigError, match=r"bridges\[0\].password: is a secret and must come from the environment"
    ) as caught:
        _config({**GOOD, "password": written})
    assert str(written) not in str(caught.value)


def test_a_password_from_the_environment_is_never_printed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CANAL_PASSWORD", "geheim")
    config = _config({**GOOD, "password": "${CANAL_PASSWORD}", "kafka": {"sasl.password": "${CANAL_PASSWORD}"}})
    assert config.bridge("shop").password.get_secret_value() == "geheim"
    assert "geheim" not in repr(config)


def test_an_unknown_bridge_names_the_known():
    with pytest.raises(ConfigError, match="valid: shop"):
        _config(GOOD).bridge("shoe")
