"""An append-only Delta table taken batch by batch, each batch the data files that some commits added.

A checkpoint records a batch's end before it (`offsets`) and that it is done after it (`commits`), in the format of
Structured Streaming's checkpoints: earlier versions ran streaming queries, and theirs go on. A query itself costs more:
over Spark Connect each start of one starts a Python process on the server, which takes seconds, and fails when that
takes ten (StreamingPythonRunner.scala, PythonWorkerFactory.createSimpleWorker).
"""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import checkpoints, log_files, log_state
from cdc_platform.lake.log_files import Action
from cdc_platform.lake.store import COMMIT, File, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Each = Callable[["SparkSession", list[File], int], None]
"""(session, a batch's data files, its number)."""

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

_IDLE = 100
"""Commits without a file of the partition after which they are a batch of their own, not to be looked at again."""


class End(NamedTuple):
    """How far a batch goes: all files of the commits before `version`, and of that one's those up to number `file`
    (-1: none). As Delta's streaming source has it (DeltaSourceOffset.scala)."""

    version: int
    file: int


def for_each(
    spark: "SparkSession",
    path: Store,
    max_bytes: str,
    checkpoint: Store,
    each: Each,
    until: End | None = None,
    **partition: str,
) -> list[int]:
    """Run `each` over all that was added to a table (to one of its partitions) since the checkpoint, from the first
    commit on, batch by batch. A batch that was begun is repeated with the same files until it is done. max_bytes: of a
    batch's files, at least one; as Spark writes sizes. until: no further than there. Returns the numbers of batches
    with files. Raises LakeChanged.
    """
    return _run(spark, path, _bytes(max_bytes), checkpoint, each, until, partition)


def reached(path: Store, checkpoint: Store) -> End:
    """How far a table has been taken, by the newest batch that is done. Raises LakeChanged."""
    _, done = checkpoints.newest(checkpoint)
    return _end(checkpoint, path, _present(path)[0], checkpoints.begun(checkpoint, done))


def entry(spark: "SparkSession", path: Store, checkpoint: Store) -> str:
    """What a checkpoint tells of how far a table is taken: its newest entry, else that all of it is. Raises
    LakeChanged."""
    begun, _ = checkpoints.newest(checkpoint)
    if (told := checkpoints.begun(checkpoint, begun)) is not None:
        return told.split("\n", 1)[1]
    table_id, present = _present(path)
    return f"{checkpoints.settings(spark, None)}\n{_offset(table_id, present)}"


def identity(path: Store) -> str:
    """A table's id, by which its checkpoints know it. Raises LakeChanged."""
    return _present(path)[0]


def behind(path: Store, checkpoint: Store, **partition: str) -> bool:
    """Whether there is more of a table (of one of its partitions) than was taken. Raises LakeChanged."""
    start, present = reached(path, checkpoint), _present(path)[1]
    return unfinished(checkpoint) or any(True for _ in _added(path, start, present, partition))


def less_taken(path: Store, checkpoint: Store, other: Store, **partition: str) -> bool:
    """Whether by this checkpoint less of a table (of one of its partitions) was taken than by another one. Raises
    LakeChanged."""
    start, end = reached(path, checkpoint), reached(path, other)
    return any(True for _ in _added(path, start, end, partition))


def unfinished(checkpoint: Store) -> bool:
    """Whether the last batch was begun and isn't done: some of its outputs may be written, others not."""
    begun, done = checkpoints.newest(checkpoint)
    return begun != done


