"""What is called complete is never called so too early: of whatever else is missing, or was read before."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc_platform.automation import table_events
from cdc_platform.config import Config
from cdc_platform.landing import run as landing
from cdc_platform.snapshots.cuts.marks import Marks, earliest
from cdc_platform.tables import OFFSET_LEDGER, WATERMARKS
from tests.lake.test_watermarks import NOTHING, ONE, TWO, A, B, at, ends, of, published, reached, told
from tests.rows import add


def ledger(config: Config, batch: int, partition: int, from_: int, to: int, **more: Any) -> None:
    """Offsets that were landed, and taken up where a `changelog` outcome is told; to: the last one."""
    said = {"source": "s", "batch": batch, "topic": "t", "partition": partition, "from_offset": from_}
    row = {**said, "room": "landing", "outcome": "landed", "to_offset": to, "records": to - from_ + 1}
    add(config.lake, OFFSET_LEDGER, {**row, **more})


def taken(config: Config, batch: int, partition: int, from_: int, to: int) -> None:
    ledger(config, batch, partition, from_, to, room="changelog", outcome="filtered")


def looked(monkeypatch: pytest.MonkeyPatch, second: float) -> None:
    monkeypatch.setattr(landing, "looked_at", lambda *_: at(second))


def test_a_time_told_before_rests_on_no_less_than_it_did(config: Config, monkeypatch: pytest.MonkeyPatch):
    """Its partition b holds nothing but what is no event, and doesn't count while not all of it is taken up."""
    for partition, to in ((0, 9), (1, 4)):
        ledger(config, 0, partition, 0, to)
        taken(config, 0, partition, 0, to)
    reached(config, 0, a=(9, 500))
    looked(monkeypatch, 10_000)
    first = published(config, monkeypatch, NOTHING)
    assert (first.source_time, first.proven, first.ends) == (at(500), False, {A: 10, B: 5})
    ledger(config, 1, 1, 5, 6)
    assert published(config, monkeypatch, of(TWO, A, 10)).ends == first.ends
    assert published(config, monkeypatch, of(ONE, B, 2)).of(ONE) is None, "it rested on all before 5"


def test_what_is_held_first_may_rely_on_idle_partitions():
    marks = Marks({A: at(900), B: at(100)}, at(700), frozenset())
    assert earliest(marks, {A: (at(500), "held")}) == (at(500), False, "held; nothing comes by t/1")
    assert earliest(marks, {A: (at(90), "held")}) == (at(90), True, "held")


def test_whether_a_table_s_time_is_proven_is_told_of_it(config: Config, monkeypatch: pytest.MonkeyPatch):
    add(config.lake, WATERMARKS, told(0, 500, ends(a=10, b=5), proven=False))
    reached(config, 1, a=(19, 600), b=(6, 600))
    found = published(config, monkeypatch, of(ONE, B, 5))
    assert (found.source_time, found.proven, found.of(ONE)) == (at(600), True, at(500))
    assert (found.proven_of(ONE), found.proven_of(TWO), found.proven_of(None)) == (False, True, True)
    stopped = {ONE: {"state": "stopped", "reason": "why"}}
    again = published(config, monkeypatch, NOTHING, stopped)
    assert (again.of(ONE), again.proven_of(ONE)) == (at(500), False), "as it was told"
    for name, shown in ((ONE, "assumed"), (TWO, "proven")):
        status = SimpleNamespace(complete=again, id=name, complete_up_to=again.of(name))
        assert table_events.completeness(cast(Any, status))["complete_up_to_is"] == shown
