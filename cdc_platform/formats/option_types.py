"""Option values that several formats take, checked when the configuration is read."""

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

from cdc_platform.errors import UnknownType
from cdc_platform.mysql.types import parse_type


def _known_zone(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        raise ValueError(f"unknown time zone {zone!r}; valid: IANA names such as Asia/Shanghai") from None
    return zone


def _known_types(tables: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    for table, columns in tables.items():
        if not all(table.partition(".")):
            raise ValueError(f"{table!r}: no table's name; valid: db.table")
        for name, text in columns.items():
            try:
                parse_type(text)
            except UnknownType:
                raise ValueError(f"{table}.{name}: unknown MySQL type {text!r}") from None
    return tables


ZoneName = Annotated[str, AfterValidator(_known_zone)]
"""An IANA time zone."""

ColumnTypes = Annotated[dict[str, dict[str, str]], AfterValidator(_known_types)]
"""`db.table` → column → MySQL type text."""
