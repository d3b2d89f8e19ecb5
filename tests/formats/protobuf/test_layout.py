"""Plain messages as arrays: what the parser gives, or NotPlain."""

import pyarrow as pa
import pytest

from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf.arrow import parse
from cdc_platform.formats.protobuf.in_place import Texts
from cdc_platform.formats.protobuf.layout import Layout, NotPlain

HEADERS = [
    pb.Header(),
    pb.Header(
        version=1, logfileName="b.000001", logfileOffset=2**40, serverId=-1, executeTime=1_700_000_000_000,
        sourceType=pb.MYSQL, schemaName="é", tableName="t", eventLength=300, eventType=pb.UPDATE,
        props=[pb.Pair(key="a", value="b" * 200), pb.Pair()], gtid="g",
    ),
    pb.Header(sourceType=pb.TYPECOMPATIBLEPROTO2, props=[pb.Pair(key="ü")]),
]  # fmt: skip


def texts(values):
    return Texts.of(pa.array(values, pa.binary()))


def test_fields_are_those_of_the_parser():
    values = [h.SerializeToString() for h in HEADERS]
    layout = Layout(pb.Header, version=1, sourceType=pb.MYSQL, eventType=0)
    found = layout.read(texts(values)).arrays(*layout.types)
    parsed, errors = parse(pa.array(values, pa.binary()), pb.Header)
    assert not errors and list(found) == parsed.schema.names
    for name, absent in (("version", 1), ("sourceType", pb.MYSQL), ("eventType", 0)):
        assert found.pop(name).to_pylist() == [absent if n is None else n for n in parsed.column(name).to_pylist()]
    for name, values in found.items():
        assert values.to_pylist() == parsed.column(name).to_pylist(), name


def test_messages_and_bytes_are_left_as_they_are():
    value = pb.Entry(header=HEADERS[1], storeValue=b"\xff").SerializeToString()
    found = Layout(pb.Entry).read(texts([value]))
    assert found.texts("header").bytes().to_pylist() == [HEADERS[1].SerializeToString()]
    assert found.arrays("storeValue")["storeValue"].to_pylist() == [b"\xff"]


@pytest.mark.parametrize(
    "value",
    [
        b"\x12\x01\xff",  # no UTF-8
        b"\x62\x03\x0a\x01\xff",
        b"\x62\x02\x18\x01",  # a field that Pair doesn't have
        b"\x12\x01a\x08\x01",
        b"\x12\x05a",
    ],
)
def test_other_messages_are_not_plain(value):
    layout = Layout(pb.Header)
    with pytest.raises(NotPlain):
        layout.read(texts([HEADERS[1].SerializeToString(), value])).arrays(*layout.types)
