"""One pass over data files of a table: Spark's Python workers read them as Arrow
batches, each task some files, and write files of other tables, which one commit each then names.

What a pass gives back is small: what the work of each task told, and which files it wrote. Files of tasks that failed,
or were done twice, are named by no commit.
"""

import heapq
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException

from cdc_platform.errors import LakeNotShared, StorageError
from cdc_platform.lake import commits, delta_table
from cdc_platform.lake.data_files import Output, Sink, Unit, Written, conformed, outputs, read, units
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import workers
from cdc_platform.spark.cores import cores_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Work = Callable[[Iterator[pa.RecordBatch], Mapping[str, Output]], Any]
"""(rows of a task's files, one after the other; outputs by name) → what it has to tell, as JSON can. Runs on the
executors."""

Rows = Callable[[Any], Iterator[pa.RecordBatch]]
"""A task → its rows. Runs on the executors."""

Reader = Callable[[Unit], Iterator[pa.RecordBatch]]
"""A unit → its rows. Runs on the executors."""

Made = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Arrow batches of a partition → others. Runs on the executors."""

_LEAST, _MOST = 16 << 20, 128 << 20
"""Bytes before compression that a task takes together. What it writes is one file."""
_FOR_GOOD = "a retry of the task doesn't mend it"
"""Note on what a task fails of, which comes to the driver as a text."""
_MORE_ROUNDS, _NEARLY = 4, 1.05
"""How many more rounds of tasks than the fewest are looked at, and what isn't worth another round."""


class Pass(NamedTuple):
    """What a pass did. told: by each task; written: by output."""

    told: list[Any]
    written: dict[str, list[Written]]


def over(
    spark: "SparkSession",
    files: list[File],
    schema: pa.Schema,
    work: Work,
    sinks: Mapping[str, Sink],
    *,
    whole: bool,
    reader: Reader | None = None,
) -> Pass:
    """Runs `work` on the rows of files, read with these columns (by `reader`, if there is one). whole: a file isn't
    divided."""
    rows = partial(_rows, reader or partial(read, schema=schema))
    return run(spark, _tasks(spark, units(files, whole=whole)), rows, work, sinks)


def frame(
    spark: "SparkSession",
    files: list[File],
    schema: pa.Schema,
    each: Callable[[pa.RecordBatch], pa.RecordBatch],
    made: "StructType",
    *,
    reader: Reader | None = None,
) -> "DataFrame":
    """What workers make of the rows of files, read with these columns (by `reader`, if there is one): a DataFrame with
    the columns `made`."""
    tasks = _tasks(spark, units(files, whole=False))
    ids = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    return ids.mapInArrow(partial(_made, tasks, reader or partial(read, schema=schema), each), made)


def run(spark: "SparkSession", tasks: list[Any], rows: Rows, work: Work, sinks: Mapping[str, Sink]) -> Pass:
    """Runs `work` on what `rows` makes of each task."""
    if not tasks:
        return Pass([], {name: [] for name in sinks})
    ids = spark.range(0, len(tasks), 1, len(tasks))
    return _done(ids, partial(_each, tasks, rows, work, dict(sinks)), sinks)


def partitions(given: "DataFrame", rows: Made, work: Work, sinks: Mapping[str, Sink]) -> Pass:
    """Runs `work` on what `rows` makes of each partition of a DataFrame that has few rows."""
    return _done(given, partial(_partition, rows, work, dict(sinks)), sinks)


def append(df: "DataFrame", path: Store, once: tuple[str, int] | None = None, **partition: str) -> None:
    """Append a DataFrame's rows to a table that sources share: tasks write its files, and one commit names them.
    Columns that the rows lack are NULL. once: application and number, under which the table takes rows once.
    partition: the values of its partition columns, which all rows have."""
    if once is not None and commits.done_before(path, *once):
        return
    sink = delta_table.sink(path, **partition)
    if unknown := {*df.columns} - {*sink.schema.names, *partition}:
        raise ValueError(f"{path.uri()} has no columns {sorted(unknown)}")
    rows = partial(conformed_to, sink.schema)
    commits.append_files(sink, partitions(df, rows, write, {"rows": sink}).written["rows"], once)


