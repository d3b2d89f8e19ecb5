import random
from typing import cast

import numpy as np
import pyarrow as pa

from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf.arrow import parse
from cdc_platform.formats.tencent_dts.data import Data

KINDS = [*range(17), 99, 127]
CHARSETS = ["", "utf8mb4", "gbk", "binary", "x" * 100]
TEXTS = ["", "0", "-1", "1" * 65, "2026-01-02"]
BYTES = [b"", b"1", b"\xff\xfe", "中文".encode(), b"y" * 20_000]


def value(rng):
    return pb.Data(
        dataType=rng.choice(KINDS if rng.random() < 0.5 else (pb.NIL, pb.INT32, pb.STRING, pb.BYTES)),
        charset=rng.choice(CHARSETS),
        sv=rng.choice(TEXTS),
        bv=rng.choice(BYTES) if rng.random() < 0.5 else b"",
    ).SerializeToString()


def test_plain_values_are_those_that_the_parser_finds():
    rng = random.Random(3)
    for _ in range(300):
        values = pa.array([value(rng) for _ in range(rng.randrange(12))], pa.binary())
        found = Data.plain(values)
        parsed, unreadable = parse(values, pb.Data)
        assert found is not None and not unreadable
        expected = Data.parsed(parsed.to_struct_array())
        at = np.array([i for i in range(len(values)) if rng.random() < 0.7], np.int64)
        for name in ("told", "wire", "misplaced"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()
        for name in ("charset", "sv", "bv"):
            assert getattr(found, name)(at).equals(getattr(expected, name)(at))


def test_numbers_beyond_a_byte_are_read_or_left_to_the_parser():
    for kind in (128, 200, 2**31 - 1, -1, -128, -(2**31)):
        value = pb.Data(sv="1")
        value.dataType = cast(pb.DataType, kind)
        found = Data.plain(pa.array([value.SerializeToString()], pa.binary()))
        assert found is None or (found.told.tolist(), found.wire.tolist()) == ([value.dataType], [15])


def test_text_that_is_not_ascii_is_left_to_the_parser():
    for text in (pb.Data(dataType=pb.INT32, sv="é"), pb.Data(dataType=pb.STRING, charset="é", bv=b"a")):
        values = [b"", pb.Data(dataType=pb.STRING, bv="é".encode()).SerializeToString(), text.SerializeToString()]
        assert Data.plain(pa.array(values[:2], pa.binary())) is not None
        assert Data.plain(pa.array(values, pa.binary())) is None
        assert Data.plain(pa.array(values[::-1], pa.binary())) is None
