"""Complete up to T: no change of a smaller time comes later to a table that was called complete."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_platform.snapshots.cuts.holds import first
from cdc_platform.tables import Name
from tests.changelog.complete_model import IDLE, MOST, PARTITIONS, STEP, TABLES, WHOLE, Lake, Run, logged, sent
from tests.changelog.test_watermarks import START, at

CHANGES = st.tuples(
    st.integers(0, PARTITIONS - 1),
    st.integers(0, len(TABLES) - 1),
    st.sampled_from([0, 0, 1, 30]),
    st.sampled_from([None] * 8 + ["table", "message"]),
)
"""Partition, table, how much earlier than its commit it is stamped, whether it is held."""
TRANSACTIONS = st.tuples(
    st.integers(0, 3), st.sampled_from([0] * 7 + [1, 5, 40]), st.lists(CHANGES, min_size=1, max_size=3)
)
"""Seconds since the commit before; how far behind the clock of the server is that takes over; its changes."""
COUNTS = st.tuples(*[st.sampled_from([0, 1, 2, 9, 9, 9])] * PARTITIONS)
RUNS = st.builds(
    Run,
    st.sampled_from([0, 1, 3, 9]),
    st.tuples(*[st.sampled_from([False, False, True])] * PARTITIONS),
    COUNTS,
    COUNTS,
    st.sampled_from([0, 0, 1, 5]),
    st.sampled_from([None] * 3 + [0, 1]),
    st.none() | st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 5), st.sampled_from(["table", "message"])),
)
NEITHER = (False,) * PARTITIONS
ONE = 0, 0, 0, None
"""A change by partition 0."""
PACES = st.tuples(*[st.sampled_from([10**6, 10**6, 1, 2])] * PARTITIONS)
"""Partitions that a capture of their own sends, slower than the others."""
BACKLOG = example(
    [(1, 0, [ONE, (1, 1, 0, None)])] * 5,
    2,
    [],
    [Run(10, NEITHER, MOST, MOST, 0, None), Run(0, NEITHER, (0, 2, 0), MOST, 0, None)],
    1,
    MOST,
)
"""Of a topic that is read from the second run on, not all in it."""
LOGS = given(
    st.lists(TRANSACTIONS, min_size=1, max_size=12),
    st.integers(1, PARTITIONS),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=2),
    st.lists(RUNS, min_size=2, max_size=8),
    st.none() | st.integers(1, 3),
    PACES,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@BACKLOG
@LOGS
def test_nothing_older_comes_to_a_table_that_was_complete(
    transactions: Any, partitions: int, restarts: Any, runs: Any, joins: int | None, paces: tuple[int, ...]
):
    log = logged(transactions, partitions)
    lake = Lake(sent(log, restarts), partitions, joins=joins if partitions > 1 else None)
    before: dict[Name | None, datetime | None] = dict.fromkeys([None, *TABLES])
    told: list[tuple[list[int], dict[Name | None, datetime | None]]] = []
    back = 0
    slow = [replace(run, paces=paces) for run in runs]
    for n_run, run in enumerate(every_run := [*slow, WHOLE, WHOLE, WHOLE, WHOLE]):
        last = lake.complete()
        lake.run(run)
        now = lake.told()
        lake.check_what_it_rests_on(last)
        for n, name in enumerate(TABLES):
            up_to = now[name]
            mine = [c for c in log if c.table == n and lake.follows(c.partition)]
            late = [c for c in mine if up_to and at(c.time) < up_to and c.number not in lake.shown[n]]
            assert not late, f"{name} was called complete up to {up_to}"
        if lake.has_joined(last):  # what was told before tells nothing of that topic
            before, told = dict.fromkeys(before), []
        for name in (n for n, was in before.items() if was and was > (now[n] or START)):
            lacks, back = lake.lacks(name), back or n_run
            assert last and any(r.again for r in every_run[: n_run + 1]), f"{name or 'the source'} goes back"
            assert not last.stands(name, {h.where: h.offset for h in first(lacks)}), "what was told rests on none of it"
            known = [then[name] for taken, then in told if all(taken[h.where[1]] <= h.offset for h in lacks)]
            most = max((then for then in known if then), default=START)  # before any of it had come
            assert back < n_run or most <= (now[name] or START), f"{name or 'the source'} goes back too far"
        told.append((list(lake.taken), now))
        before = now
    every = max((at(c.stamped) for c in log if c.held is None), default=None)
    assert before == dict.fromkeys([None, *TABLES], every), "all has come"


GOES_BACK = {
    "a table of which a message is held, while a partition lags": (
        STEP,
        [[ONE, ONE], [(0, 0, 0, "table"), (1, 0, 0, None)]],
        [
            *(Run(2, NEITHER, MOST, MOST, 0, 0), Run(0, NEITHER, MOST, MOST, 0, 0), Run(0, NEITHER, MOST, MOST, 0, 0)),
            *(Run(1, NEITHER, MOST, (0, 0, 0), 0, None), Run(1, NEITHER, MOST, (9, 0, 0), 0, None)),
        ],
    ),
    "a source of which a message comes by an idle partition, within ten minutes": (
        timedelta(seconds=IDLE / 4),
        [[ONE, (1, 1, 30, None)], [ONE], [(1, 1, 0, "message")]],
        [Run(3, NEITHER, MOST, MOST, 0, None), *[Run(0, NEITHER, MOST, MOST, 0, None)] * 5, WHOLE],
    ),
}


@pytest.mark.parametrize("name", GOES_BACK)
def test_what_was_complete_stays_so(name: str):
    step, changes, runs = GOES_BACK[name]
    lake = Lake(logged([(0, 0, some) for some in changes], 2), 2, step)
    times = []
    for run in runs:
        lake.run(replace(run, heals=0))
        times.append(lake.told())
    for name_ in times[0]:
        known = [t[name_] for t in times]
        first = next((i for i, t in enumerate(known) if t), len(known))
        assert None not in known[first:] and known[first:] == sorted(known[first:], key=str), name_
