"""Dates and times at their limits from feeds that write them in a zone of their own."""

from datetime import UTC, date, datetime

import pytest

from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.dataworks import DataworksEncoder
from cdc_platform.feeds.tdsql import TdsqlEncoder
from cdc_platform.formats import FORMATS
from tests.formats.contexts import decode_with_context
from tests.formats.types_matrix import KINDS
from tests.formats.types_wire import FEEDS, batch_of, creates, inserted, table_of

ENCODERS = {
    "canal": CanalEncoder,
    "canal_json": CanalJsonEncoder,
    "dataworks": DataworksEncoder,
    "tdsql": TdsqlEncoder,
}
ZONES = ("Asia/Shanghai", "America/Sao_Paulo", "Pacific/Kiritimati")


def texts(feed, zone, sent):
    """Canonical texts of (number of a kind, source), in order."""
    messages = [(None, value) for value in creates()] if feed == "tdsql" else []
    for at, (number, source) in enumerate(sent):
        records = ENCODERS[feed]("t", zone=zone).encode([inserted(table_of(number), at, source)])
        messages += [(r.key, r.value) for r in records]
    format_ = FORMATS[feed]
    options = format_.options(time_zone=zone, **FEEDS[feed].options)
    events = decode_with_context(format_, batch_of(messages), options).to_pylist()
    assert [e["reason"] for e in events if e["kind"] == "error"] == []
    return [dict(e["after"])["c"] for e in events if e["kind"] == "row"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("feed", ENCODERS)
def test_limits_of_dates_and_times_survive_the_writers_zone(feed, zone):
    cases = [
        (number, value.source, FEEDS[feed].told(kind, value).value)
        for number, kind in enumerate(KINDS)
        if kind.type in ("date", "datetime", "datetime(6)", "timestamp", "timestamp(6)")
        for value in kind.values
        if value.held is not None
    ]
    assert texts(feed, zone, [c[:2] for c in cases]) == [told.text for *_, told in cases]


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Asia/Shanghai", date(1940, 6, 1)),  # the clock went from 24:00 to 01:00
        ("America/Sao_Paulo", date(2018, 11, 4)),
        ("America/Sao_Paulo", date(2018, 2, 18)),  # and here from 24:00 back to 23:00
        ("Pacific/Apia", date(2011, 12, 31)),
    ],
)
def test_a_date_whose_midnight_the_tasks_zone_skips(zone, day):
    assert texts("dataworks", zone, [(next(n for n, k in enumerate(KINDS) if k.type == "date"), day)]) == [str(day)]


def test_the_utc_of_a_source_is_not_moved():
    [number] = [n for n, k in enumerate(KINDS) if k.type == "timestamp"]
    moment = datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC)
    assert texts("canal", "Asia/Shanghai", [(number, moment)]) == ["2026-11-20 01:02:03Z"]


def test_what_is_no_midnight_is_no_date():
    [number] = [n for n, k in enumerate(KINDS) if k.type == "date"]
    for zone, moment in (("Asia/Shanghai", datetime(1940, 6, 1, 1, 0, 1)), ("UTC", datetime(1940, 6, 1, 1))):
        with pytest.raises(AssertionError, match="no midnight and so no DATE"):
            texts("dataworks", zone, [(number, moment)])


def test_the_first_instant_is_no_timestamp_but_a_zero():
    [number] = [n for n, k in enumerate(KINDS) if k.type == "timestamp"]
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    assert texts("dataworks", "Asia/Shanghai", [(number, moment)]) == ["0000-00-00 00:00:00"]
