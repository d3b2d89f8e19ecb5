"""`catalog:` of cdc.yaml: where snapshots are registered as tables."""

import re
from typing import Literal

from pydantic import Field, field_validator

from cdc_platform.config.model import Model

_PLACES = ("source", "db")


class Catalog(Model):
    """Where snapshots are registered as tables, beside their paths."""

    kind: Literal["hive", "spark"] = Field(
        description="hive: a Hive metastore, as Spark's own catalog spark_catalog. spark: a catalog that `spark.conf` "
        "defines under the name `name`.",
        examples=["hive"],
    )
    uris: str | None = Field(
        default=None,
        description="Addresses of the Hive metastore. Default: those of Hive's own configuration, or an embedded one.",
        examples=["thrift://metastore:9083"],
    )
    name: str = Field(default="spark_catalog", description="Name of the catalog in Spark.", examples=["unity"])
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
