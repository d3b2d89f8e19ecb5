"""Which process may commit to the tables of a source, on whatever machine it runs: a record in the lake, whose number
is a fencing token.

`_leases/<source>/<number>` is made by put-if-absent; who made the highest number holds the lease. The holder writes its
record again every few seconds. It loses the lease to who sees the record unchanged for its length, by the watcher's own
clock (no two clocks are compared); at once, where it gave it back, or where its process has ended on this machine.

A process that was stopped for longer doesn't know. So it looks before it commits: by `check` right before the
platform's own commits, and in Java right before Spark's (data/LogStore.java). A commit between this look and its end is
that of a process that died right after it: the next holder finds it, or its own commit of that version is refused.

Not fenced at the commit is delta-rs's work (merge, delete, compact, new columns): the look comes before all of it, and
its commit, refused where another of that version is there, may come after the lease was lost. Nor are files that are
put in place of others or removed: they have no version. And not every look is a request: a renewal counts for a third
of the lease's length, by a clock that may stand still while a hypervisor pauses the machine.
"""

import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cdc_platform.errors import LeaseLost, RunInProgress, StorageError
from cdc_platform.lake.store import Store
from cdc_platform.setup.process_start import has_ended, start_of

FOLDER = "_leases"
LENGTH_S = 45.0
"""Seconds without a change of its record after which a lease is over."""
_SURE = 1 / 3
"""Part of its length in which a lease that was renewed needs no look: nobody saw it unchanged for long enough."""
_BEATS = 5
"""Times that a record is written within its length."""
_POLL_S = 1.0
_DIGITS = 20
_KEPT = 20
"""Records that stay: a listing while others are made and removed may lack the newest, whose number is refused then."""


def _clock() -> float:
    """Seconds that pass while the machine sleeps, too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True, eq=False)
class Lease:
    """The lease of one source, held by this process."""

    lake: Store
    source: str
    folder: str
    number: int
    length_s: float
    _beat: int = 0
    _made: float = -math.inf
    """When its record was about to be made: nobody sees it unchanged for long enough before `length_s` after that."""
    _renewed: float = -math.inf
    _lost: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def token(self) -> str:
        """The name of its record."""
        return f"{self.number:0{_DIGITS}d}"

    def check(self) -> None:
        """Raises LeaseLost where another process has taken the source over, StorageError where that can't be seen."""
        if self._lost or _clock() - self._renewed > self.length_s * _SURE:
            self._look()
            self._renewed = max(self._renewed, self._made)

    def _look(self) -> None:
        if not self._lost and (newest := _numbers(self.lake, self.folder)[-1:]) != [self.number]:
            self._lost = str(newest[0] if newest else "none")
        if self._lost:
            raise LeaseLost(self.source, self.token, self._lost)

    def renewing(self) -> None:
        """Writes the record until the lease ends: what its thread does."""
        while not self._ended.wait(self.length_s / _BEATS):
            with suppress(StorageError):  # later; a commit looks itself
                self._beat += 1
                began = _clock()
                try:
                    self._look()
                except LeaseLost:
                    return
                self.lake.put(f"{self.folder}/{self.token}", self.record())
                self._renewed = began

    def record(self, *, released: bool = False) -> bytes:
        """What the record says now."""
        text = {"holder": _holder(), "length_s": self.length_s, "beat": self._beat, "released": released}
        return json.dumps(text).encode()

    def release(self) -> None:
        """Gives it back. Where that fails, it is over when nobody renews it."""
        self._ended.set()
        if not self._lost:
            with suppress(StorageError):
                self.lake.put(f"{self.folder}/{self.token}", self.record(released=True))


_held: list[Lease] = []
_last: dict[tuple[str, str], int] = {}
"""Lake and folder → number of the lease that this process had and gave back."""


def check() -> None:
    """Before a commit or another change. Raises LeaseLost where this process has lost a lease that it works under,
    StorageError."""
    for lease in tuple(_held):
        lease.check()


def number_of(lake: Store, source: str) -> int | None:
    """Of the lease of a source that this process holds; None: it holds none."""
    return next((one.number for one in tuple(_held) if (one.lake.root, one.source) == (lake.root, source)), None)


def is_held(lake: Store, slug: str) -> bool:
    """Whether a process has a source's lease, on whatever machine: it isn't given back, nor is it of a process of this
    machine that has ended. One of another machine is to renew it while this waits, for two beats at most."""
    folder = f"{FOLDER}/{slug}"
    numbers = _numbers(lake, folder)
    path = f"{folder}/{numbers[-1]:0{_DIGITS}d}" if numbers else ""
    text = lake.read(path) if path else None
    if not text or _is_over(record := json.loads(text), 0) or _still.get((lake.root, folder)) == text:
        return False
    if record["holder"]["machine"] == _machine():
        return True
    until = time.monotonic() + 2 * record["length_s"] / _BEATS
    while time.monotonic() < until:
        time.sleep(_POLL_S)
        if (now := lake.read(path)) != text:
            return bool(now) and not json.loads(now)["released"]
    _still[lake.root, folder] = text
    return False


