"""CPU seconds and memory of this process and all its children: the JVM and Spark's Python workers."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

_EVERY_S = 1.0  # reading the memory maps of a dozen processes costs milliseconds each


@dataclass(slots=True)
class Reading:
    """Of one measured stretch: seconds of wall time, CPU seconds of all processes, peak of memory in bytes.

    Memory is PSS (pages that processes share are split among them), sampled every second; where the system
    tells none, RSS.
    """

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0


@contextmanager
def measured(without: int | None = None) -> Iterator[Reading]:
    """Measure what runs within; the reading is filled at its end. `without`: pid of a child (the broker) to
    leave out, with its children."""
    reading, done = Reading(), threading.Event()
    first = _own(_tree(without))
    last = dict(first)

    def sample() -> None:
        while True:
            tree = _tree(without)
            last.update(_own(tree))
            reading.peak_bytes = max(reading.peak_bytes, sum(map(_memory, tree)))
            if done.wait(_EVERY_S):
                return

    sampler = threading.Thread(target=sample, name="meter", daemon=True)
    cpu, started = _cpu(without), time.monotonic()
    sampler.start()
    try:
        yield reading
    finally:
        reading.seconds = time.monotonic() - started
        waited_for = _cpu(without) - cpu
        done.set()
        sampler.join()
        last.update(_own(_tree(without)))
        seen = sum(spent - first.get(process, 0.0) for process, spent in last.items())
        reading.cpu_s = max(waited_for, seen)


def _tree(without: int | None) -> list[psutil.Process]:
    found, queue = [], [psutil.Process(os.getpid())]
    while queue:
        process = queue.pop()
        if process.pid != without:
            found.append(process)
            with suppress(psutil.NoSuchProcess):
                queue += process.children()
    return found


_Process = tuple[int, float]
"""pid and when it began."""


def _own(tree: list[psutil.Process]) -> dict[_Process, float]:
    """CPU seconds of each process alone. Spark's Python daemon waits for no worker: nobody counts one that has ended,
    but who has seen it before."""
    found = {}
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid, process.create_time()] = times.user + times.system
    return found


def _cpu(without: int | None) -> float:
    """CPU seconds so far. A child that has ended counts through its parent, where that has waited for it."""
    total = 0.0
    for process in _tree(without):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        if process.exe().endswith("/java") and process.name() != "java":
            return 0  # a thread that is about to start a command: until then it has its parent's memory
        try:
            return process.memory_full_info().pss
        except (AttributeError, psutil.AccessDenied):
            return process.memory_info().rss
    return 0
