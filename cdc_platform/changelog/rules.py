"""Rules of the configuration as column expressions: which tables are wanted, which key a table has."""

import fnmatch

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform.config import Tables


def wanted(tables: Tables) -> Column:
    """Whether an event's table is to be followed, as `Tables.wanted` says."""
    name = F.concat_ws(".", F.col("db"), F.col("table"))
    kept = _any(name, tables.include)
    return kept & ~_any(name, tables.exclude) if tables.exclude else kept


def key(tables: Tables) -> Column:
    """The key of a row change: the message's, or the configured columns of the row before."""
    out = F.col("key")
    for table, columns in tables.keys.items():
        image = F.coalesce("before", "after")
        chosen = F.map_from_arrays(F.array(*map(F.lit, columns)), F.array(*(F.try_element_at(image, F.lit(c)) for c in columns)))
        out = F.when(F.concat_ws(".", F.col("db"), F.col("table")) == table, chosen).otherwise(out)
    return out


def _any(name: Column, patterns: list[str]) -> Column:
    found = F.lit(False)
    for pattern in patterns:
        found = found | (F.lit(True) if pattern == "*" else name.rlike(_java_regex(pattern)))
    return found


def _java_regex(pattern: str) -> str:
    """Shell pattern → regular expression of the whole name, in Java's dialect (its \\Z would allow a newline)."""
    translated = fnmatch.translate(pattern)
    return "^" + translated.removesuffix(r"\Z").removesuffix(r"\z") + r"\z"
