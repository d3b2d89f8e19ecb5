"""Rows of a snapshot that changes took the place of: found by their keys, and taken out, by workers. Of large tables
they are marked in deletion vectors, of small ones the files are written anew without them.

MERGE reads a table's keys three times, and for rows that it doesn't find there once more in a shuffle of the whole
table: 12 s of CPU for 10,000,000 rows. Here their keys are read once.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from cdc_platform.lake import commits, deletion_vectors
from cdc_platform.lake.commits import Live, Marked
from cdc_platform.lake.data_files import Output, Sink, Unit, Written, footer, read
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks
from cdc_platform.spark.cores import cores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS, _ROWS = 1 << 18, 1 << 18
"""Keys looked for at once; rows of a snapshot looked through at once."""
_TRIES = 3


class Keys(NamedTuple):
    """Keys that changes brought. files: with, each, the names of their key columns there. schema: of the key columns as
    the snapshot's files have them."""

    files: tuple[tuple[File, tuple[str, ...]], ...]
    schema: pa.Schema

    def some(self) -> Iterator[pa.Table]:
        """All of them, not too many at once."""
        held: list[pa.RecordBatch] = []
        for file, names in self.files:
            there = pa.schema([f.with_name(n) for f, n in zip(self.schema, names, strict=True)])
            for batch in read(Unit(file, 0, footer(file).num_row_groups, 0), there, most=_ROWS):
                held.append(batch.rename_columns(self.schema.names))
                if sum(h.num_rows for h in held) >= _KEYS:
                    yield pa.Table.from_batches(held)
                    held = []
        if held:
            yield pa.Table.from_batches(held)


class Held(NamedTuple):
    """Few keys, in memory, as the snapshot's files have them. by: the column (dotted where nested) that tells most of
    them apart."""

    keys: pa.Table
    by: str

    @property
    def schema(self) -> pa.Schema:
        """Of the columns of files that hold them."""
        return self.keys.schema

    def some(self) -> Iterator[pa.Table]:
        """All of them, the fields of structs as columns."""
        for batch in self.keys.combine_chunks().to_batches():
            flat = _flat(batch)
            yield pa.Table.from_batches([flat]).select([self.by, *(n for n in flat.schema.names if n != self.by)])


class DataFile(NamedTuple):
    """A data file of a snapshot, by its number among those of its log; rows: counted and not. vector: of those that
    don't count already."""

    number: int
    file: File
    rows: int
    bytes: int
    vector: deletion_vectors.Descriptor | None


