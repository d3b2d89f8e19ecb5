"""A source's rows in several tables put in place of those that are there, in all of them or in none.

The new files are written first, and named by no table. Then a note says which tables they are for, and which files
these have; from there on it is decided. Each table takes them with one commit, in which who reads it commit by commit
sees nothing new. Whoever next takes the source's lease does what a killed process left undone (writer_lock.py).

A note counts once, whatever request a store does late: it has a name that no other has, and each table's log has the
number of each exchange that it took, also where that changed nothing. And files are taken out only where they are those
that the table had when it was decided. If a table has others before any has taken its own, the exchange isn't done:
whoever decided it had been stopped for so long that another process took the source over and wrote to it, and its files
lack those rows. No Spark here.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import checkpoints, commits, delta_table, folders, lease, log_files, log_state, unfinished
from cdc_platform.lake.data_files import Sink, Written
from cdc_platform.lake.store import Store
from cdc_platform.tables import CHECKPOINT

log = logging.getLogger(__name__)
_NOTES = "_exchanges"


class Exchanged(NamedTuple):
    """A table under the lake, the partition of it (column → value) that is exchanged, and its files then. news: who
    reads the table commit by commit is to see other rows."""

    path: str
    partition: dict[str, str]
    files: list[Written]
    news: bool = False


def decide(
    lake: Store,
    source: str,
    tables: list[Exchanged],
    batches: dict[str, tuple[int, str]],
    folders_too: int | None = None,
) -> None:
    """Notes an exchange, which `finish` does. batches: stage → number behind which its batches go on, so that none has
    that of one whose rows are new here, and what its checkpoint tells then (batches.entry). folders_too: it is decided
    only by the note of folders with this number (folders.py). Raises LeaseLost, StorageError."""
    # What is there now is asked before the look at the lease: nobody else has written until here.
    told = [
        {**t._asdict(), "files": [f._asdict() for f in t.files], "was": _digest(_files(lake.at(t.path), t.partition))}
        for t in tables
    ]
    name = uuid.uuid4().hex
    note = {"id": name, "tables": told, "batches": batches, "folders": folders_too}
    unfinished.noted(lake, source)
    lease.check()
    lake.put(f"{_NOTES}/{source}/{name}.json", json.dumps(note).encode())


def noted(lake: Store) -> list[str]:
    """Sources with an exchange that isn't done."""
    found = (path.split("/", 1) for path in lake.below(_NOTES))
    return sorted({first if rest else first.removesuffix(".json") for first, *rest in found})


def finish(lake: Store, source: str) -> bool:
    """Does what is noted of a source whose lease is held, and what of it isn't done yet; returns whether it did
    something. Raises LakeChanged where a table isn't as it was then, and nothing can be given up any more;
    StorageError, LeaseLost."""
    notes = [(note, note.left()) for note in _notes(lake, source)]
    did = False
    for note, left in sorted(notes, key=lambda of: not of[0].is_begun(of[1])):  # one that is begun is to end
        did = note.finished(left) or did
    return did


def _notes(lake: Store, source: str) -> "Iterator[_Note]":
    old = f"{source}.json"  # of earlier versions: one for all exchanges of a source
    for path in (f"{_NOTES}/{p}" for p in lake.below(_NOTES) if p == old or p.startswith(f"{source}/")):
        if (data := lake.read(path)) is not None:
            yield _Note(lake, source, path, json.loads(data))


