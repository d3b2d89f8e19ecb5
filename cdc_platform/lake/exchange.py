"""A source's rows in several tables put in place of those that are there, in all of them or in none.

The new files are written first, and named by no table. Then a note says which tables they are for; from there on it is
decided. Each table takes them with one commit, in which who reads it commit by commit sees nothing new. Whoever next
takes the source's lease does what a killed process left undone (writer_lock.py). What a process decided that had been
stopped for so long that another one took the source over and wrote to it isn't done: its files lack those rows.
No Spark here.
"""

import hashlib
import json
import logging
from typing import Any, NamedTuple
from urllib.parse import unquote

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import checkpoints, commits, delta_table, folders, lease, unfinished
from cdc_platform.lake.data_files import Written
from cdc_platform.lake.store import Store
from cdc_platform.tables import CHECKPOINT

log = logging.getLogger(__name__)
_NOTE = "_exchanges/{source}.json"


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
    told = [{**t._asdict(), "files": [f._asdict() for f in t.files]} for t in tables]
    if folders_too is None:  # asked before the look at the lease: nobody else has written until here
        told = [{**t, "was": _now(lake, t)} for t in told]
    note = {"tables": told, "batches": batches, "folders": folders_too, "lease": lease.number_of(lake, source)}
    unfinished.noted(lake, source)
    _put(lake, source, note)


def _put(lake: Store, source: str, note: dict[str, Any]) -> None:
    lease.check()
    lake.put(_NOTE.format(source=source), json.dumps(note).encode())


def noted(lake: Store) -> list[str]:
    """Sources with an exchange that isn't done."""
    folder, _, _ = _NOTE.rpartition("/")
    return [name.removesuffix(".json") for name, _ in lake.names(folder)]


def finish(lake: Store, source: str) -> bool:
    """Does what is noted of a source whose lease is held, and what of it isn't done yet; returns whether there was
    anything. Raises LakeChanged, StorageError, LeaseLost."""
    name = _NOTE.format(source=source)
    if (note := lake.read(name)) is None:
        return False
    told: dict[str, Any] = json.loads(note)
    number = told.get("folders")
    decided = _in_time(lake, source, told) if number is None else folders.decided(lake, source, number)
    if not decided:
        log.warning("source %s: an exchange that was noted isn't done", source)
        lake.remove([name])
        return False
    _put(lake, source, {**told, "begun": True})
    for table in told["tables"]:
        written = [Written(**f) for f in table["files"]]
        _exchange(lake.at(table["path"]), table["partition"], written, news=table.get("news", False))
    for room, (number, entry) in told["batches"].items():
        _go_on(CHECKPOINT.at(lake, room=room, source=source), number, entry)
    lake.remove([name])
    return True


def _in_time(lake: Store, source: str, told: dict[str, Any]) -> bool:
    """Whether nobody held the source between who noted this and now, or one of them has begun with it, or none of them
    wrote to what it exchanges."""
    by, now = told.get("lease"), lease.number_of(lake, source)
    if by is None or now is None or now <= by + 1 or told.get("begun"):
        return True
    return all(table.get("was") == _now(lake, table) for table in told["tables"])


def _now(lake: Store, table: dict[str, Any]) -> str:
    """By which the files that a table, or its partition, has now are known."""
    names = sorted(delta_table.files(lake.at(table["path"]), **table["partition"]))
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def _exchange(path: Store, partition: dict[str, str], files: list[Written], *, news: bool) -> None:
    there, new = set(delta_table.files(path, **partition)), {unquote(f.path) for f in files}
    if there != new:
        if gone := next((f.path for f in files if path.size(f.path) != f.size), None):
            raise LakeChanged(path.uri(gone), "it was to be exchanged for others, and isn't there as it was written")
        more = [f for f in files if unquote(f.path) not in there]
        commits.replace(delta_table.sink(path, **partition), there - new, more, news=news)


def _go_on(checkpoint: Store, number: int, entry: str) -> None:
    """Batches go on behind this number."""
    begun, done = checkpoints.newest(checkpoint)
    if begun < number:
        checkpoints.note(checkpoint, "offsets", number, entry)
    if done < number:
        checkpoints.note(checkpoint, "commits", number, '{"nextBatchWatermarkMs":0}')
