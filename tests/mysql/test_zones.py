"""Time zones by name and by offset."""

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from cdc_platform.formats.dataworks.values import texts
from cdc_platform.formats.kafka_connect.values import zoned_datetime_text
from cdc_platform.mysql.types import parse_type
from cdc_platform.mysql.values import timestamps
from cdc_platform.mysql.zones import zone


@pytest.mark.parametrize(
    ("name", "minutes"),
    [
        ("UTC", 0),
        ("+08:00", 480),
        ("-03:30", -210),
        ("+14:00", 840),
        ("-13:59", -839),
        ("+8:00", 480),
        ("Asia/Shanghai", 480),
    ],
)
def test_names_and_offsets_are_known(name, minutes):
    assert zone(name).utcoffset(datetime(2026, 1, 1)) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    "name", ["+08", "+14:01", "-14:00", "08:00", "+08:60", "+0８:00", "Mars/Base", "", "../etc/passwd"]
)
def test_others_are_not(name):
    with pytest.raises(ValueError):
        zone(name)


def test_timestamps_are_moved_by_an_offset():
    text, ok = timestamps(pa.array(["2026-01-20 12:34:56.5", None]), "+08:00")
    assert text.to_pylist() == ["2026-01-20 04:34:56.5Z", None]
    assert ok.all()


def test_instants_are_read_at_an_offset():
    assert zoned_datetime_text(0, "-03:30") == "1969-12-31 20:30:00"
    days = texts([0] * 10, "DATE", parse_type("datetime(3)"), "+08:00")
    assert days.to_pylist() == ["1970-01-01 08:00:00"] * 10
