"""The whole of cdc.yaml, and its sections `spark:` and `maintenance:`."""

from pathlib import Path
from typing import Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from cdc_platform.config.alerts import Alerts
from cdc_platform.config.bridges import Bridge
from cdc_platform.config.catalog import Catalog
from cdc_platform.config.cron import Cron
from cdc_platform.config.model import Model, Properties
from cdc_platform.config.replay import Replay
from cdc_platform.config.secrets import SECRET_KEYS
from cdc_platform.config.shadow import Shadow, Shadows
from cdc_platform.config.source import Source
from cdc_platform.config.storage import Storage
from cdc_platform.errors import ConfigError


class Spark(Model):
    """Where Spark runs: a classic session (`master`) or a Spark Connect server (`remote`)."""

    master: str = Field(
        default="local[*]",
        description="Spark master: local[*], spark://…, k8s://…, yarn.",
        examples=["spark://spark:7077"],
    )
    remote: str | None = Field(
        default=None,
        description="Address of a Spark Connect server, used instead of a session of its own.",
        examples=["sc://spark:15002"],
    )
    conf: Properties = Field(
        default={},
        repr=False,
        description="Any Spark property; secrets as ${ENV_VAR} only.",
        examples=[{"spark.executor.memory": "8g"}],
    )

    @field_validator("remote")
    @classmethod
    def _without_secrets(cls, value: str | None) -> str | None:
        """Pages, logs and reports show it."""
        address, _, parameters = (value or "sc://").partition(";")
        if not address.startswith("sc://"):
            raise ValueError("must be like sc://host:15002")
        if SECRET_KEYS.search(parameters) or "authorization" in parameters.lower():
            raise ValueError("a token in it would be shown: set SPARK_CONNECT_AUTHENTICATE_TOKEN in the environment")
        return value


class Maintenance(Model):
    """Upkeep of the lake."""

    cron: Cron = Field(
        default="0 3 * * *", description="Schedule of the upkeep, a cron expression in UTC.", examples=["30 1 * * 6"]
    )
    keep_hours: int = Field(
        default=168,
        ge=168,
        description="Hours that old versions of snapshots, and so cuts, stay readable.",
        examples=[720],
    )
    tombstone_days: int = Field(
        default=90,
        ge=1,
        description="Days after which deleted keys are forgotten; a still older change rebuilds its table.",
        examples=[365],
    )


