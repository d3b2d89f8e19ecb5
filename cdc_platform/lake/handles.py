"""Delta tables that a process has opened by delta-rs: a handle is kept and brought up to date, which takes one look at
the log where opening reads all of it since its last checkpoint."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_platform.lake import copies, log_state
from cdc_platform.lake.log_state import Head
from cdc_platform.lake.store import Store
from cdc_platform.lake.turns import Turns

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST = 2048
"""Handles that are kept; each holds its table's files and their statistics: a source may have a thousand tables."""


@dataclass(slots=True)
class Handle:
    """An open table."""

    table: "DeltaTable"
    lineage: object

    @property
    def identity(self) -> tuple[object, int]:
        """What tells its state from all others."""
        return self.lineage, self.table.version()

    def reaches(self, head: Head) -> bool:
        """Brings it to a version of the table, or beyond. False: it is of no use any more."""
        from deltalake.exceptions import DeltaError

        if self.lineage is not head.lineage:
            return False
        if self.table.version() < head.version:
            try:
                self.table.update_incremental()
            except DeltaError:
                return False
        return self.table.version() >= head.version


_kept: "OrderedDict[Store, Handle]" = OrderedDict()
_turns = Turns()
_lock = threading.Lock()


@contextmanager
def handle(path: Store) -> Iterator[Handle]:
    """A table at its newest version, for one thread at a time: others wait. After an exception it is opened again.
    Raises deltalake's TableNotFoundError."""
    with _turns.of(path):
        with _lock:
            kept = _kept.pop(path, None)
        try:
            now = log_state.head(path)
        except FileNotFoundError:  # delta-rs may know how to read it
            now = None
        if kept is None or now is None or not kept.reaches(now):
            kept = _opened(path, now)
        yield kept
        if now is None or kept.table.version() != now.version:
            log_state.look_again(path)
        with _lock:
            _kept[path] = kept
            while len(_kept) > _MOST:
                _kept.popitem(last=False)


def _opened(path: Store, now: Head | None) -> Handle:
    table = opened(path)
    is_the_same = now is not None and str(table.metadata().id) == now.metadata["id"]
    return Handle(table, now.lineage if now and is_the_same else object())


def head(path: Store, *, look: bool = True) -> Head:
    """A table, as log_state.head; by delta-rs, which tells no numbers of applications, where its log can't be read in
    full. Raises deltalake's TableNotFoundError."""
    from deltalake.exceptions import TableNotFoundError

    try:
        found = log_state.head(path, look=look)
    except FileNotFoundError:
        return _by_delta_rs(path)
    if found is None:
        raise TableNotFoundError(f"no Delta table at {path.uri()}")
    return found


def _by_delta_rs(path: Store) -> Head:
    with handle(path) as opened:
        protocol, metadata, schema = opened.table.protocol(), opened.table.metadata(), opened.table.schema()
        lineage, version = opened.identity
    asks = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
    asks |= {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    told: dict[str, Any] = {"id": str(metadata.id), "schemaString": schema.to_json()}
    told |= {"configuration": metadata.configuration, "partitionColumns": metadata.partition_columns}
    return Head(path, version, asks, {**told, "description": metadata.description}, {}, lineage)


def forget(path: Store) -> None:
    """Whoever asks next opens a table anew: its log was written anew."""
    with _lock:
        _kept.pop(path, None)
    copies.forget(path)
    log_state.forget(path)


def opened(path: Store, version: int | None = None) -> "DeltaTable":
    """A table at its newest version, or at this one. Raises deltalake's TableNotFoundError."""
    from deltalake import DeltaTable

    return DeltaTable(path.uri(), version, path.options)