def rows_of(keys: "Keys | Held", files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    """Where rows with one of the keys stand: number of the file, numbers of rows."""
    for some in keys.some():
        column = some.column(0).combine_chunks()
        for file in files:
            for at in _of_file(file.file, keys.schema, some, column):
                numbers = pa.array(np.full(len(at), file.number, np.int64))
                yield pa.RecordBatch.from_arrays([numbers, pa.array(at)], ["file", "at"])


def _flat(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The fields of structs as columns, `struct.field`, with -1 for a number that isn't there: NULL would be unlike
    itself."""
    columns: dict[str, pa.Array] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not pa.types.is_struct(field.type):
            columns[field.name] = column
            continue
        for inner, part in zip(field.type, column.flatten(), strict=True):
            number = pa.types.is_integer(inner.type)
            columns[f"{field.name}.{inner.name}"] = pc.fill_null(part, -1) if number else part
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _of_file(path: File, stored: pa.Schema, keys: pa.Table, first: pa.Array) -> Iterator[np.ndarray]:
    span = _Span.of(first)
    base = 0
    metadata = footer(path)
    for group in range(metadata.num_row_groups):
        told = metadata.row_group(group)
        if span.may_meet(told, keys.schema.names[0]):
            at = base
            for batch in read(Unit(path, group, group + 1, 0), stored, most=_ROWS):
                if len(found := _matches(_flat(batch), keys)):
                    yield found + at
                at += batch.num_rows
        base += told.num_rows


def _matches(batch: pa.RecordBatch, keys: pa.Table) -> np.ndarray:
    """Numbers of a batch's rows whose key is one of these."""
    names = keys.schema.names
    either = pc.is_in(batch.column(names[0]), keys.column(0), skip_nulls=True)
    for name in names[1:]:
        either = pc.and_(either, pc.is_in(batch.column(name), keys.column(name), skip_nulls=True))
    at = np.nonzero(either.to_numpy(zero_copy_only=False))[0]
    if len(names) == 1 or not len(at):
        return at
    place = "".join(names) + "#"  # another name than theirs
    rows = pa.Table.from_batches([batch.filter(either)]).append_column(place, pa.array(at))
    return rows.join(keys, names, join_type="left semi", use_threads=False).column(place).to_numpy()


@dataclass(frozen=True, slots=True)
class _Span:
    """Values of a key column, to tell which row groups may hold one: all, where they are whole numbers; else the lowest
    and the highest."""

    low: Any
    high: Any
    numbers: np.ndarray | None

    @staticmethod
    def of(column: pa.Array) -> "_Span":
        if not pa.types.is_integer(column.type) and not pa.types.is_string(column.type):
            return _Span(None, None, None)
        numbers = np.sort(column.to_numpy()) if pa.types.is_integer(column.type) else None
        ends = pc.min_max(column)
        return _Span(ends["min"].as_py(), ends["max"].as_py(), numbers)

    def may_meet(self, group: pq.RowGroupMetaData, name: str) -> bool:
        columns = (group.column(i) for i in range(group.num_columns))
        known = next((c.statistics for c in columns if c.path_in_schema == name), None)
        if self.low is None or known is None or not known.has_min_max or not isinstance(known.min, type(self.low)):
            return True
        if self.numbers is None:
            return self.low <= known.max and known.min <= self.high
        at = np.searchsorted(self.numbers, known.min)
        return at < len(self.numbers) and bool(self.numbers[at] <= known.max)


def numbers_of(batches: Iterable[pa.RecordBatch]) -> dict[int, BitMap64]:
    """What rows_of gives, by file."""
    found: dict[int, BitMap64] = {}
    for batch in batches:
        rows = BitMap64(batch.column("at").to_numpy().astype(np.uint64))
        found.setdefault(batch.column("file")[0].as_py(), BitMap64()).update(rows)
    return found


def gone_of(
    table: Store,
    files: tuple[DataFile, ...],
    batches: Iterable[pa.RecordBatch],
    always: Container[int] = frozenset(),
) -> Iterator[tuple[DataFile, BitMap64, int]]:
    """What rows_of gives → files with rows that counted before, and those with the numbers `always`: all rows that
    don't count any more, and how many of them are new."""
    found = numbers_of(batches)
    for file in files:
        if file.number in found or file.number in always:
            before = deletion_vectors.read(table, file.vector)
            gone = found.get(file.number, BitMap64()) | before
            if (added := len(gone) - len(before)) or file.number in always:
                yield file, gone, added


@dataclass(frozen=True, slots=True)
class Mark:
    """The work of a task: rows of some data files as rows_of gives them → vectors of these and of those that didn't
    count before. Tells of each file that has new ones its number, the vector (None: none of its rows counts) and how
    many are new."""

    table: Store
    files: tuple[DataFile, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> list[list[Any]]:
        with deletion_vectors.Vectors(self.table) as new:
            return [
                [file.number, None if len(gone) == file.rows else new.add(gone), added]
                for file, gone, added in gone_of(self.table, self.files, batches)
            ]


@dataclass(frozen=True, slots=True)
class Keep:
    """The same without vectors: of files that have such rows the others are written anew."""

    table: Store
    files: tuple[DataFile, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> list[list[Any]]:
        told = []
        for file, gone, added in gone_of(self.table, self.files, batches):
            self.write(file, gone, out[KEPT])
            told.append([file.number, None, added])
        return told

    @staticmethod
    def write(file: DataFile, gone: BitMap64, out: Output) -> None:
        """Rows of a file but those that are gone."""
        at = 0
        for batch in read(Unit(file.file, 0, footer(file.file).num_row_groups, 0), out.sink.schema):
            stays = np.ones(batch.num_rows, bool)
            here = gone & BitMap64(range(at, at + batch.num_rows))
            stays[np.fromiter(here, np.int64, len(here)) - at] = False
            out.write(batch.filter(pa.array(stays)))
            at += batch.num_rows


KEPT = "kept"
"""The output of `Keep`."""


def replace(
    spark: "SparkSession",
    sink: Sink,
    before: Live,
    keys: Keys,
    ends: tuple[Any, Any],
    written: list[Written],
    *,
    mark: bool,
    enable: Callable[[], None] | None = None,
) -> bool:
    """Takes the rows with these keys out of a table and names files in its log that hold others in their place, in one
    commit. before: how it was. ends: lowest and highest first key, as the log's statistics tell them (None: not known).
    mark: in vectors; enable: lets the table have its first ones, called if there are any. False: nothing was done, for
    others wrote all the time."""
    now: Live | None = before
    for _ in range(_TRIES):
        if now is None:
            return False
        files = files_of(sink.table, now, keys.schema.names[0], ends)
        tasks = arrow_tasks.shared_out(files, cores_of(spark), bounded=False)
        work = Mark(sink.table, tuple(files)) if mark else Keep(sink.table, tuple(files))
        done = arrow_tasks.run(spark, tasks, partial(rows_of, keys), work, {} if mark else {KEPT: sink})
        found = [one for told in done.told for one in told]
        new = [*written, *done.written.get(KEPT, ())]
        told = history(sum(f.rows for f in written), sum(n for _, _, n in found), len(new))
        if enable is not None and any(vector is not None for _, vector, _ in found):
            enable()
            enable, before, now = None, now, commits.live(sink.table)
            if now is None or now.adds != before.adds:
                continue
        marked = [Marked(now.adds[number], vector) for number, vector, _ in found]
        if commits.commit(sink.table, now, new, marked, told):
            return True
        now = commits.live(sink.table)
    return False


def history(rows: int, gone: int, files: int) -> dict[str, Any]:
    """What a table's history says of a batch: rows that came, rows that went, files."""
    told = {"numOutputRows": rows, "numTargetRowsReplacedOrDeleted": gone, "numTargetFilesAdded": files}
    return {
        "operation": "MERGE",
        "operationParameters": {},
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {name: str(n) for name, n in told.items()},
        "engineInfo": "cdc-platform",
    }


def files_of(table: Store, now: Live, key: str, ends: tuple[Any, Any]) -> list[DataFile]:
    """Those that may hold one of the keys. key: the first column of it in files, dotted where nested."""
    files = []
    for number, add in enumerate(now.adds):
        told = json.loads(add["stats"])
        if _may_meet(told, key, ends):
            path, vector = File(table, unquote(add["path"])), add.get("deletionVector")
            files.append(DataFile(number, path, told["numRecords"], add["size"], vector))
    return files


def _may_meet(told: dict[str, Any], name: str, ends: tuple[Any, Any]) -> bool:
    low, high = (_stated(told.get(which), name.split(".")) for which in ("minValues", "maxValues"))
    if None in ends or not isinstance(low, type(ends[0])) or not isinstance(high, type(ends[1])):
        return True
    return bool(low <= ends[1] and ends[0] <= high)


def _stated(told: Any, path: Sequence[str]) -> Any:
    return reduce(lambda part, name: part.get(name) if isinstance(part, dict) else None, path, told)
