"""A Delta table's log: its data files as the log names them, and commits that mark rows of them. delta-rs tells of no
deletion vectors and commits none. No Spark here.

Delta's protocol, "Action Reconciliation" and "Actions".
"""

import json
import logging
import time
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow.parquet as pq

from cdc_platform.errors import LakeNotShared, StorageError
from cdc_platform.lake import lease
from cdc_platform.lake.data_files import Sink, Written, encoded
from cdc_platform.lake.deletion_vectors import Descriptor
from cdc_platform.lake.delta_table import appending, opened, recorded, retried
from cdc_platform.lake.store import File, Store

if TYPE_CHECKING:
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

Action = dict[str, Any]

_WRITTEN = frozenset(
    ("columnMapping", "deletionVectors", "timestampNtz", "appendOnly", "invariants", "checkpointProtection")
)
"""Features of tables that what is written here keeps to; a column's invariant would be told in its metadata, which
these tables have none of. checkpointProtection is about the removal of old log files, which nothing here does."""
_REFUSED = ("delta.appendOnly", "delta.enableChangeDataFeed")
_PLAIN, _FEATURES = 2, 7
"""Writer versions: up to which a table has nothing but appendOnly and invariants, and from which on it tells its
features one by one."""
_INTERVAL, _ITS_DEFAULT = "delta.checkpointInterval", "10"
_DECODER, _ENCODER = msgspec.json.Decoder(), msgspec.json.Encoder()


class Live(NamedTuple):
    """A table at one of its versions. adds: the log's `add` actions of its data files. interval: commits from one
    checkpoint to the next."""

    version: int
    adds: list[Action]
    interval: int


class Marked(NamedTuple):
    """A data file of which rows don't count any more. vector: of all such rows; None: of none counts."""

    add: Action
    vector: Descriptor | None


def live(path: Store) -> Live | None:
    """A table as its newest commit leaves it. None: it has something that isn't kept to here (an unknown feature of the
    protocol, partitions, files of other places), or its log can't be read in full."""
    table = opened(path)
    protocol, metadata = table.protocol(), table.metadata()
    asked = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    known = protocol.min_writer_version <= _PLAIN or protocol.min_writer_version == _FEATURES
    if not known or not asked <= _WRITTEN or metadata.partition_columns:
        return None
    if any(metadata.configuration.get(p, "false") != "false" for p in _REFUSED):
        return None
    version, adds = table.version(), {}
    try:
        first = _checkpoint(path, version)
        for action in (*_of_checkpoint(path, first), *_of_commits(path, first + 1, version)):
            _take(action, adds)
    except FileNotFoundError:
        return None
    if not all(map(_is_kept_to, adds.values())):
        return None
    return Live(version, list(adds.values()), int(metadata.configuration.get(_INTERVAL, _ITS_DEFAULT)))


def _is_kept_to(add: Action) -> bool:
    """Whether a data file stands in its table's folder, and its rows are told."""
    return not (":" in add["path"] or add["path"].startswith("/")) and "numRecords" in add.get("stats", "")


def _take(action: Action, adds: dict[tuple[str, Any], Action]) -> None:
    if add := action.get("add"):
        adds[_key(add)] = _told(add)
    elif remove := action.get("remove"):
        adds.pop(_key(remove), None)


