"""Which of a format's limits a table's columns have."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from cdc_platform.errors import UnknownType
from cdc_platform.formats.contract import Format
from cdc_platform.mysql.types import MySqlType, parse_type


def any_type(_type: MySqlType) -> bool:
    """`Limit.concerns`: all types."""
    return True


def of(*families: str) -> Callable[[MySqlType], bool]:
    """`Limit.concerns`: types of these families."""
    return lambda t: t.family in families


def finer_than(digits: int, *families: str) -> Callable[[MySqlType], bool]:
    """`Limit.concerns`: types of these families with more digits of a second."""
    return lambda t: t.family in families and (*t.args, 0)[0] > digits


def limits_of(
    format: Format, options: Mapping[str, Any], columns_json: str, writers: Collection[str]
) -> dict[str, list[str]]:
    """Column name → what its feed can't tell of it; columns without limits are left out. `options`: those that the
    configuration gives. `writers`: tools that told the table's columns; none told: the format's own."""
    found: dict[str, list[str]] = {}
    for column in json.loads(columns_json):
        try:
            type_ = parse_type(column["type"])
        except UnknownType:
            continue
        texts = [
            limit.text
            for limit in format.limits
            if limit.concerns(type_)
            and (limit.unless is None or limit.unless not in options)
            and (limit.stated is None or limit.stated in column.get("limits", ()))
            and (limit.writer is None or limit.writer in (writers or {format.name}))
        ]
        if texts:
            found[column["name"]] = texts
    return found
