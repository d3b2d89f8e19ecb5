"""Sensors against a real broker, real Delta tables and a real Dagster instance."""

import json
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from uuid import uuid4

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.definitions.schedule_definition import ScheduleExecutionData
from dagster._core.test_utils import create_run_for_test
from deltalake.exceptions import DeltaError

from cdc_platform import metrics, tables
from cdc_platform.automation import checks, completeness, observe, overview, reload, sensors
from cdc_platform.automation.instance import PROCESS_TAG, process_tag
from cdc_platform.automation.jobs import catch_up_job
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_assets import run_config
from cdc_platform.config import Config
from cdc_platform.definitions import build
from cdc_platform.errors import ConfigError, KafkaAccessDenied, KafkaUnreachable, LakeChanged, StorageError
from cdc_platform.lake import folders, stores
from cdc_platform.spark import delta_sql
from cdc_platform.units import when
from tests.automation.conftest import (
    changelog,
    complete,
    control,
    ledger,
    make_config,
    new_topic,
    schema_history,
    send,
    table_state,
)
from tests.rows import add


@pytest.fixture
def shop(tmp_path, servers) -> Config:
    """Sources with topics of this test's own on the real broker; the second one's do not exist."""
    config = make_config(tmp_path, servers)
    own = config.sources[0].model_copy(update={"topics": [new_topic(servers)]})
    other = config.sources[1].model_copy(update={"topic_pattern": f"none-{uuid4().hex}"})
    made = config.model_copy(update={"sources": [own, other]})
    made._file = config.file
    return made


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 5)


def tick(sensor, instance, cursor=None) -> dg.SensorResult:
    context = dg.build_sensor_context(instance=instance, cursor=cursor)
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def checkpoint_sensor(config: Config) -> dg.SensorDefinition:
    naming = Naming(config)
    return sensors.checkpoint_sensor(naming, catch_up_job(naming))


