"""Of a table whose changes are plain (changelog/full_images.py) the last change of each key, by workers: where it
stands in the changelog's files. Runs on the executors; no Spark here.

What must come together of a key goes through a shuffle of Spark's as a few Arrow streams, not as rows: a row cost Spark
4 µs of CPU on that way, and a third of its heap.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.full_images import FullImageTable
from cdc_platform.changelog.hashing import hashes
from cdc_platform.changelog.order_key import those
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.changes.file_stats import later
from cdc_platform.changes.maps import map_value
from cdc_platform.lake.data_files import Unit, read
from cdc_platform.spark import workers

PARTS, PLACES = "part INT, heads BINARY", "file INT, at BINARY"
"""Columns that `heads` and `last` give: Arrow streams of changes whose keys' hashes belong together; rows of a file, as
64-bit integers."""

_HELD, _HELD_BYTES = 1 << 17, 32 << 20
"""Changes among which each key's last one is looked for: memory stays bounded, however many there are."""
_PART_ROWS = 1 << 18
"""Changes of a part, about: what a worker holds of a batch where each has another key (100 bytes each)."""
_STREAM_BYTES = 1 << 20
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")

_PLACE = ("partition", "entry_index", "row_index")
COLUMNS = pa.schema([CHANGELOG_FILE.field(c) for c in ("db", "schema", "table", "op", "key", "order_key", *_PLACE)])


class Numbered(NamedTuple):
    """A file with its number among those of a batch."""

    number: int
    unit: Unit


def parts(changes: int, cores: int) -> int:
    """How many parts so many changes are divided into."""
    return 1 if changes <= _HELD else max(cores, -(-changes // _PART_ROWS))


def latest_changes(
    tasks: list[list[Numbered]], table: FullImageTable, number: int, ids: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Changes of a table in the files of some tasks, of each key the last one of many, in `number` parts."""
    workers.configure()
    for batch in ids:
        for task in batch.column(0).to_pylist():
            for some in _latest(tasks[task], table):
                yield from _parted(some, table, number)


def last(table: FullImageTable, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parts as `heads` gives them, each whole → where the last change of each key stands."""
    workers.configure()
    streams = (stream for batch in batches for stream in batch.column("heads"))
    for some in _windows(chain.from_iterable(map(_of_stream, streams)), table, once=True):
        file, at = (some.column(c).to_numpy() for c in ("file", "at"))
        order = np.lexsort((at, file))
        numbers, starts = np.unique(file[order], return_index=True)
        places = [rows.tobytes() for rows in np.split(at[order], starts[1:])]
        yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), pa.array(places, pa.binary())], ["file", "at"])


def _latest(files: list[Numbered], table: FullImageTable) -> Iterator[pa.RecordBatch]:
    return _windows(chain.from_iterable(_of_file(file, table) for file in files), table, once=False)


def _windows(changes: Iterable[pa.RecordBatch], table: FullImageTable, *, once: bool) -> Iterator[pa.RecordBatch]:
    """Of each key the last change; once: each key once, however many there are."""
    held: list[pa.RecordBatch] = []
    rows = size = known = 0
    for some in changes:
        held.append(some)
        rows, size = rows + some.num_rows, size + some.nbytes
        if (rows < _HELD and size < _HELD_BYTES) or (once and rows < 2 * known):
            continue
        latest = newest(held, table)
        if not once and latest.num_rows > rows // 2:  # not many more changes than keys: to look again wouldn't pay
            yield latest
        else:
            held.append(latest)
        rows, size = sum(h.num_rows for h in held), sum(h.nbytes for h in held)
        known = rows
    if held:
        yield newest(held, table)


def _of_file(file: Numbered, table: FullImageTable) -> Iterator[pa.RecordBatch]:
    base = 0
    for batch in read(file.unit, COLUMNS):
        mine = table.rows(batch)
        at = np.nonzero(mine.to_numpy(zero_copy_only=False))[0] + base
        base += batch.num_rows
        if len(at):
            yield head(file.number, those(batch, mine), at, table)


