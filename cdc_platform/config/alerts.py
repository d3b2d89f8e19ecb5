"""The `alerts:` section of cdc.yaml."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from cdc_platform.config.model import Model, checked_name
from cdc_platform.config.secrets import SECRET_KEYS
from cdc_platform.errors import ConfigError

Problem = Literal["run_failed", "check_failed", "table_stopped", "rows_held", "changes_lacking"]
PROBLEMS: tuple[Problem, ...] = ("run_failed", "check_failed", "table_stopped", "rows_held", "changes_lacking")
_ADDRESS = re.compile(r"^[^\s@<>,;]+@[^\s@<>,;]+$")
_HTTP = re.compile(r"^https?://[^\s/?#]+")
_ENV = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


class Channel(Model):
    """What all channels share."""

    name: str = Field(
        default="",
        description="Names the channel and its sensor, by default as its kind; needed where there are two of a kind.",
        examples=["on_call"],
    )
    report: list[Problem] = Field(
        default=list(PROBLEMS),
        min_length=1,
        description="What is reported, when it begins and when it is over: `run_failed` (the last run of a source, of "
        "`maintain`, `reconcile` or `shadow`, the last `load`, `repair` or `replay` of a source), `check_failed` (an "
        "asset check of severity ERROR), `table_stopped`, `rows_held` (in quarantine; again whenever they are ten "
        "times as many), `changes_lacking` (a history or typed changes can't be kept up).",
        examples=[["table_stopped", "rows_held"]],
    )
    timeout_s: float = Field(default=10, gt=0, le=60, description="Seconds that sending may take.", examples=[5])

    @field_validator("name")
    @classmethod
    def _name_or_none(cls, value: str) -> str:
        return value and checked_name(value)


class Email(Channel):
    """E-mail by SMTP."""

    sender: str = Field(description="Address in From.", examples=["cdc@example.com"])
    to: list[str] = Field(min_length=1, description="Addresses of the recipients.", examples=[["data@example.com"]])
    host: str = Field(min_length=1, description="SMTP server.", examples=["smtp.example.com"])
    port: int = Field(default=587, ge=1, le=65535, description="Its port.", examples=[465])
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls",
        description="`starttls`, `tls` from the start (port 465), or `none`: a relay that needs no login.",
        examples=["tls"],
    )
    user: str = Field(default="", description="Login; empty: none.", examples=["cdc"])
    password: SecretStr = Field(
        default=SecretStr(""), description="Its password, as ${ENV_VAR} only.", examples=["${SMTP_PASSWORD}"]
    )

    @field_validator("sender", "to")
    @classmethod
    def _addresses(cls, value: Any) -> Any:
        for text in [value] if isinstance(value, str) else value:
            if not _ADDRESS.match(text):
                raise ValueError(f"{text!r} is no e-mail address")
        return value

    @model_validator(mode="after")
    def _login_is_encrypted(self) -> Self:
        if bool(self.user) != bool(self.password.get_secret_value()):
            raise ValueError("user and password belong together")
        if self.user and self.security == "none":
            raise ValueError("a password needs security starttls or tls")
        return self


class Slack(Channel):
    """A message in a Slack channel (needs dagster-slack: `pip install 'cdc-platform[slack]'`)."""

    channel: str = Field(
        min_length=1, description="Name with # or id of the channel; the app must be a member.", examples=["#cdc"]
    )
    token: SecretStr = Field(
        description="Bot token with the scope chat:write, as ${ENV_VAR} only.", examples=["${SLACK_TOKEN}"]
    )


class Webhook(Channel):
    """A POST of JSON: `text`, `problems` and `recovered`."""

    url: SecretStr = Field(
        description="Where to, as ${ENV_VAR} only: such addresses often are secrets themselves.",
        examples=["https://hooks.example.com/cdc"],
    )
    headers: dict[str, SecretStr] = Field(
        default={},
        description="More headers; those that authenticate as ${ENV_VAR}.",
        examples=[{"Authorization": "Bearer ${ALERT_TOKEN}"}],
    )

    @field_validator("url")
    @classmethod
    def _http(cls, value: SecretStr) -> SecretStr:
        if not _HTTP.match(value.get_secret_value()):
            raise ValueError("is no http:// or https:// URL")
        return value


class Alerts(Model):
    """Who is told when something needs attention, once when it begins and once when it is over."""

    pages: str | None = Field(
        default=None,
        description="URL of Dagster's web pages, for links in the messages.",
        examples=["https://dagster.example.com"],
    )
    email: list[Email] = Field(
        default=[],
        description="Recipients by e-mail.",
        examples=[[{"sender": "cdc@example.com", "to": ["data@example.com"], "host": "smtp.example.com"}]],
    )
    slack: list[Slack] = Field(
        default=[], description="Channels in Slack.", examples=[[{"channel": "#cdc", "token": "${SLACK_TOKEN}"}]]
    )
    webhook: list[Webhook] = Field(
        default=[], description="Receivers of JSON by HTTP.", examples=[[{"url": "https://hooks.example.com/cdc"}]]
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = list(self.channels())
        if len(set(names)) < len(self.email) + len(self.slack) + len(self.webhook):
            raise ValueError("two channels have the same name (- and _ count as equal); the default is the kind's")
        return self

    @field_validator("pages")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is not None and not _HTTP.match(value):
            raise ValueError("is no http:// or https:// URL")
        return value.rstrip("/") if value else value

    def channels(self) -> dict[str, Channel]:
        """Name → channel; the name is fit for a sensor's."""
        kinds: dict[str, list[Any]] = {"email": self.email, "slack": self.slack, "webhook": self.webhook}
        return {(c.name or kind).replace("-", "_"): c for kind, found in kinds.items() for c in found}


def plain_alert_secrets(raw: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Of cdc.yaml as it was read: an error for each secret of a channel that is written out, without its value."""
    alerts = raw.get("alerts")
    for kind, secrets in (("email", ("password",)), ("slack", ("token",)), ("webhook", ("url",))):
        found = alerts.get(kind) if isinstance(alerts, dict) else None
        for i, channel in enumerate(found if isinstance(found, list) else []):
            if not isinstance(channel, dict):
                continue
            headers = channel.get("headers")
            own = {f"headers.{k}": v for k, v in headers.items() if _secret(k)} if isinstance(headers, dict) else {}
            for key, value in {**{k: channel[k] for k in secrets if k in channel}, **own}.items():
                whole = _ENV.search if key.startswith("headers.") else _ENV.fullmatch
                if not isinstance(value, str) or not whole(value):
                    problem = "is a secret and must come from the environment"
                    yield ConfigError(f"alerts.{kind}[{i}].{key}", problem, ["${ENV_VAR}"])


def _secret(header: Any) -> bool:
    return bool(re.search("authorization|cookie|key", str(header), re.IGNORECASE) or SECRET_KEYS.search(str(header)))
