"""Delta tables that a process has opened: a handle is kept and brought up to date, which takes one look at the log
where opening reads all of it since its last checkpoint."""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
import pyarrow.parquet as pq

from cdc_platform.lake import lease
from cdc_platform.lake.store import File, Store

if TYPE_CHECKING:
    from deltalake import DeltaTable

Action = dict[str, Any]

_MOST = 2048
"""Handles that are kept; each holds its table's files and their statistics: a source may have a thousand tables."""
_DECODER, _ENCODER = msgspec.json.Decoder(), msgspec.json.Encoder()


@dataclass(slots=True)
class Handle:
    """An open table. version: the newest one known; `table` may lack commits that this process appended (`_own`) where
    only the log was asked for."""

    path: Store
    table: "DeltaTable"
    version: int = -1
    adds: tuple[int, dict[Any, Action]] | None = None
    """Data files as its log told them up to a version (commits.py); None: it wasn't asked for."""
    _own: set[int] = field(default_factory=set)
    _stamp: str | None = None
    """Of the commit that `table` has (None: not looked at): a table that was made again isn't taken for the one before
    it."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _counted: int = -1

    @property
    def identity(self) -> tuple[int, Any]:
        """What tells its state from all others."""
        return self.table.version(), self._stamp if self._stamp is not None else object()

    def recorded(self, once: tuple[str, int] | None) -> bool:
        """Whether there is a commit of this application with this number or a later one (Delta's protocol, "Transaction
        Identifiers"); never for None."""
        if once is None:
            return False
        if self._counted < 0:
            first = checkpoint(self.path, self.version)
            self._take(of_checkpoint(self.path, first, "txn"))
            self._counted = first
        for one in range(self._counted + 1, self.version + 1):
            self._take(actions(self.path, one))
            self._counted = one
        return self._numbers.get(once[0], -1) >= once[1]

    def append(self, lines: list[Action]) -> bool:
        """Makes the next version, which only adds files. False: another has made it, and nothing was done."""
        version = self.version + 1
        lease.check()
        if not self.path.put_new(f"_delta_log/{_commit(version)}", _ENCODER.encode_lines(lines)):
            return False
        if self._counted == self.version:
            self._take(iter(lines))
            self._counted = version
        self._own.add(version)
        self.version = version
        return True

    def _take(self, found: Iterator[Action]) -> None:
        for action in found:
            if told := action.get("txn"):
                self._numbers[told["appId"]] = told["version"]

    def newest(self, *, log: bool) -> bool:
        """Brings it to the newest version. False: it is of no use any more."""
        from deltalake.exceptions import DeltaError

        there = self.table.version()
        if self._stamp is None:
            self.adds = None  # what is there now may be another table
        stamps = self.path.stamps("_delta_log", after=f"{there:020d}")
        commits = {int(found[1]): stamp for name, stamp in stamps.items() if (found := _COMMIT.fullmatch(name))}
        if (stamp := commits.get(there)) is None or self._stamp not in (None, stamp):
            return False
        self._stamp = stamp
        if not (log and commits.keys() - {there} <= self._own):
            try:
                if len(commits) > 1:
                    self.table.update_incremental()
            except DeltaError:
                return False
            self._own.clear()
            self.caught_up()
            self._stamp = commits.get(self.version)
        self.version = max(self.version, *commits)
        return True

    def stamped(self) -> bool:
        """Whether its newest commit is known from others of that number; what was read of it before isn't kept else."""
        if self._stamp is None:
            self.adds = None
            stamps = self.path.stamps("_delta_log", after=f"{self.table.version():020d}")
            self._stamp = stamps.get(_commit(self.table.version()))
        return self._stamp is not None

    def caught_up(self) -> None:
        """After a commit by `table`."""
        if self.table.version() != self.version:
            self.version, self._stamp = self.table.version(), None


_kept: "OrderedDict[Store, Handle]" = OrderedDict()
_turns: "WeakValueDictionary[Store, _Turn]" = WeakValueDictionary()
_lock = threading.Lock()


class _Turn:
    """Who uses a table's handle."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


@contextmanager
def handle(path: Store, *, log: bool = False) -> Iterator[Handle]:
    """A table at its newest version, for one thread at a time: others wait. log: what `table` tells isn't asked for,
    but its columns and properties. After an exception it is opened again. Raises deltalake's TableNotFoundError."""
    with _lock:
        turn = _turns.setdefault(path, _Turn())
    with turn.lock:
        with _lock:
            kept = _kept.pop(path, None)
        if kept is None or not kept.newest(log=log):
            table = opened(path)
            kept = Handle(path, table, table.version())
        yield kept
        if not log:
            kept.caught_up()
        with _lock:
            _kept[path] = kept
            while len(_kept) > _MOST:
                _kept.popitem(last=False)


def is_kept(path: Store) -> bool:
    """Whether a table has been opened here."""
    return path in _kept


def opened(path: Store, version: int | None = None) -> "DeltaTable":
    """A table at its newest version, or at this one. Raises deltalake's TableNotFoundError."""
    from deltalake import DeltaTable

    return DeltaTable(path.uri(), version, path.options)


_COMMIT = re.compile("([0-9]{20})[.]json")


def _commit(version: int) -> str:
    return f"{version:020d}.json"


def actions(path: Store, version: int) -> Iterator[Action]:
    """Actions of one commit (Delta's protocol, "Delta Log Entries"). Raises FileNotFoundError."""
    if (lines := path.read(f"_delta_log/{_commit(version)}")) is None:
        raise FileNotFoundError(f"{path.uri()}: commit {version}")
    yield from (_DECODER.decode(line) for line in lines.split(b"\n") if line.strip())


def checkpoint(path: Store, version: int) -> int:
    """The newest checkpoint that is there in full, of one file, up to a version; -1: none is told."""
    hint = path.read("_delta_log/_last_checkpoint")
    told = _DECODER.decode(hint) if hint else {}
    found = told.get("version", -1)
    return found if "parts" not in told and found <= version else -1


def of_checkpoint(path: Store, version: int, kind: str) -> Iterator[Action]:
    """Actions of a kind that a checkpoint tells; -1: none. Raises FileNotFoundError."""
    if version < 0:
        return
    named = File(path, f"_delta_log/{version:020d}.checkpoint.parquet")
    with named.open() as opened_, pq.ParquetFile(opened_, pre_buffer=path.remote) as file:
        for batch in file.iter_batches(columns=[kind], use_threads=False):
            found = batch.column(kind)
            yield from ({kind: action} for action in found.filter(found.is_valid()).to_pylist())
