"""Watermarks: nothing that was committed before one comes by its partition later."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform import tables
from cdc_platform.changelog import watermarks
from cdc_platform.changes.file_stats import Summary
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.events import event_batch
from cdc_platform.lake import new_tables, stores
from cdc_platform.lake.past import Past
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import partitions
from cdc_platform.snapshots.cuts.marks import Marks, earliest
from tests.formats.json_fixtures import load
from tests.properties import examples

START = datetime(2026, 11, 20, tzinfo=UTC)
T = ("t", 0)
PLACED = {"file_no": 1, "binlog_pos": 5}


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def event(kind: str, second: float | None, offset: int = 0, partition: int = 0, **rest: Any) -> dict[str, Any]:
    told = {"topic": "t", "partition": partition, "offset": offset, "kind": kind, "db": "d", "table": "t"}
    return {**told, "source_time": None if second is None else at(second), **rest}


def row(second: float | None, offset: int = 0, partition: int = 0, **rest: Any) -> dict[str, Any]:
    return event("row", second, offset, partition, **{"op": "update", **PLACED, **rest})


def statistics(*events: dict[str, Any]) -> list[dict[str, Any]]:
    summary = Summary()
    summary.add(event_batch(list(events)))
    return [summary.to_json()]


def source(format: str) -> Source:
    return Source(name="s", format=format, topics=["t"])


def ms(second: float) -> int:
    return round(at(second).timestamp() * 1000)


UNPLACED = {"file_no": None, "binlog_pos": None}
NUMBERED = {"file_no": 0, "binlog_pos": 5, "binlog_file": "n"}
TELLING = {
    "a row": ("canal", row(3), True),
    "a row of TiCDC in canal's protobuf": ("canal", row(3, **UNPLACED), False),
    "DDL without a place": ("canal", event("ddl", 3), True),
    "a row of Debezium": ("debezium", row(3), True),
    "a row of Debezium for another database": ("debezium", row(3, **UNPLACED), True),
    "a row of TiCDC as Debezium's": ("debezium", row(3, **UNPLACED, info=[("unordered", "")]), False),
    "a row of dtle, by its own clock": ("debezium", row(3, lineage="dtle:job"), False),
    "a commit": ("canal", event("commit", 3), True),
    "canal's own heartbeat": ("canal", event("heartbeat", 3), False),
    "a row of a load": ("debezium", row(3, op="read"), False),
    "Debezium's own heartbeat": ("debezium", event("heartbeat", 3), False),
    "the source's heartbeat": ("tencent_dts", event("heartbeat", 3), True),
    "a checkpoint by the vendor's clock": ("tencent_dts", event("checkpoint", 3), False),
    "TDSQL's heartbeat table": ("tdsql", event("heartbeat", 3), True),
    "a row of FlatMessage": ("canal_json", row(3, **UNPLACED), True),
    "a row of Flink": ("canal_json", row(3, **UNPLACED, info=[("unordered", "")]), False),
    "a row of TiCDC": ("canal_json", row(3, **NUMBERED), False),
    "a watermark of TiCDC": ("canal_json", event("checkpoint", 3), True),
    "a watermark of TiCDC as Debezium's": ("debezium", event("checkpoint", 3), True),
    "a row of DataWorks": ("dataworks", row(3, **NUMBERED), False),
    "a heartbeat of DataWorks": ("dataworks", event("heartbeat", 3), True),
}


@pytest.mark.parametrize("name", TELLING)
def test_what_tells_how_far_the_log_has_come(name: str):
    format, one, tells = TELLING[name]
    assert watermarks.partition_times(source(format), statistics(one)) == ({T: ms(3)} if tells else {})


@pytest.mark.parametrize(("taken", "told"), [(1, None), (2, 2), (3, 2), (4, 9), (5, 9)])
def test_of_ticdc_its_watermarks_alone_tell_a_time(taken: int, told: int | None):
    """Rows of two tables, the later one first, with watermarks among them, as its protocol debezium has them."""
    messages, options = load("debezium", "ticdc")
    summary = Summary()
    summary.add(FORMATS["debezium"].decode(messages.slice(0, taken), options))
    time = datetime(2025, 12, 5, tzinfo=UTC) + timedelta(seconds=told or 0)
    found = watermarks.partition_times(source("debezium"), [summary.to_json()])
    assert found == ({("shop", 0): round(time.timestamp() * 1000)} if told else {})


@dataclass(frozen=True)
class Sent:
    """An event as a partition gets it: commit time of its transaction, its own time, its number in the log."""

    number: int
    commit: int
    stamped: int


TRANSACTIONS = st.tuples(
    st.integers(0, 3), st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 1, 30])), min_size=1, max_size=3)
)
"""Seconds since the commit before, and its events: partition, and how much earlier than the commit it is stamped."""


def topic(log: list[tuple[int, list[tuple[int, int]]]], restarts: list[tuple[int, int]]) -> dict[int, list[Sent]]:
    """Partitions of a topic that one log was sent to. restarts: up to where the capture came, and where in the log it
    began again."""
    events: list[tuple[int, Sent]] = []
    clock = 0
    for gap, some in log:
        clock += gap
        events += [(p, Sent(len(events) + i, clock, max(0, clock - early))) for i, (p, early) in enumerate(some)]
    sent: dict[int, list[Sent]] = {p: [] for p, _ in events}
    begin = 0
    for end, again in [*sorted(restarts), (len(events), 0)]:
        for p, one in events[begin:end]:
            sent[p].append(one)
        begin = min(again, end, len(events))
    return sent


@examples(300)
@given(
    st.lists(TRANSACTIONS, min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 36), st.integers(0, 36)), max_size=3),
    st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=8),
)
def test_nothing_committed_before_a_watermark_comes_later(log: Any, restarts: Any, batches: Any):
    sent = topic(log, restarts)
    taken = dict.fromkeys(sent, 0)
    promised: dict[tuple[str, int], int] = {}
    for more in [*batches, (10**6,) * 3]:
        batch: list[dict[str, Any]] = []
        for p in sent:
            begin, end = taken[p], min(len(sent[p]), taken[p] + more[p])
            seen = {e.number for e in sent[p][:begin]}
            for one in (e for e in sent[p][begin:end] if e.number not in seen):
                assert ms(one.commit) >= promised.get(("t", p), 0), f"{one} comes by {p} after more was promised"
            batch += [row(e.stamped, o, p) for o, e in enumerate(sent[p][begin:end], begin)]
            taken[p] = end
        told = watermarks.partition_times(source("canal"), statistics(*batch)) if batch else {}
        promised = {w: max(told.get(w, 0), promised.get(w, 0)) for w in told.keys() | promised.keys()}


@pytest.fixture
def path(tmp_path: Path) -> Store:
    config = Config.model_validate({"lake": str(tmp_path), "sources": [source("canal").model_dump()]})
    found = tables.WATERMARKS.at(stores.lake(config))
    new_tables.create(found, tables.WATERMARKS)
    return found


def marks(path: Store, **of: Any) -> dict[tuple[str, int], tuple[int, datetime | None]]:
    return {w: (r["offset"], r["source_time"]) for w, r in partitions(path, "s", **of).items()}


def test_a_batch_keeps_the_marks_of_all_partitions(path: Store):
    note = lambda n, *events: watermarks.note(path, source("canal"), n, statistics(*events))  # noqa: E731
    note(0, row(5, 3), event("error", None, 4), row(2, 7, 1))
    assert marks(path) == {T: (4, at(5)), ("t", 1): (7, at(2))}
    note(1, row(1, 9), event("skip", None, 1, 2))
    assert marks(path) == {T: (9, at(5)), ("t", 1): (7, at(2)), ("t", 2): (1, None)}  # it doesn't go back
    note(1, row(50, 9))  # a batch that is repeated is noted once
    assert marks(path)[T] == (9, at(5))
    note(5, row(8, 20, 1))
    assert marks(path)["t", 1] == (20, at(8))
    assert marks(path, before=5)["t", 1] == (7, at(2))
    assert marks(path, before=1) == {T: (4, at(5)), ("t", 1): (7, at(2))}
    assert marks(path, until=datetime(2020, 1, 1, tzinfo=UTC)) == {}
    assert [Past(path, "s").reached(T, offset) for offset in (4, 5, 100)] == [None, at(5), at(5)]


def test_a_batch_keeps_when_a_change_came_last(path: Store):
    def after(n: int, *events: dict[str, Any], format: str = "canal") -> list[int | None]:
        watermarks.note(path, source(format), n, statistics(*events))
        return [r["change_batch"] for _, r in sorted(partitions(path, "s").items())]

    assert after(0, row(5), event("heartbeat", 9, 0, 1)) == [0, None]
    assert after(1, row(6, 1), event("heartbeat", 9, 1, 1)) == [1, None]
    assert after(2, row(3, 2), row(3, 1, 1, **UNPLACED)) == [2, 2], "of an earlier time, or of none"
    assert after(3, row(3, 1, 1, op="read"), event("checkpoint", None, 3)) == [3, 2], "rows of a load are no changes"
    assert after(4, event("heartbeat", 9, 4), event("error", None, 2, 1)) == [3, 4]
    assert after(5, row(3, 5, op="read"), row(3, 5), format="debezium") == [5, 4]


def test_a_clock_that_is_ahead_promises_no_future(path: Store):
    watermarks.note(path, source("canal"), 0, statistics(row(10**9)))
    _, told = marks(path)[T]
    assert told is not None and abs(told - datetime.now(UTC)) < timedelta(minutes=1)


A, B, C = ("t", 0), ("t", 1), ("u", 0)


def found(now: dict, before: float | None = None, unread: tuple = (), **held: Any) -> tuple[datetime | None, bool, str]:
    times = {w: None if s is None else at(s) for w, s in now.items()}
    kept = {w: (None if s is None else at(s), "held") for w, s in held.get("held", {}).items()}
    return earliest(Marks(times, None if before is None else at(before), frozenset(unread)), kept)


def test_the_earliest_partition_counts():
    assert found({A: 9, B: 5}) == (at(5), True, "")
    assert found({A: 9, B: None}) == (None, True, "no event of t/1 tells when its log had it")
    assert found({}) == (None, True, "nothing has come yet")


def test_an_idle_partition_follows_what_others_told_before():
    assert found({A: 900, B: 5}, before=700) == (at(700), False, "nothing that tells a time comes by t/1")
    assert found({A: 900, B: None, C: 3}, before=700) == (at(700), False, "nothing that tells a time comes by t/1, u/0")
    assert found({A: 900, B: 800}, before=700) == (at(800), True, "")
    assert found({A: 900, B: 5, C: 600}, before=None) == (at(5), True, "")


def test_a_partition_that_is_not_read_to_its_end_is_not_idle():
    assert found({A: 900, B: 5}, before=700, unread=(B,)) == (at(5), True, "")


def test_what_is_held_holds_its_partition_back():
    assert found({A: 900}, held={A: 300}) == (at(300), True, "held")
    assert found({A: 900}, held={A: None}) == (None, True, "held")
    assert found({A: 900, B: 200}, held={A: 300}) == (at(200), True, "")
    assert found({A: 900, B: 5}, before=700, held={B: 4}) == (at(4), True, "held")
