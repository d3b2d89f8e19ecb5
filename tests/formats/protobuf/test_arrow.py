import pyarrow as pa
import pytest

from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf.arrow import parse

GOOD = pb.Entries(items=[pb.Entry(header=pb.Header(version=1, fileName="b.000001"))]).SerializeToString()


@pytest.mark.parametrize(
    "bad",
    [
        GOOD[:-1],
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x0a\x02\x0a\x08\x0a\x06\x32\x04b.01",  # the header ends behind its entry
        b"\x0a\x0c\x0a\x0a\x32\x08b.\xff00001",  # no UTF-8
        b"\x0a\x02\x0a\x80",
        b"\x0a\x0b\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length near 2^64
    ],
)
def test_a_broken_value_is_told_and_spares_the_others(bad):
    parsed, errors = parse(pa.array([GOOD, bad, None, GOOD], pa.binary()), pb.Entries)
    assert list(errors) == [1]
    items = parsed.column("items").to_pylist()
    assert items[0] == items[3]
    assert items[0][0]["header"]["fileName"] == "b.000001"
    assert not items[1]
    assert not items[2]
