"""Each family of MySQL types as one text that the server's SQL and a snapshot's column both give for equal values.

Row digests are made of these texts. A text holds no comma and is never `N`, `!` or `?`, so that `N` can stand for
NULL and commas between values are unambiguous: character and binary values come as the MD5 of their bytes (also
because a server gives NULL for a text over its max_allowed_packet). What compares equal: numbers by value (1.50 and
1.5, 0.0 and -0.0), times by value (trailing zeros of a fraction), characters and bytes by their bytes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform.mysql.types import MySqlType

NULL, NO_TEXT_AT_SOURCE, NO_TEXT_IN_SNAPSHOT = "N", "!", "?"
"""NULL; and a value that has no text on one side, which must never be equal to anything of the other."""

_DAYS = "31, 28 + (YEAR({c}) % 4 = 0 AND (YEAR({c}) % 100 <> 0 OR YEAR({c}) % 400 = 0)), "
_NO_SUCH_DAY = (
    "(YEAR({c}) = 0 OR MONTH({c}) = 0 OR DAYOFMONTH({c}) = 0 OR DAYOFMONTH({c}) > ELT(MONTH({c}), "
    f"{_DAYS}31, 30, 31, 30, 31, 31, 30, 31, 30, 31))"
)
"""Zero dates, days that a month doesn't have (sql_mode ALLOW_INVALID_DATES), and the year 0, which SQL's dates lack."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key value as text to find its row by: SQL of the text, the same of a column, and text → SQL literal."""

    sql: Callable[[str, str], str]  # (quoted column, SQL of its text)
    frame: Callable[[Column, Column], Column]
    literal: str
    shape: str  # regular expression of every such text: nothing else comes into SQL


@dataclass(frozen=True, slots=True)
class Text:
    """One family. sql: of a quoted column; frame: of a column and its Spark type; shown_…: for people; invalid: SQL
    that says whether the value can only be NULL in a snapshot."""

    sql: Callable[[str, MySqlType], str]
    frame: Callable[[Column, str], Column]
    key: Key
    shown_sql: str = "CAST({c} AS CHAR)"
    shown_frame: Callable[[Column], Column] = lambda c: c.cast("string")
    invalid: str | None = None


