"""Parquet files of Delta tables, read and written as Arrow batches by Spark's Python workers. No Spark here.

A change with its images cost Spark 17 µs of CPU on its way from `changes` to the changelog, as Arrow it costs 4. So
what is Arrow already is written as it is.
"""

import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_platform.errors import LakeNotShared
from cdc_platform.lake.store import File, NewFile, Store, writing

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 1 << 14
_ROW_GROUP_BYTES = 16 << 20
"""Of Arrow's memory: what a writer holds before it writes."""
_CALENDAR = {"org.apache.spark.version": "4.0.0"}
"""Without it Spark 3 refuses to read dates before 1582: they might be of the calendar of Spark 2 (Spark's
DataSourceUtils.scala, datetimeRebaseSpec)."""
_NOTE = b"cdc"
"""Key of the footer under which a file says what its writer noted of its rows."""


class Unit(NamedTuple):
    """A file, or some of its row groups: `first` up to (not including) `end`. bytes: before compression."""

    file: File
    first: int
    end: int
    bytes: int


def footer(file: File) -> pq.FileMetaData:
    """A file's metadata."""
    with file.open() as opened:
        return pq.read_metadata(opened)


def units(files: list[File], *, whole: bool) -> list[Unit]:
    """Files as units of work; not whole: each row group may be one of its own."""
    found = []
    for file in files:
        metadata = footer(file)
        sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
        if whole:
            found.append(Unit(file, 0, len(sizes), sum(sizes)))
        else:
            found += [Unit(file, i, i + 1, size) for i, size in enumerate(sizes)]
    return found


