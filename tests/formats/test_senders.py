"""Which parts of a source messages came from."""

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats import senders
from cdc_platform.formats.contract import DDL
from cdc_platform.formats.senders import Sender
from cdc_platform.formats.tdsql.sets import SENDERS
from cdc_platform.tables import DDL_SEEN, LOADED


def records(*rows):
    names = ("topic", "partition", "offset", "value")
    types = (pa.string(), pa.int32(), pa.int64(), pa.binary())
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)], names
    )


def test_where_each_sender_was_seen_first():
    batch = records(
        ("t", 0, 7, b'{"prefix": "one"}'),
        ("t", 0, 3, b'{"prefix":"one", "b": {"prefix":"two"}}'),
        ("t", 1, 1, b'{"prefix" :"t\\u0077o"}'),
        ("t", 0, 0, None),
        ("t", 0, 1, b'{"prefix":""}'),
        ("t", 0, 2, b'{"sql": "\\"prefix\\":\\"two\\""}'),
        (LOADED, 0, 0, b'{"prefix":"column"}'),
    )
    found = senders.first(batch, SENDERS)
    assert found == {Sender("t", 0, "one"): 3, Sender("t", 1, "two"): 1}
    assert senders.first(batch, SENDERS, {Sender("t", 0, "one")}) == {Sender("t", 1, "two"): 1}
    assert senders.first(batch, None) == {}


def test_they_are_kept_as_events_without_a_statement():
    found = {Sender("t", 0, "one"): 3, Sender("t", 1, "two"): 1}
    events = senders.events(found, SENDERS)
    rows = pa.Table.from_pylist(events, DDL_SEEN.arrow()).select(DDL).to_pylist()
    assert senders.of(rows, SENDERS) == found
    assert all(r["ddl"] is None and dict(r["info"]).keys() == {"prefix"} for r in rows)
    assert senders.of([{"entry_index": 0, "info": [("prefix", "x")]}], SENDERS) == {}


def test_no_more_are_noted_of_a_partition_than_can_be_told_apart():
    known = {Sender("t", 0, f"k{i}") for i in range(senders.MOST - 1)}
    found = {Sender("t", 0, "a"): 1, Sender("t", 0, "b"): 2, Sender("t", 1, "c"): 3}
    assert senders.news(found, known) == {Sender("t", 0, "a"): 1, Sender("t", 1, "c"): 3}


@given(st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 1), st.sampled_from("abc")), max_size=30), st.data())
def test_in_any_portions_the_same_is_told(said, data):
    rows = [(t, p, at, b'{"prefix":"%s"}' % s.encode()) for at, (t, p, s) in enumerate(said)]
    whole = senders.first(records(*rows), SENDERS) if rows else {}
    cut = data.draw(st.integers(0, len(rows)))
    told = []
    for some in (rows[:cut], rows[cut:]):
        known = senders.of(told, SENDERS).keys()
        told += senders.events(senders.first(records(*some), SENDERS, known), SENDERS) if some else []
    assert senders.of(told, SENDERS) == whole
    assert len(re.compile(SENDERS).groupindex) == 1
