"""Changes of the tables that `tables.typed_changes` names, with rows before and after in the table's columns:
`typed_changes/<source>/<db>[/<schema>]/<table>`.

A change gives the same row whatever came before and comes after it, so a batch is added in whatever order it comes;
only other columns of the table make all rows anew (beside.py).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Order
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.apply import typed_changes
from cdc_platform.snapshots.batch_tables import AffectedTable
from cdc_platform.snapshots.beside import Changes, Kind
from cdc_platform.snapshots.schema import shapes
from cdc_platform.spark import delta_sql


def _all(of: Changes, _told_keys: bool = True) -> DataFrame:
    made = shapes.typed_changes(of.source, of.name, of.columns)
    return typed_changes.of_changes(of.rows, of.columns, made, nulls_told=len(of.name) < 3)


def _add(of: Changes, touched: AffectedTable, path: Store) -> bool:
    """Those of a batch that aren't there: it may be one that was interrupted, or older than a table made anew."""
    new, there = _all(of), delta_sql.read(of.rows.sparkSession, path).where(_not_before(touched.low))
    if not there.isEmpty():
        same = F.col("new._cdc_address").eqNullSafe(F.col("there._cdc_address"))
        new = new.alias("new").join(there.select("_cdc_address").alias("there"), same, "left_anti")
    delta_sql.append(new, path)
    return True


def _not_before(low: Order) -> Column:
    """Rows of this place and newer, and some others: told field by field, so that files are passed over by their
    statistics."""
    found: Column = F.lit(True)
    for name, number in [*zip(("epoch", "file", "pos"), low, strict=False)][::-1]:
        field = F.col(f"_cdc_order.{name}")
        bound = F.lit(str(number)).cast("decimal(20,0)") if name == "pos" else F.lit(number).cast("bigint")
        found = (field > bound) | ((field == bound) & found)
    return found


TYPED_CHANGES = Kind("typed_changes", shapes.typed_changes, _all, _add)
