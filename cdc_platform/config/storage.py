"""The `storage:` section of cdc.yaml: how to reach the object store that the lake is on, given once for the platform's
own reads and writes, delta-rs and Spark. What it doesn't give comes from the environment (AWS_…, or the role of the
machine)."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from cdc_platform.config.model import Model
from cdc_platform.errors import ConfigError

Kind = Literal["folder", "s3"]

KINDS: dict[str, Kind] = {"file": "folder", "s3": "s3", "s3a": "s3"}
"""Scheme of a URI → kind of store."""

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_ENDPOINT = re.compile(r"^(https?)://([^/\s?#@]+)/?$")
_NO_ENDPOINT = "must be like https://host:port, without a path or a login"
_S3 = {
    "region": "aws_region",
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}
"""Key of cdc.yaml → key of the Rust crate object_store, which obstore and delta-rs share."""
_S3A = {
    "endpoint": "endpoint",
    "region": "endpoint.region",
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "path_style": "path.style.access",
}
"""Key of cdc.yaml → key of Hadoop's connector, behind `fs.s3a.`."""
_S3A_OWN = re.compile(r"spark\.hadoop\.fs\.s3a\.(?:bucket\.[^.]+\.)?(.+)")
_LOG_STORE = re.compile(r"spark\.(hadoop\.)?(spark\.)?delta\.logStore\.", re.IGNORECASE)


class Storage(Model):
    """How to reach the S3 store that the lake is on. What isn't given comes from the environment."""

    endpoint: str | None = Field(
        default=None,
        description="Address of the store; default: that of AWS. With http:// nothing is encrypted.",
        examples=["https://minio.example.com:9000"],
    )
    region: str | None = Field(
        default=None, min_length=1, description="Region of an S3 bucket.", examples=["eu-west-1"]
    )
    access_key: SecretStr | None = Field(
        default=None, description="S3 access key, as ${ENV_VAR} only.", examples=["${LAKE_KEY}"]
    )
    secret_key: SecretStr | None = Field(
        default=None, description="S3 secret key, as ${ENV_VAR} only.", examples=["${LAKE_SECRET}"]
    )
    session_token: SecretStr | None = Field(
        default=None, description="Token of temporary S3 credentials, as ${ENV_VAR} only.", examples=["${LAKE_TOKEN}"]
    )
    path_style: bool = Field(
        default=True,
        description="The S3 bucket's name is in the path of a request; false: in its host name (virtual-hosted).",
        examples=[False],
    )

    @field_validator("endpoint")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not _ENDPOINT.match(value):
            raise ValueError(_NO_ENDPOINT)
        return value and value.rstrip("/")

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if bool(self.access_key) != bool(self.secret_key):
            raise ValueError("access_key and secret_key belong together")
        if self.session_token and not self.access_key:
            raise ValueError("session_token needs access_key and secret_key")
        if self.access_key and not self.session_token and os.environ.get("AWS_SESSION_TOKEN"):
            raise ValueError(
                "AWS_SESSION_TOKEN of the environment would be sent with the keys given here: unset it, or give "
                "session_token: ${AWS_SESSION_TOKEN}"
            )
        return self

    @property
    def allow_http(self) -> bool:
        """Whether the store is asked without encryption: its address says so. Raises ConfigError."""
        return (self.address or "").startswith("http://")

    @property
    def address(self) -> str | None:
        """Of the S3 store (None: AWS's), by the environment where the section doesn't give it. Raises ConfigError."""
        if self.endpoint:
            return self.endpoint
        s3, all_ = os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL")
        found = s3 or all_
        if found and not _ENDPOINT.match(found):
            raise ConfigError(f"AWS_ENDPOINT_URL{'_S3' if s3 else ''} of the environment", _NO_ENDPOINT)
        return found and found.rstrip("/")

    @property
    def _place(self) -> str | None:
        """The region, by the environment where the section doesn't give it; None: nobody says. Raises ConfigError."""
        found = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return found or ("us-east-1" if self.address else None)  # what Python's clients take, too

    def settled(self) -> Self:
        """The same with address and region given, as this process's environment has them: tasks take it along to
        machines that may have another. Keys stay where they are. Raises ConfigError."""
        found = {"endpoint": self.address, "region": self._place}
        return self.model_copy(update={name: value for name, value in found.items() if value is not None})

    @property
    def secrets(self) -> list[str]:
        """Values that no message may hold."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return [v.get_secret_value() for v in values if isinstance(v, SecretStr)]

    def store_options(self, uri: str) -> dict[str, str]:
        """obstore's configuration for a lake at this URI. Raises ConfigError where its scheme isn't known."""
        if kind(uri) == "folder":
            return {}
        options = {**self._named(_S3), "aws_virtual_hosted_style_request": str(not self.path_style).lower()}
        if self.endpoint:
            bucket = "" if self.path_style else uri.split("/")[2] + "."
            options["aws_endpoint"] = self.endpoint.replace("://", f"://{bucket}", 1)
            options["aws_endpoint_url_s3"] = options["aws_endpoint"]  # the environment's would win over the other
        return options

    def delta_options(self, uri: str) -> dict[str, str]:
        """delta-rs's `storage_options` for tables at this URI. Raises ConfigError."""
        options = {k.upper(): v for k, v in self.store_options(uri).items()}
        if kind(uri) == "s3" and self.allow_http:
            options["AWS_ALLOW_HTTP"] = "true"
        return options

    def spark_options(self, uri: str) -> dict[str, str]:
        """Spark properties for tables at this URI. Raises ConfigError."""
        if kind(uri) != "s3":
            return {}
        options = {**self._named(_S3A), "path.style.access": str(self.path_style).lower()}
        if endpoint := self.address:
            options["endpoint"] = endpoint
            options["connection.ssl.enabled"] = str(not self.allow_http).lower()
        if region := self._place:
            options["endpoint.region"] = region
        return {f"spark.hadoop.fs.s3a.{k}": v for k, v in options.items()}

    def _named(self, keys: dict[str, str]) -> dict[str, str]:
        values = {name: getattr(self, own) for own, name in keys.items()}
        return {n: v.get_secret_value() if isinstance(v, SecretStr) else v for n, v in values.items() if v is not None}


def spark_errors(conf: Mapping[str, str]) -> Iterator[ConfigError]:
    """What `spark.conf` may not say: what `storage:` gives to all that read and write, and how commits are made."""
    given = {name: key for key, name in _S3A.items()}
    for key in conf:
        if (own := _S3A_OWN.fullmatch(key)) and own[1] in given:
            problem = "would reach Spark alone: Python's reads and writes of the lake need it, too"
            yield ConfigError(f"spark.conf.{key}", problem, [f"storage.{given[own[1]]}"])
        elif _LOG_STORE.match(key):
            yield ConfigError(f"spark.conf.{key}", "would lose commits: the platform's own log store makes them")


def kind(uri: str) -> Kind:
    """The kind of store that a lake's URI or path names. Raises ConfigError."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return "folder"
    if (found := KINDS.get(scheme[1].lower())) is None:
        problem = f"{scheme[1]}: is no store that the platform can write to"
        raise ConfigError("lake", problem, ["a folder, a mounted one too", *(f"{s}://…" for s in KINDS)])
    return found