def _key(of: Action) -> tuple[str, Any]:
    vector = of.get("deletionVector")
    return of["path"], vector and (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


def _checkpoint(path: Store, version: int) -> int:
    """The newest checkpoint that is there in full, of one file, up to a version; -1: none is told."""
    hint = path.read("_delta_log/_last_checkpoint")
    told = json.loads(hint) if hint else {}
    found = told.get("version", -1)
    return found if "parts" not in told and found <= version else -1


def _of_checkpoint(path: Store, version: int) -> Iterator[Action]:
    if version < 0:
        return
    named = File(path, f"_delta_log/{version:020d}.checkpoint.parquet")
    with named.open() as opened_, pq.ParquetFile(opened_, pre_buffer=path.remote) as file:
        for batch in file.iter_batches(columns=["add"], use_threads=False):
            found = batch.column("add")
            for add in found.filter(found.is_valid()).to_pylist():
                yield {"add": {**add, **{k: dict(add[k] or ()) for k in ("partitionValues", "tags") if k in add}}}


def _told(add: Action) -> Action:
    """An action without what it doesn't tell."""
    told = {k: v for k, v in add.items() if v is not None and not k.endswith("_parsed")}
    if vector := told.get("deletionVector"):
        told["deletionVector"] = {k: v for k, v in vector.items() if v is not None}
    return told


def _of_commits(path: Store, first: int, last: int) -> Iterator[Action]:
    for version in range(first, last + 1):
        yield from actions(path, version)


def actions(path: Store, version: int) -> Iterator[Action]:
    """Actions of one commit (Delta's protocol, "Delta Log Entries"). Raises FileNotFoundError."""
    if (lines := path.read(f"_delta_log/{version:020d}.json")) is None:
        raise FileNotFoundError(f"{path.uri()}: commit {version}")
    yield from (_DECODER.decode(line) for line in lines.split(b"\n") if line.strip())


def commit(path: Store, before: Live, written: Iterable[Written], marked: Iterable[Marked], told: Action) -> bool:
    """Makes the next version of a table: with some more files, and with rows of others marked. told: what its history
    says. False: another has made that version, and nothing was done."""
    written = list(written)
    _seen(path, written)
    now, version = int(time.time() * 1000), before.version + 1
    lines: list[Action] = [{"commitInfo": {"timestamp": now, "readVersion": before.version, **told}}]
    lines += [{"add": _added(file, now)} for file in written]
    for file in marked:
        lines.append({"remove": _removed(file.add, now)})
        if file.vector is not None:
            stays = {"dataChange": True, "stats": _wide(file.add["stats"]), "deletionVector": file.vector}
            lines.append({"add": {**file.add, **stays}})
    lease.check()
    if not path.put_new(f"_delta_log/{version:020d}.json", _ENCODER.encode_lines(lines)):
        return False
    if version % before.interval == 0:
        _checkpointed(path)
    return True


def _checkpointed(path: Store) -> None:
    """Without one the log is read from the last one on: no reason to fail."""
    from deltalake.exceptions import DeltaError

    try:
        opened(path).create_checkpoint()
    except (DeltaError, StorageError) as error:
        log.warning("%s: no checkpoint: %s", path.uri(), error)


def _added(file: Written, now: int) -> Action:
    named = {"path": file.path, "partitionValues": {}, "size": file.size}
    return {**named, "modificationTime": now, "dataChange": True, "stats": file.stats}


def _removed(add: Action, now: int) -> Action:
    kept = {k: add[k] for k in ("path", "partitionValues", "size", "deletionVector", "tags") if k in add}
    return {**kept, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}


def _wide(stats: str) -> str:
    """Statistics of a file of whose rows not all count: lowest and highest values may be of those that don't."""
    return encoded({**json.loads(stats, parse_float=Decimal), "tightBounds": False})


def done_before(table: Store, app: str, version: int) -> bool:
    """Whether a table has a commit of this application with this number or a later one."""
    return recorded(opened(table), (app, version))


def _seen(table: Store, files: Iterable[Written]) -> None:
    """Raises LakeNotShared for a file that this process doesn't see as it was written."""
    for file in () if table.remote else files:
        if table.size(file.path) != file.size:
            raise LakeNotShared(table.uri(file.path))


def append_files(sink: Sink, files: list[Written], once: tuple[str, int] | None = None) -> None:
    """Name files in a table's log. once: application and number, under which the table takes files once; a commit
    without files records it, too."""
    if not files and once is None:
        return
    _seen(sink.table, files)
    retried(sink.table, lambda table: _append(table, sink, files, once))


def _append(table: "DeltaTable", sink: Sink, files: list[Written], once: tuple[str, int] | None) -> None:
    from deltalake.transaction import AddAction, RemoveAction

    if recorded(table, once):
        return
    values = dict(sink.partition)
    now = int(time.time() * 1000)
    adds: list[AddAction | RemoveAction] = [AddAction(f.path, f.size, values, now, True, f.stats) for f in files]
    table.create_write_transaction(adds, "append", table.schema(), list(values), commit_properties=appending(once))
