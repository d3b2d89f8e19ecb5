"""Places in a source's order (`order_key`) as DataFusion's SQL: in single columns, by which files are left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_platform.tables import ORDER
from cdc_platform.tables.columns import sql

FIELDS = tuple(name for name, _ in ORDER.fields)
_TYPES = {name: sql(type_) for name, type_ in ORDER.fields}


def newest(fields: Sequence[str] = FIELDS) -> str:
    """The order in which the newest row comes first."""
    return "ORDER BY " + ", ".join(f"order_key['{f}'] DESC" for f in fields)


def behind(order: Mapping[str, Any], fields: Sequence[str] = FIELDS, *, at: bool = False) -> str:
    """Whether a row stands behind a place, as these fields tell it, one after the other; at: or at it."""
    found = str(at).lower()
    for field in reversed(fields):
        own, here = f"order_key['{field}']", f"CAST('{int(order[field])}' AS {_TYPES[field]})"
        found = f"({own} > {here} OR ({own} = {here} AND {found}))"
    return found


def at(order: Mapping[str, Any]) -> str:
    """Whether a row stands at a place, as these fields tell it."""
    return " AND ".join(f"order_key['{f}'] = CAST('{int(v)}' AS {_TYPES[f]})" for f, v in order.items())
