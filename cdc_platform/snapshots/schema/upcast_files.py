"""Rows of a batch from before DDL, written once more as rows of today: files like the changelog's, with the same notes,
so that their tables go the ways of all others. They last as long as the batch."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_platform.changelog.file_stats import TableStatistics
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.config import Config, Source
from cdc_platform.config.tables import Tables
from cdc_platform.lake import delta_table, lease, stores
from cdc_platform.lake.data_files import Output, note_of
from cdc_platform.lake.store import File, Store
from cdc_platform.snapshots.schema.upcast import Lists, Spans, upcast_rows
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import CARRIED, CHANGELOG, Name, name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "rows"
Note = list[dict[str, Any]]
"""What a file tells of its tables (changelog/file_stats.py)."""
Notes = dict[File, Note]


@dataclass(frozen=True, slots=True)
class Carrying:
    """The work of a pass over changelog files: rows of the names in `spans` as rows of today, and the others. columns:
    lists of today's tables, as JSON; stated: of versions."""

    spans: Spans
    columns: Mapping[Name, str]
    stated: Mapping[str, str]
    tables: Tables

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> None:
        touched, lists = TableStatistics(self.tables, self.columns, self.stated), listed(self.columns)
        for batch in batches:
            for rows in upcast_rows(batch, self.spans, lists):
                touched.add(rows)
                out[_ROWS].write(rows)
        out[_ROWS].note = touched.to_json()


def listed(columns: Mapping[Name, str]) -> Lists:
    """Column lists as JSON → the names in them."""
    return {name: [c["name"] for c in json.loads(text)] for name, text in columns.items()}


def upcast_files(
    spark: "SparkSession",
    config: Config,
    source: Source,
    spans: Spans,
    columns: Mapping[Name, str],
    stated: Mapping[str, str],
    files: Mapping[File, list[dict[str, Any]]],
) -> Notes | None:
    """Files that hold a batch's rows as rows of today, with what each notes. columns: lists of today's tables; stated:
    of versions; files: the batch's own, with what they note. None: a file can't note it (a position beyond 64
    bits)."""
    lake = stores.lake(config)
    place, changelog = clear(lake, source), CHANGELOG.at(lake)
    sink = replace(
        delta_table.sink(changelog, source=source.name), table=place, schema=CHANGELOG_FILE, partition=(), stats=()
    )
    concerned = [file for file, note in files.items() if any(name_of(g) in spans for g in note)]
    work = Carrying(spans, columns, stated, source.tables)
    done = arrow_tasks.over(spark, concerned, CHANGELOG_FILE, work, {_ROWS: sink}, whole=False)
    made = [File(place, written.path) for written in done.written[_ROWS]]
    notes: Notes = {file: note for file, note in files.items() if file not in concerned}
    for file in made:
        if (note := note_of(file)) is None:
            return None
        notes[file] = note
    return notes


def clear(lake: Store, source: Source) -> Store:
    """Where a source's carried rows stand; those of batches before are gone."""
    lease.check()  # they may be another run's by now
    place = CARRIED.at(lake, source=source.name)
    place.put("_place", b"")  # tasks look whether they see it
    place.remove(place.below(""))
    return place
