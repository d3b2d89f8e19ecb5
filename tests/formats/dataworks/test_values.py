"""Values converted as a column come out as the reader of single values says."""

from datetime import UTC, datetime, timedelta
from unittest import mock
from zoneinfo import ZoneInfo

import pytest

from cdc_platform.formats.dataworks.values import TYPES, texts
from cdc_platform.mysql.types import parse_type


def both(values, told, mysql_type, zone="UTC"):
    """Texts converted as a column, and one by one."""
    kind, type_ = TYPES[told], parse_type(mysql_type)
    with mock.patch("cdc_platform.formats.dataworks.values._one_by_one", side_effect=AssertionError):
        found = texts(values, told, type_, zone).to_pylist()
    return found, [None if v is None else kind.text(v, type_, zone) for v in values]


@pytest.mark.parametrize(
    ("told", "mysql_type", "values"),
    [
        ("LONG", "bigint", [0, 7, -7, 2**63 - 1, -(2**63)]),
        ("LONG", "decimal(20,0)", ["7", "007", "-0", "9" * 65]),
        ("DOUBLE", "decimal(65,30)", ["1.50", "0", "-1", "-0.01", "100000000000000000000.000000000000000000001"]),
        ("DOUBLE", "decimal(65,30)", ["-0", "-0.00", "+1", "00.5", "1.", ".5", "1E+3", "2.5e-7", " 1", "1" * 120, 7]),
        ("DOUBLE", "double", ["1e3", "-0", "1.50"]),
        ("BYTES", "blob", ["", "AP8=", "AA==", "AB==", "AAF=", "abcd", "+/+/"]),
        ("BYTES", "binary(4)", ["", "AP8=", "AB=="]),
        ("BOOLEAN", "tinyint(1)", [True, False]),
        ("STRING", "text", ["", "é", " :", '"']),
        ("DATE", "timestamp", [0, 1, -1, 1590315269123, 1590315269000]),
        ("DATE", "datetime(3)", [0, -1, -86_400_000, 1590315269120, -62_135_510_400_000, 253_402_128_000_000]),
        ("DATE", "date", [0, -86_400_000, 1590278400000]),
    ],
)
def test_columns_are_converted_as_single_values_are(told, mysql_type, values):
    at_once, one_by_one = both([*values, None] * 3, told, mysql_type)
    assert at_once == one_by_one


@pytest.mark.parametrize(
    "zone", ["Asia/Shanghai", "America/Sao_Paulo", "Europe/London", "Australia/Lord_Howe", "Africa/Freetown"]
)
def test_times_of_all_days_are_those_of_the_zones_clock(zone):
    first = datetime(1935, 1, 1, tzinfo=UTC)
    hours = [(first + timedelta(hours=23 * i) - datetime(1970, 1, 1, tzinfo=UTC)) for i in range(40_000)]
    at_once, one_by_one = both([h // timedelta(milliseconds=1) for h in hours], "DATE", "datetime(3)", zone)
    assert at_once == one_by_one


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Sao_Paulo"])
def test_dates_are_midnights_or_what_the_zone_has_instead(zone):
    days = [datetime(1935, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(days=i) for i in range(40_000)]
    values = [(day - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) for day in days]
    at_once, one_by_one = both(values, "DATE", "date", zone)
    assert at_once == one_by_one == [day.date().isoformat() for day in days]


@pytest.mark.parametrize(
    ("told", "mysql_type", "values", "reason"),
    [
        ("LONG", "bigint", [1, "x", True], "'x' is no integer"),
        ("LONG", "bigint", [1, True], "True is no integer"),
        ("DOUBLE", "decimal(9,2)", ["1.5", "NaN"], "'NaN' is no MySQL decimal"),
        ("DATE", "datetime", [1, 253_402_300_800_000], "outside the years 1 to 9999"),
        ("DATE", "date", [0, 3_600_000], "no midnight"),
        ("BYTES", "blob", ["AP8=", "AP8"], "Incorrect padding"),
        ("BOOLEAN", "tinyint(1)", [True, 1], "1 is neither true nor false"),
        ("STRING", "text", ["a", 1], "1 is no text"),
    ],
)
def test_what_cannot_be_read_is_told_by_the_reader_of_single_values(told, mysql_type, values, reason):
    with pytest.raises(ValueError, match=reason):
        texts([None] * 9 + values, told, parse_type(mysql_type), "UTC")
