"""A model of a source's log, of the capture that sends it, and of the runs that take it: servers whose clocks differ,
partitions that run apart or that nothing comes by, messages in quarantine, tables that are stopped. What is published
is the platform's own; tables of the lake are lists here.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from cdc_platform.changelog import watermarks as marks
from cdc_platform.config import Config
from cdc_platform.lake import stores, watermarks
from cdc_platform.lake.watermarks import PARTITION, SOURCE, Complete, Where, published
from cdc_platform.snapshots.cuts import claims, complete
from cdc_platform.snapshots.cuts import marks as now
from cdc_platform.snapshots.cuts.holds import Hold, Missing, first
from cdc_platform.tables import WATERMARKS, Name
from tests.changelog.test_watermarks import START, event, row, source, statistics

TABLES: list[Name] = [("d", "a"), ("d", "b"), ("d", "c")]
PARTITIONS = 3
STEP, IDLE = timedelta(seconds=700), 1000
"""From run to run, and how long a partition may hold a record back: longer than one run."""
FEED = source("canal").model_copy(update={"idle_partition_s": IDLE})
CONFIG = Config.model_validate({"lake": "/nowhere", "sources": [FEED.model_dump()]})

MOST = (10**6,) * PARTITIONS


@dataclass(frozen=True)
class Change:
    """One in the log. time: the latest commit that the log has by then; stamped: what it says itself; held: whether
    it can't be used when it comes, and whether its message then tells its table."""

    number: int
    time: int
    stamped: int
    partition: int
    table: int
    held: str | None


@dataclass(frozen=True)
class Run:
    """Between two publications. sends: changes that the capture sends; late: partitions that get them by the next run;
    lands, takes: how many of each partition; heals: how many held messages; stopped: a table that isn't kept; again:
    partition and how many messages before its newest is one that a replay holds, and whether its table is told; paces:
    how many of its changes each partition gets at most: a capture of its own that is slow may be late for any time."""

    sends: int
    late: tuple[bool, ...]
    lands: tuple[int, ...]
    takes: tuple[int, ...]
    heals: int
    stopped: int | None
    again: tuple[int, int, str] | None = None
    paces: tuple[int, ...] = MOST


WHOLE = Run(10**6, (False,) * PARTITIONS, MOST, MOST, 10**6, None)


def logged(transactions: list[Any], partitions: int) -> list[Change]:
    log: list[Change] = []
    clock = latest = 100
    for gap, behind, changes in transactions:
        clock += gap - behind
        latest = max(latest, clock)
        log += [
            Change(len(log) + i, latest, max(0, clock - early), p % partitions, table, held)
            for i, (p, table, early, held) in enumerate(changes)
        ]
    return log


def sent(log: list[Change], restarts: list[tuple[int, int]]) -> list[Change]:
    """What the capture sends. restarts: up to where it came, and where in the log it began again."""
    found, begin = [], 0
    for end, again in [*sorted(restarts), (len(log), 0)]:
        found += log[begin:end]
        begin = min(again, end, len(log))
    return found


