"""What a pass is told of by address is found again by workers, whatever parts it was packed in."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.changelog import packed
from cdc_platform.changelog.packed import Packed
from cdc_platform.formats.events import event_batch
from tests.properties import examples

NAMES = ("topic", "partition", "offset", "entry_index", "row_index", "kind")
ADDRESSES = st.tuples(
    *(st.sampled_from(("a", "b")), st.integers(0, 1), st.integers(0, 6)),
    *(st.sampled_from((None, 0, 1)), st.sampled_from((None, 0, 1)), st.sampled_from(("row", "ddl"))),
)
SOME = st.lists(ADDRESSES, max_size=12)


def table(rows: Any) -> pa.Table:
    told = [dict(zip(NAMES, r, strict=True)) for r in sorted(rows, key=lambda r: r[:3])]
    return pa.Table.from_batches([event_batch(told).select(NAMES)])


@examples(100)
@given(known=SOME, asked=SOME, rows=st.integers(1, 4))
def test_addresses_are_found_by_all_that_tells_them_apart(known: Any, asked: Any, rows: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_ROWS", rows)
        found: Packed = pickle.loads(pickle.dumps(Packed.of_table(table(known))))
    events = event_batch([dict(zip(NAMES, r, strict=True)) for r in asked])
    told = found.among(events, "entry_index", "row_index", "kind").to_pylist()
    assert told == [r in known for r in asked]
    assert found.among(events).to_pylist() == [r[:3] in {k[:3] for k in known} for r in asked]


@pytest.mark.spark
def test_tasks_pack_what_a_frame_has(spark: Any):
    rows = [("a", i % 3, i, None if i % 5 else i % 4, i % 2, "row") for i in range(3000)]
    types = "topic STRING, partition INT, offset BIGINT, entry_index INT, row_index INT, kind STRING"
    found = Packed.of(spark.createDataFrame(rows[::-1], types).repartition(7))
    assert set(found.parts) == {("a", 0), ("a", 1), ("a", 2)}
    events = event_batch([dict(zip(NAMES, r, strict=True)) for r in [*rows, ("a", 0, 1, None, 0, "row")]])
    assert found.among(events, "entry_index", "row_index", "kind").to_pylist() == [True] * len(rows) + [False]
    assert Packed.of(spark.createDataFrame([], types)).parts == {}
