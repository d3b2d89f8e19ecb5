import base64
import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.mysql import values
from cdc_platform.mysql.types import parse_type


def one(text, type_text, zone="UTC"):
    """Canonical text of one value; None when it is not readable."""
    (out,) = many([text], type_text, zone)
    return out


def many(texts, type_text, zone="UTC"):
    text, ok = values.to_text(pa.array(texts, pa.string()), parse_type(type_text), zone)
    assert len(text) == len(ok) == len(texts)
    return [t if fine else None for t, fine in zip(text.to_pylist(), ok, strict=True)]


@pytest.mark.parametrize(
    ("type_text", "low", "high"),
    [
        ("tinyint(4)", -128, 127),
        ("smallint", -32768, 32767),
        ("mediumint(9)", -(2**23), 2**23 - 1),
        ("int(11)", -(2**31), 2**31 - 1),
        ("bigint(20)", -(2**63), 2**63 - 1),
        ("tinyint(3) unsigned", 0, 255),
        ("mediumint unsigned", 0, 2**24 - 1),
        ("bigint(20) unsigned", 0, 2**64 - 1),
        ("bit(64)", 0, 2**64 - 1),
        ("bit(1)", 0, 1),
    ],
)
def test_integers_reach_the_ends_of_their_type_and_no_further(type_text, low, high):
    assert many([str(low), str(high)], type_text) == [str(low), str(high)]
    assert one(str(high + 1), type_text) is None
    if not type_text.startswith("bit(64"):
        assert one(str(low - 1), type_text) is None


@pytest.mark.parametrize("junk", ["", " 1", "1 ", "+1", "1.0", "0x1F", "1e3", "five", "٣", "1\n", "-", "1_0", "9" * 60])
def test_junk_is_no_integer_and_spares_its_neighbours(junk):
    assert many(["1", junk, None, "007", "-0"], "int") == ["1", None, None, "7", "0"]


def test_null_stays_null_and_is_ok():
    for type_text in (
        "int",
        "decimal(5,2)",
        "double",
        "date",
        "datetime",
        "timestamp",
        "time",
        "year",
        "bit(8)",
        "text",
    ):
        text, ok = values.to_text(pa.array([None], pa.string()), parse_type(type_text))
        assert (text.to_pylist(), ok.tolist()) == ([None], [True]), type_text
        assert len(values.to_text(pa.array([], pa.string()), parse_type(type_text))[0]) == 0


def test_negative_bit64_is_two_s_complement():
    assert many(["-1", str(-(2**63)), "5", str(-(2**63) - 1)], "bit(64)") == [
        str(2**64 - 1),
        str(2**63),
        "5",
        None,
    ]
    assert one("-1", "bit(63)") is None


@pytest.mark.parametrize("text", ["0", "-1.10", "0.00", "-0.00", "9" * 35 + "." + "9" * 30])
def test_decimals_keep_every_digit(text):
    assert one(text, "decimal(65,30)") == text


@pytest.mark.parametrize("junk", ["", ".5", "5.", "1e3", "+1", "1,5", "NaN", "1.0\n"])
def test_junk_is_no_decimal(junk):
    assert one(junk, "decimal(10,2)") is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_doubles_are_written_as_python_writes_them(numbers):
    assert many([f"{n:.17g}" for n in numbers], "double") == [repr(float(n)) for n in numbers]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_floats_are_the_shortest_text_of_their_32_bits(numbers):
    wanted = [repr(float(str(np.float32(n)))) for n in numbers]
    assert many([repr(n) for n in numbers], "float") == wanted
    assert [np.float32(w) for w in wanted] == [np.float32(n) for n in numbers]


def test_float_spellings():
    assert many(["5", ".5", "5.", "+1e2", "1E-7", "3.140000104904175"], "float") == [
        "5.0",
        "0.5",
        "5.0",
        "100.0",
        "1e-07",
        "3.14",
    ]
    assert many(["nan", "inf", "1e400", "0x1p3", "", "1e"], "double") == [None] * 6
    assert one("1e39", "float") is None


