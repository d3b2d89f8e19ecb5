"""Who may write: one run per source, and one Spark process at a time per table that all sources share."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import uuid4

from filelock import FileLock, Timeout

from cdc_platform.config import Config, Source
from cdc_platform.errors import RunInProgress
from cdc_platform.tables import SHARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0
_TURNS = "_turns"
_LONGEST_ID = 1000


@contextmanager
def source_lock(config: Config, source: Source, wait_s: float | None = None) -> Iterator[None]:
    """Hold the source's lock file under `state_dir`, whatever launched the run (Dagster's pools don't see the command
    line's); the system frees it when the process dies.

    It covers the machine. Writers on several machines need Dagster's pools. Raises RunInProgress after
    `wait_s` (default: WAIT_S) seconds.
    """
    folder = config.state_dir / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    if (lake := _folder(config.lake)) and not config.spark.remote:
        lake.mkdir(parents=True, exist_ok=True)  # where turns are taken from the first commit on
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


@contextmanager
def commit_turn(spark: "SparkSession", path: str) -> Iterator[None]:
    """Hold the turn to commit to a shared table of a lake that is a folder here, together with whoever writes by the
    same Spark process.

    What Delta has for local files looks whether a commit is there and then renames its own to that name: of two
    processes that do so at once one loses its rows and is told nothing (delta-storage's LocalLogStore; 1 of 450 appends
    of three processes was lost). Within a process Delta takes turns by itself. A lake on a
    store where Delta can't exclude a second driver either (S3) is refused by the configuration.
    """
    table = _folder(path)
    if table is None or table.name not in SHARED or not table.parent.is_dir():
        yield
        return
    process = f"{spark.conf.get('spark.app.id')} {spark.conf.get('spark.driver.port', '')}"
    with turn(table.parent / _TURNS / table.name, process):
        yield


@contextmanager
def turn_of_files(path: str) -> Iterator[None]:
    """Hold the turn to name files in a shared table's log by delta-rs, which makes a commit in one step or not at all:
    with others who do so, and with no Spark process, this one's own neither."""
    table = Path(path)
    if table.name not in SHARED:
        yield
        return
    with turn(table.parent / _TURNS / table.name, "files"):
        yield


@contextmanager
def turn_alone(path: str) -> Iterator[None]:
    """Hold the turn to change what a shared table's rows look like: with no other writer, who would be told of a
    conflict."""
    table = Path(path)
    if table.name not in SHARED:
        yield
        return
    with turn(table.parent / _TURNS / table.name, uuid4().hex):
        yield


@contextmanager
def turn_to_make(path: str) -> Iterator[None]:
    """Hold the turn to make a shared table by delta-rs: alone."""
    table = Path(path)
    if table.name not in SHARED:
        yield
        return
    turns = table.parent / _TURNS
    turns.mkdir(parents=True, exist_ok=True)
    with FileLock(turns / f"{table.name}.made"):
        yield


def _folder(path: str) -> Path | None:
    """Where a path is on this machine; None: a URI of another storage."""
    if path.startswith("file:"):
        return Path(url2pathname(urlsplit(path).path))
    return Path(path) if path.startswith("/") else None


@contextmanager
def turn(file: Path, group: str) -> Iterator[None]:
    """Hold a file's lock together with others of the same group. Waits while another group has it; the system frees it
    when a process dies."""
    file.parent.mkdir(exist_ok=True)
    held = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    mine = group.encode()
    try:
        while True:
            fcntl.flock(held, fcntl.LOCK_SH)
            if os.pread(held, _LONGEST_ID, 0) == mine:
                break
            fcntl.flock(held, fcntl.LOCK_EX)  # nobody holds it: whose turn is it now
            os.ftruncate(held, 0)
            os.pwrite(held, mine, 0)
        yield
    finally:
        os.close(held)
