"""The `reconcile:` section of a source."""

import re

from pydantic import Field, field_validator

from cdc_platform.config.model import Model

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


class Reconcile(Model):
    """Where the source itself can be read, to compare its tables with their snapshots."""

    dsn_env: str = Field(
        description="Name of the environment variable with the DSN of an account that may read: "
        "mysql://user:password@host:3306.",
        examples=["SHOP_DSN"],
    )
    wait_s: float = Field(
        default=60,
        ge=0,
        description="Seconds that the asset check gives the chain to catch up before a difference counts.",
        examples=[300],
    )
    limit: int = Field(
        default=20, ge=1, le=1000, description="Differing rows per table that the asset check reads.", examples=[100]
    )

    @field_validator("dsn_env")
    @classmethod
    def _variable_name(cls, value: str) -> str:
        if not _VARIABLE.match(value):
            raise ValueError("must be the name of an environment variable; the DSN itself never stands in cdc.yaml")
        return value
