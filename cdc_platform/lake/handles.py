"""Delta tables that a process has opened: a handle is kept and brought up to date, which takes one look at the log
where opening reads all of it since its last checkpoint."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from cdc_platform.lake import answers, lease, log_state
from cdc_platform.lake.log_state import Action, actions, checkpoint, of_checkpoint
from cdc_platform.lake.store import Store, commit_name
from cdc_platform.tables import HISTORY_PATH, SNAPSHOT_PATH, TOMBSTONES_PATH, TYPED_CHANGES_PATH

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PARTITION = "partition."
_MOST = 2048
"""Handles that are kept; each holds its table's files and their statistics: a source may have a thousand tables."""
_OWN = 64
"""Commits of its own that a handle keeps beyond those that its table lacks."""
_ENCODER = msgspec.json.Encoder()


class DataFile(NamedTuple):
    """A data file as its table's log names it: `path` as it stands there (percent-encoded), bytes, partition (values of
    other types than texts as Python has them; the platform's tables have none)."""

    path: str
    size: int
    partition: dict[str, Any]


@dataclass(slots=True)
class Handle:
    """An open table. version: the newest one known; `table` may lack commits that this process appended (`_own`) where
    only the log was asked for (`log`)."""

    path: Store
    table: "DeltaTable"
    version: int = -1
    copy: Any = None
    """Of a small table of an object store (copies.py); None: there is none."""
    copied_from: int = 0
    """The version from which on it is asked again whether the table is small."""
    looked_at: float = -math.inf
    """When its log was last looked at, by time.monotonic."""
    _own: dict[int, list[Action]] = field(default_factory=dict)
    """Commits that this process appended, and what they say; those that `table` lacks, and some of before."""
    _stamp: str | None = None
    """Of the commit that `table` has (None: not looked at): a table that was made again isn't taken for the one before
    it."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _counted: int = -1

    @property
    def identity(self) -> tuple[int, Any]:
        """What tells its state from all others."""
        return self.version, self._stamp if self._stamp is not None else object()

    def data_files(self) -> dict[str, DataFile]:
        """Data files by path, of a table without deletion vectors: what `table` has, and commits of our own since."""
        found: dict[str, DataFile] = {}
        added = answers.table(self.table.get_add_actions(flatten=True))
        names = [n.removeprefix(_PARTITION) for n in added.column_names if n.startswith(_PARTITION)]
        columns = [added[n].to_pylist() for n in ("path", "size_bytes", *(_PARTITION + n for n in names))]
        for path, size, *values in zip(*columns, strict=True):
            found[path] = DataFile(path, size, dict(zip(names, values, strict=True)))
        for version in range(self.table.version() + 1, self.version + 1):
            for action in self.actions(version):
                if add := action.get("add"):
                    found[add["path"]] = DataFile(add["path"], add["size"], add["partitionValues"])
                elif remove := action.get("remove"):
                    found.pop(remove["path"], None)
        return found

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
            self._take(self.actions(one))
            self._counted = one
        return self._numbers.get(once[0], -1) >= once[1]

    def append(self, lines: list[Action]) -> bool:
        """Makes the next version, which changes nothing but files. False: another has made it, and nothing was done."""
        version = self.version + 1
        lease.check()
        if not self.path.put_new(commit_name(version), _ENCODER.encode_lines(lines)):
            self.look_again()
            return False
        if self._counted == self.version:
            self._take(lines)
            self._counted = version
        log_state.took(self.path, version, lines)
        self._own[version] = lines
        self.version = version
        return True

    def actions(self, version: int) -> Iterable[Action]:
        """Actions of one commit; the store isn't asked for one of our own. Raises FileNotFoundError."""
        return self._own[version] if version in self._own else actions(self.path, version)

    def _take(self, found: Iterable[Action]) -> None:
        for action in found:
            if told := action.get("txn"):
                self._numbers[told["appId"]] = told["version"]

    def newest(self, *, log: bool) -> bool:
        """Brings it to the newest version. False: it is of no use any more."""
        from deltalake.exceptions import DeltaError

        began, there = time.monotonic(), self.table.version()
        if self._stamp is None:
            self.copy = None  # what is there now may be another table
        commits = self.path.commits(there)
        if (stamp := commits.get(there)) is None or self._stamp not in (None, stamp):
            return False
        self._stamp = stamp
        if not (log and commits.keys() - {there} <= self._own.keys()):
            try:
                if len(commits) > 1:
                    self.table.update_incremental()
            except DeltaError:
                return False
            self.caught_up()
            self._stamp = commits.get(self.version)
        self.version, self.looked_at = max(self.version, *commits), began
        for old in sorted(self._own)[:-_OWN]:
            if old <= self.table.version():
                del self._own[old]
        return True

    def look_again(self) -> None:
        """There may be a commit that it doesn't know: whoever asks next looks at the log."""
        self.looked_at = -math.inf

    def stamped(self) -> bool:
        """Whether its newest commit is known from others of that number; what was read of it before isn't kept else."""
        if self._stamp is None:
            self.copy = None
            self._stamp = self.path.commits(self.table.version()).get(self.table.version())
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
def handle(path: Store, *, log: bool = False, look: bool = True) -> Iterator[Handle]:
    """A table at its newest version, for one thread at a time: others wait. log: what `table` tells isn't asked for,
    but its columns and properties. look: false, where it may be as this process knows it. After an exception it is
    opened again. Raises deltalake's TableNotFoundError."""
    with _lock:
        turn = _turns.setdefault(path, _Turn())
    with turn.lock:
        with _lock:
            kept = _kept.pop(path, None)
        if kept is None or not (not look or _is_looked_at(kept, log=log) or kept.newest(log=log)):
            began, table = time.monotonic(), opened(path)
            kept = Handle(path, table, table.version(), looked_at=began)
        yield kept
        if not log:
            kept.caught_up()
        with _lock:
            _kept[path] = kept
            while len(_kept) > _MOST:
                _kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Looks:
    """Since when one look at a table's log is enough, and of which tables: all below one place but these."""

    since: float
    within: str
    but: tuple[str, ...]


