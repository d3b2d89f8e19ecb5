"""Row images of changelog files as Arrow batches: what a table's changes come to, the last change of each key, and the
texts of its image. Runs on the executors; no Spark here.

Images are maps, which Spark takes apart entry by entry; most batches have nothing but whole images in table order,
whose texts are every n-th of a column. `Survey` says of which tables that is so.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.unify import CHANGELOG_FILE, map_value, numbers
from cdc_platform.formats.summary import later
from cdc_platform.resources.parquet import Output, Unit, read

_PLACE = ("partition", "entry_index", "row_index")
SURVEYED = pa.schema([CHANGELOG_FILE.field(c) for c in ("db", "table", "op", "key", "after", "order_key")])
"""What `Survey` reads of a changelog file."""

_HEADS = pa.schema([CHANGELOG_FILE.field(c) for c in ("db", "table", "op", "key", "order_key", *_PLACE)])
_IMAGES = pa.schema([CHANGELOG_FILE.field(c) for c in ("after", "source_time")])
_TIMES = {"date": pa.date32(), "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us", "UTC")}
_SHORTEST = {"date": 10, "datetime": 19, "timestamp": 20}


class PlainTable(NamedTuple):
    """A table as workers need it: names of its columns in order, of its key; the families of those that hold a date;
    how the first key column is compared where its range is wanted (integer, text, None)."""

    db: str
    table: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    dates: tuple[tuple[str, str], ...]
    range: str | None

    def rows(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which changes are of this table."""
        mine = pc.and_(pc.equal(batch.column("table"), self.table), pc.equal(batch.column("db"), self.db))
        return pc.fill_null(mine, False)


