"""One entry of `sources:`."""

import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from cdc_platform.config.model import Model, Properties
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.config.tables import Tables

_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")


class Source(Model):
    """One feed."""

    name: str = Field(description="names the feed in assets, paths and tables: letters, digits, _ and -")
    format: str = Field(description="wire format, one of the registry's")
    topics: list[str] = Field(default=[], description="Kafka topics by name")
    topic_pattern: str | None = Field(
        default=None, description="Java regular expression of topic names, instead of topics"
    )
    kafka: Properties = Field(
        default={}, repr=False, description="Kafka client properties that override the common ones"
    )
    tables: Tables = Tables()
    options: dict[str, Any] = Field(default={}, description="options of the format")
    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="where the first landing of a topic begins; a topic that appears later is read from its start",
    )
    on_lost_offsets: Literal["fail", "accept"] = Field(
        default="fail", description="fail: a run stops when offsets are gone; accept: it records the gap and goes on"
    )
    max_records_per_batch: int = Field(default=1_000_000, gt=0, description="bound of one landing batch, records")
    max_bytes_per_batch: str = Field(
        default="512m", pattern=r"^\d+[kmg]?$", description="bound of one batch between Delta tables"
    )
    heartbeat_timeout_s: int = Field(
        default=120,
        gt=0,
        description="seconds without heartbeat, checkpoint or change after which the source counts as silent",
    )
    follow_s: int = Field(
        default=60,
        ge=0,
        description="a run that the sensor requests goes on catching up until nothing came for so many seconds; 0: it "
        "catches up once",
    )
    waiting_timeout_s: int = Field(
        default=86_400,
        gt=0,
        description="seconds of Kafka time after which an unfinished split message goes to quarantine",
    )
    reconcile: Reconcile | None = Field(
        default=None, description="where the source itself can be read; makes an asset check of it"
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _NAME.match(value):
            raise ValueError("must start with a letter and hold only letters, digits, _ and - (at most 64)")
        return value

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
