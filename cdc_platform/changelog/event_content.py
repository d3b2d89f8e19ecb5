"""What makes two events of a log the same one, besides their place in it."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.changelog.order import ADDRESS
from cdc_platform.changes.file_stats import ENTRIES

_TOLD = ("kind", "op", "db", "schema", "table", "gtid", "source_time", "ddl")
_IMAGES = ("key", "before", "after")
CONTENT = (*_TOLD, *_IMAGES)
PLACE = ("file_no", "binlog_pos")


def comparable(changes: DataFrame) -> DataFrame:
    """Row changes and DDL among rows of CHANGES: ADDRESS, `arrival`, `retold`, PLACE, CONTENT; maps as sorted entries,
    which compare."""
    maps = {m: F.array_sort(F.map_entries(m)) for m in _IMAGES}
    of = changes.where("kind = 'row' OR (kind = 'ddl' AND file_no IS NOT NULL AND binlog_pos IS NOT NULL)")
    # Of a statement its text tells: what is made of it beside may differ from one decoding to the next.
    ddl = F.col("kind") == "ddl"
    plain = {c: F.when(~ddl, F.col(c)) for c in ("db", "schema", "table", "op")}
    of = of.withColumns(plain)
    of = with_arrival(of)
    return of.select(*ADDRESS, "arrival", "retold", *PLACE, *_TOLD, *(c.alias(m) for m, c in maps.items()))


def with_arrival(rows: DataFrame) -> DataFrame:
    """With `arrival`: when they came, in the order of their partition (file_stats.arrival)."""
    entry = F.least(F.coalesce("entry_index", F.lit(0)), F.lit(ENTRIES - 1))
    return rows.withColumn("arrival", F.col("offset") * ENTRIES + entry)


def digest(salt: Column) -> Column:
    """By which an event is known without its values: SHA-256 of a salt and its CONTENT."""
    told = {c: F.unix_micros(c) if c == "source_time" else F.col(c) for c in CONTENT}
    return F.sha2(F.concat(salt, F.to_json(F.struct(*(c.alias(n) for n, c in told.items())))), 256)