@dataclass(slots=True)
class _Figures:
    """Of a table's changes in a file, as far as they are plain."""

    changes: int = 0
    deletes: int = 0
    orders: list[list[int]] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Survey:
    """The work of a pass over changelog files: per table changes, deletes, lowest and highest order and first key; None
    where not all changes tell their key and, but deletes, all columns in order with dates that exist, or where a key
    changes or there is a TRUNCATE."""

    tables: tuple[PlainTable, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> list[dict[str, Any] | None]:
        found: list[_Figures | None] = [_Figures() for _ in self.tables]
        for batch in batches:
            for i, table in enumerate(self.tables):
                figures = found[i]
                rows = batch if figures is None else batch.filter(table.rows(batch))
                if figures is not None and rows.num_rows and not _looked(table, rows, figures):
                    found[i] = None
        return [None if f is None else _told(f) for f in found]


def _told(figures: _Figures) -> dict[str, Any]:
    orders, keys = figures.orders, figures.keys
    spans = {"orders": [min(orders), max(orders)] if orders else None, "keys": [min(keys), max(keys)] if keys else None}
    return {"changes": figures.changes, "deletes": figures.deletes, **spans}


def _looked(table: PlainTable, rows: pa.RecordBatch, figures: _Figures) -> bool:
    """Adds to the figures; False: some change isn't plain."""
    op, told = rows.column("op"), [map_value(rows.column("key"), k) for k in table.keys]
    deleted = pc.equal(op, "delete")
    if pc.any(pc.equal(op, "truncate")).as_py() or any(k.null_count for k in told):
        return False
    alive = rows if not pc.any(deleted).as_py() else rows.filter(pc.invert(deleted))
    texts = _columns(alive.column("after"), table.names)
    if texts is None or not all(_exist(texts[name], family) for name, family in table.dates):
        return False
    updated = pc.equal(alive.column("op"), "update")
    for name, key in zip(table.keys, told, strict=True):
        before = key if alive is rows else key.filter(pc.invert(deleted))
        if not pc.all(pc.or_(pc.invert(updated), pc.fill_null(pc.equal(before, texts[name]), False))).as_py():
            return False
    try:
        order = numbers(rows.column("order_key"))
        low_high = _range(told[0], table.range)
    except pa.ArrowInvalid:  # a position that no 64-bit integer holds, or a key that is no number
        return False
    figures.changes += rows.num_rows
    figures.deletes += rows.num_rows - alive.num_rows
    ascends = later(order).all()
    ends = order[[0, -1]] if ascends else order[np.lexsort(order.T[::-1])[[0, -1]]]
    figures.orders += ends.tolist()
    figures.keys += low_high
    return True


def _range(texts: pa.StringArray, how: str | None) -> list[Any]:
    if how is None:
        return []
    found = pc.min_max(texts.cast(pa.int64()) if how == "integer" else texts)
    return [found["min"].as_py(), found["max"].as_py()]


def _columns(images: pa.MapArray, names: tuple[str, ...]) -> dict[str, pa.StringArray] | None:
    """Texts by column, where every image holds exactly these columns in this order."""
    if images.null_count:
        return None
    width, offsets = len(names), images.offsets.to_numpy()
    if not (np.diff(offsets) == width).all():
        return None
    keys = images.keys.slice(offsets[0], offsets[-1] - offsets[0])
    places = pc.fill_null(pc.index_in(keys, pa.array(names, pa.string())), -1).to_numpy()
    if not (places.reshape(-1, width) == np.arange(width)).all():
        return None
    return {name: images.items.take(pa.array(offsets[:-1] + i)) for i, name in enumerate(names)}


def _exist(texts: pa.StringArray, family: str) -> bool:
    """Whether all are dates for sure: what Arrow reads Spark reads, too."""
    shortest = pc.min(pc.binary_length(texts)).as_py()
    if shortest is None:
        return True
    if shortest < _SHORTEST[family] or pc.any(pc.starts_with(texts, "0000")).as_py():
        return False
    try:
        texts.cast(_TIMES[family])
    except pa.ArrowInvalid:
        return False
    return True


HEAD = (
    "order_key STRUCT<epoch: BIGINT, file: BIGINT, pos: DECIMAL(20,0), event: BIGINT, `row`: BIGINT, landed: BIGINT>, "
    "partition INT, entry_index INT, row_index INT, deleted BOOLEAN, file INT, at BIGINT"
)
"""Columns that `heads` gives beside the key's texts `t0`, `t1`, …: where a change stands, and in which row of which
file."""


def heads(files: list[Unit], table: PlainTable, ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Changes of a table in some files; of each key just the last one of a file, where its changes stand in order."""
    pa.set_memory_pool(pa.system_memory_pool())
    for batch in ids:
        for number in batch.column(0).to_pylist():
            yield from _heads(number, files[number], table)


def _heads(number: int, unit: Unit, table: PlainTable) -> Iterator[pa.RecordBatch]:
    parts: list[pa.RecordBatch] = []
    base, ascends, last = 0, True, None
    for batch in read(unit, _HEADS):
        mine = table.rows(batch)
        at = np.nonzero(mine.to_numpy(zero_copy_only=False))[0] + base
        base += batch.num_rows
        rows = batch.filter(mine)
        if not rows.num_rows:
            continue
        order = numbers(rows.column("order_key"))
        ascends = ascends and bool(later(order if last is None else np.vstack([last, order])).all())
        last = order[-1:]
        parts.append(_head(number, rows, at, table))
    if not parts:
        return
    every = pa.Table.from_batches(parts)
    if ascends:
        keys = [f"t{i}" for i, _ in enumerate(table.keys)]
        newest = every.select([*keys, "at"]).group_by(keys, use_threads=False).aggregate([("at", "max")])
        wanted = pc.is_in(every.column("at"), newest.column("at_max").combine_chunks())
        every = every.filter(wanted)
    yield from every.combine_chunks().to_batches(1 << 16)


def _head(number: int, rows: pa.RecordBatch, at: np.ndarray, table: PlainTable) -> pa.RecordBatch:
    columns = {
        **{f"t{i}": map_value(rows.column("key"), k) for i, k in enumerate(table.keys)},
        **{c: rows.column(c) for c in ("order_key", *_PLACE)},
        "deleted": pc.equal(rows.column("op"), "delete"),
        "file": pa.array(np.full(rows.num_rows, number, np.int32)),
        "at": pa.array(at),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def texts(files: list[str], table: PlainTable, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with `file` and `at`, in that order within a task → the same with `source_time` and the texts `x0`, `x1`, …
    of the image there; NULL where `deleted`."""
    pa.set_memory_pool(pa.system_memory_pool())
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
        self._rows = read(_whole(file), _IMAGES)
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


def _whole(file: str) -> Unit:
    import pyarrow.parquet as pq

    return Unit(file, 0, pq.read_metadata(file).num_row_groups, 0)


def _with_texts(some: pa.RecordBatch, rows: pa.RecordBatch, table: PlainTable) -> pa.RecordBatch:
    alive = pc.invert(some.column("deleted"))
    columns = {name: some.column(name) for name in some.schema.names}
    columns["source_time"] = rows.column("source_time")
    found = _columns(rows.column("after").filter(alive), table.names)
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
