"""Offsets of landed files, counted."""

import json

import pyarrow as pa

from cdc_platform.formats import senders
from cdc_platform.formats.senders import Sender
from cdc_platform.landing import counting
from cdc_platform.landing.counting import ADDRESSES, Asked, count, summed


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


def noted(asked, *values, topic="a"):
    """The note of a file with two batches of such records."""
    notes, half = counting.Notes(asked), len(values) // 2
    schema = pa.schema([*ADDRESSES, ("value", pa.binary())])
    for first, some in ((0, values[:half]), (half, values[half:])):
        at = {"topic": [topic] * len(some), "partition": [0] * len(some), "offset": range(first, first + len(some))}
        notes.add(pa.RecordBatch.from_pydict({**at, "value": some}, schema))
    return json.loads(json.dumps(notes.to_json()))


def test_a_file_notes_whether_it_may_hold_ddl():
    asked = Asked('query"')
    without, with_one = noted(asked, None, b"\xff", b'{"a": 1}'), noted(asked, None, b'{"query": 1}', b"\xff")
    assert [counting.ranges(n) for n in (without, with_one)] == [[told("a", 0, 0, 2, 3)]] * 2
    assert [counting.has_news(n, asked, set()) for n in (without, with_one)] == [False, True]
    assert counting.has_news(without, Asked('ddl"'), set()), "a decoder of today looks for another word"
    assert counting.has_news(noted(Asked(), b"a"), asked, set()), "nobody asked"


def test_a_file_notes_whose_its_records_are():
    asked = Asked('query"', r'"from":"(?P<server>[^"]+)"')
    one, other = Sender("a", 0, "one"), Sender("a", 0, "other")
    file = noted(asked, b'{"from":"one"}', None, b'{"from":"one"}', b'{"from":"other"}')
    assert file["senders"]["seen"] == [list(one), list(other)]
    assert [counting.has_news(file, asked, known) for known in ({one, other}, {one}, set())] == [False, True, True]
    assert counting.has_news(file, asked._replace(senders=r'"of":"(?P<server>[^"]+)"'), {one, other})
    assert counting.has_news(noted(Asked('query"'), b"a"), asked, set()), "nobody asked"
    plenty = {Sender("a", 0, str(i)) for i in range(senders.MOST)}
    assert not counting.has_news(file, asked, plenty), "so many are told apart, no more"
    assert counting.has_news(noted(asked, b'{"from":"one"}', topic="b"), asked, plenty)


def test_files_of_earlier_versions_note_offsets_alone_or_nothing():
    earlier = [told("a", 0, 0, 3, 4)]
    assert (counting.ranges(earlier), counting.ranges(None)) == (earlier, None)
    assert counting.has_news(earlier, Asked("x"), set()) and counting.has_news(None, Asked("x"), set())
