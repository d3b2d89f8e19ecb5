"""Rows of changelog files as tables take them: those from before DDL as rows of today, and which tables' changes are
plain."""

from collections.abc import Mapping
from contextlib import suppress

from pyspark.sql import SparkSession

from cdc_platform.changelog.schema import Upcast
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import stores
from cdc_platform.lake.data_files import note_of
from cdc_platform.lake.store import File, Store
from cdc_platform.snapshots.batch_tables import AffectedTable, affected_by, affected_of
from cdc_platform.snapshots.reduce.full_images import FullImages, survey
from cdc_platform.snapshots.schema import upcast
from cdc_platform.snapshots.schema.columns import columns_of
from cdc_platform.snapshots.schema.history import Plan
from cdc_platform.snapshots.schema.upcast_files import Note, Notes, listed, upcast_files
from cdc_platform.snapshots.table_batch import column_lists
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import Rows
from cdc_platform.tables import CHANGELOG, Name


def rows(spark: SparkSession, path: Store, files: list[File], source: Source) -> Rows:
    """Rows of some of the changelog's files."""
    return Rows(spark, lambda: delta_sql.rows_of(spark, path, files, source=source.name))


def note(file: File) -> Note | None:
    """What a changelog file notes of its tables. None: nothing, or as earlier versions did, which left out schemas."""
    told = note_of(file)
    return told if told is not None and all("schema" in group for group in told) else None


def as_today(
    batch: Rows,
    config: Config,
    source: Source,
    plan: Plan,
    spans: dict[Name, list[Upcast]],
    touched: list[AffectedTable],
    files: Mapping[File, Note | None],
) -> tuple[Rows, list[AffectedTable], Mapping[File, Note | None], set[Name]]:
    """A batch with the rows from before DDL as rows of today: its rows, tables and files; and tables of which the files
    note nothing true."""
    if not spans:
        return batch, touched, files, set()
    columns = {n: text for n, text in plan.columns.items() if text}
    stated = column_lists(config, source, touched)
    spark = batch.spark
    noted: Notes = {file: told for file, told in files.items() if told is not None}
    if len(noted) == len(files) and (notes := upcast_files(spark, config, source, spans, columns, stated, noted)):
        today = rows(spark, CHANGELOG.at(stores.lake(config)), list(notes), source)
        return today, affected_of(list(notes.values())), notes, set()
    carried = upcast.upcast(batch.df, spans, listed(columns))
    apart = {*spans, *(c.today for of in spans.values() for c in of if c.today)}
    return Rows.of(carried), affected_by(carried), files, apart


def full_image_tables(
    spark: SparkSession,
    source: Source,
    files: Mapping[File, Note | None],
    touched: list[AffectedTable],
    told: Mapping[Name, str | None],
) -> dict[Name, FullImages]:
    """Those of some tables whose changes in these files are plain. told: their column lists."""
    columns = {}
    for t in touched:
        if text := told.get(t.name):
            with suppress(TableStopped):  # it will be told when the table's turn comes
                mine = columns_of(source, t.name, text)
                if t.told_keys or not any(c.key for c in mine):
                    columns[t.name] = mine
    return survey(spark, files, columns)
