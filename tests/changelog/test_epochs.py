"""The rule of order, over logs of servers, failovers, restarts with replays, wraps and several partitions."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.changelog import replays
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.decide import decided
from cdc_platform.changelog.epochs import Log, Place, Run, Segment, Unknown
from cdc_platform.changes.file_stats import ENTRIES, Runs
from cdc_platform.errors import LakeChanged
from cdc_platform.formats.events import event_batch


class Event(NamedTuple):
    """A row change: whose log, where in it, of which key, what it says; server: where it was first written; time: at
    the source, s."""

    file: int
    pos: int
    key: int
    content: int
    server: str
    time: int | None = None


@dataclass
class Topic:
    """Partitions of a topic as consumed batch by batch, and what the platform made of them."""

    partitions: int
    sent: dict[int, list[Event]] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    segments: list[Segment] = field(default_factory=list)

    def send(self, event: Event, partition: int | None = None) -> None:
        at = event.key % self.partitions if partition is None else partition
        self.sent.setdefault(at, []).append(event)

    def take(self, upto: dict[int, int] | None = None) -> None:
        """A batch: each partition up to an offset (None: all)."""
        runs, old = Runs(), dict(self.taken)
        for p, events in sorted(self.sent.items()):
            end = len(events) if upto is None else upto.get(p, len(events))
            first = self.taken.get(p, 0)
            rows = [row(p, o, events[o]) for o in range(first, end)]
            if rows:
                runs.add(event_batch(rows))
            self.taken[p] = max(first, end)
        found = [Run.of(r) for r in runs.to_json() or []]
        before = self.segments
        self.log.latest = {
            ("t", p): max((self.sent[p][o].time or 0) * 1000 for o in range(end)) for p, end in old.items() if end
        }

        def ask(candidates: dict[Run, Place], so_far: list[Segment]) -> dict[Run, Unknown | None]:
            self.segments = [*before, *so_far]
            return {r: self._unknown(r, candidates, old) for r in candidates}

        self.segments = [*before, *decided(self.log, found, ask, self._divided)]

    def _divided(self, runs: dict[Run, list[int]]) -> list[Run]:
        """As replays.divided."""
        rows = [row(p, o, e) for p, events in self.sent.items() for o, e in enumerate(events)]
        work = replays._Divided(runs)
        return [Run.of(told) for told in work(iter([event_batch(rows[i : i + 5]) for i in range(0, len(rows), 5)]), {})]

    def _unknown(self, run: Run, candidates: dict[Run, Place], old: dict[int, int]) -> Unknown | None:
        """As replays.unknown, of Python's lists."""
        counts: Counter[Event] = Counter()
        for offset in range(run.first // ENTRIES, run.last // ENTRIES + 1):
            event = self.sent[run.where[1]][offset]
            counts[event] += 1
            stored = self._stored(event, run, candidates, old)
            copies = len(stored)
            here = [s for s in self.segments if s.where == run.where]
            began = min((s.first for s in here if s.epoch == max(s.epoch for s in here)), default=0)
            earlier = any(p == run.where[1] and o * ENTRIES < began for p, o in stored)
            goes_on = not earlier and event[:2] >= candidates[run]
            if not copies or (goes_on and (counts[event] > copies or copies > 1)):
                first = offset * ENTRIES == run.first
                before = None if first else (offset - 1) * ENTRIES
                return Unknown(offset * ENTRIES, (event.file, event.pos), before, again=copies > 0)
        return None

    def _stored(self, event: Event, run: Run, candidates: dict[Run, Place], old: dict[int, int]) -> list:
        arrivals = Arrivals.of(self.segments, {})

        def counts(p: int, o: int) -> bool:
            if p != run.where[1]:
                return o < old.get(p, 0)
            within = [h for r, h in candidates.items() if r.where[1] == p and r.first <= o * ENTRIES <= r.last]
            return o * ENTRIES < run.first and not (within and event[:2] <= within[0])

        return [
            (p, o)
            for p, events in self.sent.items()
            for o, e in enumerate(events[: self.taken.get(p, 0)])
            if e == event and counts(p, o) and not replayed(arrivals, p, o)
        ]

    def kept(self) -> list[tuple[tuple[int, ...], Event]]:
        """All changes but duplicates, with their order."""
        arrivals = Arrivals.of(self.segments, {})
        return [
            ((epoch(arrivals, p, o), e.file, e.pos, o), e)
            for p, events in self.sent.items()
            for o, e in enumerate(events[: self.taken.get(p, 0)])
            if not replayed(arrivals, p, o)
        ]

    def neighbours(self) -> list[tuple[Event, Event]]:
        """Events that follow each other in a partition."""
        return [pair for events in self.sent.values() for pair in pairwise(events)]

    def newest(self) -> dict[int, int]:
        """Content of each key's last change in order."""
        found: dict[int, tuple] = {}
        for order, event in self.kept():
            found[event.key] = max(found.get(event.key, (order, event)), (order, event))
        return {key: event.content for key, (_, event) in sorted(found.items())}


def row(partition: int, offset: int, e: Event) -> dict:
    place = {"binlog_file": "f", "file_no": e.file, "binlog_pos": e.pos, "lineage": e.server}
    address = {"topic": "t", "partition": partition, "offset": offset, "entry_index": 0, "row_index": 0}
    time = None if e.time is None else datetime.fromtimestamp(e.time, UTC)
    return {**address, **place, "kind": "row", "op": "update", "db": "d", "table": "t", "source_time": time}


def replayed(arrivals: Arrivals, partition: int, offset: int) -> bool:
    spans = arrivals.replays.get(("t", partition), ())
    return any(first <= offset * ENTRIES <= last for first, last in spans)


def epoch(arrivals: Arrivals, partition: int, offset: int) -> int:
    return [n for first, n in arrivals.starts["t", partition] if first <= offset * ENTRIES][-1]


def came(topic: Topic, *events: tuple) -> None:
    for e in events:
        topic.send(Event(*e))


@pytest.mark.parametrize("whole", [True, False], ids=["one run", "a run for each"])
@pytest.mark.parametrize(
    "events",
    [
        [(1, 10, 0, 1, "1"), (1, 10, 0, 2, "1"), (1, 10, 0, 3, "1")],  # compressed transaction
        [(1, 10, 0, 1, "1"), (1, 20, 0, 2, "2"), (1, 30, 0, 3, "1")],  # two primaries
        [(120, 10, 0, 1, "1"), (2, 20, 0, 2, "1"), (2, 10, 0, 3, "1")],  # RESET MASTER, twice
        [(1, 2**32 - 9, 0, 1, "1"), (1, 4, 0, 2, "1")],  # wrapped
        [(5, 9, 0, 1, "A"), (2, 1, 0, 2, "B"), (6, 1, 0, 3, "A")],  # there and back
    ],
)
def test_the_last_to_come_is_the_newest(events, whole) -> None:
    topic = Topic(1)
    for e in events:
        topic.send(Event(*e))
        if not whole:
            topic.take()
    topic.take()
    assert topic.newest() == {0: events[-1][3]}
    assert len(topic.kept()) == len(events)


def test_a_replay_changes_nothing_and_what_follows_goes_on() -> None:
    topic = Topic(1)
    came(topic, (1, 10, 0, 1, "1"), (1, 20, 0, 2, "1"), (1, 30, 0, 3, "1"))
    topic.take()
    came(topic, (1, 10, 0, 1, "1"), (1, 20, 0, 2, "1"))
    topic.take()
    came(topic, (1, 30, 0, 3, "1"), (1, 40, 0, 4, "1"))
    topic.take()
    assert [e.content for _, e in topic.kept()] == [1, 2, 3, 4]
    assert {s.epoch for s in topic.segments} == {0}


def test_a_transaction_cut_by_a_crash_is_completed_by_its_replay() -> None:
    """insert, delete, insert of one compressed transaction: the last comes with the replay only."""
    topic = Topic(1)
    came(topic, (1, 10, 1, 9, "1"), (1, 20, 0, 1, "1"), (1, 20, 0, 0, "1"))
    topic.take()
    came(topic, (1, 10, 1, 9, "1"), (1, 20, 0, 1, "1"), (1, 20, 0, 0, "1"), (1, 20, 0, 1, "1"))
    topic.take()
    assert topic.newest() == {0: 1, 1: 9}
    assert len(topic.kept()) == 4


def test_what_may_be_one_more_of_its_transaction_stays_in_the_log_of_that() -> None:
    """A restart sends a part of the last transaction, the next one goes back further and sends all of it. Meanwhile
    another partition has seen a second RESET MASTER that this one, without events between, took for the first."""
    topic = Topic(2)
    came(topic, (1, 14, 0, 7, "1", 7), (1, 14, 1, 8, "1", 8), (1, 4, 0, 15, "1", 15), (1, 14, 0, 16, "1", 16))
    again, part, rest = ((1, p, k, n, "1", n) for p, k, n in ((4, 1, 20), (14, 1, 21), (14, 1, 22)))
    began = (1, 4, 0, 19, "1", 19)
    came(topic, began, again, part, rest, part, began, again, part, began, again, part, rest)
    topic.take()
    assert topic.newest() == {0: 19, 1: 22}


def test_what_comes_behind_one_more_of_its_transaction_may_be_of_a_newer_log() -> None:
    topic = Topic(2)
    came(topic, (1, 4, 0, 1, "1", 1), (1, 14, 0, 2, "1", 2), (1, 24, 1, 3, "1", 3), (1, 4, 1, 5, "1", 10))
    came(topic, (1, 14, 0, 2, "1", 2), (1, 4, 0, 1, "1", 1), (1, 14, 0, 2, "1", 2), (1, 24, 0, 6, "1", 11))
    topic.take()
    epochs = {e.content: order[0] for order, e in topic.kept()}
    assert epochs == {1: 0, 2: 0, 3: 0, 5: 1, 6: 1}


def test_a_quiet_partition_follows_its_server_into_the_new_log() -> None:
    """After a failover a TRUNCATE comes by a partition whose old places were lower: it is of the new log there, too."""
    topic = Topic(2)
    came(topic, (1, 10, 1, 1, "A"), (120, 10, 0, 1, "A"), (2, 10, 0, 2, "B"), (2, 50, 0, 3, "B"))
    topic.send(Event(2, 30, 1, 2, "B"))
    topic.take()
    orders = {e.content * 10 + e.key: order[:3] for order, e in topic.kept()}
    assert orders[20] < orders[21] < orders[30]


@pytest.mark.parametrize("whole", [True, False], ids=["one run", "a run for each"])
def test_a_replay_may_begin_in_an_earlier_log_whose_places_are_ahead(whole) -> None:
    """Failover to a server whose log is shorter; then the capture starts again from before it."""
    topic = Topic(1)
    sent = [Event(3, 200, 0, 1, "A", 1), Event(3, 400, 0, 2, "A", 2)]
    sent += [Event(1, 600, 0, 3, "B", 10), Event(1, 700, 0, 4, "B", 11)]
    for event in [*sent, *sent, Event(1, 800, 1, 5, "B", 12)]:
        topic.send(event)
        if not whole:
            topic.take()
    topic.take()
    assert topic.newest() == {0: 4, 1: 5}
    assert [e.content for _, e in topic.kept()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("event", "place"),
    [(Event(1, 150, 1, 9, "A", 25), 3), (Event(3, 400, 1, 9, "A", 4), 2)],
    ids=["where both logs were", "where none was seen"],
)
def test_a_new_partition_is_of_the_log_that_had_begun_by_its_time(event: Event, place: int) -> None:
    topic = Topic(2)
    came(topic, (1, 50, 0, 1, "A", 1), (3, 300, 0, 2, "A", 3), (1, 100, 0, 3, "A", 20), (1, 200, 0, 4, "A", 30))
    topic.send(event)
    topic.take()
    assert [e.content for _, e in sorted(topic.kept(), key=lambda kept: kept[0][:3])].index(9) == place


@pytest.mark.parametrize("replay", [False, True], ids=["forward", "after a replay"])
def test_a_partition_that_only_ascends_is_divided_where_another_log_began_elsewhere(replay) -> None:
    topic = Topic(2)
    came(topic, (3, 100, 0, 1, "A", 1), (3, 900, 0, 2, "A", 10), (3, 200, 0, 3, "A", 20), (3, 950, 0, 4, "A", 40))
    begun = [(3, 150, 1, 0, "A", 1), (3, 160, 1, 9, "A", 2)]
    came(topic, *begun, *(begun if replay else ()), (3, 250, 1, 1, "A", 5), (3, 920, 1, 2, "A", 30))
    topic.take()
    orders = {(e.key, e.content): order[:3] for order, e in topic.kept()}
    assert orders[1, 1] < orders[0, 2] < orders[0, 3] < orders[1, 2] < orders[0, 4]


def test_events_of_one_arrival_are_of_one_run() -> None:
    """A statement and the TRUNCATE that is made of it share their entry, also where record batches part them."""
    places = [(0, "row", "update"), (1, "ddl", None), (1, "row", "truncate"), (2, "row", "update"), (3, "ddl", None)]
    events = [{**row(0, o, Event(1, 10 * (o + 1), 0, 0, "1")), "kind": k, "op": op} for o, k, op in places]
    for cut in range(len(events)):
        runs = Runs()
        for part in (events[:cut], events[cut:]):
            if part:
                runs.add(event_batch(part))
        assert [(r["first"] // ENTRIES, r["last"] // ENTRIES) for r in runs.to_json() or []] == [
            (i, i) for i in range(4)
        ]


EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=8)
"""Key, and what happens before the event: 0 to 2: it stands where the one before stood or behind it."""


@st.composite
def stories(draw):
    """Logs one after the other: each some events at ascending places of a server that may name others; and what the
    capture sends of them, with restarts from earlier, also in logs of before: then no two logs share a place."""
    content = 0
    sent: list[Event] = []
    truth: list[Event] = []
    logs: list[list[Event]] = []
    far = draw(st.booleans())
    for _ in range(draw(st.integers(1, 4))):
        first = 4 + far * len(logs)
        file, pos = draw(st.integers(1, 3)), first
        log: list[Event] = []
        for key, step in draw(EVENTS):
            pos += 10 * step
            if step == 3 and draw(st.booleans()):
                file, pos = file + 1, first
            content += 1
            log.append(Event(file, pos, key, content, draw(st.sampled_from("12")), content))
        truth += log
        at = 0
        while at < len(log):
            end = draw(st.integers(at + 1, len(log)))
            sent += log[at:end]
            at = end
            if draw(st.booleans()):  # the capture is killed and starts again at the beginning of a place
                back = draw(st.integers(0, end - 1))
                while back and log[back - 1][:2] == log[back][:2]:
                    back -= 1
                at = back if log[back][:2] < log[end - 1][:2] else end
            if far and logs and at == end and draw(st.integers(0, 3)) == 0:  # or in a log of before
                first = draw(st.integers(0, len(logs) - 1))
                back = draw(st.integers(0, len(logs[first]) - 1))
                while back and logs[first][back - 1][:2] == logs[first][back][:2]:
                    back -= 1
                sent += logs[first][back:]
                for between in logs[first + 1 :]:
                    sent += between
                sent += log[:at]
        logs.append(log)
    return truth, sent


def ends_as_its_source_has_it(story, partitions: int, cuts: list[int]) -> None:
    """Whether each key does, and nothing counts twice. cuts: where the batches end."""
    truth, sent = story
    topic = Topic(partitions)
    for event in sent:
        topic.send(event)
    for i, cut in enumerate(sorted(cuts)):
        topic.take(
            {i % partitions: min(cut, len(topic.sent.get(i % partitions, [])))}
            | dict.fromkeys((p for p in range(partitions) if p != i % partitions), 0)
        )
    topic.take()
    assert topic.newest() == {e.key: e.content for e in sorted(truth, key=lambda e: (e.key, e.content))}
    kept = Counter(e.content for _, e in topic.kept())
    twice = {e.content for e in truth if kept[e.content] > 1}
    assert all(kept[e.content] for e in truth)
    # Sent again right behind itself an event goes back nowhere: it may as well be one more of its transaction.
    assert twice <= {b.content for a, b in topic.neighbours() if a[:2] == b[:2]}


LOGS = given(story=stories(), partitions=st.integers(1, 3), cuts=st.lists(st.integers(0, 30), max_size=6))
test_each_key_ends_as_its_source_has_it_and_nothing_counts_twice = settings(
    max_examples=400, deadline=None, derandomize=True
)(LOGS(ends_as_its_source_has_it))


def run(topic: str, partition: int, first: int, low: Place, high: Place) -> Run:
    server = "t/0/0/0" if topic == ":load" else "7"
    return Run((topic, partition), first * ENTRIES, first * ENTRIES, low, high, frozenset((server,)))


def test_loaded_rows_stand_in_the_epoch_that_was_proven_and_move_no_other() -> None:
    """Also where their places go back, and where a batch brings another log beside them."""
    log = Log()
    log.follow([run("t", 0, 0, (1, 10), (1, 90)), run("t", 1, 0, (1, 20), (1, 80))], {})
    before = {w: p for w, p in log.partitions.items() if w[0] == "t"}
    epochs = {n: (e.low, e.high) for n, e in log.epochs.items()}
    ahead, again = run(":load", 0, 0, (1, 500), (1, 500)), run(":load", 0, 1, (1, 400), (1, 400))
    assert log.candidates([ahead, again]) == {}
    assert [(s.epoch, s.replay) for s in log.follow([ahead, again], {})] == [(0, False), (0, False)]
    assert {w: p for w, p in log.partitions.items() if w[0] == "t"} == before
    assert {n: (e.low, e.high) for n, e in log.epochs.items()} == epochs
    other = run("t", 0, 1, (1, 5), (1, 6))  # another log begins, in the batch that brings more of the load
    more = run(":load", 0, 2, (1, 600), (1, 600))
    found = log.follow([other, more], {other: Unknown(other.first, other.low, None)})
    assert {s.where: s.epoch for s in found} == {("t", 0): 1, (":load", 0): 0}
    later = run(":load", 1, 0, (1, 700), (1, 700))._replace(servers=frozenset(["t/0/1/0"]))
    assert [s.epoch for s in log.follow([later], {})] == [1]
    unknown = later._replace(first=ENTRIES, servers=frozenset(["other/0/1/0"]))
    with pytest.raises(LakeChanged, match="what orders its rows isn't there"):
        log.follow([unknown], {})
