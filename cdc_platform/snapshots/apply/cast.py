"""Canonical texts → columns of a snapshot, by Arrow: what columns.py has Spark make of them, or nothing.

A text that Arrow and Spark might read differently, or that doesn't fit its column, isn't read: what becomes of it is
Spark's to say (tests/snapshots/apply/test_cast.py holds both against each other). No Spark here.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from binascii import a2b_base64
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.mysql.types import MySqlType

_CLOCK = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_TIME = r"-?[0-9]{2,3}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_SPELLED = {
    **dict.fromkeys(("integer", "year", "bit"), "-?[0-9]{1,20}"),
    "boolean": "[01]|true|false",
    "float": r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?",
    "decimal": r"-?[0-9]+(\.[0-9]+)?",
    "date": "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "datetime": _CLOCK,
    "timestamp": f"{_CLOCK}Z",
}


def _same(texts: pa.StringArray, _to: pa.DataType) -> pa.Array:
    return texts


def _cast(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    return texts.cast(to)


def _float(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    found = texts.cast(to)
    if not _all(pc.is_finite(found)):
        raise ValueError("a number beyond its type")
    return found


def _date(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    if pc.any(pc.starts_with(texts, "0000")).as_py():
        raise ValueError("a date of the year 0")
    return texts.cast(to)


def _bytes(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    # One by one: Arrow has no base64, and Spark takes longer for a row than this does for a value.
    return pa.array([None if t is None else a2b_base64(t, strict_mode=True) for t in texts.to_pylist()], to)


_CASTS: dict[str, Callable[[pa.StringArray, pa.DataType], pa.Array]] = {
    **dict.fromkeys(("text", "enum", "set", "json"), _same),
    **dict.fromkeys(("integer", "year", "bit", "boolean", "decimal"), _cast),
    **dict.fromkeys(("date", "datetime", "timestamp"), _date),
    **dict.fromkeys(("binary", "geometry"), _bytes),
    "float": _float,
}


def typed(texts: pa.StringArray, type_: MySqlType, to: pa.DataType) -> pa.Array:
    """Values of a column. to: Arrow's type of its Spark type. Raises ValueError where Spark has to say what a text
    is."""
    if pa.types.is_string(to):
        return _with_digits(texts, digits) if (digits := type_.time_digits) else texts
    pattern = _SPELLED.get(type_.family)
    if pattern is not None and not _all(pc.match_substring_regex(texts, f"^({pattern})$")):
        raise ValueError(f"not the usual spelling of a {type_.name}")
    return _CASTS[type_.family](texts, to)


def _with_digits(texts: pa.StringArray, digits: int) -> pa.StringArray:
    """As `columns._time`. Raises ValueError for what is no time."""
    if not _all(pc.match_substring_regex(texts, rf"^{_TIME}$")):
        raise ValueError("not the usual spelling of a time")
    dotted = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, "", "."))
    for n in range(digits):
        dotted = pc.replace_substring_regex(dotted, rf"(\.[0-9]{{{n}}})$", r"\10")
    return dotted


def _all(which: pa.BooleanArray) -> bool:
    return pc.all(which, min_count=0).as_py()
