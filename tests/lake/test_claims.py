"""What is called complete is never called so too early: of whatever else is missing, or was read before."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc_platform.automation import table_events
from cdc_platform.config import Config
from cdc_platform.lake import sequences, stores
from cdc_platform.landing import run as landing
from cdc_platform.landing.ended import take_over
from cdc_platform.snapshots import state
from cdc_platform.snapshots.cuts import complete, holds
from cdc_platform.snapshots.cuts.holds import Hold, Missing
from cdc_platform.snapshots.cuts.marks import Marks, earliest
from cdc_platform.tables import LOADED, OFFSET_LEDGER, TABLE_STATE, WATERMARKS, Name
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
    assert earliest(marks, {A: (at(500), "held")}) == (at(500), False, "held; nothing that tells a time comes by t/1")
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
        status = SimpleNamespace(complete=again, id=name, complete_up_to=again.of(name), state="live")
        assert table_events.completeness(cast(Any, status))["complete_up_to_is"] == shown


def test_a_topic_that_is_read_from_now_on_takes_back_what_was_told_without_it(config: Config, monkeypatch: Any):
    reached(config, 0, a=(9, 5_000))
    assert published(config, monkeypatch, NOTHING).source_time == at(5_000)
    ledger(config, 1, 0, 0, 3, topic="u")
    found = published(config, monkeypatch, NOTHING)
    assert (found.source_time, found.reason) == (None, "no event of u/0 tells when its log had it"), "none is taken up"
    taken_up = {"source": "s", "scope": "partition", "batch": 1, "at": at(0)}
    for number, offset, second in ((1, 3, 100), (2, 5, 6_000)):
        rows = (
            {"topic": "t", "offset": 9, "source_time": at(5_000)},
            {"topic": "u", "offset": offset, "source_time": at(second)},
        )
        add(config.lake, WATERMARKS, *({**taken_up, "batch": number, "partition": 0, **r} for r in rows))
        found = published(config, monkeypatch, NOTHING)
        assert (found.source_time, found.of(ONE)) == (at(min(5_000, second)),) * 2
        assert published(config, monkeypatch, of(ONE, ("u", 0), 2)).of(ONE) is None, "not 5000, told without it"


def test_a_partition_whose_rows_tell_no_time_is_not_idle(make_config: Any, monkeypatch: pytest.MonkeyPatch):
    """DataWorks' heartbeats may come by one partition alone, while another lags."""
    for format, found in (("dataworks", None), ("canal", at(500))):
        config = make_config([{"name": "s", "format": format, "topics": ["t"]}], lake=f"{format}-lake")
        for partition, to in ((0, 9), (1, 4)):
            ledger(config, 0, partition, 0, to)
            taken(config, 0, partition, 0, to)
        reached(config, 0, a=(9, 500))
        looked(monkeypatch, 10_000)
        told = published(config, monkeypatch, NOTHING)
        assert told.source_time == found
        assert found or told.reason == "no event of t/1 tells when its log had it"


def test_a_topic_that_takes_another_s_place_takes_back_nothing(config: Config, monkeypatch: Any):
    ledger(config, 0, 0, 0, 9)
    reached(config, 0, a=(9, 5_000))
    assert published(config, monkeypatch, NOTHING).source_time == at(5_000)
    take_over(config, config.source("s"), 1, [A], ("u", 0), 40, {})
    row = {"source": "s", "scope": "partition", "batch": 1, "partition": 0, "at": at(0)}
    ledger(config, 2, 0, 40, 44, topic="u")
    add(config.lake, WATERMARKS, {**row, "topic": "u", "offset": 44, "source_time": at(4_000)})
    assert published(config, monkeypatch, NOTHING).source_time == at(5_000)


def test_an_empty_topic_takes_back_nothing(config: Config, monkeypatch: Any):
    reached(config, 0, a=(9, 5_000))
    published(config, monkeypatch, NOTHING)
    ledger(config, 1, 0, 0, -1, topic="u")
    assert published(config, monkeypatch, NOTHING).source_time == at(5_000)


def test_of_offsets_that_began_again_only_what_was_told_before_stands(config: Config, monkeypatch: pytest.MonkeyPatch):
    """The topic was deleted and made again: at first its offsets are lower than those that were lost."""
    reached(config, 0, a=(999, 100))
    assert published(config, monkeypatch, NOTHING).source_time == at(100)
    lost = {"source": "s", "batch": 1, "topic": "t", "partition": 0, "outcome": "lost", "room": "landing"}
    add(config.lake, OFFSET_LEDGER, {**lost, "from_offset": 1_000, "to_offset": -1, "records": 1})
    lacks = of(ONE, A, 1_000)
    for batch, second in ((1, 100), (2, 5_000), (3, 6_000)):
        reached(config, batch, a=(999, second))
        found = published(config, monkeypatch, lacks)
        assert (found.source_time, found.of(ONE), found.of(TWO)) == (at(second), at(100), at(second))
    both: dict[Name, list[Hold]] = {ONE: [*lacks.tables[ONE]], TWO: [Hold(A, 2_000, "a message of the new topic")]}
    found = published(config, monkeypatch, Missing([], both))
    assert (found.of(ONE), found.of(TWO)) == (at(100), at(100)), "nobody knows which topic an offset was of"
    held = Missing([Hold(A, 2_000, "names no table")], {})
    assert published(config, monkeypatch, held).source_time == at(100)
    assert published(config, monkeypatch, NOTHING).source_time == at(6_000)


