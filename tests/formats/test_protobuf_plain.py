import random

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from cdc_platform.formats.pb import canal_entry_pb2 as canal
from cdc_platform.formats.pb import tencent_dts_pb2 as dts
from cdc_platform.formats.protobuf_plain import read_plain
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
    found = read_plain(array, TAGS[message])
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
