import random

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from cdc_platform.formats.pb import canal_entry_pb2 as canal
from cdc_platform.formats.pb import tencent_dts_pb2 as dts
from cdc_platform.formats.protobuf.in_place import Fields, Texts, read_plain
from tests.formats.mutations import broken

TAGS = {dts.Data: (0x08, 0x12, 0x1A, 0x22), canal.Column: (0x08, 0x10, 0x1A, 0x20, 0x28, 0x30, 0x42, 0x48, 0x52)}
MESSAGES = [
    dts.Data(),
    dts.Data(dataType=dts.INT64, sv="-12"),
    dts.Data(dataType=dts.STRING, charset="utf8mb4", bv="é中".encode() * 80),
    dts.Data(dataType=dts.NA, charset="x" * 200, bv=b"\xff" * 20_000),
    canal.Column(index=3, sqlType=-5, name="id", isKey=True, updated=True, isNull=False, value="7", mysqlType="bigint"),
    canal.Column(index=300, sqlType=2004, name="b", isNull=True, value="", length=2**31 - 1, mysqlType="blob"),
    canal.Column(index=-1, sqlType=-(2**31), name="c" * 300, value="é" * 10_000),
]


def read(message, values):
    """Field values of each message as `read_plain` finds them; None where any isn't plain."""
    array = pa.array([b"before", *values, b"after"], pa.binary()).slice(1, len(values))
    found = read_plain(Texts.of(array), Fields(TAGS[message]))
    if found is None:
        return None
    texts = {tag: t.spread(pa.binary()).to_pylist()[::2] for tag, t in found.texts.items()}
    told = {tag: n.tolist() for tag, n in found.numbers.items()} | texts
    return [{name(message, tag): all_[i] for tag, all_ in told.items()} for i in range(len(values))]


def name(message, tag):
    return message.DESCRIPTOR.fields_by_number[tag >> 3].name


def parsed(message, value):
    """The same by protobuf's parser."""
    found = message.FromString(value)
    told = {name(message, tag): getattr(found, name(message, tag)) for tag in TAGS[message]}
    return {k: v.encode() if isinstance(v, str) else v for k, v in told.items()}


def same(found, expected):
    """Equal, as 32-bit numbers and flags are read of 64-bit ones."""

    def read_as(kind, value):
        return bool(value) if kind is bool else value & 2**32 - 1 if kind is int else value

    assert {k: read_as(type(expected[k]), v) for k, v in found.items()} == {
        k: read_as(type(v), v) for k, v in expected.items()
    }


@pytest.mark.parametrize("message", TAGS)
def test_plain_messages_are_read_as_the_parser_reads_them(message):
    values = [m.SerializeToString() for m in MESSAGES if isinstance(m, message)] * 3
    assert read(message, values) == [parsed(message, v) for v in values]
    assert read(message, []) == []


@pytest.mark.parametrize("message", TAGS)
def test_what_is_read_of_broken_messages_the_parser_reads_too(message):
    rng = random.Random(7)
    good = [m.SerializeToString() for m in MESSAGES if isinstance(m, message)]
    taken = 0
    for _ in range(3000):
        value = broken(rng, rng.choice(good), good)
        neighbours = rng.choice(good), rng.choice(good)
        found = read(message, [neighbours[0], value, neighbours[1]])
        if found is None:
            continue
        assert found[0] == parsed(message, neighbours[0])
        assert found[2] == parsed(message, neighbours[1])
        try:
            expected = parsed(message, value)
        except DecodeError:  # text that is no UTF-8 isn't for read_plain to find
            texts = [v for k, v in found[1].items() if isinstance(v, bytes) and k != "bv"]
            with pytest.raises(UnicodeDecodeError):
                b"\n".join(texts).decode()
            continue
        same(found[1], expected)
        taken += 1
    assert taken > 100


@pytest.mark.parametrize(
    "value",
    [
        b"\x08",  # a number that doesn't come
        b"\x08\x80",
        b"\x08" + b"\xff" * 10 + b"\x01",
        b"\x08" + b"\xff" * 9 + b"\x02",  # more than 64 bits
        b"\x12\x05abc",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of -1
        b"\x1a\x01a\x12\x01b",  # out of order
        b"\x1a\x01a\x1a\x01b",
        b"\x28\x01",
    ],
)
def test_others_are_not(value):
    for around in ([], [b""], [b"\x08\x01"], [b"\x12\x02ab"]):
        assert read(dts.Data, [*around, value, *around]) is None


ROW = Fields((0x0A, 0x12), frozenset({0x0A, 0x12}))
A, B = b"\x0a\x01a", b"\x12\x02bb"


def listed(values):
    """Texts of each message by field, as `read_plain` finds them."""
    found = read_plain(Texts.of(pa.array(values, pa.binary())), ROW)
    if found is None:
        return None
    out = []
    for tag in ROW.tags:
        texts = iter(found.texts[tag].bytes().to_pylist())
        out.append([[next(texts) for _ in range(n)] for n in found.counts[tag].tolist()])
        assert next(texts, None) is None
    return list(zip(*out, strict=True))


def test_fields_that_repeat_are_read_in_order():
    long = b"x" * 300
    values = [A + A + B, b"", B, A, b"\x0a\x00" + b"\x0a\xac\x02" + long + B * 3]
    assert listed(values) == [
        ([b"a", b"a"], [b"bb"]),
        ([], []),
        ([], [b"bb"]),
        ([b"a"], []),
        ([b"", long], [b"bb"] * 3),
    ]
    assert listed(values * 5000) == listed(values) * 5000
    assert listed([]) == []


@pytest.mark.parametrize("value", [A + B + A, A + b"\x0a\x02a", b"\x0a", A + b"\x08\x01", b"\x12" + b"\xff" * 10])
def test_fields_that_repeat_otherwise_are_not(value):
    assert listed([A, value, B]) is None


def test_a_message_with_very_many_small_texts_is_left_to_a_parser():
    assert listed([b"\x0a\x00" * 100_000]) is None
    assert listed([A, b"\x0a\x00" * 200]) is not None


def test_a_number_that_is_not_there_is_what_is_said_of_it():
    values = Texts.of(pa.array([b"", b"\x08\x00", b"\x08\x07"], pa.binary()))
    for absent, expected in (({}, [0, 0, 7]), ({0x08: 2}, [2, 0, 7])):
        found = read_plain(values, Fields((0x08,), absent=absent))
        assert found is not None and found.numbers[0x08].tolist() == expected


def test_chosen_and_only_some_texts():
    texts = Texts.of(pa.array([b"a", b"bb", b"ccc"], pa.binary()))
    assert texts.chosen(np.array([2, 0])).lengths().tolist() == [3, 1]
    assert texts.only(np.array([True, False, True])).bytes().to_pylist() == [b"a", b"", b"ccc"]
    assert texts.at(np.array([1])).to_pylist() == [b"bb"]
