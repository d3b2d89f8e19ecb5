"""A snapshot and its tombstones made anew beside those that readers see, and put in their place when all rows are
there: what fails or is killed before leaves them as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from cdc_platform.lake import delta_table, handles, new_tables, takeover
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.schema import features, shapes
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import KEY


def beside(target: Target) -> Target:
    """A place for a table that is made anew."""
    snapshot, tombstones = takeover.beside(target.snapshot), takeover.beside(target.tombstones)
    return replace(target, snapshot=snapshot, tombstones=tombstones, instead_of=target)


@contextmanager
def discarded_on_failure(*places: Target) -> Iterator[None]:
    """What fails in here leaves nothing in them."""
    try:
        yield
    except BaseException:
        discard(*places)
        raise


def discard(*places: Target) -> None:
    """Removes tables that aren't put in place."""
    for of in (store for place in places for store in (place.snapshot, place.tombstones)):
        takeover.discard(of)


def make(place: Target, columns: list[TableColumn]) -> bool:
    """Makes the tables as those are whose place they will take, with today's columns and no rows. False: the snapshot
    has what isn't kept to here, or isn't there."""
    if (there := place.instead_of) is None:
        return False
    stones = shapes.tombstones(columns)
    if delta_table.exists(there.tombstones) and not takeover.like(place.tombstones, there.tombstones, stones):
        new_tables.create(place.tombstones, stones)
    return takeover.like(place.snapshot, there.snapshot, shapes.snapshot(place.source, place.name, columns))


def swap_in(spark: SparkSession, place: Target) -> None:
    """Two commits, the snapshot's first: whoever calls this notes before that the table is to be made anew, and after
    it that it was."""
    if (target := place.instead_of) is None:
        raise AssertionError(place)
    _put(spark, target.snapshot, place.snapshot)
    if target.for_any:
        features.remove(spark, target.snapshot)
    if delta_table.exists(place.tombstones):  # where there were some, there are: `make`
        _put(spark, target.tombstones, place.tombstones)


def _put(spark: SparkSession, path: Store, of: Store) -> None:
    if not takeover.take_over(path, of):
        rows = delta_sql.read(spark, of)
        features.allow_names(spark, path, rows.columns)
        delta_sql.overwrite(rows, path)
        delta_sql.configure(spark, path, {KEY: handles.head(of).metadata["configuration"].get(KEY)})
        takeover.discard(of)
