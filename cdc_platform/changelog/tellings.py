"""Messages that were decoded again: which telling of each counts. It is the newest; those before were taken back."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.order_key import those
from cdc_platform.changelog.packed import Packed
from cdc_platform.changelog.write import decoded_again
from cdc_platform.changes import files as changes_files
from cdc_platform.changes.files import CHANGE
from cdc_platform.errors import LakeChanged
from cdc_platform.lake import delta_table, log_files
from cdc_platform.lake.data_files import Output, Sink, Unit, Written, read
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import MESSAGE_AT

_TELLING = pa.field("telling", pa.int64())
"""The number of the commit that brought an event, if it was decoded again."""
_AGAIN = pa.schema([*(CHANGE.field(c) for c in MESSAGE_AT), _TELLING])
_READ = pa.schema([*(CHANGE.field(c) for c in (*MESSAGE_AT, "retold"))])


@dataclass(frozen=True, slots=True)
class Tellings:
    """Of files of `changes`. numbers: file → which commit brought it, of those with events that were decoded again;
    newest: messages that were, with the newest `telling` of each."""

    numbers: Mapping[str, int]
    newest: Packed

    @classmethod
    def of(
        cls, spark: SparkSession, changes: Store, files: list[File], notes: list[Any], version: int | None
    ) -> "Tellings":
        """Of all files of a version of `changes` (None: the newest). notes: of each. Raises LakeChanged."""
        again = decoded_again(files, notes)
        by_file = numbers(changes, {file.path for file in again}, version)
        if not again:
            return cls(by_file, Packed({}))
        reader = partial(_read, by_file, schema=_READ)
        told = arrow_tasks.frame(spark, again, _READ, _redecoded, arrow_tasks.spark_schema(_AGAIN), reader=reader)
        newest = told.groupBy(*MESSAGE_AT).agg(F.max(_TELLING.name).alias(_TELLING.name))
        return cls(by_file, Packed.of(newest))

    def read(self, unit: Unit, schema: pa.Schema = CHANGE) -> Iterator[pa.RecordBatch]:
        """Events of a unit as `counting` takes them."""
        return _read(self.numbers, unit, schema)

    def counting(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Those that weren't taken back. A file of a replay that an earlier version put in place has a first telling
        beside a later one."""
        if not self.newest.parts:
            return events
        newest = pc.and_(self.newest.among(events, _TELLING.name), pc.fill_null(events.column("retold"), False))
        return those(events, pc.or_(newest, pc.invert(self.newest.among(events))))


def newest_decodings(spark: SparkSession, changes: Store, sink: Sink) -> list[Written]:
    """Writes each message of `changes` as it was told last, as its first telling. To be put in place with one commit,
    which could tell two tellings of a message apart no more."""
    files = [File(changes, name) for name in delta_table.files(changes)]
    tellings = Tellings.of(spark, changes, files, changes_files.statistics_of(spark, files), None)
    sinks = {changes_files.EVENTS: sink}
    done = arrow_tasks.over(spark, files, CHANGE, partial(_once, tellings), sinks, whole=True, reader=tellings.read)
    return done.written[changes_files.EVENTS]


def _once(tellings: Tellings, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> None:
    changes_files.write((_as_first(tellings.counting(events)) for events in batches), out)


def _as_first(events: pa.RecordBatch) -> pa.RecordBatch:
    columns = (pa.nulls(events.num_rows, f.type) if f.name == "retold" else events.column(f.name) for f in CHANGE)
    return pa.RecordBatch.from_arrays(list(columns), schema=CHANGE)


def _read(numbers: Mapping[str, int], unit: Unit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    number = pa.scalar(numbers.get(unit.file.path), _TELLING.type)
    for events in read(unit, schema):
        yield events.append_column(_TELLING, pa.repeat(number, events.num_rows))


def _redecoded(events: pa.RecordBatch) -> pa.RecordBatch:
    return those(events, pc.fill_null(events.column("retold"), False)).select(_AGAIN.names)


def numbers(changes: Store, wanted: set[str], version: int | None) -> dict[str, int]:
    """Which commit brought each of these files: the newer of two has the newer telling of a message. One that put files
    in place of others brought nothing where it was an erasure: the log names them in the commits that brought those,
    too. Where it was a replay's files, nothing else names them: then the oldest that does counts. Raises LakeChanged
    where the log doesn't go back to it."""
    if len(wanted) < 2:
        return dict.fromkeys(wanted, 0)
    found: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for at in range(delta_table.version(changes) if version is None else version, -1, -1):
        try:
            actions = list(log_files.actions(changes, at))
        except FileNotFoundError:
            raise LakeChanged(changes.uri(), f"commit {at} is gone from its log") from None
        added = wanted & {unquote(action["add"]["path"]) for action in actions if "add" in action}
        oldest.update(dict.fromkeys(added, at))
        if not any("remove" in action for action in actions):
            found.update(dict.fromkeys(added, at))
        if len(found) == len(wanted):
            break
    return {**oldest, **found}