def test_a_table_that_lacks_rows_of_its_load_tells_no_time(config: Config, monkeypatch: pytest.MonkeyPatch):
    reached(config, 0, a=(9, 500))
    published(config, monkeypatch, NOTHING)
    found = published(config, monkeypatch, of(ONE, (LOADED, 0), 4))
    assert (found.of(ONE), found.of(TWO)) == (None, at(500))
    assert published(config, monkeypatch, NOTHING).of(ONE) == at(500)


THREE = ("d", "three")


def test_a_table_of_which_nothing_was_told_while_it_lagged_tells_no_time(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    """One was left out in June and is stopped when it comes back in November; another is stopped by its first batch."""
    reached(config, 0, a=(9, 600))
    published(config, monkeypatch, NOTHING)
    left_out = {ONE: {"state": "left_out", "reason": "rules"}}
    reached(config, 1, a=(19, 1_100))
    assert published(config, monkeypatch, NOTHING, left_out).of(ONE) == at(600)
    reached(config, 2, a=(29, 1_200))
    stopped = {name: {"state": "stopped", "reason": "why"} for name in (ONE, TWO, THREE)}
    found = published(config, monkeypatch, NOTHING, stopped)
    assert [found.of(name) for name in (ONE, TWO, THREE)] == [at(600), at(1_100), None]
    assert found.behind[ONE].reason == "stopped: why"
    assert published(config, monkeypatch, NOTHING, stopped).number == found.number


def test_a_table_that_an_earlier_version_left_out_tells_no_time(config: Config, monkeypatch: pytest.MonkeyPatch):
    add(config.lake, WATERMARKS, told(0, 500, None))
    reached(config, 0, a=(9, 600))
    found = published(config, monkeypatch, NOTHING, {ONE: {"state": "left_out", "reason": "rules"}})
    assert (found.of(ONE), found.of(TWO)) == (None, at(600))


def test_which_tables_were_live_before_they_stopped(config: Config):
    rows = {
        ONE: [(0, 1, "live"), (0, 2, "stopped"), (0, 3, "stopped")],
        TWO: [(0, 1, "live"), (1, 0, "left_out"), (2, 3, "stopped")],
        THREE: [(0, 4, "stopped"), (0, 5, "stale")],
    }
    said = [
        {"source": "s", "db": name[0], "table": name[1], "rebuild": rebuild, "batch": batch, "state": now}
        for name, of in rows.items()
        for rebuild, batch, now in of
    ]
    path = TABLE_STATE.at(stores.lake(config))
    assert state.were_live(path, config.source("s")) == set()
    add(config.lake, TABLE_STATE, *said)
    assert state.were_live(path, config.source("s")) == {ONE}


def test_a_gap_holds_from_the_last_record_of_its_sender_on(config: Config, monkeypatch: pytest.MonkeyPatch):
    """Another shard sends into the partition in between."""
    gap = sequences.Gap("t", 0, "s1", 8, 8, before=10, after=51, at=at(0), removed=False)
    monkeypatch.setattr(sequences, "of_tables", lambda *_: {ONE: [gap]})
    found = holds.missing(config, config.source("s"), [ONE])
    assert [(h.where, h.offset) for h in found.tables[ONE]] == [(A, 11)]


def test_of_what_stands_the_latest_time_counts(config: Config, monkeypatch: pytest.MonkeyPatch):
    add(config.lake, WATERMARKS, told(0, 500, ends(b=5)), told(1, 100, ends(b=4)), told(2, 900, ends(b=20)))
    reached(config, 0, b=(9, 50))
    reached(config, 1, b=(19, 900))
    assert published(config, monkeypatch, of(ONE, B, 10)).of(ONE) == at(500)


def test_very_many_offsets_of_tables_that_are_not_kept_are_those_of_their_source(config: Config, monkeypatch: Any):
    reached(config, 0, a=(9, 500), b=(9, 500))
    published(config, monkeypatch, NOTHING)
    monkeypatch.setattr(complete, "_MOST_ENDS", 2)
    reached(config, 1, a=(19, 900), b=(19, 900))
    stopped = {name: {"state": "stopped", "reason": "why"} for name in (ONE, TWO)}
    found = published(config, monkeypatch, of(THREE, A, 15), stopped)
    assert [found.behind[n].ends for n in (ONE, TWO, THREE)] == [{}, {}, {A: 15}]
    assert [found.of(n) for n in (ONE, TWO)] == [at(500)] * 2 and not found.stands(ONE, {A: 10}), "as it is safe"
    assert published(config, monkeypatch, of(THREE, A, 15), stopped).number == found.number
    held = published(config, monkeypatch, Missing([Hold(A, 5, "holds 5")], {}), stopped)
    assert held.behind[ONE].ends == {A: 20} and not held.stands(ONE, {A: 19}), "more than its source"
