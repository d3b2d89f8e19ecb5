"""Varints, many at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats.protobuf.varint import read_number
from tests.properties import examples

NUMBERS = st.one_of(st.integers(0, 300), st.integers(-300, 0), *(st.integers(-(2**b), 2**b - 1) for b in (31, 49, 63)))


def varint(number):
    number %= 2**64
    out = b""
    while number >= 0x80:
        out += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return out + bytes((number,))


def read(data, at, there=1):
    places = np.array(at, np.int64)
    found = read_number(np.frombuffer(data, np.uint8), places, there)
    return None if found is None else ([int(n) for n in found], places.tolist())


@examples(500)
@given(st.lists(NUMBERS, min_size=1, max_size=20), st.integers(0, 10))
def test_numbers_are_read_and_passed(numbers, behind):
    parts = [varint(n) for n in numbers]
    ends = np.cumsum([len(p) for p in parts]).tolist()
    assert read(b"".join(parts) + b"\x01" * behind, [0, *ends[:-1]]) == (numbers, ends)


def test_a_number_of_64_bits_that_is_not_the_shortest_one():
    assert read(b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00" * 2, [0, 10]) == ([1, 1], [10, 20])


def test_only_where_one_is_there():
    data = varint(5) + varint(300) + varint(-1)
    assert read(data, [0, 1, 3], np.array([False, True, False])) == ([0, 300, 0], [0, 3, 3])


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\xff" * 11, b"\x80" * 9 + b"\x7f"])
def test_more_than_64_bits_are_none(data):
    assert read(b"\x01" + data + b"\x01" * 8, [0, 1]) is None
