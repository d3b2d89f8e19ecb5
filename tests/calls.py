"""Calls of a function, as a test sees them: which there are, and how many of them are under way at once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

_WAIT_S = 20


def meet(
    monkeypatch: pytest.MonkeyPatch, at: Any, name: str, parties: int, only: Callable[..., bool] = lambda *_, **__: True
) -> list[tuple[Any, ...]]:
    """From now on so many calls of a function (`only` those) wait for one another, and BrokenBarrierError is raised
    where they come one after another. Returns the arguments of those that come, as they come."""
    real, barrier, seen = getattr(at, name), threading.Barrier(parties), []

    def call(*args: Any, **named: Any) -> Any:
        if only(*args, **named):
            seen.append(args)
            barrier.wait(_WAIT_S)
        return real(*args, **named)

    monkeypatch.setattr(at, name, call)
    return seen


def count(monkeypatch: pytest.MonkeyPatch, at: Any, name: str) -> list[tuple[Any, ...]]:
    """The same, without waiting."""
    return meet(monkeypatch, at, name, 1)


def most(monkeypatch: pytest.MonkeyPatch, at: Any, name: str) -> Callable[[], int]:
    """How many calls of a function were under way at once, at most, until it is asked."""
    real, lock, now, seen = getattr(at, name), threading.Lock(), [0], [0]

    def call(*args: Any, **named: Any) -> Any:
        with lock:
            now[0] += 1
            seen.append(now[0])
        try:
            return real(*args, **named)
        finally:
            with lock:
                now[0] -= 1

    monkeypatch.setattr(at, name, call)
    return lambda: max(seen)
