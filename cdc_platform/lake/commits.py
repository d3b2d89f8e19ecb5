"""A Delta table's log: its data files as the log names them, and commits that mark rows of them. delta-rs tells of no
deletion vectors and commits none. No Spark here.

Delta's protocol, "Action Reconciliation" and "Actions".
"""

import itertools
import json
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from cdc_platform.errors import LakeChanged, LakeNotShared, StorageError
from cdc_platform.lake import log_state
from cdc_platform.lake.data_files import Sink, Written, encoded
from cdc_platform.lake.deletion_vectors import Descriptor
from cdc_platform.lake.handles import handle
from cdc_platform.lake.log_files import Action, key
from cdc_platform.lake.log_state import Head, LogFiles
from cdc_platform.lake.store import Store

log = logging.getLogger(__name__)

_WRITTEN = frozenset(
    ("columnMapping", "deletionVectors", "timestampNtz", "appendOnly", "invariants", "checkpointProtection")
)
"""Features of tables that what is written here keeps to; a column's invariant would be told in its metadata, which
these tables have none of. checkpointProtection is about the removal of old log files, which nothing here does."""
_REFUSED = ("delta.appendOnly", "delta.enableChangeDataFeed")
_PLAIN, _FEATURES = 2, 7
"""Writer versions: up to which a table has nothing but appendOnly and invariants, and from which on it tells its
features one by one."""
VECTORS = "delta.enableDeletionVectors"
_INTERVAL, _ITS_DEFAULT = "delta.checkpointInterval", "10"
_APPEND_SECONDS, _PAUSE_SECONDS = 300.0, 0.1
"""How long an append is tried, and the longest pause after a try that lost: each other commit of the same moment costs
one, and a slow writer may lose many to quick ones."""


class Live(NamedTuple):
    """A table at one of its versions. adds: the log's `add` actions of its data files. interval: commits from one
    checkpoint to the next. marks: whether its files may have deletion vectors."""

    version: int
    adds: list[Action]
    interval: int
    marks: bool


class Marked(NamedTuple):
    """A data file of which rows don't count any more. vector: of all such rows; None: of none counts."""

    add: Action
    vector: Descriptor | None


def live(path: Store) -> Live | None:
    """A table as its newest commit leaves it. None: it has something that isn't kept to here (an unknown feature of the
    protocol, partitions, files of other places, a file twice), its log can't be read in full, or there is none."""
    try:
        told = log_state.now(path)
    except FileNotFoundError:
        return None
    return told and live_of(told)


def live_of(told: LogFiles) -> Live | None:
    """The same of what its log tells."""
    properties = told.metadata["configuration"]
    if unknown(told.protocol) or told.metadata.get("partitionColumns"):
        return None
    if refused(properties):
        return None
    if not all(map(_is_kept_to, told.adds)) or len({add["path"] for add in told.adds}) != len(told.adds):
        return None
    return empty(properties)._replace(version=told.version, adds=told.adds)


def refused(properties: Mapping[str, str]) -> bool:
    """Whether a table's properties ask for what isn't kept to here."""
    return any(properties.get(p, "false") != "false" for p in _REFUSED)


def empty(properties: Mapping[str, str]) -> Live:
    """The same of a table that has just been made."""
    return Live(0, [], int(properties.get(_INTERVAL, _ITS_DEFAULT)), properties.get(VECTORS) == "true")


def _interval(now: Head) -> int:
    return empty(now.metadata["configuration"]).interval


def counted(now: Live) -> int:
    """Rows of a table that count, by its log."""
    gone = sum(add["deletionVector"]["cardinality"] for add in now.adds if "deletionVector" in add)
    return sum(json.loads(add["stats"])["numRecords"] for add in now.adds) - gone


def counted_after(before: Live, written: Iterable[Written], marked: Iterable[Marked]) -> int:
    """The same of the version that `commit` makes of these."""
    marked = list(marked)
    gone = {key(m.add) for m in marked}
    stay = [add for add in before.adds if key(add) not in gone]
    stay += [{**m.add, "deletionVector": m.vector} for m in marked if m.vector is not None]
    return counted(before._replace(adds=stay)) + sum(file.rows for file in written)


def _is_kept_to(add: Action) -> bool:
    """Whether a data file stands in its table's folder, and its rows are told."""
    return not (":" in add["path"] or add["path"].startswith("/")) and "numRecords" in add.get("stats", "")


