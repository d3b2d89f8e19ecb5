"""Small tables of an object store copied to this machine, for queries: a data file never changes, and a query of the
store takes three requests for each of them, every time. No Spark here.

A copy is a Delta table in a temporary folder: a first commit that says what the table was, and one for each time that
it was brought up to date.
"""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq

from cdc_platform.config.storage import Storage
from cdc_platform.lake.data_files import statistics
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.handles import DataFile, Handle
from cdc_platform.lake.log_state import Action
from cdc_platform.lake.store import Store

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FILES, _BYTES = 1024, 8 << 20
"""What a small table has at most."""
_COMMITS = 200
"""After so many a copy is made anew, without the files that don't count any more."""
_AT_ONCE = 16
"""Files that are fetched side by side."""


@dataclass(slots=True)
class Copy:
    """A table of a store at a version, in a folder that is removed with this. Whoever queries `table` keeps it."""

    of: Store
    schema: str
    table: "DeltaTable"
    _folder: "tempfile.TemporaryDirectory[str]"
    _there: dict[str, DataFile] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Its folder: data files have the paths that they have in the table."""
        return Folder(self._folder.name, Storage())

    def follow(self, opened: Handle, files: dict[str, DataFile]) -> bool:
        """Brings it to these files of the table. False: it has other columns now, or the copy has become long."""
        if self.table.version() >= _COMMITS or opened.table.schema().to_json() != self.schema:
            return False
        new, gone = files.keys() - self._there.keys(), self._there.keys() - files.keys()
        if new or gone:
            self._fetch([files[path] for path in new])
            lines = [_removed(self._there[path]) for path in gone] + [self._added(files[path]) for path in new]
            _put(self._folder.name, self.table.version() + 1, lines)
            self.table.update_incremental()
            self._there = files
        return True

    def _added(self, file: DataFile) -> Action:
        metadata = pq.read_metadata(Path(self._folder.name) / unquote(file.path))
        leaves = [metadata.schema.column(i) for i in range(len(metadata.schema))]
        stats = statistics(metadata, tuple(leaf.path for leaf in leaves if not leaf.max_repetition_level))
        named = {"path": file.path, "partitionValues": file.partition, "size": file.size, "stats": stats}
        return {"add": {**named, "modificationTime": 0, "dataChange": True}}

    def _fetch(self, files: list[DataFile]) -> None:
        """Copies data files."""

        def one(file: DataFile) -> None:
            target = Path(self._folder.name) / unquote(file.path)
            if (data := self.of.read(unquote(file.path))) is None:
                raise FileNotFoundError(self.of.uri(unquote(file.path)))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, files))


def of(opened: Handle) -> Copy | None:
    """A table as it is now. None: it is large, or has more than data files and partitions by texts (deletion vectors,
    mapped columns). Raises StorageError."""
    copy: Copy | None = opened.copy
    if copy is None and opened.version < opened.copied_from:
        return None
    opened.copy = None
    files = opened.data_files()
    if opened.table.protocol().min_reader_version > 1 or not (_is_small(files) and _are_texts(files)):
        opened.copied_from = opened.version + _COMMITS
        return None
    try:
        if copy is None or not copy.follow(opened, files):
            copy = _made(opened, files)
    except FileNotFoundError:  # upkeep has removed what this version had
        return None
    if opened.stamped():
        opened.copy = copy
    return copy


def _made(opened: Handle, files: dict[str, DataFile]) -> Copy:
    from deltalake import DeltaTable

    metadata, schema = opened.table.metadata(), opened.table.schema().to_json()
    told = {"id": str(metadata.id), "schemaString": schema, "partitionColumns": list(metadata.partition_columns)}
    told |= {"format": {"provider": "parquet", "options": {}}, "configuration": {}}
    folder = tempfile.TemporaryDirectory(prefix="cdc-copy-", ignore_cleanup_errors=True)
    _put(folder.name, 0, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": told}])
    copy = Copy(opened.path, schema, DeltaTable(folder.name), folder)
    copy.follow(opened, files)
    return copy


def _is_small(files: dict[str, DataFile]) -> bool:
    return len(files) <= _FILES and sum(file.size for file in files.values()) <= _BYTES


def _are_texts(files: dict[str, DataFile]) -> bool:
    """Whether the log tells the files' partitions as they are here: other types have a notation of their own there."""
    return all(value is None or isinstance(value, str) for file in files.values() for value in file.partition.values())


def _removed(file: DataFile) -> Action:
    return {"remove": {"path": file.path, "deletionTimestamp": 0, "dataChange": True}}


def _put(folder: str, version: int, lines: list[Action]) -> None:
    log = Path(folder) / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)), "utf-8")
