"""What a Delta table's log tells of its newest version: protocol, metadata, data files with their deletion vectors (of
which delta-rs tells nothing), numbers that applications recorded. What was read is kept, and brought up to date by one
look at the log's folder; commits of this process aren't read at all.

Delta's protocol, "Action Reconciliation", "Transaction Identifiers".
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from cdc_platform.lake import lease, log_files
from cdc_platform.lake.log_files import Action, Key, actions, as_added, as_metadata, key
from cdc_platform.lake.store import Store, commit_name
from cdc_platform.tables import HISTORY_PATH, SNAPSHOT_PATH, TOMBSTONES_PATH, TYPED_CHANGES_PATH

_MOST = 8192
"""Tables that are kept: a source may have a thousand, and up to four logs of each are looked at in turn."""
_FEW = 4096
"""Actions of a checkpoint that is read in full at once; a larger one's data files are read when they are asked for."""


@dataclass(frozen=True, slots=True)
class Head:
    """A table at a version. protocol, metadata: those actions. numbers: by application, of this version or a later one.
    lineage: tells it from another table at the same place. None of them is to be changed."""

    path: Store
    version: int
    protocol: Action
    metadata: Action
    numbers: Mapping[str, int]
    lineage: object

    def recorded(self, once: tuple[str, int] | None) -> bool:
        """Whether there is a commit of this application with this number or a later one; never for None."""
        return once is not None and self.last(once[0]) >= once[1]

    def last(self, app: str) -> int:
        """The newest number that an application recorded; -1: none."""
        return self.numbers.get(app, -1)


@dataclass(frozen=True, slots=True)
class LogFiles(Head):
    """The same with its data files. adds: their `add` actions."""

    adds: list[Action]


def head(path: Store, *, look: bool = True) -> Head | None:
    """A table as its newest commit leaves it, but for its files. None: there is none. look: false, where it may be as
    this process knows it. Raises FileNotFoundError where its log can't be read in full (parts of it are gone, a
    checkpoint of several files), LakeChanged where it is no log."""
    if (state := _state(path, look=look)) is None:
        return None
    with state.lock:
        return Head(*state.head())


def now(path: Store, *, look: bool = True) -> LogFiles | None:
    """The same with its files."""
    if (state := _state(path, files=True, look=look)) is None:
        return None
    with state.lock:
        return LogFiles(*state.head(), list((state.adds or {}).values()))


def few(path: Store) -> LogFiles | None:
    """The same; None, too, where it has so many files that they weren't read."""
    state = _state(path)
    if state is None or state.adds is None:
        return None
    with state.lock:
        return LogFiles(*state.head(), list(state.adds.values()))


def commit(path: Store, version: int, lines: list[Action]) -> bool:
    """Makes a table's next version. False: another has made it, and nothing was done."""
    lease.check()
    if not path.put_new(commit_name(version), log_files.encoded(lines)):
        look_again(path)
        return False
    state = _known(path)
    if state is not None:
        with state.lock:
            if state.version == version - 1:
                state.take(lines)
                state.version = version
    return True


def made(path: Store, lines: list[Action]) -> None:
    """A table was made by this process, in a commit of these actions."""
    state = _State(path, 0, (0, None), adds={})
    state.take(lines)
    _keep(state)


def look_again(path: Store) -> None:
    """There may be a commit that isn't known here: whoever asks next looks at the log."""
    state = _known(path)
    if state is not None:
        state.looked_at = -math.inf


def forget(path: Store) -> None:
    """A table's log was written anew."""
    with _lock:
        _kept.pop(path, None)


def is_kept(path: Store) -> bool:
    """Whether a table's log has been read here."""
    return path in _kept


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


@dataclass(slots=True)
class _State:
    """`seen`: a commit that was seen in the log's folder, and what tells it from others of its number: a table that was
    made again isn't taken for the one before (None: it is the first one, made here, and wasn't seen). adds: None where
    they weren't read. looked_at: when its log was last looked at, by time.monotonic."""

    path: Store
    version: int
    seen: tuple[int, str | None]
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    adds: dict[Key, Action] | None = None
    looked_at: float = field(default_factory=time.monotonic)
    lineage: object = field(default_factory=object)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, actions_: Iterable[Action]) -> None:
        """Actions of the next commit, or of a checkpoint."""
        for action in actions_:
            if add := action.get("add"):
                if self.adds is not None:
                    self.adds[key(add)] = as_added(add)
            elif remove := action.get("remove"):
                if self.adds is not None:
                    self.adds.pop(key(remove), None)
            elif number := action.get("txn"):
                self.numbers[number["appId"]] = number["version"]
            elif protocol := action.get("protocol"):
                self.protocol = protocol
            elif metadata := action.get("metaData"):
                self.metadata = as_metadata(metadata)

    def newest(self) -> bool:
        """Brings it to the newest version. False: it is of no use any more."""
        began = time.monotonic()
        there = self.path.commits(self.seen[0])
        if not self._goes_on(there):
            return False
        try:
            for version in range(self.version + 1, max(there) + 1):
                self.take(actions(self.path, version))
                self.version = version
        except FileNotFoundError:
            return False
        self.seen, self.looked_at = max(there.items()), began
        return True

    def _goes_on(self, there: dict[int, str]) -> bool:
        """Whether these commits are of this table."""
        number, stamp = self.seen
        if stamp is not None or number not in there:
            return there.get(number) == stamp is not None
        first = (action["metaData"]["id"] for action in actions(self.path, number) if "metaData" in action)
        return next(first, None) == self.metadata["id"]

    def is_looked_at(self) -> bool:
        """Whether one look was enough, and was taken."""
        looks, uri = _looks.get(), self.path.uri()
        if looks is None or self.looked_at < looks.since:
            return False
        return uri.startswith(looks.within) and not uri.startswith(looks.but)

    def head(self) -> tuple[Store, int, Action, Action, Mapping[str, int], object]:
        """The fields of a Head."""
        return self.path, self.version, self.protocol, self.metadata, self.numbers, self.lineage


_kept: "OrderedDict[Store, _State]" = OrderedDict()
_lock = threading.Lock()


def _state(path: Store, *, files: bool = False, look: bool = True) -> _State | None:
    """What is known of a table, brought up to date. None: there is none."""
    state = _known(path)
    if state is not None and (state.adds is not None or not files):
        with state.lock:
            if not look or state.is_looked_at() or state.newest():
                return state
    forget(path)
    if (state := _read(path, files=files)) is None:
        return None
    _keep(state)
    return state


def _known(path: Store) -> _State | None:
    with _lock:
        if (state := _kept.get(path)) is not None:
            _kept.move_to_end(path)
        return state


def _keep(state: _State) -> None:
    with _lock:
        _kept[state.path] = state
        _kept.move_to_end(state.path)
        while len(_kept) > _MOST:
            _kept.popitem(last=False)


def _read(path: Store, *, files: bool) -> _State | None:
    began = time.monotonic()
    first, size = log_files.checkpoint(path)
    there = path.commits(max(first, 0))
    if not there and first < 0:
        return None
    newest = max(there, default=first)  # upkeep may have removed the commit that a checkpoint is of
    state = _State(path, newest, (newest, there.get(newest, "")), looked_at=began)
    if files or size <= _FEW:
        state.adds = {}
    state.take(
        log_files.of_checkpoint(path, first, "protocol", "metaData", "txn", *(() if state.adds is None else ("add",)))
    )
    for version in range(first + 1, newest + 1):
        state.take(actions(path, version))
    if not (state.protocol and state.metadata):
        raise FileNotFoundError(f"{path.uri()}: protocol and metadata")
    return state
