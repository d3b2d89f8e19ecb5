"""Who may write: one run per source."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from cdc_platform.config import Config, Source
from cdc_platform.errors import RunInProgress

if TYPE_CHECKING:
    pass

WAIT_S = 60.0


@contextmanager
def source_lock(config: Config, source: Source, wait_s: float | None = None) -> Iterator[None]:
    """Hold the source's lock file under `state_dir`, whatever launched the run (Dagster's pools don't see the command
    line's); the system frees it when the process dies.

    It covers the machine. Writers on several machines need Dagster's pools. Raises RunInProgress after
    `wait_s` (default: WAIT_S) seconds.
    """
    folder = config.state_dir / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        with FileLock(folder / f"{source.slug}.lock", timeout=WAIT_S if wait_s is None else wait_s):
            yield
    except Timeout:
        raise RunInProgress(source.name, time.monotonic() - started) from None


def is_held(config: Config, source: Source) -> bool:
    """Whether a run on this machine is writing the source's tables now."""
    file = config.state_dir / "locks" / f"{source.slug}.lock"
    if not file.exists():
        return False
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
