"""Offsets of landed files, counted."""

import pyarrow as pa

from cdc_platform.landing import counting
from cdc_platform.landing.counting import ADDRESSES, count, summed


def batch(*rows):
    return pa.RecordBatch.from_pylist([dict(zip(ADDRESSES.names, r, strict=True)) for r in rows], ADDRESSES)


def told(topic, partition, first, last, records):
    return {"topic": topic, "partition": partition, "from_offset": first, "to_offset": last, "records": records}


def test_first_and_last_offset_and_how_many_per_partition():
    batches = iter([batch(("a", 0, 5), ("a", 0, 9), ("b", 0, 1)), batch(("a", 1, 7), ("a", 0, 4))])
    found = count(batches, {})
    assert sorted(found, key=str) == sorted(
        [told("a", 0, 4, 9, 3), told("b", 0, 1, 1, 1), told("a", 1, 7, 7, 1)], key=str
    )


def test_files_are_summed_up():
    assert summed([[told("a", 0, 4, 9, 3)], [told("a", 0, 10, 12, 2), told("b", 0, 0, 0, 1)], []]) == [
        told("a", 0, 4, 12, 5),
        told("b", 0, 0, 0, 1),
    ]
    assert summed([]) == []


def test_a_file_notes_whether_it_may_hold_ddl():
    values = pa.array([b'{"query": 1}', None, b"\xff", b'{"a": 1}'], pa.binary())
    records = pa.RecordBatch.from_arrays([values], ["value"])
    assert [counting.matches(records, m) for m in ('query"', 'ddl"', None)] == [1, 0, 0]
    noted = [counting.note([[told("a", 0, 0, 3, 4)]], 'query"', n) for n in (0, 1)]
    assert [counting.ranges(n) for n in noted] == [[told("a", 0, 0, 3, 4)]] * 2
    assert [counting.has_none(n, 'query"') for n in noted] == [True, False]
    assert not counting.has_none(noted[0], 'ddl"'), "a decoder of today looks for another word"


def test_files_of_earlier_versions_note_offsets_alone_or_nothing():
    earlier = [told("a", 0, 0, 3, 4)]
    assert (counting.ranges(earlier), counting.ranges(None)) == (earlier, None)
    assert not counting.has_none(earlier, "x") and not counting.has_none(None, "x")
