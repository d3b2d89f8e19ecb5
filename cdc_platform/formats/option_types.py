"""Option values that several formats take, checked when the configuration is read."""

from typing import Annotated

from pydantic import AfterValidator

from cdc_platform.errors import UnknownType
from cdc_platform.mysql.types import parse_type
from cdc_platform.mysql.zones import zone


def _known_zone(name: str) -> str:
    try:
        zone(name)
    except ValueError:
        valid = "IANA names such as Asia/Shanghai, offsets from -13:59 to +14:00 such as +08:00"
        raise ValueError(f"unknown time zone {name!r}; valid: {valid}") from None
    return name


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
"""An IANA time zone, or an offset."""

ColumnTypes = Annotated[dict[str, dict[str, str]], AfterValidator(_known_types)]
"""`db.table` → column → MySQL type text."""
