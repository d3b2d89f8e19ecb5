"""Rules of the configuration as column expressions: which tables are wanted, which key a table has."""

import fnmatch
import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform.config import Tables


def wanted(tables: Tables) -> Column:
    """Whether an event's table is to be followed, as `Tables.wanted` says."""
    kept = _any(name(), tables.include)
    return kept & ~_any(name(), tables.exclude) if tables.exclude else kept


def emptied(tables: Tables) -> Column:
    """Whether an event is a TRUNCATE that calls a table to be followed by another case of its name: rows say whether
    that is one."""
    lower = F.lower(name())
    kept, left_out = (_any(lower, [p.lower() for p in patterns]) for patterns in (tables.include, tables.exclude))
    return F.coalesce(F.col("op") == "truncate", F.lit(False)) & kept & ~left_out


def name() -> Column:
    """The name of an event's table as text."""
    return F.concat_ws(".", F.col("db"), F.nullif(F.col("schema"), F.lit("")), F.col("table"))


def key(tables: Tables) -> Column:
    """The key of a row change: the message's, or the configured columns of the row before."""
    out = F.col("key")
    for table, columns in tables.keys.items():
        out = F.when(name() == table, of_images(F.array(*map(F.lit, columns)))).otherwise(out)
    return out


def of_images(columns: Column) -> Column:
    """The key of the row before, of these columns (an array of names)."""

    # Column by column: a minimal before image need not hold columns that only the configuration calls a key.
    def value(name: Column) -> Column:
        return F.coalesce(*(F.try_element_at(F.col(image), name) for image in ("before", "after")))

    return F.map_from_arrays(columns, F.transform(columns, value))


def _any(name: Column, patterns: list[str]) -> Column:
    found = F.lit(False)
    for pattern in patterns:
        found = found | (F.lit(True) if pattern == "*" else name.rlike(_java_regex(pattern)))
    return found


_CLASS = re.compile(r"\\.|\[(\^?)(\]?(?:\\.|[^\]\\])*)\]", re.DOTALL)
_BRACKET = re.compile(r"\\.|[\[\]]", re.DOTALL)


def _java_regex(pattern: str) -> str:
    """Shell pattern → regular expression of the whole name, in Java's dialect: its \\Z would allow a newline, and
    a bare [ within a class opens another one."""
    translated = fnmatch.translate(pattern)
    translated = _CLASS.sub(lambda m: m[0] if m[2] is None else f"[{m[1]}{_BRACKET.sub(_escaped, m[2])}]", translated)
    return "^" + translated.removesuffix(r"\Z").removesuffix(r"\z") + r"\z"


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("\\") else "\\" + found[0]
