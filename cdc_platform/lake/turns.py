"""Threads that use what is kept of one table, one after the other."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from cdc_platform.lake.store import Store


class _Turn:
    """Who uses it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


class Turns:
    """Of tables, by their place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: WeakValueDictionary[Store, _Turn] = WeakValueDictionary()

    @contextmanager
    def of(self, path: Store) -> Iterator[None]:
        """Waits for the others."""
        with self._lock:
            turn = self._turns.setdefault(path, _Turn())
        with turn.lock:
            yield