_NUMBER = Key(lambda _, text: text, lambda _, text: text, "{}", r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")
_QUOTED = Key(lambda _, text: text, lambda _, text: text, "'{}'", r"[-0-9:. ]+")
_CHARS = Key(
    lambda c, _: f"HEX(CONVERT({c} USING utf8mb4))",
    lambda c, _: F.hex(c.cast("binary")),
    "_utf8mb4 X'{}'",  # a constant with an introducer takes the column's collation, and so its index
    "([0-9A-F]{2})*",
)
_BYTES = Key(lambda c, _: f"HEX({c})", lambda c, _: F.hex(c.cast("binary")), "X'{}'", "([0-9A-F]{2})*")


def _trimmed_sql(text: str) -> str:
    """Without zeros at the end of a fraction."""
    return f"IF(LOCATE('.', {text}), TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text})), {text})"


def _trimmed(text: Column) -> Column:
    return F.when(F.instr(text, ".") > 0, F.regexp_replace(text, r"\.?0*$", "")).otherwise(text)


def _decimal_sql(column: str, type_: MySqlType) -> str:
    text = _trimmed_sql(f"CAST({column} AS CHAR)")
    if not type_.unsigned:
        return text
    bare = f"TRIM(LEADING '0' FROM {text})"  # ZEROFILL, which is always unsigned
    return f"IF({bare} = '' OR LEFT({bare}, 1) = '.', CONCAT('0', {bare}), {bare})"


def _decimal(column: Column, spark: str) -> Column:
    text = _trimmed(_number(column, spark))
    return F.when(text == "-0", F.lit("0")).otherwise(text)


def _number(column: Column, spark: str) -> Column:
    return (column.cast("int") if spark == "boolean" else column).cast("string")


def _float_sql(column: str, _type: MySqlType) -> str:
    """`<digits>e<exponent>`, no zeros around the digits. A server writes a DOUBLE with the fewest digits that read
    back to the same value (dtoa mode 4), but a FLOAT with 6: times 1e0 makes it a DOUBLE without changing it."""
    double = f"({column} * 1e0)"
    text = f"CAST(ABS({double}) AS CHAR)"
    mantissa = f"SUBSTRING_INDEX({text}, 'e', 1)"
    digits = f"REPLACE({mantissa}, '.', '')"
    short = f"TRIM(TRAILING '0' FROM {digits})"
    exponent = f"IF(LOCATE('e', {text}), CAST(SUBSTRING_INDEX({text}, 'e', -1) AS SIGNED), 0)"
    decimals = f"IF(LOCATE('.', {mantissa}), LENGTH(SUBSTRING_INDEX({mantissa}, '.', -1)), 0)"
    power = f"{exponent} - {decimals} + LENGTH({digits}) - LENGTH({short})"
    value = f"CONCAT(IF({double} < 0, '-', ''), TRIM(LEADING '0' FROM {short}), 'e', {power})"
    return f"IF({double} = 0, '0', {value})"


def float_text(value: float) -> str:
    """What `_float_sql` gives. Python's repr has the fewest digits, too; Java's (before 19) not always."""
    if value == 0:
        return "0"
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole.lstrip("-") + fraction
    short = digits.rstrip("0")
    power = int(exponent or 0) - len(fraction) + len(digits) - len(short)
    return f"{'-' if value < 0 else ''}{short.lstrip('0')}e{power}"


def float_texts(values: pa.Array) -> pa.Array:
    """An array of doubles → their texts."""
    return pa.array([None if v is None else float_text(v) for v in values.to_pylist()], pa.string())


def _float(column: Column, _spark: str) -> Column:
    return F.arrow_udf(float_texts, "string")(column.cast("double"))  # type: ignore[operator]


def _temporal(invalid: str | None) -> Text:
    return Text(
        lambda c, _: _trimmed_sql(f"CAST({c} AS CHAR)"),
        lambda c, _: c.cast("string"),  # Spark trims fractions by itself, and the session's zone is UTC
        _QUOTED,
        invalid=invalid,
    )


_INTEGER = Text(lambda c, _: f"CAST({c} + 0 AS CHAR)", _number, _NUMBER, "CAST({c} + 0 AS CHAR)")
_TEXT = Text(
    lambda c, _: f"MD5(CONVERT({c} USING utf8mb4))",
    lambda c, _: F.md5(c.cast("binary")),
    _CHARS,
    "CONVERT({c} USING utf8mb4)",
)
_BINARY = Text(
    lambda c, _: f"MD5({c})",
    lambda c, _: F.md5(c.cast("binary")),
    _BYTES,
    "CONCAT('0x', LOWER(HEX({c})))",
    lambda c: F.concat(F.lit("0x"), F.lower(F.hex(c))),
)

TEXTS: dict[str, Text] = {
    **dict.fromkeys(("integer", "bit", "boolean", "year"), _INTEGER),  # + 0: no ZEROFILL, bits as a number
    **dict.fromkeys(("text", "enum", "set"), _TEXT),
    **dict.fromkeys(("binary", "geometry"), _BINARY),  # geometry: MySQL's own bytes, SRID and WKB
    **dict.fromkeys(("date", "datetime", "timestamp"), _temporal(_NO_SUCH_DAY)),
    "time": replace(_temporal(None), frame=lambda c, _: _trimmed(c)),  # a text, with the digits of its column
    "decimal": Text(_decimal_sql, _decimal, _NUMBER),
    "float": Text(_float_sql, _float, _NUMBER, "CAST({c} * 1e0 AS CHAR)"),
}
"""Family → its texts."""

NOT_COMPARED = {
    "json": "a MySQL server writes JSON in a form of its own (blanks, numbers), feeds write it otherwise",
}
"""Families that have no such text, and why. (MariaDB's JSON is LONGTEXT: compared.)"""


def key_literal(key: Key, text: str | None) -> str | None:
    """A key's text as an SQL literal. None: no key value has such a text (NULL, an impossible date)."""
    return key.literal.format(text) if text is not None and re.fullmatch(key.shape, text) else None
