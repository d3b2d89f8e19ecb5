"""One entry of `sources:`."""

import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from cdc_platform.config.dagster import Owner, Tags
from cdc_platform.config.model import Model, Name, Properties
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.config.tables import Tables


class Source(Model):
    """One feed."""

    name: Name = Field(
        description="Name of the feed in assets, paths and tables: a letter, then letters, digits, _ and -.",
        examples=["shop"],
    )
    format: str = Field(description="Wire format, one of the registry's.", examples=["debezium"])
    topics: list[str] = Field(default=[], description="Kafka topics by name.", examples=[["dts-shop"]])
    topic_pattern: str | None = Field(
        default=None,
        description="Java regular expression of whole topic names, instead of `topics`.",
        examples=[r"shopdb\..*"],
    )
    description: str | None = Field(
        default=None,
        description="A text (Markdown) that describes the feed in Dagster.",
        examples=["Orders and stock of the web shop, from its MySQL in Shanghai."],
    )
    owners: list[Owner] = Field(
        default=[],
        description="Dagster owners of the feed's assets: e-mail addresses or team:NAME.",
        examples=[["team:data", "ann@example.com"]],
    )
    tags: Tags = Field(default={}, description="Dagster tags of the feed's assets.", examples=[{"domain": "shop"}])
    kafka: Properties = Field(
        default={},
        repr=False,
        description="Kafka client properties that override the common ones; secrets as ${ENV_VAR} only.",
        examples=[{"bootstrap.servers": "kafka-2:9092"}],
    )
    tables: Tables = Field(
        default=Tables(),
        description="Which tables are followed, with which key, under which name.",
        examples=[{"include": ["shop.*"]}],
    )
    options: dict[str, Any] = Field(
        default={},
        description="Options of the format; each format has its own.",
        examples=[{"time_zone": "Asia/Shanghai"}],
    )
    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Where the first landing of a topic begins; a topic that appears later is read from its start.",
        examples=["latest"],
    )
    on_lost_offsets: Literal["fail", "accept"] = Field(
        default="fail",
        description="fail: a run stops when offsets are gone from Kafka, or it compacts a topic; "
        "accept: it records the gap and goes on.",
        examples=["accept"],
    )
    max_records_per_batch: int = Field(
        default=1_000_000, gt=0, description="Bound of one landing batch, in records.", examples=[200_000]
    )
    max_bytes_per_batch: str = Field(
        default="512m",
        pattern=r"^\d+[kmg]?$",
        description="Bound of one batch between Delta tables: bytes, or with k, m or g.",
        examples=["2g"],
    )
    heartbeat_timeout_s: int | None = Field(
        default=None,
        gt=0,
        description="Seconds without any record (heartbeat, checkpoint or change) after which the source counts as "
        "silent. Default: what the format promises, else what the heartbeats seen so far let expect; where there are "
        "none there is no limit, and a source that sends nothing is quiet.",
        examples=[900],
    )
    database_timeout_s: int | None = Field(
        default=None,
        gt=0,
        description="Seconds without anything from the database's own log (a change, a heartbeat that the log holds), "
        "while its capture is heard, after which the database counts as silent. Set it where something writes to the "
        "database at an interval: Debezium's `heartbeat.action.query`, `pt-heartbeat`, a scheduled event. Default: by "
        "the heartbeats in its log that were seen so far; where there are none there is no limit.",
        examples=[60],
    )
    freshness_s: int | None = Field(
        default=None,
        ge=0,
        description="Seconds within which the feed's snapshots should have been brought up to date: the freshness "
        "policy of these assets in Dagster; 0: none. A quiet table counts as up to date after a run that found "
        "nothing new. Default: six hours, or twice what the feed may be silent if that is longer; none where it may be "
        "silent for any time.",
        examples=[3600],
    )
    follow_s: int = Field(
        default=60,
        ge=0,
        description="A run that the sensor requests goes on catching up until nothing came for so many seconds; 0: it "
        "catches up once.",
        examples=[0],
    )
    idle_partition_s: int = Field(
        default=120,
        ge=1,
        description="Seconds after which a partition to which nothing comes counts as complete up to what the source's "
        "other partitions tell: at least as long as its producer may hold a record back (delivery.timeout.ms of "
        "Kafka's clients: 120 s).",
        examples=[300],
    )
    waiting_timeout_s: int = Field(
        default=86_400,
        gt=0,
        description="Seconds of Kafka time after which an unfinished split message goes to quarantine.",
        examples=[3600],
    )
    reconcile: Reconcile | None = Field(
        default=None,
        description="Where the source itself can be read; makes an asset check of it.",
        examples=[{"dsn_env": "SHOP_DSN"}],
    )

    @field_validator("topic_pattern")
    @classmethod
    def _regular_expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"is no regular expression: {error.msg} at character {error.pos}") from None
        return value

    @model_validator(mode="after")
    def _topics_or_pattern(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("give either topics or topic_pattern")
        return self

    @property
    def slug(self) -> str:
        """Name usable in Dagster asset keys, job and pool names."""
        return self.name.replace("-", "_")

    def owners_of(self, *name: str) -> list[str]:
        """Dagster owners of a snapshot: the table's own, else the source's."""
        own = self.tables.owners_of(*name)
        return list(self.owners) if own is None else own

    def tags_of(self, *name: str) -> dict[str, str]:
        """Dagster tags of a snapshot: the source's, overridden by the table's own."""
        return {**self.tags, **self.tables.tags_of(*name)}
