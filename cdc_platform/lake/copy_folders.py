"""Where copies of tables are on this machine: below a folder of each process, which goes with it. A process that was
killed leaves its own: the next one that makes one removes it.

A folder has a file that its process holds locked (flock) as long as it lives, however it ends.
"""

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_PREFIX, _LOCK = "cdc-copy-", "lock"
_UNLOCKED_S = 24 * 3600.0
"""A folder without a lock is being made, or of an earlier version: after so long without a change it is nobody's."""


@dataclass(frozen=True)
class _Root:
    folder: "tempfile.TemporaryDirectory[str]"
    lock: int


_roots: dict[tuple[int, str], _Root] = {}
_lock = threading.Lock()


def new() -> "tempfile.TemporaryDirectory[str]":
    """An empty folder that goes with what is returned, for this user alone."""
    return tempfile.TemporaryDirectory(dir=_root(), ignore_cleanup_errors=True)


def _root() -> str:
    there = os.getpid(), tempfile.gettempdir()  # a fork has its own
    with _lock:
        if there not in _roots:
            sweep(there[1])
            _roots[there] = _made()
        return _roots[there].folder.name


def _made() -> _Root:
    while True:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        path = f"{folder.name}/{_LOCK}"
        lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path):
            return _Root(folder, lock)
        os.close(lock)  # another one took it to be left, in between


def sweep(parent: str) -> None:
    """Removes folders of this user's processes that have ended."""
    with os.scandir(parent) as every:
        found = [e for e in every if e.name.startswith(_PREFIX) and e.is_dir(follow_symlinks=False)]
    for one in found:
        with suppress(OSError), _left(one) as is_left:
            if is_left:
                shutil.rmtree(one.path, ignore_errors=True)


@contextmanager
def _left(folder: "os.DirEntry[str]") -> Iterator[bool]:
    """Whether nobody has it; nobody else takes it to be so meanwhile. Raises OSError where it is gone."""
    about = folder.stat(follow_symlinks=False)
    if about.st_uid != os.getuid():
        yield False
        return
    try:
        lock = os.open(f"{folder.path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield time.time() - about.st_mtime > _UNLOCKED_S
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(lock)