@pytest.mark.parametrize(
    ("type_text", "text", "wanted"),
    [
        ("date", "2026-11-20", "2026-11-20"),
        ("date", "0000-00-00", "0000-00-00"),
        ("date", "2021-02-31", "2021-02-31"),
        ("date", "2026-11-20 00:00:00", None),
        ("date", "26-11-20", None),
        ("datetime(6)", "2026-11-20 01:02:03.120000", "2026-11-20 01:02:03.12"),
        ("datetime", "2026-11-20 01:02:30", "2026-11-20 01:02:30"),
        ("datetime(3)", "2026-11-20 01:02:03.000", "2026-11-20 01:02:03"),
        ("datetime", "2026-11-20", None),
        ("datetime", "2026-11-20 01:02:03 +00:00", None),
        ("datetime(6)", "2026-11-20 01:02:03.1234567", None),
        ("time", "00:00:00", "00:00:00"),
        ("time", "-838:59:59", "-838:59:59"),
        ("time(3)", "-1:02:03.100", "-01:02:03.1"),
        ("time(6)", "-00:00:00.000001", "-00:00:00.000001"),
        ("time", "01:02:03.100", "01:02:03.100"),
        ("time", "01:02", None),
        ("year", "2155", "2155"),
        ("year", "0", "0000"),
        ("year", "70", None),
        ("boolean", "1", "1"),
        ("boolean", "2", None),
        ("timestamp", "2021-05-17 07:22:42 +00:00", "2021-05-17 07:22:42Z"),
        ("timestamp", "2021-05-17 07:22:42Z", "2021-05-17 07:22:42Z"),
        ("timestamp(6)", "2021-05-17 07:22:42.120000+00:00", "2021-05-17 07:22:42.12Z"),
        ("timestamp", "2021-05-17 07:22:42", "2021-05-17 07:22:42Z"),
        ("timestamp(3)", "2021-01-01 00:00:00.100 -05:30", "2021-01-01 05:30:00.1Z"),
        ("timestamp", "2021-01-01 00:00:00 +08:00", "2020-12-31 16:00:00Z"),
        ("timestamp", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ("timestamp", "2021-02-31 00:00:00 +08:00", "2021-02-31 00:00:00 +08:00"),
        ("timestamp", "2021-05-17 07:22:42 CST", None),
        ("timestamp", "2021-05-17", None),
    ],
)
def test_temporal_text(type_text, text, wanted):
    assert one(text, type_text) == wanted
    assert many([text, None, text], type_text) == [wanted, None, wanted]


OFFSETS = st.integers(-12 * 60, 14 * 60).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))


@given(st.lists(st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2038, 1, 1), timezones=OFFSETS), min_size=1))
def test_timestamps_of_any_offset_become_the_same_instant_in_utc(moments):
    texts = [m.isoformat(sep=" ", timespec="microseconds") for m in moments]
    for text, moment in zip(many(texts, "timestamp(6)"), moments, strict=True):
        assert text is not None
        assert text.endswith("Z")
        assert "." not in text or text[-2] not in "0."
        assert dt.datetime.fromisoformat(text) == moment


def test_iso_8601_with_a_t_is_read_as_with_a_blank():
    assert one("2026-11-20T01:02:03.50", "datetime(3)") == "2026-11-20 01:02:03.5"
    assert one("2026-11-20T01:02:03+08:00", "timestamp") == "2026-11-19 17:02:03Z"
    assert one("2026-11-20T01:02", "datetime") is None


def test_local_timestamps_follow_the_clock_of_their_zone():
    texts = [
        "2021-01-01 12:00:00",
        "2021-07-01 12:00:00.5",
        "2021-07-01 12:00:00 +00:00",
        "2021-07-01 12:00:00 +02:00",
    ]
    assert many(texts, "timestamp", "Europe/Berlin") == [
        "2021-01-01 11:00:00Z",
        "2021-07-01 10:00:00.5Z",
        "2021-07-01 12:00:00Z",
        "2021-07-01 10:00:00Z",
    ]
    text, ok = values.to_text(pa.array([None, "2021-01-01 12:00:00"]), parse_type("timestamp"), "Europe/Berlin")
    assert (text.to_pylist(), ok.tolist()) == ([None, "2021-01-01 11:00:00Z"], [True, True])
    # 02:30 came twice on 2021-10-31 and never on 2021-03-28.
    assert many(["2021-10-31 02:30:00", "2021-03-28 02:30:00"], "timestamp", "Europe/Berlin") == [None, None]


@given(st.lists(st.one_of(st.none(), st.binary())))
def test_base64_reads_back(data):
    text, ok = values.base64_text(pa.array(data, pa.binary()))
    assert [None if t is None else base64.b64decode(t, validate=True) for t in text.to_pylist()] == data
    assert ok.all()


def test_binary_gets_back_the_zeros_that_the_binlog_leaves_out():
    text, _ = values.base64_text(pa.array([b"\x01", b"\x01\x02\x03\x04", None], pa.binary()), width=4)
    assert text.to_pylist() == ["AQAAAA==", "AQIDBA==", None]


def test_slices_are_read_at_their_place():
    text, ok = values.to_text(pa.array(["x", "1", "02", "y"]).slice(1, 2), parse_type("int"))
    assert (text.to_pylist(), ok.tolist()) == (["1", "2"], [True, True])
