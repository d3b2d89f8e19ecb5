"""A swap that its own process doesn't do."""

from contextlib import contextmanager, nullcontext
from typing import Any, cast

import pytest

from cdc_platform.errors import LakeChanged, LeaseLost
from cdc_platform.replay import run


class Held:
    """A lease, as far as it is asked."""

    def __init__(self, lost: bool):
        self.lost = lost

    def check(self) -> None:
        if self.lost:
            raise LeaseLost("s", "1", "2")


@pytest.mark.parametrize(
    ("lost", "error"), [(False, LakeChanged), (True, LeaseLost)], ids=["given up", "done by who has the source now"]
)
def test_an_exchange_that_was_not_done_here_is_not_told_as_done(make_config, monkeypatch, lost, error):
    """Whether the tables are as they were only who still holds the source can tell."""
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])

    @contextmanager
    def source_lock(*_: Any):
        yield Held(lost)

    monkeypatch.setattr(run, "source_lock", source_lock)
    monkeypatch.setattr(run, "leased", lambda *_: nullcontext())
    for module, name in ((run.side, "opened"), (run.present, "look"), (run, "_decode"), (run.swapping, "decide")):
        monkeypatch.setattr(module, name, lambda *_: None)
    discarded: list[Any] = []
    monkeypatch.setattr(run.side, "discard", lambda *of: discarded.append(of))
    with pytest.raises(error):
        run._swap_in(cast(Any, None), config, config.source("s"), config.source("s"))
    assert not discarded
