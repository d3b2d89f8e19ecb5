"""The `bridges:` section of cdc.yaml."""

import re
from typing import Literal, Self

from pydantic import AwareDatetime, Field, SecretStr, field_validator, model_validator

from cdc_platform.config.model import Model, Name, Properties

DEFAULT_PORT = 11111  # canal.port of canal's own canal.properties
_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,249}$")
_SERVER = re.compile(r"^(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/]+))(?::(?P<port>\d{1,5}))?$")


class Begin(Model):
    """The place at which a bridge's topic begins: a time, or a binlog file with a position."""

    time: AwareDatetime | None = Field(
        default=None,
        description="Whole transactions from the first that begins at or after this time, which needs an offset or Z.",
        examples=["2026-11-20T08:00:00+08:00"],
    )
    file: str | None = Field(
        default=None, pattern=r"\.\d{1,18}$", description="Binlog file, with `position`.", examples=["mysql-bin.000123"]
    )
    position: int | None = Field(
        default=None, ge=0, lt=2**63, description="Offset in the file: changes at it and behind it.", examples=[4]
    )

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if (self.file is None) != (self.position is None) or (self.time is None) == (self.file is None):
            raise ValueError("needs either time, or file and position")
        return self


class Bridge(Model):
    """One destination (instance) of a canal server, carried to one topic."""

    name: Name = Field(
        description="Name of the bridge on the command line, in locks and logs: a letter, then letters, digits, _ "
        "and -.",
        examples=["shop"],
    )
    kind: Literal["canal"] = Field(default="canal", description="Protocol of the server.", examples=["canal"])
    servers: list[str] = Field(
        min_length=1,
        description=f"host or host:port (default {DEFAULT_PORT}); tried in turn, the first that answers is taken.",
        examples=[["canal-1:11111", "canal-2:11111"]],
    )
    destination: str = Field(
        min_length=1,
        description="canal's instance, as named in the server's canal.destinations.",
        examples=["example"],
    )
    topic: str = Field(description="Kafka topic; everything goes to its partition 0.", examples=["canal-shop"])
    username: str = Field(
        default="", description="canal.user of the server; empty: the server asks for none.", examples=["canal"]
    )
    password: SecretStr = Field(
        default=SecretStr(""),
        description="Plain password (not canal.passwd, its hash), as ${ENV_VAR} only.",
        examples=["${CANAL_PASSWORD}"],
    )
    client_id: int = Field(
        default=1001,
        ge=1,
        le=32767,
        description="Id under which the server keeps the position; 1001 is canal's own.",
        examples=[1002],
    )
    filter: str = Field(
        default="",
        description="Comma-separated regular expressions of db\\.table; overrides the server's canal.instance.filter"
        ".regex for this client's subscription. Empty: the server's.",
        examples=["shop\\..*"],
    )
    begin: Begin | None = Field(
        default=None,
        description="Where the topic begins while it is empty: what the server sends from before that place is left "
        "out. The server's instance has to begin there or earlier. Default: with the first change that it sends.",
        examples=[{"file": "mysql-bin.000123", "position": 4}],
    )
    batch_size: int = Field(
        default=50,
        gt=0,
        le=100_000,
        description="Size of one batch as the server counts it: by default KiB (canal.instance.memory.batch.mode="
        "MEMSIZE), else events; 50 is what canal's own Kafka producer asks for.",
        examples=[500],
    )
    wait_ms: int = Field(
        default=100,
        ge=1,
        le=60_000,
        description="Milliseconds that the server may wait to fill a batch, as canal's own.",
        examples=[1000],
    )
    timeout_s: float = Field(
        default=60, gt=0, description="Seconds without the server's answer that end a connection.", examples=[120]
    )
    kafka_timeout_s: float = Field(
        default=120,
        gt=0,
        description="Seconds until a batch that Kafka hasn't acknowledged is rolled back.",
        examples=[300],
    )
    max_backoff_s: float = Field(
        default=60, gt=0, description="Longest pause between tries after a failure, in seconds.", examples=[10]
    )
    max_frame_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1024,
        description="Longest frame taken from the server, in bytes; a longer one is refused.",
        examples=[536_870_912],
    )
    max_record_bytes: int = Field(
        default=900_000,
        ge=1024,
        description="A batch over this many bytes is cut between entries into several records; keep it under the "
        "topic's max.message.bytes. A single entry is never cut.",
        examples=[4_000_000],
    )
    kafka: Properties = Field(
        default={},
        repr=False,
        description="Kafka client properties that override the common ones; secrets as ${ENV_VAR} only.",
        examples=[{"bootstrap.servers": "kafka-2:9092"}],
    )

    @field_validator("topic")
    @classmethod
    def _topic_name(cls, value: str) -> str:
        if not _TOPIC.match(value) or value in (".", ".."):
            raise ValueError("is no topic name: letters, digits, . _ and - (at most 249)")
        return value

    @field_validator("servers")
    @classmethod
    def _addresses(cls, value: list[str]) -> list[str]:
        for text in value:
            address(text)
        return value

    @property
    def slug(self) -> str:
        """Name usable in file names of locks and logs."""
        return self.name.replace("-", "_")


def address(server: str) -> tuple[str, int]:
    """ "host", "host:port" or "[v6]:port" → (host, port). Raises ValueError."""
    found = _SERVER.match(server)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if not found or not 0 < port < 65536:
        raise ValueError(f"{server!r} is no address; valid: host, host:port, [IPv6]:port")
    return found["v6"] or found["host"], port