_still: dict[tuple[str, str], bytes] = {}
"""Lake and folder → the record of another machine that nobody renewed while this process waited for it."""


@contextmanager
def held(lake: Store, source: str, slug: str, wait_s: float, length_s: float = LENGTH_S) -> Iterator[Lease]:
    """Hold a source's lease. Raises RunInProgress where another process still has it after `wait_s` seconds, LeaseLost
    for work that failed because another took the source over, StorageError."""
    folder = f"{FOLDER}/{slug}"
    lease = _taken(lake, source, folder, wait_s, length_s)
    _held.append(lease)
    threading.Thread(target=lease.renewing, name=f"lease of {source}", daemon=True).start()
    try:
        yield lease
    except LeaseLost:
        raise
    except Exception as error:
        with suppress(StorageError):
            if lease._lost or "cdc-platform: the lease " in str(error):  # refused in Java
                lease._look()
        if lease._lost:
            raise LeaseLost(source, lease.token, lease._lost) from error
        raise
    finally:
        _held.remove(lease)
        lease.release()
        _last[lake.root, folder] = lease.number


def _taken(lake: Store, source: str, folder: str, wait_s: float, length_s: float) -> Lease:
    """The lease under which this process now has the source. It isn't renewed yet: the first commit looks."""
    if (again := _taken_again(lake, source, folder, length_s)) is not None:
        return again
    began = since = time.monotonic()
    seen = None
    while True:
        numbers = _numbers(lake, folder)
        newest = numbers[-1] if numbers else 0
        text = lake.read(f"{folder}/{newest:0{_DIGITS}d}") if newest else b""
        now = time.monotonic()
        if (newest, text) != seen:
            seen, since = (newest, text), now
        if text is not None and (not text or _is_over(json.loads(text), now - since)):
            if (made := _made(lake, source, folder, newest + 1, length_s)) is not None:
                if len(numbers) > 2 * _KEPT:
                    lake.remove(f"{folder}/{n:0{_DIGITS}d}" for n in numbers[:-_KEPT])
                return made
            continue
        if now - began >= wait_s:
            raise RunInProgress(source, now - began)
        time.sleep(min(_POLL_S, wait_s / 4))


def _taken_again(lake: Store, source: str, folder: str, length_s: float) -> Lease | None:
    """The lease after the one that this process had last, where nobody had it in between; else None, and nothing is
    left behind. That its number is free doesn't say so: others may have had many, and removed the old records."""
    if (last := _last.pop((lake.root, folder), 0)) < 1:
        return None
    if (made := _made(lake, source, folder, last + 1, length_s)) is None:
        return None
    try:
        newest = _numbers(lake, folder)[-1:]
    except StorageError:  # it is to be given back, whatever it is; the first commit looks
        return made
    if newest == [made.number]:
        made._renewed = made._made  # this was the first look
        return made
    lake.remove([f"{folder}/{made.token}"])
    return None


def _made(lake: Store, source: str, folder: str, number: int, length_s: float) -> Lease | None:
    """The lease of this number, by a new record; None: there is one."""
    lease = Lease(lake, source, folder, number, length_s, _made=_clock())
    return lease if lake.put_new(f"{folder}/{lease.token}", lease.record()) else None


def _is_over(record: dict[str, Any], unchanged_s: float) -> bool:
    return record["released"] or unchanged_s > record["length_s"] or _has_ended(record["holder"])


def _numbers(lake: Store, folder: str) -> list[int]:
    """Of all records, the lowest first."""
    return [int(name) for name, _ in lake.names(folder) if len(name) == _DIGITS and name.isdigit()]


@cache
def _machine() -> list[str]:
    """What tells this machine's processes, since its start, from those of others, containers' among them; [] where it
    can't be told. The third part is of those that count the time since its start alike; a version before had only two,
    which is another machine's."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        pids = os.readlink("/proc/self/ns/pid")
    except OSError:
        return []
    try:
        return [boot, pids, os.readlink("/proc/self/ns/time")]
    except OSError:  # a kernel that counts alike for all
        return [boot, pids, "time"]


def _holder() -> dict[str, Any]:
    pid = os.getpid()
    return {"machine": _machine(), "host": socket.gethostname(), "pid": pid, "started": start_of(pid)}


def _has_ended(holder: dict[str, Any]) -> bool:
    """Whether the process is one of this machine's that isn't there any more; where in doubt it is."""
    here = _machine()
    return bool(here) and holder["machine"] == here and has_ended(holder["pid"], holder["started"])
