"""Changelog files by workers: of a table whose changes are plain (changelog/plain.py) the last change of each key, and
the texts of its image. Runs on the executors; no Spark here."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.arrow import map_value, numbers, those
from cdc_platform.changelog.plain import Figures, PlainTable, looked, texts_of, told
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.formats.summary import later
from cdc_platform.resources import workers
from cdc_platform.resources.parquet import Output, Unit, read, units
from cdc_platform.tables import ORDER_TYPE

_PLACE = ("partition", "entry_index", "row_index")
SURVEYED = pa.schema([CHANGELOG_FILE.field(c) for c in ("db", "table", "op", "key", "after", "order_key")])
"""What `Survey` reads of a changelog file."""

_HELD = 1 << 17
"""Changes among which each key's last one is looked for: memory stays bounded, however many there are."""

_HEADS = pa.schema([CHANGELOG_FILE.field(c) for c in ("db", "table", "op", "key", "order_key", *_PLACE)])
_IMAGES = pa.schema([CHANGELOG_FILE.field(c) for c in ("after", "source_time")])


@dataclass(frozen=True, slots=True)
class Survey:
    """The work of a pass over changelog files that note nothing: per table what its changes come to, None where they
    aren't plain."""

    tables: tuple[PlainTable, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> list[dict[str, Any] | None]:
        found: list[Figures | None] = [Figures() for _ in self.tables]
        for batch in batches:
            for i, table in enumerate(self.tables):
                figures = found[i]
                rows = batch if figures is None else batch.filter(table.rows(batch))
                if figures is not None and rows.num_rows and not _looked(table, rows, figures):
                    found[i] = None
        return [None if f is None else told(f) for f in found]


def _looked(table: PlainTable, rows: pa.RecordBatch, figures: Figures) -> bool:
    try:
        order = numbers(rows.column("order_key"))
    except pa.ArrowInvalid:  # a position that no 64-bit integer holds
        return False
    return looked(table, rows, order, figures)


HEAD = f"order_key {ORDER_TYPE}, partition INT, entry_index INT, row_index INT, deleted BOOLEAN, file INT, at BIGINT"
"""Columns that `heads` gives beside the key's texts `t0`, `t1`, …: where a change stands, and in which row of which
file."""


class Numbered(NamedTuple):
    """A file with its number among those of a batch."""

    number: int
    unit: Unit


def heads(tasks: list[list[Numbered]], table: PlainTable, ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Changes of a table in the files of some tasks; of each key the last one of many."""
    workers.settle()
    for batch in ids:
        for task in batch.column(0).to_pylist():
            yield from _heads(tasks[task], table)


def _heads(files: list[Numbered], table: PlainTable) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for head in chain.from_iterable(_of_file(file, table) for file in files):
        held.append(head)
        rows += head.num_rows
        if rows >= _HELD:
            newest = _newest(held, table)
            if newest.num_rows > _HELD // 2:  # not many more changes than keys: to look at so many again wouldn't pay
                yield from _in_parts(newest)
            else:
                held.append(newest)
            rows = sum(h.num_rows for h in held)
    if held:
        yield from _in_parts(_newest(held, table))


def _in_parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield from pa.Table.from_batches([rows]).to_batches(1 << 14)


def _of_file(file: Numbered, table: PlainTable) -> Iterator[pa.RecordBatch]:
    base = 0
    for batch in read(file.unit, _HEADS):
        mine = table.rows(batch)
        at = np.nonzero(mine.to_numpy(zero_copy_only=False))[0] + base
        base += batch.num_rows
        if len(at):
            yield _head(file.number, those(batch, mine), at, table)


def _head(number: int, rows: pa.RecordBatch, at: np.ndarray, table: PlainTable) -> pa.RecordBatch:
    columns = {
        **{f"t{i}": map_value(rows.column("key"), k) for i, k in enumerate(table.keys)},
        **{c: rows.column(c) for c in ("order_key", *_PLACE)},
        "deleted": pc.equal(rows.column("op"), "delete"),
        "file": pa.array(np.full(rows.num_rows, number, np.int32)),
        "at": pa.array(at),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _newest(held: list[pa.RecordBatch], table: PlainTable) -> pa.RecordBatch:
    """Of each key the last change in order, the changes as they stood. Empties `held`: nothing is to be there twice."""
    [every] = pa.Table.from_batches(held).combine_chunks().to_batches()
    held.clear()
    places = chain(every.column("order_key").flatten(), (every.column(c) for c in (*_PLACE, "deleted")))
    rank, row = ranks(every.num_rows, (pc.fill_null(p.cast(pa.int64()), -1).to_numpy() for p in places))
    keys = [f"t{i}" for i, _ in enumerate(table.keys)]
    ranked = pa.Table.from_arrays([*(every.column(k) for k in keys), pa.array(rank)], [*keys, "rank"])
    last = ranked.group_by(keys, use_threads=False).aggregate([("rank", "max")]).column("rank_max").to_numpy()
    return every.take(pa.array(np.sort(row(last))))


def ranks(n: int, columns: Iterable[np.ndarray]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Of n rows of integers (one column after the other compared) each one's rank, as numbers that compare as the rows
    do, of equal ones the later above the earlier; and which row has a rank."""
    differ: list[tuple[np.ndarray, int, int]] = []
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if low < high:
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


def texts(files: list[str], table: PlainTable, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with `file` and `at`, in that order within a task → the same with `source_time` and the texts `x0`, `x1`, …
    of the image there; NULL where `deleted`."""
    workers.settle()
    reader: _Reader | None = None
    for batch in batches:
        of = batch.column("file").to_numpy()
        starts = np.append(np.nonzero(np.append(True, of[1:] != of[:-1]))[0], len(of)).tolist()
        for start, end in pairwise(starts):
            some = batch.slice(start, end - start)
            if reader is None or reader.number != of[start]:
                reader = _Reader(int(of[start]), files[of[start]])
            yield from reader.texts(some, table)


class _Reader:
    """A file read from its beginning on, row by row in ascending order."""

    def __init__(self, number: int, file: str):
        self.number = number
        [unit] = units([file], whole=True)
        self._rows = read(unit, _IMAGES)
        self._base, self._now = 0, next(self._rows)

    def texts(self, some: pa.RecordBatch, table: PlainTable) -> Iterator[pa.RecordBatch]:
        at = some.column("at").to_numpy()
        done = 0
        while done < len(at):
            while at[done] >= self._base + self._now.num_rows:
                self._base += self._now.num_rows
                self._now = next(self._rows)
            end = int(np.searchsorted(at, self._base + self._now.num_rows))
            here = self._now.take(pa.array(at[done:end] - self._base))
            yield _with_texts(some.slice(done, end - done), here, table)
            done = end


def _with_texts(some: pa.RecordBatch, rows: pa.RecordBatch, table: PlainTable) -> pa.RecordBatch:
    alive = pc.invert(some.column("deleted"))
    columns = {name: some.column(name) for name in some.schema.names}
    columns["source_time"] = rows.column("source_time")
    found = texts_of(rows.column("after").filter(alive), table.names)
    if found is None:
        raise ValueError(f"an image of {table.table!r} isn't as the survey found it")
    if pc.all(alive).as_py():
        place = None
    else:
        there = alive.to_numpy(zero_copy_only=False)
        place = pa.array(np.cumsum(there) - 1, mask=~there)
    for i, name in enumerate(table.names):
        columns[f"x{i}"] = found[name] if place is None else found[name].take(place)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
