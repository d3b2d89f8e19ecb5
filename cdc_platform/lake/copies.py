"""Small tables of an object store copied to this machine, for queries: a data file never changes, and a query of the
store takes three requests for each of them, every time. No Spark here.

A copy is a Delta table in a temporary folder: a first commit that says what the table was, and one for each time that
it was brought up to date.
"""

import json
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cdc_platform.config.storage import Storage
from cdc_platform.lake import answers, commits
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.handles import Action, Handle
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
    version: int
    table: "DeltaTable"
    _folder: "tempfile.TemporaryDirectory[str]"
    _sizes: dict[str, int] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Its folder: data files have the paths that they have in the table."""
        return Folder(self._folder.name, Storage())

    @property
    def is_small(self) -> bool:
        """Whether the table isn't too large to be copied."""
        return _is_small(self._sizes.values())

    def follow(self, opened: Handle) -> bool:
        """Brings it to the table's newest version. False: more than data files has changed, or it has become long."""
        if self.table.version() >= _COMMITS:
            return False
        lines: list[Action] = []
        for version in range(self.version + 1, opened.version + 1):
            for action in opened.actions(version):
                if not action.keys() <= _FOLLOWED or not _is_plain(action):
                    return False
                lines += [_line(action)] if action.keys() & _DATA else []
        gone = {line["remove"]["path"] for line in lines if "remove" in line}
        added = {line["add"]["path"]: line for line in lines if "add" in line and line["add"]["path"] not in gone}
        for path in gone:
            self._sizes.pop(path, None)
        self._fetch(added.values())
        there = [line for line in lines if "remove" in line and (Path(self._folder.name) / _name(line)).exists()]
        if added or there:
            _put(self._folder.name, self.table.version() + 1, [*there, *added.values()])
            self.table.update_incremental()
        self.version = opened.version
        return True

    def _fetch(self, lines: Iterable[Action]) -> None:
        """Copies data files."""
        lines = list(lines)

        def one(line: Action) -> None:
            target = Path(self._folder.name) / _name(line)
            if (data := self.of.read(_name(line))) is None:
                raise FileNotFoundError(self.of.uri(_name(line)))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, lines))
        self._sizes |= {line["add"]["path"]: line["add"]["size"] for line in lines}


_DATA = {"add", "remove"}
_FOLLOWED = {*_DATA, "commitInfo", "txn"}


def of(opened: Handle) -> Copy | None:
    """A table as it is now. None: it is large, or has more than data files and partitions (deletion vectors, mapped
    columns). Raises StorageError."""
    copy: Copy | None = opened.copy
    if copy is None and opened.version < opened.copied_from:
        return None
    opened.copy = None
    try:
        if copy is None or not copy.follow(opened):
            copy = _made(opened)
    except FileNotFoundError:  # upkeep has removed what this version had
        return None
    if copy is None or not copy.is_small:
        opened.copied_from = opened.version + _COMMITS
        return None
    if opened.stamped():
        opened.copy = copy
    return copy


def _made(opened: Handle) -> Copy | None:
    from deltalake import DeltaTable

    protocol = opened.table.protocol()
    if protocol.min_reader_version > 1:
        return None
    if not _is_small(answers.table(opened.table.get_add_actions())["size_bytes"].to_pylist()):
        return None
    adds = [{"add": add} for add in commits.adds_of(opened, opened.version)]
    if not (all(map(_is_plain, adds)) and _is_small(line["add"]["size"] for line in adds)):
        return None
    metadata = opened.table.metadata()
    told = {
        **{"id": str(metadata.id), "format": {"provider": "parquet", "options": {}}},
        **{"schemaString": opened.table.schema().to_json(), "partitionColumns": list(metadata.partition_columns)},
        "configuration": {},
    }
    folder = tempfile.TemporaryDirectory(prefix="cdc-copy-", ignore_cleanup_errors=True)
    lines = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": told}]
    _put(folder.name, 0, [*lines, *map(_line, adds)])
    copy = Copy(opened.path, opened.version, DeltaTable(folder.name), folder)
    copy._fetch(adds)
    return copy


def _is_small(sizes: Iterable[int]) -> bool:
    sizes = list(sizes)
    return len(sizes) <= _FILES and sum(sizes) <= _BYTES


def _is_plain(action: Action) -> bool:
    """Whether a data file stands in its table's folder, and all its rows count."""
    of: dict[str, Any] = action.get("add") or action.get("remove") or {}
    path = of.get("path", "")
    return "deletionVector" not in of and ":" not in path and not path.startswith("/")


def _line(action: Action) -> Action:
    """What a copy says of it."""
    if add := action.get("add"):
        kept = {k: add[k] for k in ("path", "partitionValues", "size", "stats") if add.get(k) is not None}
        return {"add": {**kept, "modificationTime": 0, "dataChange": True}}
    return {"remove": {"path": action["remove"]["path"], "deletionTimestamp": 0, "dataChange": True}}


def _name(line: Action) -> str:
    return unquote((line.get("add") or line["remove"])["path"])


def _put(folder: str, version: int, lines: list[Action]) -> None:
    log = Path(folder) / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)), "utf-8")
