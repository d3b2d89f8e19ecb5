"""Rows taken out of tables for good: out of the versions before, too, and out of what the logs tell of them.

As an exchange (exchange.py): the new files are written first, and named by no table. Then a note says which files they
take the place of; from there on it is decided, and whoever next takes the source's lease does what a killed process
left undone. The old files stay until `remove`.

One commit tells it to who knows the table already. Then the log is written anew where it names such a file. Of a table
that is read commit by commit (`IN_PLACE`) each old commit names the new file in place of the old one, so that who
begins at the first commit, or asks for an old version, finds what is left. A commit that took the old file out takes
out both: who goes on from before it may know the one or the other. No commit's file is taken away: a writer that
doesn't know the newest version would make it once more. Of a table whose old versions nobody needs (`ANEW`) they can't
be read any more, as after VACUUM, and what their commits told of lowest and highest values is taken out.

What a process decided that had been stopped for so long that another one took the source over and wrote to its files
isn't done: the new ones lack what came since. It is looked for anew by the command. No Spark here.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import (
    commits,
    deletion_vectors,
    delta_table,
    handles,
    lease,
    log_state,
    rewritten_logs,
    unfinished,
)
from cdc_platform.lake.data_files import Written
from cdc_platform.lake.log_files import Action, key
from cdc_platform.lake.store import Store
from cdc_platform.tables import ERASURES

log = logging.getLogger(__name__)

IN_PLACE, ANEW = "in place", "anew"
LATE = "late"
"""The stage of an erasure of which nothing was done, nor is: it was decided too late."""
_NOTE = "_erasures/{source}.json"
_HISTORY = {"operation": "DELETE", "operationParameters": {}, "isBlindAppend": False, "engineInfo": "cdc-platform"}
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A table under the lake (or the partition of it, column → value) of which files are written anew. files: path in
    the table → the new one, which may have no rows. versions: whether files of old versions go; else only those that no
    commit names."""

    path: str
    partition: dict[str, str]
    how: str
    files: dict[str, Written]
    versions: bool = True

    def data(self) -> dict[str, Any]:
        """As the note has it."""
        files = {name: file._asdict() for name, file in self.files.items()}
        return {
            **{"path": self.path, "partition": self.partition, "how": self.how, "files": files},
            **{"versions": self.versions},
        }

    @staticmethod
    def of(data: Mapping[str, Any]) -> "Rewritten":
        """The other way."""
        files = {name: Written(**file) for name, file in data["files"].items()}
        return Rewritten(data["path"], data["partition"], data["how"], files, data["versions"])


def pending(lake: Store, source: str) -> dict[str, Any] | None:
    """The note of an erasure that isn't done: stage (decided, applied, scanned; or LATE), tables, and what `decide` was
    told. None: there is none."""
    note = lake.read(_NOTE.format(source=source))
    return None if note is None else json.loads(note)


def decide(lake: Store, source: str, tables: Iterable[Rewritten], **told: Any) -> dict[str, Any]:
    """Notes an erasure, which `finish` does. told: what is to be known of it then, in JSON's types, and no value that
    is erased: its `number`, and its `row` for ERASURES, which is there. Returns the note."""
    # Asked before the look at the lease: nobody else has written until here.
    note = {**told, "stage": "decided", "tables": [{**t.data(), "was": _now(lake, t)} for t in tables]}
    unfinished.noted(lake, source)
    _put(lake, source, note)
    return note


def reached(lake: Store, source: str, note: dict[str, Any], stage: str, **told: Any) -> dict[str, Any]:
    """Notes that it is so far."""
    note = {**note, **told, "stage": stage}
    _put(lake, source, note)
    return note


def noted(lake: Store) -> list[str]:
    """Sources with an erasure that isn't done."""
    folder, _, _ = _NOTE.rpartition("/")
    return [name.removesuffix(".json") for name, _ in lake.names(folder)]


def underway(lake: Store) -> list[str]:
    """Those of which something may be done: not LATE."""
    notes = ((source, pending(lake, source)) for source in noted(lake))
    return [source for source, note in notes if note is not None and note["stage"] != LATE]


def others(lake: Store, source: str) -> list[str]:
    """Other sources with an erasure of which something may be done."""
    return [name for name in underway(lake) if name != source]


def done(lake: Store, source: str) -> None:
    """Forgets the note."""
    lease.check()
    lake.remove([_NOTE.format(source=source)])


def _put(lake: Store, source: str, note: dict[str, Any]) -> None:
    lease.check()
    lake.put(_NOTE.format(source=source), json.dumps(note).encode())


def once(source: str, number: int, *, done: bool) -> tuple[str, int]:
    """By what ERASURES takes a row of an erasure once: that it is begun, or that it is done."""
    return f"erasure {source}", 2 * number + done


def finish(lake: Store, source: str) -> None:
    """Does what is decided of a source whose lease is held, and isn't applied yet; LATE, and nothing done, where it was
    decided too late. Raises LakeChanged, StorageError, LeaseLost."""
    note = pending(lake, source)
    if note is None or note["stage"] != "decided":
        return
    row, number = note.get("row"), note["number"]
    taken = row is not None and commits.done_before(ERASURES.at(lake), *once(source, number, done=True))
    if taken and row and _is_done(lake, source, row):
        return done(lake, source)  # a request that came late has brought the note back
    if taken or not _in_time(lake, note):
        log.warning("source %s: erasure %s isn't done: others wrote to its files before it was decided", source, number)
        reached(lake, source, note, LATE)
        return
    reached(lake, source, note, "decided", begun=True)
    # First: whoever goes on from here is to know what comes once more, and that it isn't done.
    if row:
        delta_table.append_rows(ERASURES.at(lake), [row], once=once(source, number, done=False))
    for table in map(Rewritten.of, note["tables"]):
        _apply(lake.at(table.path), table)
    reached(lake, source, note, "applied")


