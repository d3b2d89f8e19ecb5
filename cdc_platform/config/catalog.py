"""`catalog:` of cdc.yaml: where snapshots are registered as tables."""

import re
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from cdc_platform.config.model import Model

_PLACES = ("source", "db")
_OWN_KEYS = {"hive": {"uris"}, "unity": {"uri", "token"}, "glue": {"region", "endpoint"}}
"""Keys that one kind alone has."""
_SERVER = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


class Catalog(Model):
    """Where snapshots are registered as tables, beside their paths."""

    kind: Literal["hive", "spark", "unity", "glue"] = Field(
        description="hive: a Hive metastore, as Spark's own catalog spark_catalog. spark: a catalog that `spark.conf` "
        "defines under the name `name`. unity: a catalog of a Unity Catalog server, by its REST API. glue: AWS Glue's "
        "Data Catalog.",
        examples=["hive"],
    )
    uris: str | None = Field(
        default=None,
        description="hive: addresses of the metastore. Default: those of Hive's own configuration, or an embedded one.",
        examples=["thrift://metastore:9083"],
    )
    uri: str | None = Field(
        default=None,
        description="unity: address of the server, without `/api`.",
        examples=["https://unity.example.com"],
    )
    token: SecretStr | None = Field(
        default=None,
        description="unity: bearer token, as ${ENV_VAR} only. Default: the server asks for none.",
        examples=["${UNITY_TOKEN}"],
    )
    region: str | None = Field(
        default=None,
        description="glue: region. Default: the environment's, as boto3 finds it; so are credentials.",
        examples=["eu-central-1"],
    )
    endpoint: str | None = Field(
        default=None,
        description="glue: address of the service. Default: AWS's of the region.",
        examples=["https://vpce-1a2b.glue.eu-central-1.vpce.amazonaws.com"],
    )
    name: str = Field(
        default="spark_catalog",
        description="Name of the catalog: spark: in Spark; unity: on the server, where it must be there.",
        examples=["unity"],
    )
    database: str = Field(
        default="{source}_{db}",
        description="Database (or schema) of a snapshot's table: {source} and {db} stand for the source's name and the "
        "snapshot's database. It is created where it isn't there.",
        examples=["cdc_{db}"],
    )

    @field_validator("database")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        rest = value
        for place in _PLACES:
            rest = rest.replace("{%s}" % place, "")  # noqa: UP031 - braces are meant
        if not re.fullmatch("[a-z0-9_]*", rest) or not value:
            raise ValueError("lower-case letters, digits, _, {source} and {db} only")
        return value

    @field_validator("uri", "endpoint")
    @classmethod
    def _is_a_server(cls, value: str | None) -> str | None:
        if value is not None and not _SERVER.fullmatch(value):
            raise ValueError("is no http:// or https:// URL (without a login in it)")
        return value

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> Self:
        for kind, keys in _OWN_KEYS.items():
            if kind != self.kind and (others := sorted(keys & self.model_fields_set)):
                raise ValueError(f"{', '.join(others)}: only for kind {kind}")
        if self.kind == "unity":
            if lacking := sorted({"uri", "name"} - self.model_fields_set):
                raise ValueError(f"kind unity needs {', '.join(lacking)}")
            if not re.fullmatch(r"[^\s./]{1,255}", self.name):
                raise ValueError("name: a catalog of Unity Catalog has no period, space or slash in its name")
        return self
