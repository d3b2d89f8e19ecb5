"""Small tables of an object store copied to this machine, for queries: a data file never changes, and a query of the
store takes three requests for each of them, every time. No Spark here.

A copy is a Delta table in a temporary folder: a first commit that says what the table was, and one for each time that
it was brought up to date.
"""

import json
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq

from cdc_platform.config.storage import Storage
from cdc_platform.lake import copy_folders, log_state
from cdc_platform.lake.data_files import statistics
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.log_files import Action
from cdc_platform.lake.log_state import LogFiles
from cdc_platform.lake.store import Store
from cdc_platform.lake.turns import Turns
from cdc_platform.tables import TABLE_STATE

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FILES, _BYTES = 1024, 8 << 20
"""What a small table has at most."""
_BYTES_OF_STATES = 64 << 20
"""The same of TABLE_STATE: questions about it are many, and read all of it. A thousand tables that change each minute
make 35 MB a day."""
_COMMITS = 200
"""After so many a copy is made anew, without the files that don't count any more."""
_AT_ONCE = 16
"""Files that are fetched side by side."""


@dataclass(slots=True)
class Copy:
    """A table of a store at a version, in a folder that is removed with this. Whoever queries `table` keeps it."""

    of: Store
    metadata: Action
    table: "DeltaTable"
    _folder: "TemporaryDirectory[str]"
    identity: tuple[object, int] = (None, -1)
    """What tells its state from all others: a table and its version."""
    _there: dict[str, Action] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Its folder: data files have the paths that they have in the table."""
        return Folder(self._folder.name, Storage())

    def follow(self, told: LogFiles) -> bool:
        """Brings it to the table's files. False: it has other columns now, or the copy has become long."""
        if self.table.version() >= _COMMITS or told.metadata != self.metadata:
            return False
        files = {add["path"]: add for add in told.adds}
        new, gone = files.keys() - self._there.keys(), self._there.keys() - files.keys()
        if new or gone:
            self._fetch([files[path] for path in new])
            lines = [_removed(self._there[path]) for path in gone] + [self._added(files[path]) for path in new]
            _put(self._folder.name, self.table.version() + 1, lines)
            self.table.update_incremental()
            self._there = files
        self.identity = told.lineage, told.version
        return True

    def _added(self, add: Action) -> Action:
        metadata = pq.read_metadata(Path(self._folder.name) / unquote(add["path"]))
        leaves = [metadata.schema.column(i) for i in range(len(metadata.schema))]
        stats = statistics(metadata, tuple(leaf.path for leaf in leaves if not leaf.max_repetition_level))
        named = {**{name: add[name] for name in ("path", "partitionValues", "size")}, "stats": stats}
        return {"add": {**named, "modificationTime": 0, "dataChange": True}}

    def _fetch(self, adds: list[Action]) -> None:
        """Copies data files."""

        def one(add: Action) -> None:
            name = unquote(add["path"])
            target = Path(self._folder.name) / name
            if (data := self.of.read(name)) is None:
                raise FileNotFoundError(self.of.uri(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, adds))


_MOST = 256
"""Copies that are kept."""
_kept: "OrderedDict[Store, Copy]" = OrderedDict()
_turns = Turns()
_lock = threading.Lock()


def forget(path: Store) -> None:
    """Removes a table's copy."""
    with _lock:
        _kept.pop(path, None)


def there_is(path: Store) -> bool:
    """Whether a table was copied."""
    return path in _kept


def of(path: Store) -> Copy | None:
    """A table as it is now. None: there is none, it is large, its log can't be read in full, or it has more than data
    files and partitions (deletion vectors, mapped columns). For one thread at a time: what one fetches the next one
    has. Raises StorageError."""
    with _turns.of(path):
        return _of(path)


def _of(path: Store) -> Copy | None:
    with _lock:
        copy = _kept.pop(path, None)
    try:
        told = log_state.few(path)
        if told is None or told.protocol["minReaderVersion"] > 1 or not _is_small(path, told.adds):
            return None
        if copy is None or copy.identity[0] is not told.lineage or not copy.follow(told):
            copy = _made(told)
    except FileNotFoundError:  # upkeep has removed what this version had
        return None
    with _lock:
        _kept[path] = copy
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
    return copy


def _made(told: LogFiles) -> Copy:
    from deltalake import DeltaTable

    named = {name: told.metadata[name] for name in ("id", "schemaString", "partitionColumns")}
    named |= {"format": {"provider": "parquet", "options": {}}, "configuration": {}}
    folder = copy_folders.new()
    _put(folder.name, 0, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": named}])
    copy = Copy(told.path, told.metadata, DeltaTable(folder.name), folder)
    copy.follow(told)
    return copy


def _is_small(path: Store, adds: list[Action]) -> bool:
    most = _BYTES_OF_STATES if path.root.rstrip("/").endswith(f"/{TABLE_STATE.path}") else _BYTES
    return len(adds) <= _FILES and sum(add["size"] for add in adds) <= most


def _removed(add: Action) -> Action:
    return {"remove": {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}}


def _put(folder: str, version: int, lines: list[Action]) -> None:
    log = Path(folder) / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)), "utf-8")