def test_sensors_import_no_spark():
    code = (
        "import sys; import cdc_platform.automation.sensors, cdc_platform.automation.schedules, "
        "cdc_platform.automation.checks, confluent_kafka.admin, deltalake; "
        "sys.exit('pyspark' in sys.modules or 'py4j' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.broker
def test_new_offsets_request_one_run_per_position(shop, instance):
    topic = shop.sources[0].topics[0]
    send(shop.kafka["bootstrap.servers"], topic)
    sensor = checkpoint_sensor(shop)
    first = tick(sensor, instance)
    naming = Naming(shop)
    assert [(r.tags[SOURCE_TAG], list(r.asset_selection), r.run_config) for r in first.run_requests] == [
        ("shop-dts", naming.run_keys(shop.sources[0]), run_config(naming, shop.sources[0], follow=True))
    ]
    assert tick(sensor, instance, first.cursor).run_requests == []
    send(shop.kafka["bootstrap.servers"], topic)
    second = tick(sensor, instance, first.cursor)
    assert len(second.run_requests) == 1
    assert second.run_requests[0].run_key != first.run_requests[0].run_key


@pytest.mark.broker
def test_a_run_that_failed_is_requested_again_on_a_quiet_topic(shop, instance, monkeypatch):
    topic, now = shop.sources[0].topics[0], time.time()
    monkeypatch.setattr(sensors, "time", SimpleNamespace(time=lambda: now))
    send(shop.kafka["bootstrap.servers"], topic)
    sensor = checkpoint_sensor(shop)
    cursor, keys, pauses = None, [], (0, 61, 121, 241, 481, 601, 601)
    for pause in pauses:
        found = tick(sensor, instance, cursor)
        assert found.run_requests == [] or pause == 0, "not before its time"
        now += pause
        found = tick(sensor, instance, cursor) if pause else found
        keys += [r.run_key for r in found.run_requests]
        cursor = found.cursor
    assert len({*keys}) == len(pauses)  # Dagster launches no run twice for one key

    run = create_run_for_test(instance, "catch_up", tags={SOURCE_TAG: "shop-dts"}, status=DagsterRunStatus.STARTED)
    now += 3600
    cursor = tick(sensor, instance, cursor).cursor
    instance.report_run_failed(run)
    now += 30
    assert tick(sensor, instance, cursor).run_requests == [], "the pause is one behind the end of the run"

    earlier = {k: v for k, v in json.loads(cursor).items() if k != "again"}
    [request] = tick(sensor, instance, json.dumps(earlier)).run_requests
    assert request.run_key not in keys, "an earlier version's run may have failed"

    ledger(shop, ("shop-dts", topic, 0, 0, 0, "landed", 1))
    now += 601
    landed_now = tick(sensor, instance, cursor)
    assert (landed_now.run_requests, json.loads(landed_now.cursor)["again"]) == ([], {})


@pytest.mark.broker
def test_a_source_that_is_not_followed_gets_catch_up_runs(shop, instance):
    shop.sources[0] = shop.sources[0].model_copy(update={"follow_s": 0})
    send(shop.kafka["bootstrap.servers"], shop.sources[0].topics[0])
    [request] = tick(checkpoint_sensor(shop), instance).run_requests
    assert (request.run_config, list(request.asset_selection)) == ({}, Naming(shop).run_keys(shop.sources[0]))


@pytest.mark.broker
def test_a_landed_position_needs_no_run(shop, instance):
    topic = shop.sources[0].topics[0]
    send(shop.kafka["bootstrap.servers"], topic)
    ledger(shop, ("shop-dts", topic, 0, 0, 0, "landed", 1))
    assert tick(checkpoint_sensor(shop), instance).run_requests == []


@pytest.mark.broker
@pytest.mark.parametrize("status", [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTED])
def test_no_run_while_one_of_the_source_is_under_way(shop, instance, status):
    send(shop.kafka["bootstrap.servers"], shop.sources[0].topics[0])
    run = create_run_for_test(instance, "catch_up", tags={SOURCE_TAG: "shop-dts"}, status=status)
    sensor = checkpoint_sensor(shop)
    waiting = tick(sensor, instance)
    assert waiting.run_requests == []
    instance.delete_run(run.run_id)
    assert len(tick(sensor, instance, waiting.cursor).run_requests) == 1


@pytest.mark.broker
def test_a_tick_is_short(shop, instance):
    send(shop.kafka["bootstrap.servers"], shop.sources[0].topics[0])
    started = time.monotonic()
    tick(checkpoint_sensor(shop), instance)
    tick(sensors.heartbeat_sensor(Naming(shop)), instance)
    sensors.tables_sensor(Naming(shop))(dg.build_sensor_context(instance=instance))
    assert time.monotonic() - started < 6


def test_an_unreachable_broker_is_told_and_requests_nothing(config, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.kafka.offsets.TIMEOUT_S", 0.3)
    result = tick(checkpoint_sensor(config), instance)
    assert result.run_requests == []
    assert "no answer from Kafka at 127.0.0.1:1" in str(result.skip_reason.skip_message)


NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(hours=1)


@pytest.mark.broker
@pytest.mark.parametrize(
    ("record", "change", "state", "passed"),
    [
        (NOW, NOW, "alive", True),
        (NOW, LONG_AGO, "quiet", True),
        (NOW, None, "quiet", True),
        (LONG_AGO, LONG_AGO, "silent", False),
    ],
)
def test_heartbeat_states(shop, record, change, state, passed):
    source = shop.sources[0]
    send(shop.kafka["bootstrap.servers"], source.topics[0], record)
    if change:
        changelog(shop, source.name, change)
    changelog(shop, "another", NOW)
    seen = observe.heartbeat(shop, source, NOW)
    assert (seen.state, seen.passed) == (state, passed)
    assert abs(seen.newest - record) < timedelta(seconds=1)


def _with(shop: Config, **fields) -> Config:
    made = shop.model_copy(update={"sources": [shop.sources[0].model_copy(update=fields), shop.sources[1]]})
    made._file = shop.file
    return made


@pytest.mark.broker
def test_a_feed_that_promises_a_sign_of_life_is_silent_without_one(shop):
    send(shop.kafka["bootstrap.servers"], shop.sources[0].topics[0], NOW - timedelta(hours=2, minutes=5))
    seen = observe.heartbeat(shop, shop.sources[0], NOW)
    assert (seen.state, seen.text) == (
        "silent",
        "no record for 2 h 5 min (limit 30 s: Tencent DTS sends a checkpoint about every 10 s); "
        "nothing of the database has landed so far",
    )


@pytest.mark.broker
@pytest.mark.parametrize("name", ["debezium", "canal", "canal_json", "dataworks", "tdsql"])
def test_a_feed_that_promises_none_is_quiet_unless_the_configuration_sets_a_limit(shop, name):
    send(shop.kafka["bootstrap.servers"], shop.sources[0].topics[0], NOW - timedelta(hours=2, minutes=5))
    quiet = _with(shop, format=name)
    seen = observe.heartbeat(quiet, quiet.sources[0], NOW)
    assert (seen.state, seen.passed) == ("quiet", True)
    assert seen.text.startswith("no record for 2 h 5 min; ")
    assert "so there is no limit (heartbeat_timeout_s sets one);" in seen.text
    limited = _with(shop, format=name, heartbeat_timeout_s=7200)
    seen = observe.heartbeat(limited, limited.sources[0], NOW)
    assert seen.state == "silent"
    assert seen.text.startswith("no record for 2 h 5 min (limit 2 h: heartbeat_timeout_s)")


@pytest.mark.broker
def test_heartbeats_that_came_let_expect_more(shop):
    feed = _with(shop, format="debezium")
    source, last = feed.sources[0], NOW - timedelta(hours=1)
    send(shop.kafka["bootstrap.servers"], source.topics[0], last)
    assert observe.heartbeat(feed, source, NOW).state == "quiet"
    beats = [last - timedelta(minutes=5 * i) for i in range(10, -1, -1)]
    control(feed, source.name, "heartbeat", beats)
    seen = observe.heartbeat(feed, source, NOW)
    assert seen.state == "silent"
    assert seen.text.startswith("no record for 1 h (limit 10 min: its heartbeats came every 5 min)")
    assert observe.heartbeat(feed, source, last + timedelta(minutes=9)).state == "quiet"


@pytest.mark.broker
@pytest.mark.parametrize(
    ("kind", "beats"),
    [("heartbeat", 3), ("begin", 50), ("heartbeat of long ago", 50)],
    ids=["too few", "transactions", "turned off"],
)
def test_what_is_no_sequence_of_heartbeats_sets_no_limit(shop, kind, beats):
    feed = _with(shop, format="dataworks")
    source, last = feed.sources[0], NOW - timedelta(hours=1)
    send(shop.kafka["bootstrap.servers"], source.topics[0], last)
    times = [last - timedelta(seconds=10 * i) for i in range(beats, 0, -1)]
    control(feed, source.name, kind.split()[0], times, last - timedelta(days=2) if "ago" in kind else last)
    control(feed, source.name, "commit", [last])
    assert observe.heartbeat(feed, source, NOW).state == "quiet"


@pytest.mark.broker
def test_an_empty_topic_is_silent_only_where_a_sign_of_life_is_promised(shop):
    assert observe.heartbeat(shop, shop.sources[0]).state == "silent"
    canal = _with(shop, format="canal")
    seen = observe.heartbeat(canal, canal.sources[0])
    assert (seen.state, seen.text.split(";")[0]) == ("quiet", "the topics hold no record")


@pytest.mark.broker
def test_rows_count_by_our_clock_not_by_the_source_s(shop):
    source = shop.sources[0]
    send(shop.kafka["bootstrap.servers"], source.topics[0], NOW)
    changelog(shop, source.name, NOW - timedelta(days=365), landed=NOW - timedelta(seconds=5))
    seen = observe.heartbeat(shop, source, NOW)
    assert seen.state == "alive"
    assert abs(seen.change - (NOW - timedelta(days=365))) < timedelta(seconds=1)
    assert abs(seen.landed - (NOW - timedelta(seconds=5))) < timedelta(seconds=1)
    canal = _with(shop, format="canal")  # without a limit
    later = observe.heartbeat(canal, canal.sources[0], NOW + timedelta(seconds=119))
    assert later.text == (
        "newest record 1 min 59 s ago; the last row change landed 2 min 4 s ago; "
        f"the last of the database landed at {when(NOW - timedelta(seconds=5))}"
    )


@pytest.mark.broker
def test_a_dead_database_is_told_from_a_dead_capture(shop):
    source, name = shop.sources[0], shop.sources[0].name
    send(shop.kafka["bootstrap.servers"], source.topics[0], NOW)
    last = NOW - timedelta(minutes=10)
    for i in range(6, -1, -1):  # every 30 s: of the database's log
        control(shop, name, "heartbeat", [last - timedelta(seconds=30 * i)])
    control(shop, name, "checkpoint", [last])  # of the capture
    control(shop, name, "checkpoint", [last + timedelta(seconds=59)])
    landed(shop, name, NOW)  # no run has read it so far: the database's heartbeats may be in it
    assert observe.heartbeat(shop, source, NOW).state == "quiet"
    control(shop, name, "checkpoint", [NOW])
    seen = observe.heartbeat(shop, source, NOW)
    assert (seen.state, seen.passed) == ("database_silent", False)
    assert "nothing from the database for 10 min" in seen.text
    assert "(limit 1 min: the database's heartbeats came every 30 s)" in seen.text
    changelog(shop, name, NOW)  # a row is a sign of life, too
    assert observe.heartbeat(shop, source, NOW).state == "alive"
    dead = observe.heartbeat(shop, source, NOW + timedelta(minutes=5))
    assert (dead.state, dead.text) == (
        "silent",
        "no record for 5 min (limit 30 s: Tencent DTS sends a checkpoint about every 10 s); "
        f"the last of the database landed at {when(NOW)}",
    )


def landed(config: Config, source: str, at: datetime) -> None:
    """A record in landing/<source>."""
    add(config.lake, tables.LANDING, {"topic": "t", "offset": 0, "landed_at": at}, source=source)


@pytest.mark.broker
def test_a_source_without_topic_is_told_apart(shop):
    seen = observe.heartbeat(shop, shop.sources[1])
    assert (seen.state, seen.passed) == ("no_topic", False)


def kafka_tells(monkeypatch, newest: datetime, *topics: str) -> None:
    """A cluster with these topics of one partition each, whose newest record has this time."""
    answer = SimpleNamespace(result=lambda: SimpleNamespace(timestamp=int(newest.timestamp() * 1000)))
    client = SimpleNamespace(list_offsets=lambda asked, request_timeout: dict.fromkeys(asked, answer))
    there = SimpleNamespace(topics={name: SimpleNamespace(partitions={0: None}) for name in topics})
    monkeypatch.setattr("cdc_platform.automation.observe.reach", lambda *_: (client, there))


def test_one_of_several_topics_that_is_gone_is_named(config, monkeypatch):
    both = _with(config, topics=["a", "b"])
    kafka_tells(monkeypatch, NOW, "b")
    seen = observe.heartbeat(both, both.sources[0], NOW)
    assert (seen.state, seen.passed) == ("no_topic", False)
    assert seen.text == "Kafka has no topic a; nothing has landed so far"
    kafka_tells(monkeypatch, NOW, "a", "b")
    assert observe.heartbeat(both, both.sources[0], NOW).passed


@pytest.mark.parametrize("landed", [9, -1])
def test_one_that_a_pattern_had_found_is_named_when_it_is_gone(config, monkeypatch, landed):
    like = _with(config, topics=[], topic_pattern="shop\\..*")
    [source, *_] = like.sources
    said = {"source": source.name, "partition": 0, "outcome": "landed", "from_offset": 0, "to_offset": landed}
    topics = ("shop.a", "shop.b", "of.another.pattern")
    add(like.lake, tables.OFFSET_LEDGER, *({**said, "topic": t, "batch": 0} for t in topics))
    kafka_tells(monkeypatch, NOW, "shop.b")
    seen = observe.heartbeat(like, source, NOW)
    assert (seen.state, seen.text) == ("no_topic", "Kafka has no topic shop.a; nothing has landed so far")
    lost = {"topic": "shop.a", "batch": (1 << 40) - 1, "outcome": "lost", "to_offset": -2}  # on_lost_offsets: accept
    add(like.lake, tables.OFFSET_LEDGER, {**said, **lost})
    assert observe.heartbeat(like, source, NOW).passed


def test_a_record_whose_time_is_ahead_hides_no_dead_capture(config, monkeypatch):
    source, minute = config.sources[0], timedelta(minutes=1)
    kafka_tells(monkeypatch, NOW + timedelta(days=1), "dts-shop")
    ends = {("dts-shop", 0): (0, 5)}
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", lambda *_: dict(ends))

    def state(at: datetime) -> str:
        return observe.heartbeat(config, source, at).state

    landed(config, source.name, NOW - minute)
    assert [state(NOW), state(NOW + minute)] == ["quiet", "silent"], "5 records wait: since when is seen from now on"
    ends["dts-shop", 0] = 0, 6
    assert state(NOW + 2 * minute) == "quiet", "one more has come"
    ledger(config, (source.name, "dts-shop", 0, 0, 5, "landed", 6))
    seen = observe.heartbeat(config, source, NOW + 2 * minute)
    assert (seen.state, seen.text.split(";")[:2]) == (
        "silent",
        [
            "no record for 3 min (limit 30 s: Tencent DTS sends a checkpoint about every 10 s)",
            " the newest record's time is 23 h 58 min ahead of this machine's clock: counted from when it landed",
        ],
    ), "all has landed"
    kafka_tells(monkeypatch, NOW + timedelta(seconds=3), "dts-shop")  # clocks that are a little apart are none
    assert "ahead" not in observe.heartbeat(config, source, NOW).text


@pytest.mark.broker
def test_a_time_that_a_broker_took_from_a_clock_ahead(shop):
    source = shop.sources[0]
    [topic] = source.topics
    send(shop.kafka["bootstrap.servers"], topic, NOW + timedelta(minutes=10))
    landed(shop, source.name, NOW - timedelta(minutes=5))
    ledger(shop, (source.name, topic, 0, 0, 0, "landed", 1))
    seen = observe.heartbeat(shop, source, NOW)
    assert (seen.state, seen.text.split(";")[0][:19]) == ("silent", "no record for 5 min")
    assert "the newest record's time is 10 min ahead of this machine's clock" in seen.text


FAILURES = [
    (KafkaUnreachable("s", "k:9092", "timed out"), "unreachable"),
    (KafkaAccessDenied("s", "k:9092", "wrong password"), "refused"),
    (StorageError("s3://lake/x", "no answer", retriable=True), "unknown"),
    (LakeChanged("/lake/x", "it was made anew"), "unknown"),
    (ConfigError("kafka.group.id", "is managed by the platform"), "unknown"),
    (DeltaError("invalid log"), "unknown"),
]


@pytest.mark.parametrize(("error", "state"), FAILURES, ids=lambda p: type(p).__name__ if p is not str(p) else p)
def test_a_source_that_cannot_be_looked_at_is_told_by_what_failed(config, naming, instance, monkeypatch, error, state):
    broken, other = config.sources

    def heartbeat(_config, source, _now=None):
        if source is broken:
            raise error
        return observe.Heartbeat("alive", "newest record 1 s ago")

    monkeypatch.setattr("cdc_platform.automation.observe.heartbeat", heartbeat)
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", lambda *_: {})
    told = {e.asset_key.path[-1]: e for e in beats(tick(sensors.heartbeat_sensor(naming), instance))}
    assert {name: e.metadata["state"].value for name, e in told.items()} == {broken.name: state, other.name: "alive"}
    assert str(error) in str(told[broken.name].description)
    found = overview.row(naming, instance, broken)
    assert (found["state"], found["lag_records"], found["healthy"]) == (state, None, False)
    assert str(error) in found["detail"]
    assert ("cdc_source_state", (broken.name, state), 1.0) in list(metrics.samples(config))
    [check] = checks.heartbeat_check(naming, broken).check_keys
    job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(check))
    defs = dg.Definitions(
        assets=[naming.spec("landing", broken)], asset_checks=[checks.heartbeat_check(naming, broken)], jobs=[job]
    )
    [result] = defs.resolve_job_def("look").execute_in_process(instance=instance).get_asset_check_evaluations()
    assert (result.passed, result.metadata["state"].value) == (False, state)


def test_what_fails_after_the_heartbeat_is_told_too(config, naming, instance, monkeypatch):
    def ends(*_):
        raise StorageError("s3://lake/offset_ledger", "no answer", retriable=True)

    alive = observe.Heartbeat("alive", "newest record 1 s ago", NOW)
    monkeypatch.setattr("cdc_platform.automation.observe.heartbeat", lambda *_: alive)
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", ends)
    beat, lag = observe.with_lag(config, config.sources[0])
    assert (beat.state, beat.text, beat.newest, lag) == ("unknown", "s3://lake/offset_ledger: no answer", NOW, None)


def test_a_broken_table_of_one_source_ends_no_tick(config, naming, instance, monkeypatch):
    kafka_tells(monkeypatch, datetime.now(UTC), "dts-shop", "shopdb.a")
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", lambda *_: {})
    broken, other = config.sources
    for source in config.sources:
        landed(config, source.name, NOW)
    [log] = Path(tables.LANDING.at(config.lake, source=broken.name), "_delta_log").glob("*.json")
    log.write_text("{")
    told = beats(tick(sensors.heartbeat_sensor(naming), instance))
    states = {e.asset_key.path[-1]: e.metadata["state"].value for e in told}
    assert states == {broken.name: "unknown", other.name: "quiet"}


def test_a_broken_table_of_all_is_told_by_both_sensors(config, naming, instance, monkeypatch):
    kafka_tells(monkeypatch, datetime.now(UTC), "dts-shop", "shopdb.a")
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", lambda *_: {})
    complete(config, config.sources[0].name, 0, NOW)
    [log] = Path(tables.WATERMARKS.at(config.lake), "_delta_log").glob("*.json")
    log.write_text("{")
    result = tick(sensors.heartbeat_sensor(naming), instance)
    seen = [e for e in result.asset_events if isinstance(e, dg.AssetCheckEvaluation)]
    assert [e.metadata["state"].value for e in seen] == ["quiet", "quiet"]
    assert all("can't be read" in str(e.description) for e in seen)
    assert "health: " in str(result.skip_reason.skip_message)
    assert "can't be read" in str(tick(checkpoint_sensor(config), instance).skip_reason.skip_message)


def test_an_unreachable_broker_is_told_apart(config, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    source = config.sources[0]
    seen = observe.heartbeat(config, source)
    assert (seen.state, seen.passed) == ("unreachable", False)
    assert seen.text.endswith("; nothing has landed so far")
    control(config, source.name, "heartbeat", [NOW - timedelta(minutes=9)])
    landed(config, source.name, NOW)
    seen = observe.heartbeat(config, source)
    assert seen.newest and abs(seen.newest - NOW) < timedelta(seconds=1)  # statistics have milliseconds
    database = when(NOW - timedelta(minutes=9))
    last = f"; the last record landed at {when(NOW)}; the last of the database landed at {database}"
    assert seen.text.endswith(last)


@pytest.mark.broker
def test_the_heartbeat_sensor_reports_changes_only_and_recovers(shop, instance):
    source = shop.sources[0]
    servers, sensor = shop.kafka["bootstrap.servers"], sensors.heartbeat_sensor(Naming(shop))
    send(servers, source.topics[0], LONG_AGO)
    first = tick(sensor, instance)
    assert {(e.asset_key.to_user_string(), e.passed, e.metadata["state"].value) for e in beats(first)} == {
        ("landing/shop-dts", False, "silent"),
        ("landing/shop_debezium", False, "no_topic"),
    }
    assert tick(sensor, instance, first.cursor).asset_events == []
    send(servers, source.topics[0])
    back = tick(sensor, instance, first.cursor)
    assert [(e.asset_key.to_user_string(), e.passed) for e in beats(back)] == [("landing/shop-dts", True)]
    old = json.loads(back.cursor)
    old["shop-dts"]["at"] -= sensors.REPEAT_S
    again = tick(sensor, instance, json.dumps(old))
    assert [e.metadata["state"].value for e in beats(again)] == ["quiet"]
    assert str(beats(again)[0].description).endswith("; nothing tells so far up to when it is complete")


def beats(result: dg.SensorResult) -> list[dg.AssetCheckEvaluation]:
    """What the heartbeat sensor reports of sources; with it comes the page of all of them."""
    *found, page = result.asset_events
    assert isinstance(page, dg.AssetMaterialization)
    assert page.asset_key == dg.AssetKey("health")
    told = [e for e in found if isinstance(e, dg.AssetCheckEvaluation)]
    observed = [e for e in found if isinstance(e, dg.AssetObservation)]
    assert [(e.asset_key, e.metadata) for e in observed] == [(e.asset_key, e.metadata) for e in told]
    return told


def tables_tick(loaded: Naming, instance: dg.DagsterInstance, cursor: str | None) -> tuple[str | None, str]:
    """(cursor, reason) after a look of the tables sensor. loaded: the names of the definitions in use."""
    context = dg.build_sensor_context(instance=instance, cursor=cursor)
    found = sensors.tables_sensor(loaded)(context)
    if isinstance(found, dg.SkipReason):
        return cursor, str(found.skip_message)
    return found.cursor, str(found.skip_reason.skip_message)


def test_other_tables_reload_the_code_location_once(config, instance, monkeypatch):
    asked = []

    def reloaded(location):
        asked.append(location)
        return reload.Reloaded(True, "loaded anew")

    monkeypatch.setattr("cdc_platform.automation.reload.reload", reloaded)
    loaded = Naming(config)
    assert tables_tick(loaded, instance, None) == (None, "the same 0 tables")
    schema_history(config, ("shop-dts", "shop", "orders"), ("gone", "shop", "orders"))
    cursor, text = tables_tick(loaded, instance, None)
    assert (len(asked), text) == (1, "1 tables, others than those that have assets: loaded anew")
    assert (tables_tick(loaded, instance, cursor), len(asked)) == ((cursor, text), 1)
    loaded = Naming(config)
    assert tables_tick(loaded, instance, cursor) == (cursor, "the same 1 tables")
    table_state(config, "shop-dts", "shop.orders", "dropped")
    cursor, text = tables_tick(loaded, instance, cursor)
    assert text.startswith("0 tables")
    assert len(asked) == 2


def test_definitions_that_were_loaded_while_the_lake_could_not_be_read_are_loaded_anew(config, instance, monkeypatch):
    """The store was down while the code server started; also where it is once more while they are loaded anew."""
    schema_history(config, ("shop-dts", "shop", "orders"))
    asked, table = [], dg.AssetKey(["snapshots", "shop-dts", "shop", "orders"])
    monkeypatch.setattr(
        "cdc_platform.automation.reload.reload", lambda at: asked.append(at) or reload.Reloaded(True, "loaded anew")
    )

    def loaded(readable: bool) -> dg.RepositoryDefinition:
        with monkeypatch.context() as patched:
            if not readable:
                patched.setattr("cdc_platform.lake.queries.known_tables", mock.Mock(side_effect=OSError("no answer")))
            found = build(config).get_repository_def()
        assert (table in found.asset_graph.get_all_asset_keys()) is readable
        return found

    def ticks(repository: dg.RepositoryDefinition, cursor: str | None) -> str | None:
        sensor = repository.get_sensor_def("tables_sensor")
        told = {"repository_def": repository, "sensor_name": sensor.name, "cursor": cursor}
        with dg.build_sensor_context(instance=instance, **told) as context:
            return sensor.evaluate_tick(context).cursor

    cursor = ticks(loaded(readable=True), None)
    assert asked == []
    cursor = ticks(loaded(readable=False), cursor)
    assert len(asked) == 1
    again = loaded(readable=False)
    assert (ticks(again, cursor), len(asked)) == (cursor, 1), "not at each look"
    later = time.time() + 61
    monkeypatch.setattr(sensors.time, "time", lambda: later)
    cursor = ticks(again, cursor)
    assert len(asked) == 2
    ticks(loaded(readable=True), cursor)
    assert len(asked) == 2


def test_an_exchange_of_folders_reloads_the_code_location(config, instance, monkeypatch):
    """Also where a reload loads nothing anew it isn't asked for at each look."""
    asked = []
    monkeypatch.setattr(
        "cdc_platform.automation.reload.reload", lambda at: asked.append(at) or reload.Reloaded(True, "loaded anew")
    )
    schema_history(config, ("shop-dts", "shop", "orders"))
    lake, before = stores.lake(config), Naming(config)
    delta_sql.ensure(tables.SNAPSHOT_FOLDERS, tables.SNAPSHOT_FOLDERS.at(lake))

    def ticks(naming: Naming, cursor: str | None) -> str | None:
        found = sensors.tables_sensor(naming)(dg.build_sensor_context(instance=instance, cursor=cursor))
        return cursor if isinstance(found, dg.SkipReason) else found.cursor

    cursor = ticks(before, None)
    assert (cursor, len(asked)) == (None, 0)
    assert folders.exchange(lake, 1, "shop-dts", "shop_debezium", 0)
    moved = ticks(before, cursor)
    assert moved != cursor
    assert (ticks(before, moved), len(asked)) == (moved, 1)
    source, after = config.source("shop-dts"), Naming(config)
    assert after.table(source, "shop", "orders").key.path == ["snapshots", "shop_debezium", "shop", "orders"]
    settled = ticks(after, moved)
    assert (ticks(after, settled), len(asked)) == (settled, 1)
    assert completeness.has_moved(before, source) and not completeness.has_moved(after, source)


def test_a_reload_that_fails_is_tried_again_and_says_what_to_do(config, instance, monkeypatch):
    loaded = Naming(config)
    assert loaded.known == []
    schema_history(config, ("shop-dts", "shop", "orders"))
    monkeypatch.delenv(reload.VARIABLE, raising=False)
    cursor, text = tables_tick(loaded, instance, None)
    assert "reload the code location in Dagster" in text
    asked = []

    def reloaded(location):
        asked.append(location)
        return reload.Reloaded(len(asked) == 3, f"time {len(asked)}")

    monkeypatch.setattr("cdc_platform.automation.reload.reload", reloaded)
    assert tables_tick(loaded, instance, cursor) == (cursor, text), "one that is under way isn't asked for once more"
    now = time.time()
    for passed, times in ((61, 1), (120, 1), (190, 2), (400, 2), (450, 3)):
        monkeypatch.setattr(sensors.time, "time", lambda at=now + passed: at)
        cursor, text = tables_tick(loaded, instance, cursor)
        assert (len(asked), f"time {times}" in text) == (times, True)
    assert tables_tick(Naming(config), instance, cursor) == (cursor, "the same 1 tables")
    monkeypatch.undo()
    monkeypatch.setenv(reload.VARIABLE, "http://127.0.0.1:1")
    told = reload.reload("cdc").text
    assert "did not load" in told and "mutation" not in told


def catch_up_tick(config: Config, instance: dg.DagsterInstance) -> ScheduleExecutionData:
    """A tick of the schedule as Dagster's daemon evaluates it."""
    repository = build(config).get_repository_def()
    schedule = repository.get_schedule_def("catch_up_schedule")
    context = dg.build_schedule_context(
        instance=instance, scheduled_execution_time=datetime(2026, 11, 20, 3, 10, tzinfo=UTC), repository_def=repository
    )
    return schedule.evaluate_tick(context)


FREE = pytest.mark.parametrize(
    "free", [["shop-dts", "shop_debezium"], ["shop_debezium"], []], ids=["several", "one", "none"]
)


@FREE
def test_the_schedule_asks_for_one_run_per_free_source(config, instance, free):
    for source in {"shop-dts", "shop_debezium"} - set(free):
        create_run_for_test(instance, "catch_up", tags={SOURCE_TAG: source}, status=DagsterRunStatus.STARTED)
    found = catch_up_tick(config, instance)
    assert sorted(r.tags[SOURCE_TAG] for r in found.run_requests or []) == free
    assert len({r.run_key for r in found.run_requests or []}) == len(free)
    assert (found.skip_message == "runs of all sources are under way") is (not free)


def test_a_killed_command_holds_up_no_source(config, instance):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    runs = {}
    for source, process in (("shop-dts", f"{socket.gethostname()}/{ended.pid}/1.5"), ("shop_debezium", process_tag())):
        tags = {SOURCE_TAG: source, PROCESS_TAG: process}
        runs[source] = create_run_for_test(instance, "catch_up", tags=tags, status=DagsterRunStatus.STARTED).run_id
    assert [r.tags[SOURCE_TAG] for r in catch_up_tick(config, instance).run_requests or []] == ["shop-dts"]
    found = {source: instance.get_run_by_id(run_id).status for source, run_id in runs.items()}
    assert found == {"shop-dts": DagsterRunStatus.FAILURE, "shop_debezium": DagsterRunStatus.STARTED}


@pytest.mark.parametrize("name", ["checkpoint_sensor", "heartbeat_sensor", "tables_sensor"])
@pytest.mark.broker
def test_sensors_evaluate_as_the_daemon_does(shop, instance, name):
    """With what Dagster checks of a tick's result beyond the function's own: jobs, selections, events."""
    send(shop.kafka["bootstrap.servers"], shop.sources[0].topics[0])
    repository = build(shop).get_repository_def()
    sensor = repository.get_sensor_def(name)
    with dg.build_sensor_context(instance=instance, repository_def=repository, sensor_name=name) as context:
        found = sensor.evaluate_tick(context)
    assert len(found.run_requests or []) == (name == "checkpoint_sensor")
    assert bool(found.asset_events) == (name == "heartbeat_sensor")


@FREE
@pytest.mark.broker
def test_the_sensor_asks_for_one_run_per_free_source_with_news(shop, servers, instance, free):
    topic = new_topic(servers)
    shop.sources[1] = shop.sources[1].model_copy(update={"topics": [topic], "topic_pattern": None})
    for source in shop.sources:
        send(servers, source.topics[0])
        if source.name not in free:
            create_run_for_test(instance, "catch_up", tags={SOURCE_TAG: source.name}, status=DagsterRunStatus.STARTED)
    repository = build(shop).get_repository_def()
    sensor = repository.get_sensor_def("checkpoint_sensor")
    with dg.build_sensor_context(instance=instance, repository_def=repository, sensor_name=sensor.name) as context:
        found = sensor.evaluate_tick(context)
    assert sorted(r.tags[SOURCE_TAG] for r in found.run_requests or []) == free
    assert (found.skip_message is not None) is (not free)


def test_the_upkeep_is_due_whatever_runs(config, instance):
    create_run_for_test(instance, "catch_up", tags={SOURCE_TAG: "shop-dts"}, status=DagsterRunStatus.STARTED)
    repository = build(config).get_repository_def()
    due = dg.build_schedule_context(instance=instance, scheduled_execution_time=datetime(2026, 11, 20, 3, tzinfo=UTC))
    found = repository.get_schedule_def("maintenance_schedule").evaluate_tick(due)
    assert (len(found.run_requests or []), found.skip_message) == (1, None)