@dataclass(frozen=True, slots=True)
class _Note:
    """An exchange of a source, as it was noted in a file."""

    lake: Store
    source: str
    path: str
    told: dict[str, Any]

    @property
    def once(self) -> tuple[str, int]:
        """Under what each table takes it."""
        told = self.told.get("id") or hashlib.sha256(json.dumps(self.told["tables"]).encode()).hexdigest()
        return f"exchange {told}", 0

    def left(self) -> list[dict[str, Any]]:
        """Tables that haven't taken it."""
        return [t for t in self.told["tables"] if not commits.done_before(self.lake.at(t["path"]), *self.once)]

    def is_begun(self, left: list[dict[str, Any]]) -> bool:
        """Whether some table has."""
        return len(left) < len(self.told["tables"]) or bool(self.told.get("begun"))  # as earlier versions told it

    def finished(self, left: list[dict[str, Any]]) -> bool:
        """Does what is left, unless it isn't decided, and forgets it. Returns whether something was done."""
        do = bool(left) and self._is_decided(left)
        if do:
            work = [self._work(table) for table in left]  # asked of all before anything is done
            for room, (number, entry) in self.told["batches"].items():
                _go_on(CHECKPOINT.at(self.lake, room=room, source=self.source), number, entry)
            for one in work:  # behind the last one nothing of it is left
                commits.replace(one.sink, one.gone, one.files, news=one.news, once=self.once)
        elif left:
            log.warning("source %s: an exchange that was noted isn't done", self.source)
            lease.check()  # else it is for who has the source now
        self.lake.remove([self.path])
        return do

    def _is_decided(self, left: list[dict[str, Any]]) -> bool:
        if (number := self.told.get("folders")) is not None:
            return folders.decided(self.lake, self.source, number)
        if self.is_begun(left) or any("was" not in t for t in left):  # earlier versions told neither: it may be begun
            return True
        return all(t["was"] == _digest(self._there(t)) for t in left)

    def _there(self, table: dict[str, Any]) -> dict[str, str]:
        """The files that a table has; it was looked at when it was asked whether it has taken this."""
        return _files(self.lake.at(table["path"]), table["partition"], look=False)

    def _work(self, table: dict[str, Any]) -> "_Work":
        """What a table's commit is to be. Raises LakeChanged where it has other files than it had."""
        path, there, files = self.lake.at(table["path"]), self._there(table), [Written(**f) for f in table["files"]]
        work = _Work(delta_table.sink(path, **table["partition"]), set(there), files, table.get("news", False))
        if there.keys() == {unquote(f.path) for f in files}:  # by an earlier version; or it has none, and gets none
            return work._replace(gone=set(), files=[])
        noted = f"the exchange that {self.lake.uri(self.path)} tells of"
        if "was" not in table:
            raise LakeChanged(
                path.uri(), f"{noted} is for the earlier version that noted it; where it is done, remove that file"
            )
        if table["was"] != _digest(there):
            problem = f"it was written to since {noted} was decided"
            raise LakeChanged(path.uri(), f"{problem}; without that file it stays as it is")
        if gone := next((f.path for f in files if path.size(f.path) != f.size), None):
            raise LakeChanged(path.uri(gone), "it was to be exchanged for others, and isn't there as it was written")
        return work


class _Work(NamedTuple):
    """A commit of a table. gone: files that the new ones take the place of."""

    sink: Sink
    gone: set[str]
    files: list[Written]
    news: bool


def _files(path: Store, partition: dict[str, str], *, look: bool = True) -> dict[str, str]:
    """Files of a table, or of a partition of it: path → what tells of its rows that don't count."""
    told = log_state.now(path, look=look)
    adds = [a for a in (told.adds if told else ()) if partition.items() <= a["partitionValues"].items()]
    return {unquote(a["path"]): json.dumps(vector) if (vector := log_files.key(a)[1]) else "" for a in adds}


def _digest(files: dict[str, str]) -> str:
    """What they are known by."""
    return hashlib.sha256("\n".join(sorted(f"{p} {v}".rstrip() for p, v in files.items())).encode()).hexdigest()


def _go_on(checkpoint: Store, number: int, entry: str) -> None:
    """Batches go on behind this number."""
    begun, done = checkpoints.newest(checkpoint)
    if begun < number:
        checkpoints.note(checkpoint, "offsets", number, entry)
    if done < number:
        checkpoints.note(checkpoint, "commits", number, '{"nextBatchWatermarkMs":0}')
