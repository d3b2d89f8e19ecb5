"""Versions of rows of the tables that `tables.history` names: `history/<source>/<db>[/<schema>]/<table>`.

A batch adds to a history where its changes are newer than all that the history has of their rows: of the key, or of
rows of their content where the table has none. An older change and a TRUNCATE make it anew (beside.py). So does a
change that is older than a delete which came before: a delete of a row that was never seen leaves no version, only the
snapshot's tombstone.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.errors import TableStopped
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.apply import keyless, tombstones
from cdc_platform.snapshots.apply import versions as written
from cdc_platform.snapshots.batch_tables import AffectedTable
from cdc_platform.snapshots.beside import Changes, Kind
from cdc_platform.snapshots.reduce import row_events, versions
from cdc_platform.snapshots.reduce.fold import key_names, profile
from cdc_platform.snapshots.schema import shapes
from cdc_platform.snapshots.schema.columns import not_before
from cdc_platform.spark import delta_sql


def _all(of: Changes, told_keys: bool) -> DataFrame:
    """Raises TableStopped."""
    if own := {c.name.lower() for c in of.columns} & set(versions.VERSION):
        raise TableStopped(of.source, of.name, f"its column {min(own)!r} has the name of a history's own")
    if not of.keyed:
        return versions.of_rows(of.rows, of.columns)
    return versions.of_keys(of.rows, of.columns, profile(of.rows, of.columns, told_keys=told_keys))


def _add(of: Changes, touched: AffectedTable, path: Store) -> bool:
    return _add_keyed(of, touched, path) if of.keyed else _add_keyless(of, touched, path)


def _add_keyed(of: Changes, touched: AffectedTable, path: Store) -> bool:
    columns = of.columns
    figures = profile(of.rows, columns, told_keys=touched.told_keys)
    if figures.truncated_at is not None or figures.lost_moves or figures.no_key:
        return False
    keys = key_names(columns)
    new = versions.typed_steps(of.rows, columns, figures).localCheckpoint()
    there = written.known(of.rows.sparkSession, path, columns)
    if not _older(new, there, keys).isEmpty() or tombstones.unlike(new, of.target, columns, figures):
        return False
    last = there.where("_cdc_order_to IS NULL").join(new.select(*keys).distinct(), keys, "left_semi")
    written.going_on(versions.going_on(new, last, columns), path, columns)
    return True


def _add_keyless(of: Changes, touched: AffectedTable, path: Store) -> bool:
    columns, low = of.columns, touched.low
    op = F.col("op")
    asked = F.bool_or(op == "truncate").alias("truncates"), F.bool_or(op.isin("update", "delete")).alias("deletes")
    [figures] = of.rows.agg(*asked).collect()
    if figures["truncates"]:
        return False
    new = row_events.of_changes(of.rows, columns).localCheckpoint()
    there = row_events.of_table(delta_sql.read(of.rows.sparkSession, path), columns)
    recent = there.where(not_before("_cdc_order", low) | not_before("_cdc_order_to", low))
    if not _older(new, recent, ["content"]).isEmpty() or keyless.unlike(new, of.target, low):
        return False
    if not figures["deletes"]:
        delta_sql.append(versions.rows_going_on(new, there.limit(0), columns), path)
        return True
    gone = new.where("sign < 0").select("content").distinct()
    last = there.where("_cdc_order_to IS NULL").join(gone, "content", "left_semi").localCheckpoint()
    same = last.groupBy("_cdc_order", *(f"_v{i}" for i, _ in enumerate(columns)))  # by which they are found again
    if not same.count().where("count > 1").isEmpty():
        return False  # nothing tells which of them goes
    written.going_on(versions.rows_going_on(new, last, columns), path, columns)
    return True


def _older(new: DataFrame, there: DataFrame, keys: list[str]) -> DataFrame:
    """Versions that aren't older than all new changes of their row."""
    first = new.groupBy(*keys).agg(F.min("order_key").alias("_first"))
    last = there.select(*keys, F.coalesce("_cdc_order_to", "_cdc_order").alias("_last"))
    return last.join(first, keys).where("_last >= _first")


HISTORIES = Kind("history", shapes.history, _all, _add, form=1)