def head(number: int, rows: pa.RecordBatch, at: np.ndarray, table: FullImageTable) -> pa.RecordBatch:
    orders = rows.column("order_key").flatten()
    columns = {
        **{f"t{i}": map_value(rows.column("key"), k) for i, k in enumerate(table.keys)},
        **{f"o{i}": column.cast(pa.int64()) for i, column in enumerate(orders)},
        **{c: rows.column(c) for c in _PLACE},
        "deleted": pc.equal(rows.column("op"), "delete"),
        "file": pa.array(np.full(rows.num_rows, number, np.int32)),
        "at": pa.array(at),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def newest(held: list[pa.RecordBatch], table: FullImageTable) -> pa.RecordBatch:
    """Of each key the last change in order, the changes as they stood; of a table without a key all of them. Empties
    `held`: nothing is to be there twice."""
    [every] = pa.Table.from_batches(held).combine_chunks().to_batches()
    held.clear()
    if not table.keys:
        return every
    keys = _keys(table)
    places = (every.column(c) for c in every.schema.names if c not in (*keys, "file", "at"))
    rank, row = ranks(every.num_rows, (pc.fill_null(p.cast(pa.int64()), -1).to_numpy() for p in places))
    ranked = pa.Table.from_arrays([*(every.column(k) for k in keys), pa.array(rank)], [*keys, "rank"])
    last_ones = ranked.group_by(keys, use_threads=False).aggregate([("rank", "max")]).column("rank_max").to_numpy()
    return every.take(pa.array(np.sort(row(last_ones))))


def _keys(table: FullImageTable) -> list[str]:
    return [f"t{i}" for i, _ in enumerate(table.keys)]


def ranks(n: int, columns: Iterable[np.ndarray]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Of n rows of integers (one column after the other compared) each one's rank, as numbers that compare as the rows
    do, of equal ones the later above the earlier; and which row has a rank."""
    differ: list[tuple[np.ndarray, int, int]] = []
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if low < high and not (differ and np.array_equal(column, differ[-1][0])):
            differ.append((column, low, (high - low).bit_length()))
    if not differ or later(np.array([c for c, _, _ in differ]).T).all():
        return np.arange(n), lambda rank: rank
    place = n.bit_length()
    if sum(bits for _, _, bits in differ) + place <= 63:
        rank = np.zeros(n, np.int64)
        for column, low, bits in differ:
            rank = (rank << bits) | (column - low)
        return (rank << place) | np.arange(n), lambda rank: rank & ((1 << place) - 1)
    order = np.lexsort([c for c, _, _ in reversed(differ)])
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    return rank, lambda rank: order[rank]


def _parted(rows: pa.RecordBatch, table: FullImageTable, number: int) -> Iterator[pa.RecordBatch]:
    """Rows as streams of their parts."""
    part = hashes([rows.column(k) for k in _keys(table)]) % np.uint64(number)
    order = np.argsort(part, kind="stable")
    numbers, starts = np.unique(part[order], return_index=True)
    rows = rows.take(pa.array(order))
    for of, (start, end) in zip(numbers.tolist(), _pairs(starts, len(order)), strict=True):
        mine = rows.slice(start, end - start)
        step = max(1, mine.num_rows * _STREAM_BYTES // mine.nbytes)
        for first in range(0, mine.num_rows, step):
            stream = pa.array([_stream(mine.slice(first, step))], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([of], pa.int32()), stream], ["part", "heads"])


def _pairs(starts: np.ndarray, end: int) -> Iterator[tuple[int, int]]:
    return zip(starts.tolist(), [*starts[1:].tolist(), end], strict=True)


def _stream(rows: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=_PACKED) as writer:
        writer.write_batch(rows)
    return out.getvalue().to_pybytes()


def _of_stream(stream: pa.BinaryScalar) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(stream.as_buffer()) as reader:
        yield from reader