def read(unit: Unit, schema: pa.Schema, *, most: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Rows with exactly these columns and types; columns that the file lacks are NULL. At most 8 MB a batch, or one
    row that is larger. most: rows of a batch."""
    with unit.file.open() as opened, _reader(opened, ranges=unit.file.store.remote) as file:
        there = set(file.schema_arrow.names)
        columns = [n for n in schema.names if n in there]
        for group in range(unit.first, unit.end):
            told = file.metadata.row_group(group)
            if not told.num_rows:
                continue
            wanted = set(columns)
            chunks = (told.column(i) for i in range(told.num_columns))
            size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".", 1)[0] in wanted)
            rows = max(1, min(most, _BATCH_BYTES * told.num_rows // max(size, 1)))
            for batch in file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                yield from _bounded(conformed(batch, schema))


def _reader(opened: pa.NativeFile, *, ranges: bool) -> pq.ParquetFile:
    """ranges: what a row group's columns need is read at once."""
    return pq.ParquetFile(opened, buffer_size=1 << 20, pre_buffer=ranges, coerce_int96_timestamp_unit="us")


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with exactly these columns and types."""
    there = set(batch.schema.names)

    def column(wanted: pa.Field) -> pa.Array:
        if wanted.name not in there:
            return pa.nulls(batch.num_rows, wanted.type)
        found = batch.column(wanted.name)
        return found if found.type == wanted.type else found.cast(wanted.type)

    return pa.RecordBatch.from_arrays([column(f) for f in schema], schema=schema)


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Sizes differ within a row group: one that is as large as a thousand others stands in a smaller batch."""
    if batch.num_rows <= 1 or batch.nbytes <= 2 * _BATCH_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _bounded(batch.slice(0, middle))
    yield from _bounded(batch.slice(middle))


@dataclass(frozen=True, slots=True)
class Sink:
    """A Delta table that files are written for. schema: of its files, which lack partition columns. partition: of all
    rows. stats: columns (dotted where nested) whose lowest and highest values its log tells. words: columns whose
    values repeat, which a dictionary spares."""

    table: Store
    schema: pa.Schema
    stats: tuple[str, ...]
    words: tuple[str, ...]
    partition: tuple[tuple[str, str], ...] = ()


class Written(NamedTuple):
    """A data file that no commit names yet. path: relative to its table, stats: as Delta's log has them."""

    path: str
    size: int
    rows: int
    stats: str


@dataclass(slots=True)
class Output:
    """Rows on their way into one file of a sink; there is none without rows. note: what its footer is to tell."""

    sink: Sink
    note: Any = None
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    _path: str = ""
    _file: NewFile | None = None
    _writer: pq.ParquetWriter | None = None
    _metadata: list[Any] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        """Rows of the sink's schema."""
        if batch.num_rows:
            self._held.append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self.flush()

    @property
    def held(self) -> int:
        """Bytes of rows that aren't written yet."""
        return self._bytes

    def flush(self) -> None:
        """Writes what is held."""
        if not self._held:
            return
        if self._writer is None:
            folder = "/".join(f"{name}={value}" for name, value in self.sink.partition)
            self._path = f"{folder}/part-{uuid.uuid4()}.zstd.parquet".lstrip("/")
            if not self.sink.table.is_here():  # the driver has made the table
                raise LakeNotShared(self.sink.table.uri())
            self._file = self.sink.table.open_output(self._path)
            columns: dict[str, Any] = {  # lists of columns are taken, but not in the signature
                "use_dictionary": list(self.sink.words),
                "write_statistics": list(self.sink.stats),
            }
            with writing(self.sink.table.uri(self._path)):
                self._writer = pq.ParquetWriter(
                    self._file.file,
                    self.sink.schema,
                    compression="zstd",
                    compression_level=1,
                    write_batch_size=1 << 16,  # rows encoded at once: with the default of 1024 a tenth slower
                    store_schema=False,
                    store_decimal_as_integer=True,
                    metadata_collector=self._metadata,
                    **columns,
                )
        held, self._held, self._bytes = self._held, [], 0
        with writing(self.sink.table.uri(self._path)):
            self._writer.write_table(pa.Table.from_batches(held, self.sink.schema))

    def close(self, *, empty: bool = False) -> Written | None:
        """The file, if there were rows, or one without any is wanted (`empty`)."""
        if empty and self._writer is None and not self._held:
            self._held.append(pa.RecordBatch.from_pylist([], self.sink.schema))
        self.flush()
        if self._writer is None or self._file is None:
            return None
        self._writer.add_key_value_metadata(_CALENDAR)
        if self.note is not None:
            self._writer.add_key_value_metadata({_NOTE.decode(): json.dumps(self.note)})
        with writing(self.sink.table.uri(self._path)):
            self._writer.close()
        size = self._file.close()
        [metadata] = self._metadata
        return Written(self._path, size, metadata.num_rows, statistics(metadata, self.sink.stats))

    def discard(self) -> None:
        """Leaves nothing behind of a file that isn't wanted after all."""
        self._held, self._bytes = [], 0
        if self._writer is not None:
            with suppress(OSError, RuntimeError):  # of a full disk; of a writer whose end has failed already
                self._writer.close()
        if self._file is not None:
            self._file.discard()
        self._writer = self._file = None


_UNINDEXED = frozenset(("reason", "column"))
"""Free text: its lowest and highest values skip no file."""


def leaves(schema: pa.Schema) -> tuple[str, ...]:
    """Columns (dotted where nested in a struct) whose lowest and highest values a table's log is to have where its
    properties don't name them."""
    plain = (f.name for f in schema if not pa.types.is_nested(f.type) and f.name not in _UNINDEXED)
    nested = (f"{f.name}.{inner.name}" for f in schema if pa.types.is_struct(f.type) for inner in f.type)
    return (*plain, *nested)


def note_of(file: File) -> Any:
    """What the writer of a file noted of its rows; None: nothing."""
    return note_in(footer(file))


def note_in(metadata: pq.FileMetaData) -> Any:
    """The same of its footer."""
    told = (metadata.metadata or {}).get(_NOTE)
    return None if told is None else json.loads(told)


def statistics(metadata: pq.FileMetaData, columns: tuple[str, ...]) -> str:
    """Statistics of a data file as Delta's log has them (Delta's protocol, "Per-file Statistics")."""
    places = {metadata.schema.column(i).path: i for i in range(len(metadata.schema))}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name in columns:
        groups = [metadata.row_group(g).column(places[name]).statistics for g in range(metadata.num_row_groups)]
        if not all(s is not None and s.has_null_count for s in groups):
            continue
        _put(nulls, name, sum(s.null_count for s in groups))
        told = [s for s in groups if s.num_values]
        if told and all(s.has_min_max for s in told) and type(told[0].min) in _STATED:
            state = _STATED[type(told[0].min)]
            _put(low, name, state(min(s.min for s in told), False))
            _put(high, name, state(max(s.max for s in told), True))
    return encoded({"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def encoded(statistics_: dict[str, Any]) -> str:
    """Statistics as Delta's log has them, every digit of decimals kept."""
    return _JSON.encode(statistics_).decode()


def _put(into: dict[str, Any], name: str, value: Any) -> None:
    *outer, last = name.split(".")
    for part in outer:
        into = into.setdefault(part, {})
    into[last] = value


def _state_text(value: str, highest: bool) -> str:
    """Its beginning, as Delta has it: of the highest one with a letter behind that is above all others, in place of
    one that isn't this letter itself."""
    if not highest or len(value) <= _TEXT:
        return value[:_TEXT]
    end = next((n for n in range(_TEXT, len(value)) if value[n] != _ABOVE), None)
    return value if end is None else value[:end] + _ABOVE


def _state_time(value: datetime, highest: bool) -> str:
    """With a time zone in microseconds; without one as Spark reads it, in milliseconds."""
    if value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    beyond = timedelta(microseconds=-value.microsecond % 1000)
    return (value + beyond if highest and value <= datetime.max - beyond else value).isoformat(timespec="milliseconds")


_TEXT, _ABOVE = 32, chr(sys.maxunicode)
_STATED = {
    **dict.fromkeys((int, float, Decimal), lambda value, _: value),
    str: _state_text,
    datetime: _state_time,
    date: lambda value, _: value.isoformat(),
}
"""How lowest and highest values of a type are told; others, as in Spark, have none."""
_JSON = msgspec.json.Encoder(decimal_format="number")


def outputs(sinks: Mapping[str, Sink]) -> dict[str, Output]:
    """One output per sink."""
    return {name: Output(sink) for name, sink in sinks.items()}
