"""The `shadow:` section: two feeds of one database, compared."""

import fnmatch
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cdc_platform.config.cron import Cron
from cdc_platform.config.model import Model
from cdc_platform.config.tables import check_patterns


class Shadow(Model):
    """A source, and another one that feeds the same database by another way."""

    of: str = Field(description="Source whose tables are in use.", examples=["shop"])
    by: str = Field(description="Source that brings the same tables by another feed.", examples=["shop-canal"])
    tables: list[str] = Field(
        default=["*"],
        description="Patterns of db.table, as the source `of` spells it, that are compared.",
        examples=[["shop.*"]],
    )
    settle_s: int = Field(
        default=60,
        ge=1,
        description="Seconds, where feeds share no GTIDs: a row is compared if it was changed last so long before the "
        "time up to which both are complete. At least as long as a transaction of the database may take.",
        examples=[600],
    )
    cron: Cron = Field(
        default="*/10 * * * *",
        description="Schedule of the comparison, a cron expression in UTC. Tables that haven't changed cost nothing.",
        examples=["0 * * * *"],
    )

    @field_validator("tables")
    @classmethod
    def _can_match(cls, value: list[str]) -> list[str]:
        check_patterns(value)
        return value

    @model_validator(mode="after")
    def _two_sources(self) -> Self:
        if self.of == self.by:
            raise ValueError(f"{self.of!r} can't shadow itself: `of` and `by` name two sources")
        return self

    def wanted(self, table: str) -> bool:
        """Whether a table (db.table) is compared."""
        return any(fnmatch.fnmatchcase(table, pattern) for pattern in self.tables)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


Shadows = Annotated[list[Shadow], BeforeValidator(_as_list)]
"""One pair, or several."""
