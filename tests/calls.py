"""Calls of a function, as a test sees them: which there are, and how many of them are under way at once."""

import threading
from typing import Any

import pytest

_WAIT_S = 20


def meet(monkeypatch: pytest.MonkeyPatch, at: Any, name: str, parties: int) -> list[tuple[Any, ...]]:
    """From now on so many calls of a function wait for one another, and BrokenBarrierError is raised where they come
    one after another. Returns the arguments of those that come, as they come."""
    real, barrier, seen = getattr(at, name), threading.Barrier(parties), []

    def call(*args: Any, **named: Any) -> Any:
        seen.append(args)
        barrier.wait(_WAIT_S)
        return real(*args, **named)

    monkeypatch.setattr(at, name, call)
    return seen


def count(monkeypatch: pytest.MonkeyPatch, at: Any, name: str) -> list[tuple[Any, ...]]:
    """The same, without waiting."""
    return meet(monkeypatch, at, name, 1)
