"""The section `alerts:`: typed, secrets from the environment only, errors that name the key."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.config import Config, parse_config
from cdc_platform.errors import ConfigError

MAIL = {"sender": "cdc@example.com", "to": ["data@example.com"], "host": "smtp.example.com"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("URL", "https://hooks.example.com/hunter2")


def parsed(**alerts: Any) -> Config:
    sources = [{"name": "shop", "format": "canal_json", "topics": ["t"]}]
    return parse_config({"lake": "./lake", "sources": sources, "alerts": alerts}, Path("/x/cdc.yaml"))


def test_nobody_is_told_by_default() -> None:
    assert (
        parse_config({"lake": "l", "sources": [{"name": "s", "format": "canal", "topics": ["t"]}]}).alerts.channels()
        == {}
    )


def test_channels_have_the_name_of_their_kind_or_their_own() -> None:
    config = parsed(
        pages="https://dagster.example.com/",
        email=[{**MAIL, "user": "cdc", "password": "${SECRET}"}],
        slack=[{"channel": "#cdc", "token": "${SECRET}"}],
        webhook=[{"url": "${URL}"}, {"url": "${URL}", "name": "on-call", "report": ["run_failed"]}],
    )
    assert list(config.alerts.channels()) == ["email", "slack", "webhook", "on_call"]
    assert config.alerts.channels()["email"].report == [
        *("run_failed", "check_failed", "table_stopped", "rows_held", "changes_lacking")
    ]
    assert config.alerts.pages == "https://dagster.example.com"
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("alerts", "told"),
    [
        ({"sms": []}, r"alerts\.sms: unknown key; valid: pages, email, slack, webhook"),
        (
            {"email": [{**MAIL, "server": "x"}]},
            r"alerts\.email\[0\]\.server: unknown key; valid: name, report, timeout_s",
        ),
        (
            {"email": [{**MAIL, "password": "hunter2"}]},
            r"alerts\.email\[0\]\.password: is a secret and must come from the environment",
        ),
        ({"email": [{**MAIL, "user": "cdc"}]}, r"alerts\.email\[0\]: user and password belong together"),
        (
            {"email": [{**MAIL, "user": "cdc", "password": "${SECRET}", "security": "none"}]},
            r"alerts\.email\[0\]: a password needs security starttls or tls",
        ),
        ({"email": [{**MAIL, "to": ["a@b.c, d"]}]}, r"alerts\.email\[0\]\.to: 'a@b\.c, d' is no e-mail address"),
        ({"email": [{**MAIL, "to": []}]}, r"alerts\.email\[0\]\.to"),
        (
            {"slack": [{"channel": "#cdc", "token": "xoxb-hunter2"}]},
            r"alerts\.slack\[0\]\.token: is a secret and must come from",
        ),
        (
            {"webhook": [{"url": "https://hooks.example.com/hunter2"}]},
            r"alerts\.webhook\[0\]\.url: is a secret and must come from",
        ),
        (
            {"webhook": [{"url": "${URL}", "headers": {"X-Api-Key": "hunter2"}}]},
            r"alerts\.webhook\[0\]\.headers\.X-Api-Key: is a secret and must come from the environment",
        ),
        ({"webhook": [{"url": "${SECRET}"}]}, r"alerts\.webhook\[0\]\.url: is no http:// or https:// URL"),
        ({"webhook": [{"url": "${URL}", "report": ["everything"]}]}, r"alerts\.webhook\[0\]\.report\[0\]"),
        ({"webhook": [{"url": "${URL}"}] * 2}, r"alerts: two channels have the same name"),
        ({"pages": "dagster"}, r"alerts\.pages: is no http:// or https:// URL"),
    ],
)
def test_what_is_wrong_is_told_by_its_key_and_without_secrets(alerts: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        parsed(**alerts)
    assert "hunter2" not in str(error.value)


def test_a_header_may_be_made_of_a_secret_and_more() -> None:
    headers = {"Authorization": "Bearer ${SECRET}", "X-Team": "data"}
    [channel] = parsed(webhook=[{"url": "${URL}", "headers": headers}]).alerts.webhook
    assert channel.headers["Authorization"].get_secret_value() == "Bearer hunter2"
