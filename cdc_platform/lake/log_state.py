"""What a Delta table's log tells of its newest version: protocol, metadata, data files with their deletion vectors, of
which delta-rs tells nothing. What was read is kept, and brought up to date by one look at the log's folder; commits of
this process aren't read at all.

Delta's protocol, "Action Reconciliation" and "Delta Log Entries".
"""

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq

from cdc_platform.lake.store import File, Store, commit_name

Action = dict[str, Any]
Key = tuple[str, Any]

_MOST = 2048
"""Tables that are kept: a source may have a thousand."""
_DECODER = msgspec.json.Decoder()


class Told(NamedTuple):
    """A table at a version. protocol, metadata: those actions; adds: the `add` actions of its data files. None of them
    is to be changed."""

    path: Store
    version: int
    protocol: Action
    metadata: Action
    adds: list[Action]


def now(path: Store) -> Told | None:
    """A table as its newest commit leaves it. None: there is none. Raises FileNotFoundError where its log can't be read
    in full (parts of it are gone, a checkpoint of several files)."""
    with _lock:
        state = _kept.get(path)
    if state is not None:
        with state.lock:
            if state.newest():
                return state.told()
    if (state := _read(path)) is None:
        forget(path)
        return None
    told = state.told()
    with _lock:
        _kept[path] = state
        _kept.move_to_end(path)
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
    return told


def took(path: Store, version: int, lines: Iterable[Action]) -> None:
    """A table took a commit of this process."""
    with _lock:
        state = _kept.get(path)
    if state is not None:
        with state.lock:
            if state.version == version - 1:
                state.take(lines)
                state.version = version


def forget(path: Store) -> None:
    """A table's log was written anew."""
    with _lock:
        _kept.pop(path, None)


@dataclass(slots=True)
class _State:
    """`seen`: a commit that was seen in the log's folder, and what tells it from others of its number: a table that was
    made again isn't taken for the one before."""

    path: Store
    version: int
    seen: tuple[int, str]
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    adds: dict[Key, Action] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, actions_: Iterable[Action]) -> None:
        """Actions of the next commit, or of a checkpoint."""
        for action in actions_:
            if add := action.get("add"):
                self.adds[key(add)] = _add(add)
            elif remove := action.get("remove"):
                self.adds.pop(key(remove), None)
            elif protocol := action.get("protocol"):
                self.protocol = protocol
            elif metadata := action.get("metaData"):
                self.metadata = _metadata(metadata)

    def newest(self) -> bool:
        """Brings it to the newest version. False: it is of no use any more."""
        number, stamp = self.seen
        there = self.path.commits(number)
        if there.get(number) != stamp:
            return False
        try:
            for version in range(self.version + 1, max(there) + 1):
                self.take(actions(self.path, version))
                self.version = version
        except FileNotFoundError:
            return False
        self.seen = max(there.items())
        return True

    def told(self) -> Told:
        """What it is now."""
        return Told(self.path, self.version, self.protocol, self.metadata, list(self.adds.values()))


_kept: "OrderedDict[Store, _State]" = OrderedDict()
_lock = threading.Lock()


def _read(path: Store) -> _State | None:
    first = checkpoint(path, sys.maxsize)
    there = path.commits(max(first, 0))
    if not there and first < 0:
        return None
    newest = max(there, default=first)  # upkeep may have removed the commit that a checkpoint is of
    state = _State(path, newest, (newest, there.get(newest, "")))
    state.take(of_checkpoint(path, first, "protocol", "metaData", "add"))
    for version in range(first + 1, newest + 1):
        state.take(actions(path, version))
    if not (state.protocol and state.metadata):
        raise FileNotFoundError(f"{path.uri()}: protocol and metadata")
    return state


def key(of: Action) -> Key:
    """What a data file is known by: the same file with another deletion vector is another."""
    vector = of.get("deletionVector")
    return of["path"], vector and (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


def actions(path: Store, version: int) -> Iterator[Action]:
    """Actions of one commit. Raises FileNotFoundError."""
    if (lines := path.read(commit_name(version))) is None:
        raise FileNotFoundError(f"{path.uri()}: commit {version}")
    yield from (_DECODER.decode(line) for line in lines.split(b"\n") if line.strip())


def checkpoint(path: Store, version: int) -> int:
    """The newest checkpoint that is there in full, of one file, up to a version; -1: none is told."""
    hint = path.read("_delta_log/_last_checkpoint")
    told = _DECODER.decode(hint) if hint else {}
    found = told.get("version", -1)
    return found if "parts" not in told and found <= version else -1


def of_checkpoint(path: Store, version: int, *kinds: str) -> Iterator[Action]:
    """Actions of some kinds that a checkpoint tells; -1: none. Raises FileNotFoundError."""
    if version < 0:
        return
    named = File(path, f"_delta_log/{version:020d}.checkpoint.parquet")
    with named.open() as opened, pq.ParquetFile(opened, pre_buffer=path.remote) as file:
        for batch in file.iter_batches(columns=[*kinds], use_threads=False):
            for kind in kinds:
                found = batch.column(kind)
                yield from ({kind: action} for action in found.filter(found.is_valid()).to_pylist())


def _without_nulls(action: Action) -> Action:
    return {k: v for k, v in action.items() if v is not None}


def _add(action: Action) -> Action:
    told = {k: v for k, v in _without_nulls(action).items() if not k.endswith("_parsed")}
    told |= {k: dict(told[k]) for k in ("partitionValues", "tags") if k in told}
    if vector := told.get("deletionVector"):
        told["deletionVector"] = _without_nulls(vector)
    return told


def _metadata(action: Action) -> Action:
    told, form = _without_nulls(action), dict(action["format"])
    form["options"] = dict(form.get("options") or ())
    return {**told, "configuration": dict(action.get("configuration") or ()), "format": form}
