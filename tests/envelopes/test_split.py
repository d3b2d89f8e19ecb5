"""Pieces of messages put together where they lie."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.envelopes.split import joined

MESSAGES = st.lists(st.lists(st.binary(max_size=5), max_size=4), max_size=6)


@given(MESSAGES, MESSAGES, MESSAGES)
def test_the_pieces_of_each_message_are_joined_in_their_order(before, messages, after):
    pieces = pa.array([*before, *messages, *after], pa.list_(pa.binary()))
    found = joined(pieces.slice(len(before), len(messages)))
    found.validate(full=True)
    assert found.to_pylist() == [b"".join(message) for message in messages]
