"""Figures of events: whether positions ascend, batch after batch."""

import pytest

from cdc_platform.changes.file_stats import Summary
from cdc_platform.formats.events import event_batch


def row(pos, op="insert", row_no=0, lineage="1", file_no=1):
    return {
        "topic": "t", "partition": 0, "offset": 7, "entry_index": 0, "row_index": 0, "kind": "row", "op": op,
        "key": [("id", "1")], "after": [("id", "1")], "lineage": lineage, "file_no": file_no, "binlog_pos": pos,
        "event_no": 0, "row_no": row_no,
    }  # fmt: skip


def told(*batches):
    summary = Summary()
    for rows in batches:
        summary.add(event_batch(rows))
    return summary.to_json()["ascending"]


CASES = {
    "ascending": ([row(4), row(9), row(9, row_no=1)], True),
    "of two files": ([row(9), row(4, file_no=2)], True),
    "descending": ([row(9), row(4)], False),
    "the same twice": ([row(4), row(4), row(9)], False),
    "a delete and an insert": ([row(4, "delete"), row(4, "insert"), row(9)], True),
    "three of one": ([row(4, "delete"), row(4, "insert"), row(4, "delete")], False),
    "of two servers": ([row(4), row(9, lineage="2")], False),
    "without a position": ([row(4), row(None)], False),
}


@pytest.mark.parametrize("name", CASES)
def test_ascending_however_rows_are_batched(name):
    rows, fine = CASES[name]
    assert told(rows)["fine"] is fine
    assert told(*([r] for r in rows))["fine"] is fine
    for i in range(1, len(rows)):
        found = told(rows[:i], [], rows[i:])
        assert found["fine"] is fine
        assert found["count"] == len(rows)


def test_first_and_last_places_are_told():
    found = told([row(4), row(9)], [row(9, row_no=3)])
    assert (found["lineage"], found["first"], found["last"]) == ("1", [1, 4, 0, 0], [1, 9, 0, 3])


def test_rows_that_tell_no_file_do_not_count():
    assert told([row(4), row(9, file_no=None)])["count"] == 1
