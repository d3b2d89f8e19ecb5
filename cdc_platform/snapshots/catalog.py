"""Snapshots as tables of a catalog (`catalog:` in cdc.yaml): registered when they are made, removed when they are
dropped. Columns, types and comments are those of Delta's log, which readers of the catalog's tables ask.

A table of the catalog that isn't the snapshot's own, by its location, is never touched.
"""

import logging
import re
from typing import NamedTuple

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from cdc_platform.config import Catalog, Config, Source
from cdc_platform.lake import by_spark
from cdc_platform.lake.by_spark import literal, quoted
from cdc_platform.mysql.effects import Name
from cdc_platform.snapshots import state
from cdc_platform.snapshots.target import Target

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A table of a catalog."""

    catalog: str
    database: str
    table: str

    @property
    def schema(self) -> str:
        """Its database in SQL."""
        return f"{quoted(self.catalog)}.{quoted(self.database)}"

    def __str__(self) -> str:
        return f"{self.schema}.{quoted(self.table)}"


def entry(catalog: Catalog, source: str, name: Name) -> Entry:
    """Where a snapshot is registered."""
    db, table = name
    database = catalog.database.format(source=allowed(source), db=allowed(db))
    return Entry(catalog.name, database, allowed(table))


def allowed(name: str) -> str:
    """A name as catalogs take it: lower-case ASCII letters, digits and `_`. What isn't that, and each `_` beside
    another or at the end, is written as `__` and two hexadecimal digits per byte: different names stay different."""

    def escaped(found: re.Match[str]) -> str:
        return "".join(f"__{byte:02x}" for byte in found[0].encode())

    return re.sub(r"[^a-z0-9_]|_(?![a-z0-9])|(?<=_)_", escaped, name)


def publish(spark: SparkSession, config: Config, source: Source, tables: state.Tables) -> dict[str, float]:
    """Registers the snapshots of a source that aren't yet, and removes those of dropped tables. Returns figures, none
    without a catalog. What fails is logged and counted and doesn't fail the run: rows are in their snapshots, and the
    next run tries again."""
    if config.catalog is None:
        return {}
    wanted: dict[str, list[_Wanted]] = {}
    for name, told in sorted(tables.items()):
        target = Target.of(config, source.name, *name)
        one = _Wanted(entry(config.catalog, source.name, name), target, told["state"] != "dropped", told["touched"])
        wanted.setdefault(one.entry.schema, []).append(one)
    return {"not_registered": float(sum(_database(spark, schema, some) for schema, some in wanted.items()))}


class _Wanted(NamedTuple):
    """A snapshot and its entry. exists: it is to be registered. touched: this run changed it."""

    entry: Entry
    target: Target
    exists: bool
    touched: bool


def _database(spark: SparkSession, schema: str, wanted: list[_Wanted]) -> int:
    """The same of one database; how many of its tables are not as they should be."""
    try:
        there = _tables(spark, schema)
    except PySparkException as error:
        log.warning("catalog: %s: %s", schema, _line(error))
        return len(wanted)
    return sum(not _registered(spark, one, one.entry.table in there) for one in wanted)


def _tables(spark: SparkSession, schema: str) -> set[str]:
    """Names in a database, which is created if it isn't there."""
    try:
        rows = spark.sql(f"SHOW TABLES IN {schema}").collect()
    except AnalysisException as error:
        if error.getCondition() != "SCHEMA_NOT_FOUND":
            raise
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {schema}")
        return set()
    return {r["tableName"] for r in rows}


def _registered(spark: SparkSession, one: _Wanted, there: bool) -> bool:
    """Whether an entry is as it should be, after it was changed if need be."""
    e, path = one.entry, one.target.snapshot
    try:
        if not there:
            if one.exists and by_spark.exists(spark, path, beside=one.target.beside):
                spark.sql(f"CREATE TABLE {e} USING delta LOCATION {literal(path)}")
            return True
        if one.exists and not one.touched:
            return True
        if (other := _location(spark, e)) != path:
            if one.exists:
                log.warning("catalog: %s is a table at %s, not the snapshot %s", e, other, path)
            return not one.exists
        if not one.exists:
            spark.sql(f"DROP TABLE {e}")
    except PySparkException as error:
        log.warning("catalog: %s: %s", e, _line(error))
        return False
    return True


def _location(spark: SparkSession, e: Entry) -> str | None:
    """Where the rows of a table of the catalog are; None: it doesn't say."""
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {e}").where("col_name = 'Location'").collect()
    return rows[-1]["data_type"].removeprefix("file:").rstrip("/") if rows else None


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
