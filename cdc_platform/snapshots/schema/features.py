"""Delta features of snapshots: column mapping and deletion vectors, enabled when a table first needs one.

A reader must support every reader feature that a table's protocol names, used or not, and polars, pandas and PyArrow
support neither of these two. So a table is created without them. `tables.readers` says what may happen later: `fast`
enables them on demand, `any` rewrites data instead, and takes them away from a table that has them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from cdc_platform.lake import delta_table
from cdc_platform.lake.columns import COLUMN_MAPPING, MAPPING, needs_mapping
from cdc_platform.lake.commits import VECTORS
from cdc_platform.lake.looks import Look
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta

DELETION_VECTORS = "deletionVectors"
"""Its name in a table's protocol."""
_MAPPED = {MAPPING: "name", "delta.feature.timestampNtz": "supported"}
"""Enables column mapping, as lake.columns.Columns.map does."""
SMALL = 1 << 18
"""Bytes of a snapshot up to which its files are rewritten: less work than to mark rows in them, a third of its time
(1.5 instead of 2.3 s). Not more: what is rewritten is kept until VACUUM."""


class Features(NamedTuple):
    """What a table's protocol and properties say. mapping, vectors: the protocol has the feature; mapped, marks: it is
    enabled. bytes: of all data files."""

    mapping: bool
    vectors: bool
    mapped: bool
    marks: bool
    bytes: int

    @staticmethod
    def of(path: Store) -> "Features":
        """Of a table that is there."""
        return _features(*delta_table.protocol(path))

    @staticmethod
    def seen(look: Look) -> "Features":
        """Of a table that was looked at, and whose data files its log tells."""
        return _features(set(look.features), look.properties, look.bytes or 0)


def _features(named: set[str], properties: Mapping[str, str], size: int) -> Features:
    mapped = properties.get(MAPPING, "none") != "none"
    return Features(COLUMN_MAPPING in named, DELETION_VECTORS in named, mapped, properties.get(VECTORS) == "true", size)


def at_creation(names: Iterable[str]) -> dict[str, str]:
    """Properties that a new table with these columns needs."""
    return dict(_MAPPED) if needs_mapping(names) else {}


def allow_names(spark: SparkSession, path: Store, names: Iterable[str]) -> None:
    """Enables column mapping where one of these names needs it. The columns of files that are there keep their names
    (Delta's protocol, "Column Mapping"): nothing is rewritten."""
    if needs_mapping(names) and not Features.of(path).mapped:
        _set(spark, path, **_MAPPED)


def mark_rows(spark: SparkSession, path: Store) -> None:
    """Enables deletion vectors."""
    _set(spark, path, **{VECTORS: "true"})


def _set(spark: SparkSession, path: Store, **properties: str) -> None:
    told = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(f"ALTER TABLE {delta(path)} SET TBLPROPERTIES ({told})")


def remove(spark: SparkSession, path: Store) -> bool:
    """Takes both features out of a table that has them; its rows stay, and readers see all of them all the time. Column
    mapping stays where a name needs it. May be repeated after an interruption. Returns whether anything was done."""
    now = Features.of(path)
    if not (now.mapping or now.vectors):
        return False
    mapping = now.mapping and not (now.mapped and needs_mapping(delta_sql.read(spark, path).columns))
    if now.vectors:
        # DROP FEATURE does so too, but only once they are disabled: some readers then don't look for any.
        spark.sql(f"REORG TABLE {delta(path)} APPLY (PURGE)")
        spark.sql(f"ALTER TABLE {delta(path)} DROP FEATURE {DELETION_VECTORS}")
    if mapping:
        if now.mapped:
            _set(spark, path, **{MAPPING: "none"})  # rewrites the files under the columns' own names, in one commit
        spark.sql(f"ALTER TABLE {delta(path)} DROP FEATURE {COLUMN_MAPPING}")
    return now.vectors or mapping
