"""Logs of tables written anew for erasures (erasing.py): files in place of others in all commits, and nothing told of
values of files that are gone. No Spark here."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

from cdc_platform.lake import handles, lease, log_files
from cdc_platform.lake.data_files import Written
from cdc_platform.lake.log_files import Action
from cdc_platform.lake.store import COMMIT, Store, commit_name

_AT_ONCE = 16
_KINDS = ("add", "remove")


class _Rewrite(NamedTuple):
    """partition: of which actions are rewritten; new: path in the table → the file that is named in its place; keep:
    files whose lowest and highest values stay (None: of all)."""

    partition: Mapping[str, str]
    new: Mapping[str, Written]
    keep: frozenset[str] | None


def actions(path: Store, version: int) -> list[Action]:
    """Of a commit; none where upkeep has removed it."""
    with suppress(FileNotFoundError):
        return list(log_files.actions(path, version))
    return []


def rewrite(path: Store, partition: Mapping[str, str], new: Mapping[str, Written], keep: frozenset[str] | None) -> None:
    """In each commit that is there, of actions of a partition (column → value): names files in place of others (`new`:
    path in the table → file), and takes out the lowest and highest values of files that aren't to be kept (None: all
    are). The newest version has the new files already."""
    anew, versions = _Rewrite(partition, new, keep), path.commits(0)
    # A new file is taken out before it is named: else who reads in the midst finds it beside what took its place.
    passes = [("remove",), ("add",)] if new else [_KINDS]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for kinds in passes:
            list(pool.map(partial(_rewrite_commit, path, anew, kinds), versions))


def _rewrite_commit(path: Store, anew: _Rewrite, kinds: tuple[str, ...], version: int) -> None:
    before = actions(path, version)
    there = {unquote(told["path"]) for action in before for kind in _KINDS if (told := action.get(kind))}
    after = [one for action in before for one in _rewritten(action, anew, kinds, there)]
    if after == before:
        return
    lease.check()
    path.put(commit_name(version), log_files.encoded(after))
    path.remove([f"_delta_log/.{version:020d}.json.crc"])  # of Hadoop's, which would find the commit to be damaged


def _rewritten(action: Action, anew: _Rewrite, kinds: tuple[str, ...], there: set[str]) -> list[Action]:
    """What stands in place of an action of these kinds. there: files that its commit names."""
    [(kind, told), *_] = action.items()
    if kind not in kinds or any((told.get("partitionValues") or {}).get(n) != v for n, v in anew.partition.items()):
        return [action]
    name = unquote(told["path"])
    if (new := anew.new.get(name)) is not None:
        told = {**told, "stats": new.stats} if "stats" in told else told
        instead = {**action, kind: {**told, "path": new.path, "size": new.size}}
        if kind == "add":
            return [instead]
        # Where its commit names the new one, it is the one that put it in its place, or it was rewritten before.
        return [{**action, kind: told}, *([] if unquote(new.path) in there else [instead])]
    if anew.keep is None or name in anew.keep or "stats" not in told:
        return [action]
    rows = {"numRecords": json.loads(told["stats"]).get("numRecords")} if told["stats"] else {}
    return [{**action, kind: {**told, "stats": json.dumps(rows)}}]


def checkpoint_alone(path: Store) -> None:
    """A checkpoint of the newest version, and none before it, nor sums of what versions hold."""
    handles.forget(path)
    table = handles.opened(path)
    version = table.version()
    table.create_checkpoint()
    old = [name for name, _ in path.names("_delta_log") if _is_of(name, version)]
    path.remove(p for name in old for p in (f"_delta_log/{name}", f"_delta_log/.{name}.crc"))
    path.remove(f"_delta_log/_sidecars/{name}" for name, _ in path.names("_delta_log/_sidecars"))
    path.remove(["_delta_log/._last_checkpoint.crc"])
    handles.forget(path)


def _is_of(name: str, version: int) -> bool:
    """Whether a file of a log is a checkpoint, a compaction or a sum of a version before."""
    if not name[:20].isdigit() or COMMIT.fullmatch(name):
        return False
    return int(name[:20]) < version or not name.startswith(f"{version:020d}.checkpoint")
