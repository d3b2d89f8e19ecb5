"""One writer per source, whatever launched it: Dagster's pools don't see runs of the command line."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from cdc_platform.config import Config, Source
from cdc_platform.errors import RunInProgress

WAIT_S = 60.0


@contextmanager
def source_lock(config: Config, source: Source, wait_s: float | None = None) -> Iterator[None]:
    """Hold the source's lock file under `state_dir`; the system frees it when the process dies.

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