_looks: ContextVar[_Looks | None] = ContextVar("looks", default=None)


@contextmanager
def looked_at_once(lake: Store) -> Iterator[None]:
    """Each table is looked at once in here, and after that only where a commit is refused. For a stage of a source
    whose lease is held: nobody else commits to its own tables, nor writes its rows of shared ones. Not of the tables to
    which Spark commits."""
    by_spark = (SNAPSHOT_PATH, TOMBSTONES_PATH, HISTORY_PATH, TYPED_CHANGES_PATH)
    but = tuple(lake.uri(of.path.split("/", 1)[0]) + "/" for of in by_spark)
    token = _looks.set(_Looks(time.monotonic(), lake.uri() + "/", but))
    try:
        yield
    finally:
        _looks.reset(token)


def _is_looked_at(kept: Handle, *, log: bool) -> bool:
    looks, uri = _looks.get(), kept.path.uri()
    if looks is None or kept.looked_at < looks.since or not (log or kept.table.version() == kept.version):
        return False
    return uri.startswith(looks.within) and not uri.startswith(looks.but)


def forget(path: Store) -> None:
    """Whoever asks next opens a table anew: its log was written anew."""
    with _lock:
        _kept.pop(path, None)
    log_state.forget(path)


def is_kept(path: Store) -> bool:
    """Whether a table has been opened here."""
    return path in _kept


def opened(path: Store, version: int | None = None) -> "DeltaTable":
    """A table at its newest version, or at this one. Raises deltalake's TableNotFoundError."""
    from deltalake import DeltaTable

    return DeltaTable(path.uri(), version, path.options)