def commit(path: Store, before: Live, written: Iterable[Written], marked: Iterable[Marked], told: Action) -> bool:
    """Makes the next version of a table: with some more files, and with rows of others marked. told: what its history
    says. False: another has made that version, and nothing was done. Raises LakeChanged for vectors in a table that
    has them disabled: some readers then don't look for any."""
    written, marked = list(written), list(marked)
    if not before.marks and any(file.vector is not None for file in marked):
        raise LakeChanged(path.uri(), "rows were marked in vectors, and its properties don't enable these")
    _seen(path, written)
    now, version = int(time.time() * 1000), before.version + 1
    lines: list[Action] = [{"commitInfo": {"timestamp": now, "readVersion": before.version, **told}}]
    lines += [{"add": _added(file, now)} for file in written]
    for file in marked:
        lines.append({"remove": _removed(file.add, now)})
        if file.vector is not None:
            stays = {"dataChange": True, "stats": _wide(file.add["stats"]), "deletionVector": file.vector}
            lines.append({"add": {**file.add, **stays}})
    if not log_state.commit(path, version, lines):
        return False
    _checkpointed(path, version, before.interval)
    return True


def add_version(before: Head, operation: str, lines: list[Action]) -> bool:
    """Makes the next version of a table of these lines, which change no rows of files that stay. False: another has
    made that version, and nothing was done."""
    metadata = next((line["metaData"] for line in lines if "metaData" in line), before.metadata)
    said = {"operation": operation, "operationParameters": {}, "engineInfo": "cdc-platform"}
    info = {"timestamp": int(time.time() * 1000), "readVersion": before.version, **said}
    if done := log_state.commit(before.path, before.version + 1, [{"commitInfo": info}, *lines]):
        _checkpointed(before.path, before.version + 1, empty(metadata["configuration"]).interval)
    return done


def removes(adds: Iterable[Action]) -> list[Action]:
    """What takes data files out of a table."""
    now = int(time.time() * 1000)
    return [{"remove": _removed(add, now)} for add in adds]


def _checkpointed(path: Store, version: int, interval: int) -> None:
    """One every so many commits. Without it the log is read from the last one on: no reason to fail."""
    from deltalake.exceptions import DeltaError

    if version % interval:
        return
    try:
        with handle(path) as opened:
            opened.table.create_checkpoint()
    except (DeltaError, StorageError) as error:
        log.warning("%s: no checkpoint: %s", path.uri(), error)


def _added(file: Written, now: int, partition: Mapping[str, str] = MappingProxyType({})) -> Action:
    named = {"path": file.path, "partitionValues": dict(partition), "size": file.size}
    return {**named, "modificationTime": now, "dataChange": True, "stats": file.stats}


def _removed(add: Action, now: int) -> Action:
    kept = {k: add[k] for k in ("path", "partitionValues", "size", "deletionVector", "tags") if k in add}
    return {**kept, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}


def _wide(stats: str) -> str:
    """Statistics of a file of whose rows not all count: lowest and highest values may be of those that don't."""
    return encoded({**json.loads(stats, parse_float=Decimal), "tightBounds": False})


def done_before(table: Store, app: str, version: int) -> bool:
    """Whether a table has a commit of this application with this number or a later one. Raises LakeChanged."""
    return _head(table).recorded((app, version))


def unused(app: str, number: int, *tables: Store) -> int:
    """The first number from this one on under which none of these tables takes a commit of an application for one that
    it has. A replay that is put in place brings rows that count from the beginning; the logs keep the numbers."""
    return max(number, *(_head(table).last(app) + 1 for table in tables))


def _head(table: Store, *, look: bool = True) -> Head:
    """A table to commit to. Raises LakeChanged where it has what isn't kept to here."""
    try:
        now = log_state.head(table, look=look)
    except FileNotFoundError as error:
        raise LakeChanged(table.uri(), f"its log can't be read in full: {error}") from None
    if now is None:
        raise LakeChanged(table.uri(), "there is no table")
    if more := unknown(now.protocol):
        raise LakeChanged(table.uri(), f"its protocol asks writers for what isn't known: {', '.join(more)}")
    return now


def _seen(table: Store, files: Iterable[Written]) -> None:
    """Raises LakeNotShared for a file that this process doesn't see as it was written."""
    for file in () if table.remote else files:
        if table.size(file.path) != file.size:
            raise LakeNotShared(table.uri(file.path))