def conformed_to(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows with exactly these columns and types."""
    return (conformed(batch, schema) for batch in batches)


def write(batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> None:
    """Work that writes what it gets to the output `rows`."""
    for batch in batches:
        out["rows"].write(batch)


def _done(given: "DataFrame", each: Made, sinks: Mapping[str, Sink]) -> Pass:
    try:
        found = given.mapInArrow(each, spark_schema(_RESULT)).toArrow().to_pylist()
    except PySparkException as error:
        if lost := re.search(r"LakeNotShared: ([^\n]*?): ", str(error)):
            raise LakeNotShared(lost[1]) from None
        if failed := re.search(r"StorageError: ([^\n]*?): ([^\n]*)", str(error)):
            raise StorageError(failed[1], failed[2], retriable=_FOR_GOOD not in str(error)) from None
        raise
    told = [json.loads(r["told"]) for r in found if r["output"] is None]
    written: dict[str, list[Written]] = {name: [] for name in sinks}
    for r in found:
        if r["output"] is not None:
            written[r["output"]].append(Written(r["path"], r["size"], r["rows"], r["stats"]))
    return Pass(told, written)


def _tasks(spark: "SparkSession", all_units: list[Unit]) -> list[list[Unit]]:
    return shared_out(all_units, cores_of(spark))


class Sized(Protocol):
    """What tasks are made of."""

    @property
    def bytes(self) -> int:
        """How much of it there is."""
        ...


S = TypeVar("S", bound=Sized)


def shared_out(all_units: list[S], cores: int, *, bounded: bool = True) -> list[list[S]]:
    """Neighbours together as tasks, as few as keep the cores busy to the end: with some more, where units are as large
    as tasks, no core waits for another's last one. bounded: a task writes what it reads, and isn't to be large."""
    total = sum(u.bytes for u in all_units)
    fewest = (-(-total // (_MOST * cores)) or 1) if bounded else 1
    some = [min(cores * rounds, max(1, total // _LEAST)) for rounds in range(fewest, fewest + _MORE_ROUNDS)]
    options = [_cut(all_units, number, total) for number in some]
    times = [_bytes_of_the_busiest(tasks, cores) for tasks in options]
    return next(tasks for tasks, time in zip(options, times, strict=True) if time <= _NEARLY * min(times))


def _cut(all_units: list[S], number: int, total: int) -> list[list[S]]:
    tasks: dict[int, list[S]] = {}
    before = 0
    for unit in all_units:
        tasks.setdefault((2 * before + unit.bytes) * number // (2 * total or 1), []).append(unit)
        before += unit.bytes
    return list(tasks.values())


def _bytes_of_the_busiest(tasks: list[list[S]], cores: int) -> int:
    """Of the core that ends last, each task being taken by the one that is free first."""
    busy = [0] * cores
    for task in tasks:
        heapq.heapreplace(busy, busy[0] + sum(u.bytes for u in task))
    return max(busy)


_RESULT = pa.schema(
    [
        *((n, pa.string()) for n in ("told", "output", "path")),
        *((n, pa.int64()) for n in ("size", "rows")),
        ("stats", pa.string()),
    ]
)


def _rows(reader: Reader, task: list[Unit]) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(map(reader, task))


def _made(
    tasks: list[list[Unit]],
    reader: Reader,
    each: Callable[[pa.RecordBatch], pa.RecordBatch],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    workers.configure()
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from map(each, _rows(reader, tasks[task]))


def _each(
    tasks: list[Any],
    rows: Rows,
    work: Work,
    sinks: dict[str, Sink],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    workers.configure()
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist(_one(rows(tasks[task]), work, sinks), _RESULT)
            pa.default_memory_pool().release_unused()  # a worker lives on: what it doesn't need is another's


def _partition(
    rows: Made, work: Work, sinks: dict[str, Sink], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    workers.configure()
    yield pa.RecordBatch.from_pylist(_one(rows(batches), work, sinks), _RESULT)
    pa.default_memory_pool().release_unused()


def _one(given: Iterator[pa.RecordBatch], work: Work, sinks: dict[str, Sink]) -> list[dict[str, Any]]:
    out = outputs(sinks)
    try:
        told = work(given, out)
        written = {name: done for name, output in out.items() if (done := output.close()) is not None}
    except BaseException as error:
        for output in out.values():
            output.discard()
        if isinstance(error, StorageError) and not error.retriable:
            error.add_note(_FOR_GOOD)
        raise
    return [{"told": json.dumps(told)}, *({"output": name, **done._asdict()} for name, done in written.items())]


def spark_schema(schema: pa.Schema) -> "StructType":
    """Arrow schema → Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=False)
