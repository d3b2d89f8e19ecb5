"""Whether a lake's store lets one of several writers win, and lists at once what was made, which all commits and leases
rest on. Each name is raced by writers at one instant: a store that looks and then writes refuses a second writer that
comes later, and only a race shows it.

Which places a lake has passed at stands in it, and goes with it when it is copied. So each of them is named: at another
one it is raced again. A place that is taken for another one (a disk that has another number now) costs a race.
"""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache, partial
from threading import Barrier, BrokenBarrierError
from typing import Any

from cdc_platform.errors import ConfigError
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.store import Store

_FOLDER = "_store"
_PASSED = f"{_FOLDER}/probed.json"
_WRITERS = 6
_NAMES = 60
"""Of a store that isn't atomic 5 names of 60 had two winners."""
_NAMES_IN_FOLDER = 5
"""The system makes a hard link in one step; mounts of other stores as folders, where they have links, may not."""
_PLACES = 20
"""Where a lake has passed: so many places are kept, for machines that see one lake by different paths or mounts."""


def check(lake: Store) -> None:
    """At a lake's first use, at this place, races some names, and notes in the lake that it went well here. Raises
    ConfigError for a store that can't hold a lake, StorageError."""
    _check(lake)  # pyright: ignore[reportArgumentType]


def is_known(lake: Store) -> bool:
    """Whether a lake has been used. Raises StorageError."""
    return lake.exists(_PASSED)


@lru_cache
def _check(lake: Store) -> None:
    record = lake.read(_PASSED)
    passed: list[dict[str, Any]] = json.loads(record).get("passed", []) if record else []  # once, it named no place
    here = _identity(lake) if passed else {}
    if any(here.items() <= one.items() for one in passed):
        return
    names = _NAMES_IN_FOLDER if isinstance(lake, Folder) else _NAMES
    if problem := race(lake, names, _WRITERS):
        valid = ["a folder", "s3:// of a store with conditional writes (If-None-Match)"]
        raise ConfigError("lake", f"{lake.uri()} can't hold a lake: {problem}", valid)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    new = {**_identity(lake), "at": at, "names": names, "writers": _WRITERS}
    lake.put(_PASSED, json.dumps({"passed": [*passed, new][-_PLACES:]}).encode())


def _identity(lake: Store) -> dict[str, Any]:
    """What tells where a lake is, which is there, from other places."""
    of = {"file_system": lake.file_system()} if isinstance(lake, Folder) else {"endpoint": lake.storage.address}
    return {"uri": lake.uri(), **of}


def race(lake: Store, names: int, writers: int) -> str | None:
    """Lets several writers make each of some names at one instant, and whoever made it list it. Returns what is wrong
    with the store; None: nothing."""
    folder = f"{_FOLDER}/probe-{uuid.uuid4()}"
    paths = [f"{folder}/{n}" for n in range(names)]
    start, unseen = Barrier(writers), list[str]()
    try:
        with ThreadPoolExecutor(writers) as pool:
            won = list(pool.map(partial(_writer, lake, paths, start, unseen), range(writers)))
        for n, path in enumerate(paths):
            winners = [writer for writer in range(writers) if won[writer][n]]
            if len(winners) != 1:
                return (
                    f"{len(winners)} of {writers} writers that made the file {n} of {names} at one instant were told "
                    "that they had made it; of two commits the second would overwrite the first"
                )
            if lake.read(path) != _data(winners[0]):
                return f"of {writers} writers of one file one was told that it made it, and another one's data is there"
        if unseen:
            return (
                f"a listing right after a file was made didn't show it, {len(unseen)} times of {names}; a process that "
                "lost its source wouldn't see it, and would commit beside the one that has it"
            )
        if lake.put_new(paths[0], b"late"):
            return "a file that is there could be made once more"
    finally:
        lake.remove(paths)
    return None


def _writer(lake: Store, paths: list[str], start: Barrier, unseen: list[str], writer: int) -> list[bool]:
    won: list[bool] = []
    try:
        for path in paths:
            start.wait()
            won.append(lake.put_new(path, _data(writer)))
            if won[-1] and not _is_listed(lake, path):
                unseen.append(path)
    except BrokenBarrierError:  # another writer failed, and says why
        pass
    except BaseException:
        start.abort()
        raise
    return won


def _is_listed(lake: Store, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return any(there == name for there, _ in lake.names(folder))


def _data(writer: int) -> bytes:
    return f"writer {writer}".encode()