def append_files(
    sink: Sink, files: list[Written], once: tuple[str, int] | None = None, *, looked_at: bool = False
) -> None:
    """Name files in a table's log. once: application and number, under which the table takes files once; a commit
    without files records it, too. looked_at: whether the table was just now, and only another commit of this moment may
    be unknown here."""
    if files or once is not None:
        append(sink.table, lambda _: (sink, files), once, looked_at=looked_at)


def append(
    path: Store,
    make: Callable[[Head], tuple[Sink, list[Written]]],
    once: tuple[str, int] | None = None,
    *,
    unless: Callable[[], bool] | None = None,
    looked_at: bool = False,
) -> Sink | None:
    """As `append_files`, of files that are made now unless the table has taken them before (None). unless: asked within
    each try, of the table as that try knows it or newer, whether it has. Raises LakeChanged where the table has what
    isn't kept to here, StorageError where others commit all the time."""
    made: tuple[Sink, list[Written]] | None = None
    for tried in tries(path):
        now = _head(path, look=tried > 0 or not looked_at)
        if now.recorded(once) or (unless is not None and unless()):
            return None
        sink, files = made = made or make(now)
        _seen(path, files)
        if log_state.commit(path, now.version + 1, _appended(sink, files, once, now.version)):
            _checkpointed(path, now.version + 1, _interval(now))
            return sink
    raise AssertionError(path)


def tries(path: Store) -> Iterator[int]:
    """Tries of a commit, with pauses between them: how many there were before. Raises StorageError where there were too
    many."""
    until, tried = time.monotonic() + _APPEND_SECONDS, itertools.count()
    while time.monotonic() < until:
        yield next(tried)
        time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311
    raise StorageError(path.uri(), "others commit to it all the time", retriable=True)


def _appended(sink: Sink, files: list[Written], once: tuple[str, int] | None, before: int) -> list[Action]:
    now, partition = int(time.time() * 1000), dict(sink.partition)
    lines: list[Action] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(partition))},
                "readVersion": before,
                "isBlindAppend": True,
                "operationMetrics": {"numFiles": str(len(files)), "numOutputRows": str(sum(f.rows for f in files))},
                "engineInfo": "cdc-platform",
            }
        }
    ]
    return [*lines, *_number(once, now), *({"add": _added(f, now, partition)} for f in files)]


def _number(once: tuple[str, int] | None, now: int) -> list[Action]:
    """What records it in a commit."""
    return [] if once is None else [{"txn": {"appId": once[0], "version": once[1], "lastUpdated": now}}]


def replace(
    sink: Sink,
    gone: Collection[str],
    files: list[Written],
    *,
    news: bool = False,
    once: tuple[str, int] | None = None,
) -> None:
    """Name files in place of others (`gone`: their paths in the table). Unless `news`, they hold the same rows, or what
    these should have held: who reads the table commit by commit doesn't take them for new ones (`dataChange` is false).
    once: as of `append_files`. Raises LakeChanged where one of the others isn't there any more, and as `append`."""

    path = sink.table
    for _ in tries(path):
        if _head(path).recorded(once):
            return
        if (told := log_state.now(path, look=False)) is None:
            continue
        there = {unquote(add["path"]): add for add in told.adds}
        if lost := sorted(set(gone) - set(there)):
            raise LakeChanged(path.uri(), f"its file {lost[0]} is gone: something else rewrote the table")
        _seen(path, files)
        now, before = int(time.time() * 1000), told.version
        info = {"timestamp": now, "operation": "REWRITE", "readVersion": before, "engineInfo": "cdc-platform"}
        same, partition = {"dataChange": news}, dict(sink.partition)
        lines: list[Action] = [{"commitInfo": info}, *_number(once, now)]
        lines += [{"remove": {**_removed(there[name], now), **same}} for name in sorted(gone)]
        lines += [{"add": {**_added(f, now, partition), **same}} for f in files]
        if log_state.commit(path, before + 1, lines):
            return _checkpointed(path, before + 1, _interval(told))


def unknown(protocol: Action) -> list[str]:
    """Features that a table asks its writers to keep to, and that aren't kept to here."""
    if (version := protocol["minWriterVersion"]) <= _PLAIN:
        return []
    if version != _FEATURES:
        return [f"version {version}"]
    return sorted({*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())} - _WRITTEN)
