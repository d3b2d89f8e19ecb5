"""Whether row changes of a batch can be the same one told twice, asked of workers: files whose binlog positions reach
into each other's, as those of a topic with several partitions do, mostly share no place. Arrow only.

Spark's answer (order.repeated_here) groups by a place per row: 3.4 µs of CPU a row, and half a gigabyte.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.hashing import mixed
from cdc_platform.formats.contract import EVENT, OPS
from cdc_platform.lake.data_files import Output, Unit, footer, read
from cdc_platform.lake.store import File
from cdc_platform.spark import arrow_tasks
from cdc_platform.spark.cores import cores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Place = tuple[int, int]
"""Binlog file number and position."""

_COLUMNS = pa.schema([EVENT.field(c) for c in ("kind", "op", "file_no", "binlog_pos", "event_no", "row_no")])
_ROWS, _FEW = 1 << 22, 1 << 17
"""Rows of a task (8 bytes each are held), and how many aren't worth more tasks than one."""
_POINTS = 64
"""Places within a span that stand for its rows."""


class Span(NamedTuple):
    """Rows of a file that stand in one binlog file, between two positions."""

    file: File
    low: Place
    high: Place
    rows: int


class Task(NamedTuple):
    """Files with rows from one place (None: the first) up to another, not including it (None: to the last)."""

    files: tuple[File, ...]
    low: Place | None
    high: Place | None


def shared(spark: "SparkSession", files: list[File], notes: list[dict[str, Any]]) -> bool:
    """Whether two row changes of these files may be at one place with one operation; notes: of the files
    (changes/file_stats.py). False is certain, True isn't."""
    unplaced = any(g["file"] is not None and g["low_pos"] is None for note in notes for g in note["groups"])
    found = spans(files, notes)
    if unplaced or any(s.high[1] >= 1 << 63 for s in found):
        return True
    return any(arrow_tasks.run(spark, tasks(found, cores_of(spark)), rows, Twice(), {}).told)


def spans(files: list[File], notes: list[dict[str, Any]]) -> list[Span]:
    """Where row changes that tell their place stand."""
    return [
        Span(file, (g["file"], int(g["low_pos"])), (g["file"], int(g["high_pos"])), g["count"])
        for file, note in zip(files, notes, strict=True)
        for g in note["groups"]
        if g["file"] is not None and g["low_pos"] is not None
    ]


def tasks(found: list[Span], cores: int) -> list[Task]:
    """Ranges of places with about as many rows each: no place is in two. Spans count as evenly filled."""
    total = sum(s.rows for s in found)
    number = 1 if total <= _FEW else cores * -(-total // (cores * _ROWS))
    points = sorted((at, s.rows / _POINTS) for s in found for at in _points(s))
    cuts: list[Place] = []
    before = 0.0
    for at, weight in points:
        if before >= total * (len(cuts) + 1) / number and cuts[-1:] != [at]:
            cuts.append(at)
        before += weight
    ends = zip([None, *cuts], [*cuts, None], strict=True)
    return [Task(_files(found, low, high), low, high) for low, high in ends]


def _points(span: Span) -> list[Place]:
    (no, low), (_, high) = span.low, span.high
    return [(no, low + (high - low) * i // _POINTS) for i in range(_POINTS)]


def _files(found: list[Span], low: Place | None, high: Place | None) -> tuple[File, ...]:
    there = (s.file for s in found if (low is None or s.high >= low) and (high is None or s.low < high))
    return tuple(dict.fromkeys(there))


def rows(task: Task) -> Iterator[pa.RecordBatch]:
    """A task's rows; of its files only row groups with some are read."""
    for file in task.files:
        for unit in _units(file, task):
            for batch in read(unit, _COLUMNS):
                yield batch.filter(_within(batch, task))


def _units(file: File, task: Task) -> Iterator[Unit]:
    metadata = footer(file)
    names = [metadata.schema.column(i).path for i in range(len(metadata.schema))]
    columns = [names.index(n) for n in ("file_no", "binlog_pos")]
    for group in range(metadata.num_row_groups):
        told = metadata.row_group(group)
        statistics = [told.column(i).statistics for i in columns]
        if all(s is not None and s.has_min_max for s in statistics):
            no, pos = statistics
            one = no.min == no.max
            if task.low is not None and (no.max, pos.max if one else task.low[1]) < task.low:
                continue
            if task.high is not None and (no.min, pos.min if one else 0) >= task.high:
                continue
        yield Unit(file, group, group + 1, 0)


def _within(batch: pa.RecordBatch, task: Task) -> pa.BooleanArray:
    """Which are row changes in a task's range; those that tell a file without a position are in each."""
    no, pos = batch.column("file_no"), batch.column("binlog_pos")
    row = pc.and_(pc.equal(batch.column("kind"), "row"), pc.is_valid(no))
    if task.low is not None:
        row = pc.and_(row, pc.fill_null(_from(no, pos, task.low), True))
    if task.high is not None:
        row = pc.and_(row, pc.fill_null(pc.invert(_from(no, pos, task.high)), True))
    return row


def _from(no: pa.Array, pos: pa.Array, place: Place) -> pa.BooleanArray:
    """Which stand there or later."""
    same = pc.and_(pc.equal(no, place[0]), pc.greater_equal(pos, pa.scalar(Decimal(place[1]), pos.type)))
    return pc.or_(pc.greater(no, place[0]), same)


class Twice:
    """The work of a task: whether two of its rows have one place and operation, by a hash of both."""

    def __call__(self, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> bool:
        known, new = np.zeros(0, np.uint64), list[np.ndarray]()
        count = 0
        for batch in batches:
            if batch.column("binlog_pos").null_count:
                return True
            new.append(_hash(batch))
            count += batch.num_rows
            if count >= max(_FEW, len(known)):  # rows of an initial load share one place: not all are to be held
                known, new, count = np.sort(np.concatenate([known, *new])), [], 0
                if _twice(known):
                    return True
        return _twice(np.sort(np.concatenate([known, *new])))


def _twice(ascending: np.ndarray) -> bool:
    return bool((ascending[1:] == ascending[:-1]).any())


def _hash(batch: pa.RecordBatch) -> np.ndarray:
    op = pc.fill_null(pc.index_in(batch.column("op"), pa.array(OPS)), len(OPS))
    columns = [op, *(batch.column(c) for c in ("file_no", "binlog_pos", "event_no", "row_no"))]
    found = np.zeros(batch.num_rows, np.uint64)
    for column in columns:
        found ^= pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)
        mixed(found)
    return found
