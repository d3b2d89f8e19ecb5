"""Whether a process that was noted by its number still runs: by when it started, which tells it from a later process of
the same number.

By the system's own count from its start, and never by a time: setting the clock moves the time at which a process is
said to have started.
"""

import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_ENDED = ("Z", "X")
"""States of a process that only waits for its parent to ask after it."""
_TELLS = re.compile(r"(linux|ps):.+")
"""What `start_of` gives. Earlier versions noted a time."""


class _NoProcess(Exception):
    pass


def start_of(pid: int) -> str | None:
    """What tells a process of this machine from a later one of its number; None where the machine doesn't say, or there
    is no such process."""
    with suppress(_NoProcess):
        return _start(pid)
    return None


def has_ended(pid: int, start: object) -> bool:
    """Whether the process that had this start has ended; where in doubt it hasn't. start: as `start_of` gave it; of
    anything else only the number counts, so that a later process is taken for it."""
    try:
        now = _start(pid)
    except _NoProcess:
        return True
    return now is not None and isinstance(start, str) and bool(_TELLS.fullmatch(start)) and now != start


def _start(pid: int) -> str | None:
    """As `start_of`. Raises _NoProcess."""
    with suppress(PermissionError):  # another user's
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise _NoProcess from None
    found = _by_ps(pid) if not sys.platform.startswith("linux") else _by_proc(pid) if _has_proc() else None
    if found is not None and found[0].startswith(_ENDED):
        raise _NoProcess
    return found and found[1]


@cache
def _has_proc() -> bool:
    """Whether /proc is that of this process's own numbers, on a system whose start has an id."""
    try:
        return os.readlink(_PROC / "self") == str(os.getpid()) and bool(_boot())
    except OSError:
        return False


@cache
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _by_proc(pid: int) -> tuple[str, str] | None:
    """State and start by Linux's /proc, whose count of ticks begins with the system."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # none, or another user's
        return None
    return fields[0], f"linux:{_boot()}:{fields[19]}"


def _by_ps(pid: int) -> tuple[str, str] | None:
    """The same by `ps`, which on macOS tells what was noted when the process started, whatever the clock says now."""
    command, env = ["ps", "-o", "stat=,lstart=", "-p", str(pid)], {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    try:
        told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    state, _, start = told.strip().partition(" ")
    return (state, f"ps:{' '.join(start.split())}") if start else None