def _run(
    spark: "SparkSession",
    path: Store,
    max_bytes: int,
    checkpoint: Store,
    each: Each,
    until: End | None,
    partition: dict[str, str],
) -> list[int]:
    """Up to the table's newest commit of now."""
    table_id, present = _present(path)
    present = present if until is None else min(present, until)
    begun, done = checkpoints.newest(checkpoint)
    entry = checkpoints.begun(checkpoint, done)
    start = _end(checkpoint, path, table_id, entry)
    if start > present:
        problem = f"its newest commit is {present.version - 1}, read was up to {start.version - 1}"
        raise LakeChanged(path.uri(), problem)
    ran = []
    while True:
        number = done + 1
        if begun == done:
            end, files = _plan(path, start, present, max_bytes, partition)
            if not files and end.version - start.version < _IDLE:
                return ran
            text = f"{checkpoints.settings(spark, entry)}\n{_offset(table_id, end)}"
            entry = checkpoints.note(checkpoint, "offsets", number, text)
        elif begun == number:
            entry = checkpoints.begun(checkpoint, begun)
            end = _end(checkpoint, path, table_id, entry)
            files = [file for _, file, _ in _added(path, start, end, partition)]
        else:
            raise LakeChanged(checkpoint.uri(), f"batch {done} is done, and batch {begun} was begun after it")
        try:
            each(spark, files, number)
        except BaseException as why:
            if not isinstance(why, Exception):  # a terminated Dagster run: what the server is at ends too
                spark.interruptAll()
            raise
        checkpoints.note(checkpoint, "commits", number, '{"nextBatchWatermarkMs":0}')
        begun, done, start = number, number, end
        if files:
            ran.append(number)


def _present(path: Store) -> tuple[str, End]:
    """A table's id, and the end of its newest commit."""
    try:
        if (now := log_state.head(path)) is not None:
            return now.metadata["id"], End(now.version + 1, -1)
        raise LakeChanged(path.uri(), "there is no table")
    except FileNotFoundError as error:
        there = [int(name[:20]) for name, _ in path.names("_delta_log") if COMMIT.fullmatch(name)]
        gone = next((a + 1 for a, b in pairwise(there) if b != a + 1), None)
        problem = f"its log can't be read: {error}" if gone is None else f"commit {gone} is gone from its log"
        raise LakeChanged(path.uri(), problem) from None


def _plan(path: Store, start: End, present: End, max_bytes: int, partition: dict[str, str]) -> tuple[End, list[File]]:
    """The next batch's end and files."""
    files: list[File] = []
    taken = 0
    for at, file, size in _added(path, start, present, partition):
        if taken >= max_bytes:
            return End(at.version, at.file - 1), files
        files.append(file)
        taken += size
    return present, files


def _added(path: Store, start: End, end: End, partition: dict[str, str]) -> Iterator[tuple[End, File, int]]:
    """Data files of a partition added after `start` up to `end`: their place and bytes. They are numbered within
    a commit over all partitions. Rewritten files (no change of data) are none; a change of rows raises LakeChanged."""
    for version in range(start.version, end.version + (end.file >= 0)):
        number = -1
        for action in _actions(path, version):
            added, removed = action.get("add"), action.get("remove")
            if (removed and removed.get("dataChange", True)) or (added and added.get("deletionVector")):
                raise LakeChanged(path.uri(), f"commit {version} removes rows of an append-only table")
            if not added or not added["dataChange"]:
                continue
            number += 1
            mine = all(added["partitionValues"].get(n) == v for n, v in partition.items())
            if mine and start < (version, number) <= end:
                yield End(version, number), File(path, unquote(added["path"])), added["size"]


def _actions(path: Store, version: int) -> Iterator[Action]:
    try:
        yield from log_files.actions(path, version)
    except FileNotFoundError:
        raise LakeChanged(path.uri(), f"commit {version} is gone from its log") from None


def _end(checkpoint: Store, path: Store, table_id: str, entry: str | None) -> End:
    """Where a batch ended; None: the table's beginning."""
    if entry is None:
        return End(0, -1)
    noted = checkpoints.end(entry)
    if noted["reservoirId"] != table_id:
        raise LakeChanged(path.uri(), f"it was made anew: {checkpoint.uri()} goes on in a table of another id")
    return End(noted["reservoirVersion"], max(noted["index"], -1))


def _offset(table_id: str, end: End) -> str:
    place = {"reservoirId": table_id, "reservoirVersion": end.version, "index": end.file}
    return json.dumps({"sourceVersion": 1, **place, "isStartingVersion": False})


def _bytes(size: str) -> int:
    """ "512m" and the like."""
    return int(size[:-1]) * _UNITS[size[-1]] if size[-1] in _UNITS else int(size)
