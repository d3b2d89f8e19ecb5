"""Changes of one key by several partitions at one source time, as files note them."""

from itertools import groupby

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.changelog.order_key import PARTITIONS, TIMES_FROM
from cdc_platform.changelog.ties import Unplaced, untied

_CHANGES = st.lists(
    st.tuples(
        st.integers(0, 2),  # file
        st.sampled_from("123"),
        st.sampled_from([TIMES_FROM, TIMES_FROM + 1, TIMES_FROM + 1000, TIMES_FROM + 1001, 7, 8]),
        st.sampled_from([0, 1, PARTITIONS - 1]),
        st.booleans(),  # whether it has a position
    ),
    max_size=10,
)


def noted(changes, at_once=2):
    found = Unplaced()
    for i in range(0, len(changes), at_once):
        some = changes[i : i + at_once]
        order = [[0, 3 if placed else -1, pos, 5 * PARTITIONS + p, 0, 0] for _, _, pos, p, placed in some]
        found.add([pa.array([key for _, key, *_ in some])], np.array(order, np.int64))
    return found.to_json()


def truth(changes):
    """Whether no key has one time by two partitions, of changes without a position."""
    by: dict[tuple, set[int]] = {}
    for _, key, pos, partition, placed in changes:
        if not placed:
            by.setdefault((key, pos if pos >= TIMES_FROM else 0), set()).add(partition)
    return all(len(partitions) == 1 for partitions in by.values())


@settings(deadline=None)
@given(_CHANGES)
def test_what_a_file_notes_is_so(changes):
    told = noted(changes)
    assert told["untied"] == truth(changes)
    times: dict[int, list[int]] = {}
    for _, _, pos, partition, placed in changes:
        if not placed:
            times.setdefault(partition, []).append(pos if pos >= TIMES_FROM else 0)
    assert told["spans"] == [[p, min(t), max(t)] for p, t in sorted(times.items())]


@settings(deadline=None)
@given(_CHANGES)
def test_several_files_are_said_to_have_no_such_changes_only_where_they_have_none(changes):
    files = [list(of) for _, of in groupby(sorted(changes, key=lambda c: c[0]), key=lambda c: c[0])]
    assert not untied([noted(f) for f in files]) or truth(changes)


def test_files_whose_times_are_apart_need_no_look():
    first = [(0, "1", TIMES_FROM + i, i % 2, False) for i in range(10)]
    second = [(1, "1", TIMES_FROM + 10 + i, i % 2, False) for i in range(10)]
    assert untied([noted(first), noted(second)])
    assert not untied([noted(first), noted([(1, "1", TIMES_FROM + 9, 0, False)])])
    assert untied([noted(first), noted([(1, "1", TIMES_FROM + 9, 1, False)])]), "partition 0 was there until 8"


def test_of_files_of_earlier_versions_it_is_not_known():
    assert not untied([{"changes": 1}, noted([])])