def _is_done(lake: Store, source: str, row: Mapping[str, Any]) -> bool:
    """Whether ERASURES has it as done; another one may have its number, decided while the note of this one was on its
    way."""
    of = f"source = '{source}' AND number = {int(row['number'])} AND stage = 'done'"
    return any(
        r["salt"] == row["salt"] for r in delta_table.ask(f"SELECT salt FROM {{t}} WHERE {of}", t=ERASURES.at(lake))
    )


def _in_time(lake: Store, note: Mapping[str, Any]) -> bool:
    """Whether the files are as they were when it was decided, or someone has begun with it; those that are gone by then
    or stand under another vector aren't. Notes of earlier versions don't tell."""
    asked = [(t["was"], Rewritten.of(t)) for t in note["tables"] if "was" in t]
    return bool(note.get("begun")) or all(was == _now(lake, table) for was, table in asked)


def _now(lake: Store, table: Rewritten) -> str:
    """By which the files of a table that others are to take the place of are known: which are there, and what marks
    their rows."""
    there = current(lake.at(table.path)) if table.files else {}
    told = [key(there[name]) for name in sorted(table.files) if name in there]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _apply(path: Store, table: Rewritten) -> None:
    if gone := next((f.path for f in table.files.values() if path.size(unquote(f.path)) != f.size), None):
        raise LakeChanged(path.uri(), f"its file {gone} was to take another's place, and isn't there as it was written")
    if table.how == IN_PLACE:
        handles.forget(path)
        there = set(delta_table.files(path, **table.partition))
        if gone := sorted(there & table.files.keys()):
            new = [table.files[name] for name in gone]
            commits.replace(delta_table.sink(path, **table.partition), gone, new)
    else:
        _take_out(path, table)
    _rewrite_log(path, table)


def _rewrite_log(path: Store, table: Rewritten) -> None:
    keep = None
    if table.versions:
        handles.forget(path)
        keep = frozenset(current(path)) | {unquote(f.path) for f in table.files.values()}
    rewritten_logs.rewrite(path, table.partition, table.files if table.how == IN_PLACE else {}, keep)
    rewritten_logs.checkpoint_alone(path)


def _take_out(path: Store, table: Rewritten) -> None:
    """One commit: files with rows of others in place of those that are gone."""
    for _ in range(3 if table.files else 0):
        handles.forget(path)
        now = commits.live(path)
        if now is None:
            raise LakeChanged(path.uri(), "its log has what isn't kept to here")
        marked = [commits.Marked(add, None) for add in now.adds if unquote(add["path"]) in table.files]
        if not marked:
            return
        new = [f for add in marked if (f := table.files[unquote(add.add["path"])]).rows]
        if commits.commit(path, now, new, marked, _HISTORY):
            return
    if table.files:
        raise LakeChanged(path.uri(), "something else writes it")


# -- what logs name --------------------------------------------------------------------------------------------------


def named(path: Store) -> dict[str, Action]:
    """Every data file that a commit of the log that is there adds, by its path in the table, and what it adds. Raises
    LakeChanged where commits from the first on are missing."""
    there = sorted(path.commits(0))
    if there != list(range(len(there))):
        raise LakeChanged(path.uri(), "commits are gone from its log, so that not all of its old files are known")
    return _added(path, there)


def _added(path: Store, versions: Iterable[int]) -> dict[str, Action]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda n: [a["add"] for a in rewritten_logs.actions(path, n) if "add" in a], sorted(versions))
        return {unquote(add["path"]): add for adds in found for add in adds}


def current(path: Store) -> dict[str, Action]:
    """The same of those that its newest version has."""
    told = log_state.now(path)
    return {unquote(add["path"]): add for add in told.adds} if told else {}


# -- old files ---------------------------------------------------------------------------------------------


def unneeded(path: Store, table: Rewritten) -> list[str]:
    """Files of a table that no commit names: those that others took the place of, and of tasks that failed; and where
    old versions go, those that the newest one doesn't name. Of a table that sources share these alone: who writes it
    without the source's lease may be about to commit a file that none names yet."""
    there = current(path)
    keep = set(there) if table.versions else {*there, *named(path)}
    vectors = {v for add in there.values() if (v := deletion_vectors.path_of(add.get("deletionVector")))}
    under = tuple(f"{n}={v}/" for n, v in table.partition.items())
    found = [p for p in path.below("") if not p.startswith("_delta_log/") and (not under or p.startswith(under))]
    if table.versions and under:
        known = {*_added(path, path.commits(0)), *table.files}
        found = [p for p in found if p in known]
    return [p for p in found if p not in keep and p not in vectors]


def remove(path: Store, table: Rewritten) -> int:
    """Removes them; how many. Who reads the table at this moment from an old file fails."""
    gone = unneeded(path, table)
    lease.check()
    path.remove(gone)
    path.remove(_crc(p) for p in gone)
    return len(gone)


def _crc(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc".lstrip("/")
