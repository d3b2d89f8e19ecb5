"""Sensors against a real broker, real Delta tables and a real Dagster instance."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from cdc_platform.automation import keys, observe, sensors
from cdc_platform.automation.jobs import CATCH_UP, FOLLOW, sensed_jobs
from cdc_platform.automation.schedules import catch_up_schedule
from cdc_platform.config import Config
from tests.automation.conftest import changelog, ledger, make_config, new_topic, schema_history, send


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
    return sensors.checkpoint_sensor(config, sensed_jobs(config))


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
    assert [(r.job_name, r.tags[keys.SOURCE_TAG], list(r.asset_selection)) for r in first.run_requests] == [
        (FOLLOW, "shop-dts", [*keys.run_keys(shop.sources[0]), keys.following_key(shop.sources[0])])
    ]
    assert tick(sensor, instance, first.cursor).run_requests == []
    send(shop.kafka["bootstrap.servers"], topic)
    second = tick(sensor, instance, first.cursor)
    assert len(second.run_requests) == 1
    assert second.run_requests[0].run_key != first.run_requests[0].run_key


@pytest.mark.broker
def test_a_source_that_is_not_followed_gets_catch_up_runs(shop, instance):
    shop.sources[0] = shop.sources[0].model_copy(update={"follow_s": 0})
    send(shop.kafka["bootstrap.servers"], shop.sources[0].topics[0])
    [request] = tick(checkpoint_sensor(shop), instance).run_requests
    assert (request.job_name, list(request.asset_selection)) == (CATCH_UP, keys.run_keys(shop.sources[0]))


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
    run = create_run_for_test(instance, "catch_up", tags={keys.SOURCE_TAG: "shop-dts"}, status=status)
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
    tick(sensors.heartbeat_sensor(shop), instance)
    tick(sensors.new_tables_sensor(shop), instance)
    assert time.monotonic() - started < 6


def test_an_unreachable_broker_is_told_and_requests_nothing(config, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.landing.offsets.TIMEOUT_S", 0.3)
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


@pytest.mark.broker
def test_a_source_without_topic_is_told_apart(shop):
    seen = observe.heartbeat(shop, shop.sources[1])
    assert (seen.state, seen.passed) == ("no_topic", False)


def test_an_unreachable_broker_is_told_apart(config, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    seen = observe.heartbeat(config, config.sources[0])
    assert (seen.state, seen.passed) == ("unreachable", False)


@pytest.mark.broker
def test_the_heartbeat_sensor_reports_changes_only_and_recovers(shop, instance):
    source = shop.sources[0]
    servers, sensor = shop.kafka["bootstrap.servers"], sensors.heartbeat_sensor(shop)
    send(servers, source.topics[0], LONG_AGO)
    first = tick(sensor, instance)
    assert {(e.asset_key.to_user_string(), e.passed, e.metadata["state"].value) for e in first.asset_events} == {
        ("landing/shop-dts", False, "silent"),
        ("landing/shop_debezium", False, "no_topic"),
    }
    assert tick(sensor, instance, first.cursor).asset_events == []
    send(servers, source.topics[0])
    back = tick(sensor, instance, first.cursor)
    assert [(e.asset_key.to_user_string(), e.passed) for e in back.asset_events] == [("landing/shop-dts", True)]
    old = json.loads(back.cursor)
    old["shop-dts"]["at"] -= sensors.REPEAT_S
    again = tick(sensor, instance, json.dumps(old))
    assert [e.metadata["state"].value for e in again.asset_events] == ["quiet"]


def test_new_tables_become_partitions_once(config, instance):
    sensor = sensors.new_tables_sensor(config)
    assert not tick(sensor, instance).dynamic_partitions_requests
    schema_history(config, ("shop-dts", "shop", "orders"), ("shop-dts", "shop", "a/b"), ("gone", "shop", "orders"))
    request = tick(sensor, instance).dynamic_partitions_requests[0]
    assert request.partitions_def_name == "tables"
    assert request.partition_keys == ["shop-dts/shop/a~2Fb", "shop-dts/shop/orders"]
    instance.add_dynamic_partitions("tables", request.partition_keys)
    assert not tick(sensor, instance).dynamic_partitions_requests


def test_excluded_tables_become_no_partition(tmp_path, instance):
    config = make_config(tmp_path, tables={"exclude": ["shop.secret*"]})
    schema_history(config, ("shop-dts", "shop", "orders"), ("shop-dts", "shop", "secrets"))
    request = tick(sensors.new_tables_sensor(config), instance).dynamic_partitions_requests[0]
    assert request.partition_keys == ["shop-dts/shop/orders"]


def test_the_schedule_asks_for_one_run_per_free_source(config, instance):
    create_run_for_test(instance, "catch_up", tags={keys.SOURCE_TAG: "shop-dts"}, status=DagsterRunStatus.STARTED)
    requests = catch_up_schedule(config)(dg.build_schedule_context(instance=instance))
    assert [r.tags[keys.SOURCE_TAG] for r in requests] == ["shop_debezium"]
