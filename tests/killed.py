"""What is killed at one of its writes."""

from collections.abc import Callable
from typing import Any

import pytest

from cdc_platform.lake import batches, commits, delta_table
from cdc_platform.lake.store import Store


class Killed(BaseException):
    """As if the process had gone."""


def dies(monkeypatch: pytest.MonkeyPatch, lake: str, where: str, work: Callable[[], Any], *, done: bool) -> None:
    """Work that is killed instead of a write (done: behind it). where: a table's path in the lake, or a log of a
    stage's batches (`_checkpoints/changelog/s commits`)."""
    hit = []

    def one(write: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if name(*args) != where:
                return write(*args, **named)
            hit.append(where)
            if done:
                write(*args, **named)
            raise Killed

        return call

    def table(path: Store, *_: Any) -> str:
        return path.uri().removeprefix(f"{lake}/")

    def batch(path: Store, log: str, *_: Any) -> str:
        return f"{table(path)} {log}"

    with monkeypatch.context() as patched:
        patched.setattr(commits.log_state, "commit", one(commits.log_state.commit, table))
        patched.setattr(delta_table, "merge", one(delta_table.merge, table))
        patched.setattr(batches.checkpoints, "note", one(batches.checkpoints.note, batch))
        with pytest.raises(Killed):
            work()
    assert hit, f"nothing is written to {where}"
