"""Data files of CHANGES: how they are written, with statistics of their events in the footer, and what these are."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.changes.file_stats import Summary
from cdc_platform.formats.contract import EVENT
from cdc_platform.lake import commits
from cdc_platform.lake.data_files import Output, Sink, note_of, read, units
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import CHANGES

WORDS = (
    *("topic", "partition", "kind", "reason", "db", "schema", "table", "op", "schema_version", "columns", "lineage"),
    *("binlog_file", "gtid", "txn_id", "source_time", "landed_at", "file_no", "entry_index", "row_index", "row_no"),
    *(f"{image}.key_value.key" for image in ("key", "before", "after", "info")),
)
"""Leaf columns of events whose values repeat."""


def events_sink(changes: Store, schema: pa.Schema = EVENT) -> Sink:
    """Where files of events go."""
    return Sink(changes, schema, CHANGES.stats, WORDS)


EVENTS = "events"
CHANGE = CHANGES.arrow()
"""Rows of CHANGES."""


def _summarised(batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> dict[str, Any]:
    summary = Summary()
    for batch in batches:
        summary.add(batch)
    return summary.to_json()


def statistics_of(spark: SparkSession, files: list[File]) -> list[dict[str, Any]]:
    """Statistics of each file of CHANGES (changes/file_stats.py): from its footer; of files of earlier versions that
    have none, by tasks that read them."""
    found = {file: note_of(file) for file in files}
    without = [file for file, statistics in found.items() if statistics is None]
    done = arrow_tasks.run(spark, without, _rows_of, _summarised, {})
    return list({**found, **dict(zip(without, done.told, strict=True))}.values())


def _rows_of(file: File) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(read(unit, CHANGE) for unit in units([file], whole=True))


def append(events: DataFrame, changes: Store) -> None:
    """Append rows of CHANGES, whatever made them, with one commit."""
    sink = events_sink(changes, CHANGE)
    done = arrow_tasks.partitions(events, partial(arrow_tasks.conformed_to, CHANGE), write, {EVENTS: sink})
    commits.append_files(sink, done.written[EVENTS])


def write(batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> None:
    """Work that writes rows of CHANGES to the output EVENTS, with what its file notes of them."""
    summary = Summary()
    for batch in batches:
        summary.add(batch)
        out[EVENTS].write(batch)
    out[EVENTS].note = summary.to_json()
