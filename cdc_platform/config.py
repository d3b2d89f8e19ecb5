"""`cdc.yaml`: a typed, validated model. An unknown key or a bad value is a ConfigError that names the key and says
what would have worked. Values may be `${ENV_VAR}`; secrets come in only that way and are never printed."""

import os
import re
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, Field, PrivateAttr, ValidationError, field_validator, model_validator

from cdc_platform.bridge.settings import Bridge, check_secrets
from cdc_platform.changelog.settings import Tables
from cdc_platform.errors import ConfigError
from cdc_platform.model import Model, Properties
from cdc_platform.reconcile.settings import Reconcile

_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")
_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_LOSES_COMMITS = {
    **dict.fromkeys(
        ("s3", "s3a", "s3n"),
        "Delta's default log store on S3 looks whether a commit is there and then writes its own: of two drivers "
        "that commit at once the second overwrites the first, and committed rows would be lost without an error",
    ),
    **dict.fromkeys(
        ("oss", "cos", "cosn", "obs", "tos", "ks3", "swift"),
        "Delta commits there by a rename that isn't atomic on this store: of two drivers that commit at once the "
        "second may overwrite the first, and committed rows would be lost without an error",
    ),
}
"""Scheme of a URI → why a lake there isn't safe: runs of several sources are drivers of their own and share tables."""
_SAFE_LAKES = ("a folder", "hdfs://…", "abfss://…", "gs://…")

SECRET_KEYS = re.compile(
    r"password|passphrase|secret|jaas|token|credential|\.key$|keystore\.key|key\.pem|access.key|account\.key",
    re.IGNORECASE,
)


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


class Spark(Model):
    """Where Spark runs: a classic session (`master`) or a Spark Connect server (`remote`)."""

    master: str = Field(default="local[*]", description="local[*], spark://…, k8s://…, yarn")
    remote: str | None = Field(default=None, description="sc://host:15002: use this Spark Connect server instead")
    conf: Properties = Field(default={}, repr=False, description="any Spark property")

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

    cron: str = Field(default="0 3 * * *", description="schedule of the upkeep, UTC")
    keep_hours: int = Field(
        default=168, ge=168, description="how long versions of snapshots, and so cuts, stay readable"
    )
    tombstone_days: int = Field(default=90, ge=1, description="after which deleted keys are forgotten")


class Config(Model):
    """The whole of cdc.yaml."""

    lake: str = Field(
        description="folder of the lake, or a URI that Spark knows (hdfs, abfss, gs); stores where Delta may lose a "
        "commit, such as S3, are refused"
    )
    spark: Spark = Spark()
    kafka: Properties = Field(default={}, repr=False, description="Kafka client properties common to all sources")
    sources: list[Source] = Field(min_length=1)
    bridges: list[Bridge] = Field(default=[], description="feeds that are carried into Kafka")
    catch_up_cron: str = Field(default="*/10 * * * *", description="schedule of catch-up runs, beside the sensor's")
    maintenance: Maintenance = Maintenance()
    _file: Path = PrivateAttr(default=Path("cdc.yaml"))

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

    @property
    def file(self) -> Path:
        """The file this came from."""
        return self._file

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

    def bridge(self, name: str) -> Bridge:
        """The bridge of that name; ConfigError with the valid ones otherwise."""
        for bridge in self.bridges:
            if bridge.name == name:
                return bridge
        raise ConfigError("bridge", f"no bridge is called {name!r}", [b.name for b in self.bridges])

    def kafka_properties(self, source: Source | Bridge) -> dict[str, str]:
        """Client properties of one source or bridge: the common ones, overridden by its own."""
        return {**self.kafka, **source.kafka}


def load_config(path: str | os.PathLike[str] | None = None) -> Config:
    """Read cdc.yaml from `path`, else $CDC_CONFIG, else ./cdc.yaml. Raises ConfigError."""
    file = Path(path or os.environ.get("CDC_CONFIG") or "cdc.yaml").expanduser().absolute()
    if not file.is_file():
        raise ConfigError("CDC_CONFIG", f"there is no file {file}", ["a path to cdc.yaml"])
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise ConfigError(str(file), f"is not YAML: {getattr(error, 'problem', 'unreadable')} at {place}") from None
    if not isinstance(raw, dict):
        raise ConfigError(str(file), "must hold a mapping", Config.model_fields)
    config = parse_config(raw, file)
    return config


def parse_config(raw: dict[str, Any], file: Path = Path("cdc.yaml")) -> Config:
    """A parsed mapping → Config; paths without a scheme are taken relative to the file's folder. Raises ConfigError."""
    check_secrets(raw)
    filled = _fill(raw, "")
    try:
        config = Config.model_validate(filled)
    except ValidationError as error:
        raise _config_error(error) from None
    _check_formats(config)
    config = config.model_copy(update={"lake": _absolute(config.lake, file.parent)})
    config._file = file
    return config


def _check_formats(config: Config) -> None:
    from cdc_platform.formats import FORMATS

    for i, source in enumerate(config.sources):
        if source.format not in FORMATS:
            raise ConfigError(f"sources[{i}].format", f"unknown format {source.format!r}", FORMATS)
        try:
            FORMATS[source.format].options.model_validate(source.options)
        except ValidationError as error:
            raise _config_error(error, f"sources[{i}].options", FORMATS[source.format].options) from None


def _absolute(lake: str, folder: Path) -> str:
    if scheme := _SCHEME.match(lake):
        if why := _LOSES_COMMITS.get(scheme[1].lower()):
            problem = f"a lake on {scheme[1]}: isn't supported until commits are conditional there: {why}"
            raise ConfigError("lake", problem, _SAFE_LAKES)
        return lake.rstrip("/")
    path = str((folder / Path(lake).expanduser()).resolve())
    if escape := re.search("%[0-9a-fA-F]{2}", path):  # delta-rs takes it for the character that it stands for in a URI
        raise ConfigError(
            "lake", f"the path {path!r} holds {escape[0]!r}, which readers of Delta tables take for an escape"
        )
    return path


def _fill(value: Any, key: str) -> Any:
    """Replace ${ENV} in all texts; an unset variable is an error that names key and variable."""
    if isinstance(value, dict):
        return {k: _fill(v, f"{key}.{k}" if key else str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, f"{key}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            raise ConfigError(key, f"environment variable {name} is not set")
        return os.environ[name]

    return _ENV.sub(one, value)


def _config_error(error: ValidationError, prefix: str = "", model: type[BaseModel] = Config) -> ConfigError:
    """The first finding of pydantic, without the offending value (it may be a secret)."""
    first = error.errors(include_input=False, include_url=False)[0]
    key = prefix
    for part in first["loc"]:
        key += f"[{part}]" if isinstance(part, int) else f"{'.' if key else ''}{part}"
    if first["type"] == "extra_forbidden":
        return ConfigError(key, "unknown key", _keys_at(model, first["loc"][:-1]))
    return ConfigError(key or "cdc.yaml", first["msg"].removeprefix("Value error, "))


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    nested: dict[str, type[BaseModel]] = {
        "sources": Source,
        "bridges": Bridge,
        "tables": Tables,
        "spark": Spark,
        "reconcile": Reconcile,
        "maintenance": Maintenance,
    }
    for part in loc:
        model = nested.get(str(part), model) if isinstance(part, str) else model
    return list(model.model_fields)


def redact(properties: dict[str, str]) -> dict[str, str]:
    """Properties fit for logs: values of secret-looking keys replaced."""
    return {k: "***" if SECRET_KEYS.search(k) else v for k, v in properties.items()}