@dataclass
class Lake:
    """What runs leave of a source. wall: the platform's own clock; rows: of WATERMARKS; held: (partition, offset) →
    change; shown: changes in each snapshot; joins: run from which on the last partition is read, as a topic of its own;
    None: it is read from the first on, as a partition of the one topic."""

    sending: list[Change]
    partitions: int
    step: timedelta = STEP
    joins: int | None = None
    runs: int = 0
    wall: datetime = START
    number: int = 0
    begun: int = 0
    late: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    landed: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    taken: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    looked: datetime | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    held: dict[tuple[int, int], Change] = field(default_factory=dict)
    shown: list[set[int]] = field(default_factory=lambda: [set() for _ in TABLES])

    def run(self, run: Run) -> None:
        self.wall += self.step
        came = [n if self.reads(p) else 0 for p, n in enumerate(self._sent(run))]
        for p in range(PARTITIONS):
            self.landed[p] += min(run.lands[p], came[p] - self.landed[p])
        if self.landed == came:
            self.looked = self.wall
        self._take(run)
        if run.again is not None:
            self._hold(*run.again)
        for where in sorted(self.held)[: run.heals]:
            del self.held[where]
        came_in = {
            c.number: c
            for p in range(PARTITIONS)
            for o, c in enumerate(self._of(p)[: self.taken[p]])
            if (p, o) not in self.held
        }
        for n in range(len(TABLES)):
            if n != run.stopped:
                self.shown[n] = {c.number for c in came_in.values() if c.table == n}
        states: dict[Name, dict[str, Any]] = {name: {"state": "live", "reason": None} for name in TABLES}
        if run.stopped is not None:
            states[TABLES[run.stopped]] = {"state": "stopped", "reason": "why"}
        with self.in_place():
            complete.publish(CONFIG, FEED, states)
        self.runs += 1

    def where(self, p: int) -> Where:
        return "t" if self.joins is None or p < self.partitions - 1 else "u", p

    def reads(self, p: int) -> bool:
        """Whether a run looks at it."""
        return self.where(p)[0] == "t" or self.runs >= (self.joins or 0)

    def follows(self, p: int) -> bool:
        """Whether what is told counts it: a topic that brought nothing so far may as well not be there."""
        return self.where(p)[0] == "t" or self.landed[p] > 0

    def has_joined(self, last: Complete | None) -> bool:
        """Whether a topic brings records that what was told last doesn't know."""
        where, known = self.where(self.partitions - 1), (last and last.ends) or {}
        return where[0] == "u" and self.landed[where[1]] > 0 and where not in known

    def _of(self, p: int) -> list[Change]:
        return [c for c in self.sending if c.partition == p]

    def _sent(self, run: Run) -> list[int]:
        """How many are in each partition of the topic."""
        before = self.begun
        self.begun = min(len(self.sending), before + run.sends)
        counts = [sum(c.partition == p for c in self.sending[: self.begun]) for p in range(PARTITIONS)]
        earlier = [sum(c.partition == p for c in self.sending[:before]) for p in range(PARTITIONS)]
        ends = [earlier[p] if run.late[p] else counts[p] for p in range(PARTITIONS)]
        self.late = [max(n, min(ends[p], n + run.paces[p])) for p, n in enumerate(self.late)]
        return self.late

    def _take(self, run: Run) -> None:
        """The changelog's batch."""
        batch: list[dict[str, Any]] = []
        for p in range(PARTITIONS):
            begin = self.taken[p]
            self.taken[p] = min(self.landed[p], begin + run.takes[p])
            for o, c in enumerate(self._of(p)[begin : self.taken[p]], begin):
                if c.held is None:
                    batch.append(row(c.stamped, o, p, topic=self.where(p)[0]))
                else:
                    batch.append(event("error", None, o, p, topic=self.where(p)[0]))
                    self.held[p, o] = c
        if batch:
            with self.in_place():
                marks.note(WATERMARKS.at(stores.lake(CONFIG)), FEED, self.number, statistics(*batch))
            self.number += 1

    def _hold(self, p: int, back: int, how: str) -> None:
        """A message that was decoded before."""
        offset = self.taken[p] - 1 - back
        if offset >= 0:
            self.held[p, offset] = replace(self._of(p)[offset], held=how)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Of the tables that are asked."""
        ledger = [  # landing notes partitions that hold nothing, too
            {"topic": topic, "partition": p, "landed": self.landed[p], "unaccounted": self.landed[p] - self.taken[p]}
            for topic, p in map(self.where, range(self.partitions))
            if self.reads(p)
        ]
        with ExitStack() as stack:
            for where, name, value in (
                (complete.delta_sql, "ensure", lambda _, path: path),
                (complete.delta_table, "append_rows", self.append),
                (complete.state, "were_live", lambda *_: set(TABLES)),
                (now.sequences, "began_again", lambda *_: frozenset()),
                (now, "ended", lambda *_: frozenset()),
                (now.queries, "ledger", lambda *_: ledger),
                (now.queries, "landed", lambda *_: {self.where(p): n for p, n in enumerate(self.landed) if n}),
                (now.queries, "query", lambda *_, **__: None),
                (now.landing, "looked_at", lambda *_: self.looked),
                (complete.holds, "missing", lambda *_: self.missing()),
                (marks, "partitions", self.marks),
                (watermarks, "partitions", self.marks),
                (watermarks, "complete", self.complete),
                (claims, "Past", lambda *_: self),
            ):
                stack.enter_context(mock.patch.object(where, name, value))
            yield

    def missing(self) -> Missing:
        """As holds.missing."""
        named: dict[Any, dict[int, Hold]] = {}
        unnamed = []
        for (p, offset), change in sorted(self.held.items()):
            hold = Hold(self.where(p), offset, f"quarantine holds t/{p}/{offset}")
            if change.held == "table":
                named.setdefault(TABLES[change.table], {}).setdefault(p, hold)
            else:
                unnamed.append(hold)
        return Missing(first(unnamed), {n: list(of.values()) for n, of in named.items()})

    def append(self, _path: Any, rows: list[dict[str, Any]], **_: Any) -> None:
        self.rows += [{**r, "at": self.wall} for r in rows]

    def _newest(self, scope: str, before: int | None, until: datetime | None) -> list[dict[str, Any]]:
        mine = [r for r in self.rows if r["scope"] == scope and (until is None or r["at"] <= until)]
        mine = [r for r in mine if before is None or r["batch"] < before]
        return [r for r in mine if r["batch"] == max(r["batch"] for r in mine)]

    def marks(self, *_: Any, before: int | None = None, until: datetime | None = None) -> dict[Any, Any]:
        return {(r["topic"], r["partition"]): r for r in self._newest(PARTITION, before, until)}

    def reached(self, where: Where, offset: int) -> datetime | None:
        mine = [r for r in self.rows if r["scope"] == PARTITION and (r["topic"], r["partition"]) == where]
        times = [r["source_time"] for r in mine if r["offset"] < offset and r["source_time"]]
        return max(times, default=None)

    def complete(self, *_: Any) -> Complete | None:
        rows = self._newest(SOURCE, None, None)
        return published(rows[0]) if rows else None

    def earlier(self, number: int, name: Name | None, held: Any) -> Iterator[Complete]:
        told = [published(r) for r in self.rows if r["scope"] == SOURCE and r["batch"] < number]
        standing = [(at, p.number, p) for p in told if p.stands(name, held) and (at := p.of(name))]
        yield from (p for *_, p in sorted(standing, reverse=True))

    def lacks(self, name: Name | None) -> list[Hold]:
        """What a table (None: any) lacks."""
        missing = self.missing()
        return [*missing.all, *(missing.tables.get(name, ()) if name else ())]

    def told(self) -> dict[Name | None, datetime | None]:
        """Up to when the source (None) and each table are complete."""
        found = self.complete()
        assert found is not None
        return {None: found.source_time, **{name: found.of(name) for name in TABLES}}

    def check_what_it_rests_on(self, last: Complete | None) -> None:
        """A time that was told before rests on no less than it did."""
        found = self.complete()
        assert found is not None
        if last is None:
            return
        for name in (None, *TABLES):
            then, now = last.ends_of(name) or {}, found.ends_of(name) or {}
            if (at := last.of(name)) and found.of(name) == at and found.proven_of(name) == last.proven_of(name):
                held = {h.where: h.offset for h in first(self.lacks(name))}
                assert not last.stands(name, held) or all(now.get(w, 0) >= end for w, end in then.items()), name
