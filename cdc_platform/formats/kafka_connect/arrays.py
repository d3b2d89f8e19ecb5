"""Arrays, which only other databases than MySQL have: JSON text of their items as these are read alone."""

from typing import Any

from cdc_platform.formats.kafka_connect import values as cv
from cdc_platform.formats.kafka_connect.other_types import as_text, special
from cdc_platform.formats.texts import json_text
from cdc_platform.mysql.types import parse_type

_NUMBERS = ("integer", "decimal", "float", "bit")


def is_encoded(items: dict) -> bool:
    """Whether items of this schema aren't what they look like: counts of days, a number's bytes."""
    return bool(items.get("name")) or items.get("type") == "bytes"


def array(type_text: str, convert: cv.Convert) -> cv.Convert:
    """Converter of arrays, by type and converter of one item. Numbers are numbers, all else is text."""
    read = as_text(convert)
    is_number = parse_type(type_text).family in _NUMBERS

    def item(value: Any) -> str:
        text = read([value])[0]
        return "null" if text is None else text if is_number and special(text) is None else json_text(text)

    return cv.each("array", (list,), lambda values: f"[{','.join(map(item, values))}]")