class Config(Model):
    """The whole of cdc.yaml."""

    lake: str = Field(
        description="Folder of the lake, relative to cdc.yaml's, or s3://bucket/folder. Driver and executors must see "
        "a folder under the same path.",
        examples=["/data/lake", "s3://bucket/cdc"],
    )
    storage: Storage = Field(
        default=Storage(),
        description="How to reach the object store that the lake is on.",
        examples=[{"endpoint": "https://minio.example.com:9000"}],
    )
    spark: Spark = Field(default=Spark(), description="Where Spark runs.", examples=[{"master": "local[4]"}])
    kafka: Properties = Field(
        default={},
        repr=False,
        description="Kafka client properties common to all sources; secrets as ${ENV_VAR} only.",
        examples=[{"bootstrap.servers": "kafka:9092"}],
    )
    sources: list[Source] = Field(
        min_length=1,
        description="The feeds.",
        examples=[[{"name": "shop", "format": "debezium", "topics": ["shopdb.shop.orders"]}]],
    )
    bridges: list[Bridge] = Field(
        default=[],
        description="Feeds that `cdc-platform bridge` carries into Kafka.",
        examples=[[{"name": "shop", "servers": ["canal:11111"], "destination": "shop", "topic": "canal-shop"}]],
    )
    shadow: Shadows = Field(
        default=[],
        description="Pairs of sources that feed the same database, whose tables are compared; one pair may stand here "
        "without a list.",
        examples=[[{"of": "shop", "by": "shop-canal"}]],
    )
    catch_up_cron: Cron = Field(
        default="*/10 * * * *",
        description="Schedule of catch-up runs beside the sensor's, a cron expression in UTC.",
        examples=["*/5 * * * *"],
    )
    maintenance: Maintenance = Field(
        default=Maintenance(), description="Upkeep of the lake.", examples=[{"keep_hours": 720}]
    )
    alerts: Alerts = Field(
        default=Alerts(),
        description="Who is told when something needs attention.",
        examples=[{"slack": [{"channel": "#cdc", "token": "${SLACK_TOKEN}"}]}],
    )
    catalog: Catalog | None = Field(
        default=None,
        description="Where snapshots are registered as tables; default: nowhere, they are read by their paths.",
        examples=[{"kind": "hive", "uris": "thrift://metastore:9083"}],
    )
    _file: Path = PrivateAttr(default=Path("cdc.yaml"))
    _replay: Replay | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen: set[str] = set()
        for source in self.sources:
            if source.slug in seen:
                raise ValueError(f"two sources are called {source.name!r} (- and _ count as equal)")
            seen.add(source.slug)
        return self

    @model_validator(mode="after")
    def _bridges_differ(self) -> Self:
        names = [b.slug for b in self.bridges]
        topics = [b.topic for b in self.bridges]
        if len(set(names)) < len(names):
            raise ValueError("two bridges have the same name (- and _ count as equal)")
        if len(set(topics)) < len(topics):
            raise ValueError("two bridges have the same topic; positions of two servers in one topic can't be ordered")
        return self

    @model_validator(mode="after")
    def _shadows_are_of_sources(self) -> Self:
        names, seen = [s.name for s in self.sources], set[str]()
        for pair in self.shadow:
            for name in (pair.of, pair.by):
                if name not in names:
                    raise ValueError(f"shadow: no source is called {name!r}; valid: {', '.join(names)}")
                if name in seen:
                    raise ValueError(f"shadow: {name!r} is in two pairs; a source has one other to be compared with")
            seen |= {pair.of, pair.by}
        return self

    @property
    def file(self) -> Path:
        """The file this came from."""
        return self._file

    @property
    def replay(self) -> Replay | None:
        """Whose messages are decoded, of a lake that has none of its own. None: its own."""
        return self._replay

    def replaying(self, source: Source, lake: str, replay: Replay) -> "Config":
        """This configuration for one source alone, with another lake, in which messages of a landing elsewhere are
        decoded again. Nothing of it is registered in a catalog."""
        changed = self.model_copy(update={"lake": lake, "sources": [source], "bridges": [], "catalog": None})
        changed._file, changed._replay = self._file, replay
        return changed

    @property
    def state_dir(self) -> Path:
        """Local state beside cdc.yaml: embedded broker, locks, Dagster's home under `ui`. Never the lake's truth."""
        return self._file.parent / ".cdc"

    def source(self, name: str) -> Source:
        """The source of that name; ConfigError with the valid ones otherwise."""
        for source in self.sources:
            if source.name == name:
                return source
        raise ConfigError("source", f"no source is called {name!r}", [s.name for s in self.sources])

    def shadow_of(self, of: str) -> Shadow:
        """The pair of which a source is `of`; ConfigError with the valid ones otherwise."""
        for pair in self.shadow:
            if pair.of == of:
                return pair
        raise ConfigError("shadow", f"no pair is {of!r}", [f"{p.of} by {p.by}" for p in self.shadow] or ["none"])

    def bridge(self, name: str) -> Bridge:
        """The bridge of that name; ConfigError with the valid ones otherwise."""
        for bridge in self.bridges:
            if bridge.name == name:
                return bridge
        raise ConfigError("bridge", f"no bridge is called {name!r}", [b.name for b in self.bridges])

    def kafka_properties(self, source: Source | Bridge) -> dict[str, str]:
        """Client properties of one source or bridge: the common ones, overridden by its own."""
        return {**self.kafka, **source.kafka}
