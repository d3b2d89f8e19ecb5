"""Each message counts once, under one outcome, however its events stand in files and batches."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.changelog.outcomes import RANK, Accounting, Messages, overlaps
from cdc_platform.changelog.packed import Packed
from cdc_platform.changes.file_stats import Summary
from cdc_platform.formats.events import event_batch

FOUR = pa.table({"topic": ["a"], "partition": [0], "offset": [4], "parts": [3]})


def added(messages: Messages, places: Any, outcomes: list[str], before: list[str] | None = None) -> None:
    rows = [dict(zip(("topic", "partition", "offset"), p, strict=True)) for p in places]
    messages.add(event_batch(rows), *(pa.array(o, pa.string()) for o in (outcomes, before) if o is not None))


def test_a_message_counts_once_however_its_events_are_cut_into_batches():
    places = [("a", 0, 1), ("a", 0, 1), ("a", 0, 2), ("b", 3, 1), ("a", 0, 4)]
    outcomes = ["applied", "quarantined", "filtered", "control", "filtered"]
    for cut in range(len(places) + 1):
        messages = Messages(Accounting(Packed.of_table(FOUR)))
        for part in (slice(0, cut), slice(cut, None)):
            added(messages, places[part], outcomes[part])
        assert messages.to_json() == {
            "ledger": [
                ["a", 0, "quarantined", 1, 1, 1],
                ["a", 0, "filtered", 2, 4, 4],
                ["b", 3, "control", 1, 1, 1],
            ],
            "shared": [],
        }


OFFSETS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(RANK)), min_size=1, max_size=8)


@given(st.lists(OFFSETS, min_size=1, max_size=4))
def test_files_that_have_events_of_one_message_count_it_once(files: Any):
    accounting = Accounting(Packed.of_table(FOUR), overlaps(noted([o for o, _ in file]) for file in files))
    told = []
    for file in files:
        messages = Messages(accounting)
        added(messages, [("a", 0, o) for o, _ in file], [outcome for _, outcome in file])
        told.append(messages.to_json())
    every: dict[int, int] = {}
    for offset, outcome in (event for file in files for event in file):
        every[offset] = min(every.get(offset, len(RANK)), RANK.index(outcome))
    expected = {}
    for outcome in range(len(RANK)):
        if mine := [o for o, rank in every.items() if rank == outcome]:
            expected[RANK[outcome]] = [min(mine), max(mine), sum(3 if o == 4 else 1 for o in mine)]
    assert {e[2]: e[3:] for e in accounting.entries(told)} == expected


def test_only_messages_whose_outcome_has_changed_are_moved():
    messages = Messages(Accounting(Packed.of_table(FOUR), moved=True))
    places = [("a", 0, o) for o in (1, 2, 2, 4)]
    added(
        messages, places, ["applied", "applied", "applied", "applied"], ["applied", "filtered", "applied", "filtered"]
    )
    assert messages.to_json()["ledger"] == [["a", 0, "applied", 4, 4, 3], ["a", 0, "filtered", 4, 4, -3]]


def noted(offsets: list[int], *kinds: str, retold: bool = False) -> dict[str, Any]:
    """What a file notes of its events."""
    rows = [{"topic": "a", "partition": 0, "offset": o, "kind": k} for o in offsets for k in kinds or ("row",)]
    summary = Summary()
    summary.add(event_batch(rows).append_column("retold", pa.array([retold] * len(rows))))
    return summary.to_json()


def test_groups_of_one_file_are_no_overlap():
    once = noted(list(range(100)), "schema", "begin", "row", "commit")
    assert overlaps([once]) == {}
    assert overlaps([once, noted([200, 300]), noted([7], retold=True)]) == {}
    assert overlaps([once, noted([90, 300], "row", "ddl")]) == {("a", 0): ((90, 99),)}


def test_of_both_tellings_of_a_message_the_later_counts():
    """As when it was decoded again before the changelog had its first telling."""
    again = pa.table({"topic": ["a"] * 2, "partition": [0] * 2, "offset": [5, 6], "held": [False, True]})
    for apart in (True, False):
        accounting = Accounting(again=Packed.of_table(again))
        first, later = Messages(accounting), Messages(accounting)
        later = later if apart else first
        rows = event_batch([{"topic": "a", "partition": 0, "offset": o} for o in (4, 5, 5)])
        first.add(rows, pa.array(["applied", "quarantined", "applied"]))
        rows = event_batch([{"topic": "a", "partition": 0, "offset": o} for o in (5, 6)])
        later.add(rows.append_column("retold", pa.array([True, True])), pa.array(["applied", "filtered"]))
        told = [m.to_json() for m in ((first, later) if apart else (first,))]
        assert accounting.entries(told) == [
            ["a", 0, "applied", 4, 5, 2],
            ["a", 0, "filtered", 6, 6, 1],
            ["a", 0, "quarantined", 6, 6, -1],
        ]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=5))
def test_overlaps_are_the_offsets_that_more_than_one_file_reaches_over(files: Any):
    found = overlaps(noted([first, first + more]) for first, more in files)
    over = {o for low, high in found.get(("a", 0), ()) for o in range(low, high + 1)}
    assert over == {o for o in range(20) if sum(first <= o <= first + more for first, more in files) > 1}
