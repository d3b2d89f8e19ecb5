"""Exact reading: no repeated key passes, in whatever text it hides."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats.exact_json import compact_pairs, read_json
from tests.properties import examples

TEXTS = st.text(st.sampled_from('a":\\ ,{}[]\n'), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers() | TEXTS
# Objects as lists of pairs, so that names may come twice.
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.lists(st.tuples(TEXTS, v), max_size=4).map(tuple))


def written(value):
    if type(value) is tuple:
        return "{" + ",".join(f"{json.dumps(k)}:{written(v)}" for k, v in value) + "}"
    return "[" + ",".join(map(written, value)) + "]" if type(value) is list else json.dumps(value)


def repeats(value):
    inner = [v for _, v in value] if type(value) is tuple else value if type(value) is list else []
    names = [k for k, _ in value] if type(value) is tuple else []
    return len(set(names)) < len(names) or any(map(repeats, inner))


@examples(600)
@given(value=VALUES)
def test_a_document_is_refused_only_when_a_name_comes_twice(value):
    text = written(value)
    if repeats(value):
        with pytest.raises(ValueError, match="stands twice"):
            read_json(text.encode())
    else:
        assert read_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        r'{"a\\":1,"a\\":2}',
        r'{"a\\":1,"a\\":2,"b":":x"}',
        r'{"data":[{"id":"1","id":"2"}]}',
        r'{"data":[{"j":"{\"k\":1}","j":"x"}]}',
        r'{"data":[[{"a":1,"a":2}]],"b":":"}',
        r'{"x":{"y":{"a":1,"a":2}},"b":":","c":":"}',
    ],
)
def test_places_that_look_like_pairs_hide_no_repeated_name(text):
    with pytest.raises(ValueError, match="stands twice"):
        read_json(text.encode())


@pytest.mark.parametrize("blanks", [0, 1])
def test_pairs_of_long_texts_are_counted_as_those_of_short_ones(blanks):
    row = b'{"id":"1","t":"a\\":b:,:x","n":null}'
    many = b" " * blanks + row * 5000
    assert compact_pairs(many) == 5000 * compact_pairs(row) == 15_000
    assert compact_pairs(many + b'{"a" :1}') is None
    assert compact_pairs(many + b' {"a" :1}') is None


@pytest.mark.parametrize("text", [b'{"a":"x : y"}', b'{"a":"x :","b":": : "}'])
def test_blanks_before_colons_in_texts_hide_no_pairs(text):
    assert compact_pairs(text) == text.count(b'":')


@pytest.mark.parametrize("text", [b'{"a"  :1}', b'{"a":"\\" :"}', b'{"a":"x : y","b" :1}'])
def test_blanks_between_quotes_and_colons_are_no_compact_json(text):
    assert compact_pairs(text) is None


def digits(value):
    """A value with its numbers as they are written."""
    if isinstance(value, dict):
        return {k: digits(v) for k, v in value.items()}
    return [digits(v) for v in value] if isinstance(value, list) else str(value)


@pytest.mark.parametrize("text", ["-0", " -0", "\t-0 ", "\n -0", "[-0]", "[1,-0]", "[1, -0 ]", '{"b": -0}'])
def test_a_minus_before_zero_is_kept_wherever_it_stands(text):
    told = f'{{"a":{text},"c":"2026-01-02 -0,"}}'
    assert digits(read_json(told.encode())) == json.loads(told, parse_int=str)
