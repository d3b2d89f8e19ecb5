"""Stretches of numbered records: every number is in one, whatever the batches, the lanes and the order of arrival."""

import random
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.envelopes.sequences import Stretch, joined, stretches
from cdc_platform.formats.contract import MESSAGE, PART

AT = datetime(2026, 11, 20, tzinfo=UTC)


def found(*records: tuple[int, int, int | None, str], topic: str = "t") -> list[Stretch]:
    """Of records as (partition, offset, number, shard), in one pass."""
    messages = [{"topic": topic, "partition": p, "offset": o, "timestamp": AT} for p, o, _, _ in records]
    parts = [{"shard": shard, "seq": None if n is None else Decimal(n)} for _, _, n, shard in records]
    given = pa.RecordBatch.from_pylist(messages, MESSAGE), pa.RecordBatch.from_pylist(parts, PART)
    return joined(stretches(*given))


def test_one_number_after_the_other_is_one_stretch():
    assert found(*((0, 10 + i, 7 + i, "") for i in range(5))) == [Stretch("t", 0, "", 10, 14, 7, 11)]


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([5, 6, 9], [(0, 1, 5, 6), (2, 2, 9, 9)]),
        ([5, 6, 1, 2], [(0, 1, 5, 6), (2, 3, 1, 2)]),
        ([5, 6, 6, 7], [(0, 3, 5, 7)]),
        ([5, None, 6], [(0, 2, 5, 6)]),
        ([None, None], []),
        ([1 << 63, 4], [(1, 1, 4, 4)]),
    ],
    ids=["a gap", "begun again", "sent twice", "one without a number", "no numbers", "larger than a long"],
)
def test_breaks(numbers, told):
    records = [(0, offset, n, "") for offset, n in enumerate(numbers)]
    assert [s[3:] for s in found(*records)] == told


def test_shards_of_a_partition_are_numbered_each_for_itself():
    records = [(0, 0, 1, "a"), (0, 1, 1, "b"), (0, 2, 2, "a"), (0, 3, 2, "b"), (1, 0, 9, "a")]
    assert found(*records) == [
        Stretch("t", 0, "a", 0, 2, 1, 2),
        Stretch("t", 0, "b", 1, 3, 1, 2),
        Stretch("t", 1, "a", 0, 0, 9, 9),
    ]


def test_many_lanes_are_no_breaks():
    assert len(found(*((0, o, 7, f"set_{o}") for o in range(1_500)))) == 1_500


def test_numbers_that_are_no_sequence_are_not_kept_one_by_one():
    assert found(*((0, o, 3 * o + 1, "") for o in range(1_002))) == [Stretch("t", 0, "", 0, 1_001, None, None)]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(0, 2**32))
def test_batches_change_nothing(numbers, seed):
    records = [(o % 2, o, n, "") for o, n in enumerate(numbers)]
    cuts = sorted(random.Random(seed).sample(range(len(records) + 1), k=min(3, len(records))))
    pieces = [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    assert joined(s for piece in pieces if piece for s in found(*piece)) == found(*records)
