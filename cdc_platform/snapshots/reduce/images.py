"""Changelog files by workers: which tables' changes are plain (changelog/full_images.py), and the texts of the images
of some. Runs on the executors; no Spark here."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.full_images import FullImageTable, ImageStatistics, looked, statistics_json, texts_of
from cdc_platform.changelog.order_key import numbers
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.changes.maps import map_value
from cdc_platform.lake.data_files import Output, Unit, footer, read
from cdc_platform.lake.store import File
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.spark import workers
from cdc_platform.tables import ORDER_TYPE, ROW_ADDRESS

SURVEYED = pa.schema([CHANGELOG_FILE.field(c) for c in ("db", "schema", "table", "op", "key", "after", "order_key")])
"""What `Survey` reads of a changelog file."""

_ADDRESS = ROW_ADDRESS.names
IMAGES = pa.schema([CHANGELOG_FILE.field(c) for c in ("op", "key", "after", "order_key", "source_time")])
ADDRESSED = pa.schema([*IMAGES, *(CHANGELOG_FILE.field(c) for c in _ADDRESS)])
"""What `texts_in` needs of a change; and of one of a table without a key."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The work of a pass over changelog files that note nothing: per table what its changes come to, None where they
    aren't plain."""

    tables: tuple[FullImageTable, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> list[dict[str, Any] | None]:
        found: list[ImageStatistics | None] = [ImageStatistics() for _ in self.tables]
        for batch in batches:
            for i, table in enumerate(self.tables):
                figures = found[i]
                rows = batch if figures is None else batch.filter(table.rows(batch))
                if figures is not None and rows.num_rows and not _looked(table, rows, figures):
                    found[i] = None
        return [None if f is None else statistics_json(f) for f in found]


def _looked(table: FullImageTable, rows: pa.RecordBatch, figures: ImageStatistics) -> bool:
    try:
        order = numbers(rows.column("order_key"))
    except pa.ArrowInvalid:  # a position that no 64-bit integer holds
        return False
    return looked(table, rows, order, figures)


TEXTS = f"_cdc_order {ORDER_TYPE}, _cdc_source_time TIMESTAMP, deleted BOOLEAN"
"""Columns that `texts` gives beside the texts of the key `t0`, `t1`, … and of all columns `x0`, `x1`, …"""


def texts(files: list[File], table: FullImageTable, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where changes stand, as heads.last tells, all of a file in one task → their keys, images and orders."""
    workers.configure()
    places: dict[int, list[np.ndarray]] = {}
    for batch in batches:
        for file, at in zip(batch.column("file").to_pylist(), batch.column("at"), strict=True):
            places.setdefault(file, []).append(np.frombuffer(at.as_buffer(), np.int64))
    for file in sorted(places):
        for rows in rows_at(files[file], np.sort(np.concatenate(places.pop(file)))):
            yield texts_in(rows, table)


def rows_at(file: File, at: np.ndarray, schema: pa.Schema = IMAGES) -> Iterator[pa.RecordBatch]:
    """Rows of a file by their number, ascending; row groups without any aren't read."""
    metadata = footer(file)
    base = 0
    for group in range(metadata.num_row_groups):
        end = base + metadata.row_group(group).num_rows
        mine = at[np.searchsorted(at, base) : np.searchsorted(at, end)] - base
        base = end
        done = 0
        for batch in read(Unit(file, group, group + 1, 0), schema) if len(mine) else ():
            here = mine[np.searchsorted(mine, done) : np.searchsorted(mine, done + batch.num_rows)] - done
            done += batch.num_rows
            if len(here):
                yield batch.take(pa.array(here))


def texts_in(rows: pa.RecordBatch, table: FullImageTable) -> pa.RecordBatch:
    """Changes of a table → their keys, images and orders, as `texts`; where it has no key, their addresses."""
    deleted = pc.equal(rows.column("op"), "delete")
    columns: dict[str, pa.Array] = {f"t{i}": map_value(rows.column("key"), k) for i, k in enumerate(table.keys)}
    if not table.keys:
        columns[ADDRESS] = pa.StructArray.from_arrays([rows.column(c) for c in _ADDRESS], list(_ADDRESS))
    columns |= {"_cdc_order": rows.column("order_key"), "_cdc_source_time": rows.column("source_time")}
    columns["deleted"] = deleted
    alive = pc.invert(deleted)
    found = texts_of(rows.column("after").filter(alive), table.names)
    if found is None:
        raise ValueError(f"an image of {table.name[-1]!r} isn't as the survey found it")
    if pc.all(alive).as_py():
        place = None
    else:
        there = alive.to_numpy(zero_copy_only=False)
        place = pa.array(np.cumsum(there) - 1, mask=~there)
    for i, name in enumerate(table.names):
        columns[f"x{i}"] = found[name] if place is None else found[name].take(place)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
