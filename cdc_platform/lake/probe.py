"""Whether a lake's store lets one of several writers win, which all commits rest on. Each name is raced by writers at
one instant: a store that looks and then writes refuses a second writer that comes later, and only a race shows it."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache, partial
from threading import Barrier, BrokenBarrierError

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


def check(lake: Store) -> None:
    """At a lake's first use races some names, and notes in the lake that it went well. Raises ConfigError for a store
    that can't hold a lake, StorageError."""
    _check(lake)  # pyright: ignore[reportArgumentType]


def is_known(lake: Store) -> bool:
    """Whether a lake has been used. Raises StorageError."""
    return lake.exists(_PASSED)


@lru_cache
def _check(lake: Store) -> None:
    if lake.read(_PASSED) is not None:
        return
    names = _NAMES_IN_FOLDER if isinstance(lake, Folder) else _NAMES
    if problem := race(lake, names, _WRITERS):
        valid = ["a folder", "s3:// of a store with conditional writes (If-None-Match)"]
        raise ConfigError("lake", f"{lake.uri()} can't hold a lake: {problem}", valid)
    passed = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "names": names, "writers": _WRITERS}
    lake.put(_PASSED, json.dumps(passed).encode())


def race(lake: Store, names: int, writers: int) -> str | None:
    """Lets several writers make each of some names at one instant. Returns what is wrong with the store; None:
    nothing."""
    folder = f"{_FOLDER}/probe-{uuid.uuid4()}"
    paths = [f"{folder}/{n}" for n in range(names)]
    start = Barrier(writers)
    try:
        with ThreadPoolExecutor(writers) as pool:
            won = list(pool.map(partial(_writer, lake, paths, start), range(writers)))
        for n, path in enumerate(paths):
            winners = [writer for writer in range(writers) if won[writer][n]]
            if len(winners) != 1:
                return (
                    f"{len(winners)} of {writers} writers that made the file {n} of {names} at one instant were told "
                    "that they had made it; of two commits the second would overwrite the first"
                )
            if lake.read(path) != _data(winners[0]):
                return f"of {writers} writers of one file one was told that it made it, and another one's data is there"
        if lake.put_new(paths[0], b"late"):
            return "a file that is there could be made once more"
    finally:
        lake.remove(paths)
    return None


def _writer(lake: Store, paths: list[str], start: Barrier, writer: int) -> list[bool]:
    won = []
    try:
        for path in paths:
            start.wait()
            won.append(lake.put_new(path, _data(writer)))
    except BrokenBarrierError:  # another writer failed, and says why
        pass
    except BaseException:
        start.abort()
        raise
    return won


def _data(writer: int) -> bytes:
    return f"writer {writer}".encode()
