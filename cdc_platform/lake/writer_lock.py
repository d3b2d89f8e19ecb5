"""Who may write: one run per source, by a lock file on this machine, and by a lease in the lake among machines."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cdc_platform.config import Config, Source
from cdc_platform.errors import RunInProgress
from cdc_platform.lake import erasing, exchange, folders, lease, probe, stores, unfinished
from cdc_platform.lake.store import Store

WAIT_S = 60.0
_mine: dict[tuple[Path, int], lease.Lease] = {}
"""Lock file and thread → the lease that this thread holds."""


@contextmanager
def source_lock(config: Config, source: Source, wait_s: float | None = None) -> Iterator[lease.Lease]:
    """Hold the source's lock file under `state_dir`, whatever launched the run (Dagster's pools don't see the command
    line's; the system frees it when the process dies), and then its lease in the lake. At a lake's first use its store
    is probed; an exchange of the source's rows, or an erasure, that a killed process left undone is done. Within
    itself, in one thread, it is held already.

    Raises RunInProgress after `wait_s` (default: WAIT_S) seconds, LeaseLost for work that failed because another
    process took the source over, ConfigError for a store that can't hold a lake, StorageError.
    """
    folder = config.state_dir / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    wait = WAIT_S if wait_s is None else wait_s
    started = time.monotonic()
    name = folder / f"{source.slug}.lock"
    if held := _mine.get((name, threading.get_ident())):
        yield held
        return
    file = FileLock(name, timeout=wait)
    try:
        file.acquire()
    except Timeout:
        raise RunInProgress(source.name, time.monotonic() - started) from None
    try:
        lake = stores.lake(config)
        probe.check(lake)
        left = max(wait - (time.monotonic() - started), 0.0)
        with lease.held(lake, source.name, source.slug, left) as mine:
            _mine[name, threading.get_ident()] = mine
            _finish(lake, source.name, mine.number)
            yield mine
    finally:
        _mine.pop((name, threading.get_ident()), None)
        file.release()


def _finish(lake: Store, source: str, number: int) -> None:
    """Does what earlier holders left undone. number: of the lease that is held."""
    if unfinished.is_possible(lake, source, number):
        folders.look(lake)
        exchange.finish(lake, source)
        erasing.finish(lake, source)
    unfinished.looked(lake, source, number)


def is_held(config: Config, source: Source) -> bool:
    """Whether a run is writing the source's tables now, on this machine or another."""
    file = config.state_dir / "locks" / f"{source.slug}.lock"
    if file.exists():
        try:
            with FileLock(file, timeout=0):
                pass
        except Timeout:
            return True
    return lease.is_held(stores.lake(config), source.slug)
