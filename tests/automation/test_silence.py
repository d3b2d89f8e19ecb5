"""How long a source may send nothing, as the heartbeat sensor applies it: on a real broker, at a time of the test's."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from cdc_platform.automation import observe, sensors
from cdc_platform.automation.naming import Naming
from cdc_platform.config import Config
from cdc_platform.definitions import build
from cdc_platform.units import when
from tests.automation.conftest import changelog, complete, control, make_config, new_topic, send

NOW = datetime.now(UTC).replace(microsecond=0)
NAME = "shop-dts"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 5)


@pytest.fixture
def feed(tmp_path, servers) -> Callable[..., Config]:
    """A source of a format, with a topic of its own on the real broker."""

    def make(name: str, **fields) -> Config:
        config = make_config(tmp_path, servers)
        own = config.sources[0].model_copy(update={"format": name, "topics": [new_topic(servers)], **fields})
        made = config.model_copy(update={"sources": [own]})
        made._file = config.file
        return made

    return make


@pytest.fixture
def tick(instance, monkeypatch) -> Callable[[Config, datetime], dg.AssetCheckEvaluation]:
    """The heartbeat check that the sensor reports at a time."""

    def at(config: Config, now: datetime) -> dg.AssetCheckEvaluation:
        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return cls.fromtimestamp(now.timestamp(), tz)

        monkeypatch.setattr(observe, "datetime", Clock)
        context = dg.build_sensor_context(instance=instance, definitions=build(config))
        done = sensors.heartbeat_sensor(Naming(config)).evaluate_tick(context)
        [found] = [e for e in done.asset_events if isinstance(e, dg.AssetCheckEvaluation)]
        return found

    return at


def record(config: Config, at: datetime) -> None:
    """A record of the source, stamped with a time."""
    send(config.kafka["bootstrap.servers"], config.sources[0].topics[0], at)


def every(seconds: float, until: datetime, times: int = 30) -> list[datetime]:
    return [until - timedelta(seconds=seconds * i) for i in range(times - 1, -1, -1)]


@pytest.mark.broker
@pytest.mark.parametrize(("name", "info"), [("canal", {"key": "gtid"}), ("canal_json", {"type": "GTID"})])
def test_a_checkpoint_per_transaction_is_no_heartbeat(feed, tick, name, info):
    config = feed(name)
    last = NOW - timedelta(minutes=10)
    control(config, NAME, "checkpoint", every(1, last), **info)
    record(config, last)
    quiet = tick(config, NOW)
    assert (quiet.metadata["state"].value, quiet.passed) == ("quiet", True)
    assert "so there is no limit" in str(quiet.description)
    control(config, NAME, "heartbeat", every(10, NOW, 60))  # of the capture, while its database has nothing to send
    record(config, NOW)
    assert tick(config, NOW).metadata["state"].value == "quiet"


@pytest.mark.broker
@pytest.mark.parametrize("name", ["canal_json", "debezium"])
def test_watermarks_are_heartbeats_of_the_same_kind_as_gtid_entries(feed, tick, name):
    config = feed(name)
    last = NOW - timedelta(minutes=10)
    control(config, NAME, "checkpoint", every(1, last), type="TIDB_WATERMARK")
    record(config, last)
    assert tick(config, NOW).metadata["state"].value == "silent"


@pytest.mark.broker
def test_a_feed_with_a_promised_interval_is_silent_after_two_of_them_or_30_s(feed, tick):
    config = feed("tencent_dts")  # a checkpoint about every 10 s
    record(config, NOW)
    assert tick(config, NOW + timedelta(seconds=30)).passed
    late = tick(config, NOW + timedelta(seconds=31))
    assert (late.passed, late.metadata["state"].value) == (False, "silent")


@pytest.mark.broker
@pytest.mark.parametrize(
    ("gaps", "limit"),
    [([60] * 20, 120), ([50, 60, 70] * 10, 140), ([60] * 40 + [3600] + [60] * 40, 120), ([5] * 20, 30)],
    ids=["steady", "jitter", "an outage", "fast"],
)
def test_two_missed_heartbeats_are_told_and_one_isn_t(feed, tick, gaps, limit):
    config = feed("debezium")
    record(config, NOW)
    control(config, NAME, "heartbeat", [NOW - timedelta(seconds=sum(gaps[:i])) for i in range(len(gaps), -1, -1)])
    assert tick(config, NOW + timedelta(seconds=limit)).passed
    late = tick(config, NOW + timedelta(seconds=limit + 1))
    assert (late.passed, late.metadata["state"].value) == (False, "silent")


@pytest.mark.broker
def test_two_missed_heartbeats_of_the_database_are_told_while_its_capture_lives(feed, tick):
    config = feed("tencent_dts")
    for at in every(20, NOW):
        control(config, NAME, "heartbeat", [at])
    record(config, NOW + timedelta(seconds=41))
    control(config, NAME, "checkpoint", [NOW + timedelta(seconds=40)])
    assert tick(config, NOW + timedelta(seconds=41)).passed
    control(config, NAME, "checkpoint", [NOW + timedelta(seconds=41)])
    late = tick(config, NOW + timedelta(seconds=41))
    assert (late.passed, late.metadata["state"].value) == (False, "database_silent")


@pytest.mark.broker
@pytest.mark.parametrize("name", ["debezium", "canal", "canal_json"])
def test_a_row_that_something_writes_at_an_interval_tells_that_the_database_lives(feed, tick, name):
    """As Debezium's heartbeat.action.query: the capture's own heartbeats go on when the rows stop."""
    config = feed(name, database_timeout_s=60)
    changelog(config, NAME, NOW)
    for s in range(0, 61, 10):
        control(config, NAME, "heartbeat", [NOW + timedelta(seconds=s)])
    record(config, NOW + timedelta(seconds=61))
    assert tick(config, NOW + timedelta(seconds=61)).passed
    control(config, NAME, "heartbeat", [NOW + timedelta(seconds=61)])
    late = tick(config, NOW + timedelta(seconds=61))
    assert (late.passed, late.metadata["state"].value) == (False, "database_silent")
    assert f"the last landed at {when(NOW)} (limit 1 min: database_timeout_s)" in str(late.description)
    assert late.metadata["newest_of_database"].value == NOW.timestamp()
    changelog(config, NAME, NOW + timedelta(seconds=61))
    assert tick(config, NOW + timedelta(seconds=61)).passed


@pytest.mark.broker
def test_a_database_that_is_dead_for_days_stays_silent_until_it_is_heard(feed, tick):
    config = feed("tencent_dts")
    died = NOW - timedelta(days=3)
    control(config, NAME, "heartbeat", every(20, died))
    record(config, NOW)
    for days in range(3):
        control(config, NAME, "checkpoint", [died + timedelta(days=days, minutes=1)])
        assert tick(config, NOW).metadata["state"].value == "database_silent"
    # its heartbeats were turned off: for more than a day it has sent nothing else
    control(config, NAME, "commit", [NOW - timedelta(minutes=10)])
    control(config, NAME, "checkpoint", [NOW])
    assert tick(config, NOW).metadata["state"].value == "quiet"


@pytest.mark.broker
def test_what_was_turned_off_long_ago_is_no_heartbeat(feed, tick):
    config = feed("debezium")
    control(config, NAME, "heartbeat", every(10, NOW - timedelta(days=3)))
    control(config, NAME, "commit", [NOW])
    record(config, NOW - timedelta(hours=1))
    assert tick(config, NOW).metadata["state"].value == "quiet"


@pytest.mark.broker
def test_each_state_tells_the_last_of_capture_and_database_and_a_lag_that_goes_on(feed, tick):
    config = feed("tencent_dts")
    control(config, NAME, "heartbeat", every(20, NOW))
    control(config, NAME, "checkpoint", [NOW + timedelta(seconds=10)])
    complete(config, NAME, 0, NOW)
    lags = []
    for record_at, database, now, state in (
        (NOW + timedelta(seconds=10), NOW, NOW + timedelta(seconds=20), "quiet"),
        (NOW + timedelta(minutes=1), NOW, NOW + timedelta(minutes=1), "database_silent"),
        (NOW + timedelta(minutes=1), NOW, NOW + timedelta(minutes=5), "silent"),
    ):
        record(config, record_at)
        control(config, NAME, "checkpoint", [record_at])
        found = tick(config, now)
        assert found.metadata["state"].value == state
        assert found.metadata["newest_record"].value == record_at.timestamp()
        assert found.metadata["newest_of_database"].value == database.timestamp()
        assert when(database) in str(found.description)
        lags.append(found.metadata["lag_seconds"].value)
    assert lags[0] < lags[1] < lags[2]
