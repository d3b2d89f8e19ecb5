"""Changes of the tables that `tables.typed_changes` names, with rows before and after in the table's columns:
`typed_changes/<source>/<db>[/<schema>]/<table>`.

A change gives the same row whatever came before and comes after it, so a batch is added in whatever order it comes;
only other columns of the table make all rows anew (beside.py).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.lake.store import Store
from cdc_platform.snapshots.apply import typed_changes
from cdc_platform.snapshots.batch_tables import AffectedTable
from cdc_platform.snapshots.beside import Changes, Kind
from cdc_platform.snapshots.schema import shapes
from cdc_platform.snapshots.schema.columns import not_before
from cdc_platform.spark import delta_sql


def _all(of: Changes, _told_keys: bool = True) -> DataFrame:
    made = shapes.typed_changes(of.source, of.name, of.columns)
    return typed_changes.of_changes(of.rows, of.columns, made, nulls_told=len(of.name) < 3)


def _add(of: Changes, touched: AffectedTable, path: Store) -> bool:
    """Those of a batch that aren't there: it may be one that was interrupted, or older than a table made anew."""
    new, there = _all(of), delta_sql.read(of.rows.sparkSession, path).where(not_before("_cdc_order", touched.low))
    if not there.isEmpty():
        same = F.col("new._cdc_address").eqNullSafe(F.col("there._cdc_address"))
        new = new.alias("new").join(there.select("_cdc_address").alias("there"), same, "left_anti")
    delta_sql.append(new, path)
    return True


TYPED_CHANGES = Kind("typed_changes", shapes.typed_changes, _all, _add)
