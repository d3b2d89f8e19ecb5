"""Changes of one key that came by several partitions at one source time, where no position orders them: looked for by
workers, in tables whose changes are plain, where the files' notes leave it open (changelog/ties.py). Runs on the
executors, but for `untied`.

Spark's answer (partitions.py) groups by the key: 2 µs of CPU a row, and a job per table.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cdc_platform.changelog.full_images import FullImageTable
from cdc_platform.changelog.order_key import numbers, those
from cdc_platform.changelog.ties import Hashed, hashed
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.changes.maps import map_value
from cdc_platform.lake.data_files import Unit, read, units
from cdc_platform.spark import arrow_tasks, workers
from cdc_platform.spark.cores import cores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.snapshots.reduce.full_images import FullImages, Name

_COLUMNS = pa.schema([CHANGELOG_FILE.field(c) for c in ("db", "schema", "table", "key", "order_key")])
_PARTED, _TIED = "part INT, hashes BINARY, partitions BINARY", pa.schema([("tied", pa.int32())])
"""Columns that `_hashed` and `_tied` give: hashes of table, key and source time, 8 bytes each, with the partitions that
they came by, 2 bytes each; numbers of tables with a tie."""
_AT_ONCE = 1 << 20
"""Changes that are looked at together, 10 bytes each; so many come to the driver: a shuffle would take longer."""


def untied(spark: "SparkSession", tables: "Mapping[Name, FullImages]") -> "frozenset[Name]":
    """Those of some tables of which no two changes of one key came by two partitions at one source time. Certain of
    these; the others may have such changes."""
    noted = frozenset(name for name, plain in tables.items() if plain.untied)
    if not (tables := {n: p for n, p in tables.items() if n not in noted}):
        return noted
    files = list(dict.fromkeys(file for plain in tables.values() for file in plain.files))
    cores = cores_of(spark)
    tasks = arrow_tasks.shared_out(units(files, whole=False), cores, bounded=False)
    changes = sum(plain.figures.changes for plain in tables.values())
    of, parts = [plain.table for plain in tables.values()], -(-changes // _AT_ONCE)
    hashes = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_hashed, tasks, of, parts), _PARTED)
    if parts == 1:
        found = pa.Table.from_batches(_tied(len(of), iter(hashes.toArrow().to_batches())), _TIED)
    else:
        of_parts = hashes.repartitionById(parts, "part")
        found = of_parts.mapInArrow(partial(_tied_by_workers, len(of)), "tied INT").toArrow()
    tied = set(found.column("tied").to_pylist())
    return noted | {name for i, name in enumerate(tables) if i not in tied}


def _hashed(
    tasks: list[list[Unit]], tables: list[FullImageTable], parts: int, ids: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    workers.configure()
    for batch in ids:
        for unit in (unit for task in batch.column(0).to_pylist() for unit in tasks[task]):
            for rows in read(unit, _COLUMNS):
                for i, table in enumerate(tables):
                    yield from _parted(i, table, those(rows, table.rows(rows)), len(tables), parts)


def _parted(
    number: int, table: FullImageTable, rows: pa.RecordBatch, tables: int, parts: int
) -> Iterator[pa.RecordBatch]:
    found, partition = hashed([map_value(rows.column("key"), k) for k in table.keys], numbers(rows.column("order_key")))
    found = (found // np.uint64(tables)) * np.uint64(tables) + np.uint64(number)  # tells its table
    part = (found // np.uint64(tables)) % np.uint64(parts)
    for i in range(parts):
        mine = part == i
        if mine.any():
            columns = [pa.array([i], pa.int32()), *(_packed(x[mine]) for x in (found, partition))]
            yield pa.RecordBatch.from_arrays(columns, ["part", "hashes", "partitions"])


def _packed(numbers: np.ndarray) -> pa.BinaryArray:
    return pa.array([numbers.tobytes()], pa.binary())


def _tied_by_workers(tables: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    workers.configure()
    yield from _tied(tables, batches)


def _tied(tables: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parts as `_hashed` gives them, each whole → numbers of tables with one hash by two partitions."""
    hashes, partitions = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint16)]
    for batch in batches:
        hashes += [np.frombuffer(x.as_buffer(), np.uint64) for x in batch.column("hashes")]
        partitions += [np.frombuffer(x.as_buffer(), np.uint16) for x in batch.column("partitions")]
    tied = Hashed(np.concatenate(hashes), np.concatenate(partitions)).tied()
    twice = np.unique(tied % np.uint64(tables))
    if len(twice):
        yield pa.RecordBatch.from_arrays([pa.array(twice.astype(np.int32))], schema=_TIED)
