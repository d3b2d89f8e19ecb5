"""What the checkpoint sensor tells of tables once a run has brought them up to a later time."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from cdc_platform import tables
from cdc_platform.automation import checks, completeness, sensors
from cdc_platform.automation.jobs import catch_up_job
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.observe import Heartbeat
from cdc_platform.automation.sensors import position_id
from cdc_platform.config import Config
from cdc_platform.units import when
from tests.automation.conftest import complete, ledger, schema_history, snapshot, table_state
from tests.rows import add

MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture
def shop(config: Config) -> Config:
    schema_history(config, *(("shop-dts", "shop", t) for t in ("orders", "items", "audit")))
    for table in ("orders", "items"):
        snapshot(config, "shop-dts", f"shop.{table}", 1)
    table_state(config, "shop-dts", "shop.audit", "stopped", "no key")
    return config


def tick(config: Config, instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    """As Dagster's daemon evaluates it; Kafka doesn't answer."""
    naming = Naming(config)
    sensor = sensors.checkpoint_sensor(naming, catch_up_job(naming))
    found = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
    assert isinstance(found, dg.SensorResult)
    return found


def observe_by_hand(observed: dg.AssetsDefinition, instance: dg.DagsterInstance) -> None:
    """As the button Observe does."""
    job = dg.Definitions(assets=[observed]).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, asset_selection=list(observed.keys)).success


def told(result: dg.SensorResult) -> dict[str, str]:
    """Table → data version."""
    events: Any = result.asset_events
    tables = (e for e in events if e.asset_key.path[0] != "complete")
    return {e.asset_key.path[-1]: e.tags["dagster/data_version"] for e in tables}


@pytest.mark.thorough
def test_each_table_is_observed_with_the_time_up_to_which_it_is_complete(shop: Config, instance: dg.DagsterInstance):
    assert told(tick(shop, instance)) == {}
    complete(shop, "shop-dts", 0, MIDNIGHT, items="quarantine holds t/0/4", audit="stopped: no key")
    first = tick(shop, instance)
    assert told(first) == {"orders": "2026-11-20T00:00:00.000000Z"}
    [event] = first.asset_events
    assert event.metadata["complete_up_to"].value == MIDNIGHT.timestamp()
    complete(shop, "shop-dts", 1, MIDNIGHT + timedelta(hours=1))
    assert told(tick(shop, instance, first.cursor)) == {}, "once a minute"
    later = json.loads(first.cursor or "")
    later["complete"]["shop-dts"]["at"] -= completeness.LEAST_S
    second = tick(shop, instance, json.dumps(later))
    assert told(second) == dict.fromkeys(("orders", "items"), "2026-11-20T01:00:00.000000Z")
    later = json.loads(second.cursor or "")
    later["complete"]["shop-dts"]["at"] -= completeness.LEAST_S
    assert told(tick(shop, instance, json.dumps(later))) == {}, "nothing new"


def test_what_is_observed_is_in_dagsters_history_and_leaves_the_data_version_of_the_rows(
    shop: Config, instance: dg.DagsterInstance
):
    complete(shop, "shop-dts", 0, MIDNIGHT)
    key = Naming(shop).table(shop.sources[0], "shop", "orders").key
    instance.report_runless_asset_event(dg.AssetMaterialization(key, tags={"dagster/data_version": "7"}))
    for event in tick(shop, instance).asset_events:
        instance.report_runless_asset_event(event)
    [record] = instance.fetch_observations(key, limit=1).records
    assert record.asset_observation is not None
    assert record.asset_observation.tags["dagster/data_version"].startswith("2026-11-20")
    newest = instance.get_latest_data_version_record(key)
    assert newest is not None and newest.asset_materialization is not None
    assert newest.asset_materialization.tags["dagster/data_version"] == "7"


@pytest.mark.thorough
def test_a_cursor_of_an_earlier_version_goes_on(shop: Config, instance: dg.DagsterInstance):
    found = tick(shop, instance, json.dumps({"shop-dts": "abc"}))
    assert json.loads(found.cursor or "")["positions"] == {"shop-dts": "abc"}


def test_an_automation_condition_follows_up_to_when_all_tables_are_complete(shop: Config, instance: dg.DagsterInstance):
    """As docs/completeness.md says: what depends on `complete/<source>` runs when the time has moved, and then only."""
    naming, source = Naming(shop), shop.sources[0]
    key = naming.key("complete", source)
    observed = completeness.asset(naming, source)
    condition = dg.AutomationCondition.eager()
    report = dg.asset(name="report", deps=[key], automation_condition=condition)(lambda: None)
    defs, cursor = dg.Definitions(assets=[observed, report]), None

    def requested() -> int:
        nonlocal cursor
        found = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
        cursor = found.cursor
        return found.total_requested

    def reached(batch: int, hours: int) -> None:
        complete(shop, source.name, batch, MIDNIGHT + timedelta(hours=hours))
        for event in tick(shop, instance).asset_events:
            instance.report_runless_asset_event(event)

    complete(shop, source.name, 0, MIDNIGHT)
    assert key not in {e.asset_key for e in tick(shop, instance).asset_events}, "a table is stopped"
    table_state(shop, source.name, "shop.audit", rebuild=1)
    reached(1, 0)
    instance.report_runless_asset_event(dg.AssetMaterialization("report"))
    assert [requested(), requested()] == [0, 0]
    reached(2, 1)
    assert requested() == 1
    instance.report_runless_asset_event(dg.AssetMaterialization("report"))
    assert requested() == 0
    reached(3, 1)
    assert requested() == 0, "another run, and the same time"
    [record] = instance.fetch_observations(key, limit=1).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["tables"].value == 3

    observe_by_hand(observed, instance)
    [record, *earlier] = instance.fetch_observations(key, limit=10).records
    assert record.asset_observation is not None
    assert len(earlier) == 2
    assert record.asset_observation.tags["dagster/data_version"].startswith("2026-11-20T01:00")


def test_a_table_that_ended_before_its_first_snapshot_does_not_silence_all_others(
    shop: Config, instance: dg.DagsterInstance
):
    source = shop.sources[0]
    table_state(shop, source.name, "shop.audit", rebuild=1)
    complete(shop, source.name, 0, MIDNIGHT)

    def of_all() -> list[str]:
        events: Any = tick(shop, instance).asset_events
        return [str(e.metadata["tables"].value) for e in events if e.asset_key.path[0] == "complete"]

    schema_history(shop, (source.name, "shop", "_orders_gho"))
    assert of_all() == [], "it is waited for"
    place = {"epoch": 0, "file": 1, "pos": 1, "event": 0, "row": 0, "landed": 1}
    for before, after in (("orders", "_orders_del"), ("_orders_gho", "orders")):
        step = {"db_before": "shop", "table_before": before, "db_after": "shop", "table_after": after}
        add(shop.lake, tables.SCHEMA_CHANGES, {"source": source.name, **step, "order_key": place})
    assert of_all() == ["3"]


def test_what_was_told_of_all_tables_never_goes_back_by_hand_either(shop: Config, instance: dg.DagsterInstance):
    naming, source = Naming(shop), shop.sources[0]
    key = naming.key("complete", source)
    observed = completeness.asset(naming, source)

    def by_hand() -> tuple[str, str]:
        observe_by_hand(observed, instance)
        [record] = instance.fetch_observations(key, limit=1).records
        assert record.asset_observation is not None
        up_to = record.asset_observation.metadata["complete_up_to"].value
        return str(up_to), record.asset_observation.tags["dagster/data_version"]

    table_state(shop, source.name, "shop.audit", rebuild=1)
    complete(shop, source.name, 0, MIDNIGHT)
    assert by_hand()[1].startswith("2026-11-20T00:00")
    complete(shop, source.name, 1, MIDNIGHT + timedelta(hours=1), items="not loaded before")
    held = by_hand()
    assert held[1].startswith("2026-11-20T00:00")
    assert "items" in held[0] or "1 table" in held[0], "what is told says why"
    complete(shop, source.name, 2, MIDNIGHT - timedelta(hours=1))  # of a table that joined
    assert by_hand()[1].startswith("2026-11-20T00:00")
    complete(shop, source.name, 3, MIDNIGHT + timedelta(hours=2))
    assert by_hand()[1].startswith("2026-11-20T02:00")


def test_automation_conditions_follow_what_was_made_and_not_what_was_observed(
    shop: Config, instance: dg.DagsterInstance
):
    """As docs/completeness.md says of tables."""
    key = Naming(shop).table(shop.sources[0], "shop", "orders").key
    orders = dg.AssetsDefinition(specs=[dg.AssetSpec(key)])
    report = dg.asset(name="report", deps=[key], automation_condition=dg.AutomationCondition.eager())(lambda: None)
    defs = dg.Definitions(assets=[orders, report])
    instance.report_runless_asset_event(dg.AssetMaterialization(key))
    instance.report_runless_asset_event(dg.AssetMaterialization("report"))
    cursor = dg.evaluate_automation_conditions(defs, instance).cursor
    complete(shop, "shop-dts", 0, MIDNIGHT)
    for event in tick(shop, instance).asset_events:
        instance.report_runless_asset_event(event)
    observed = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
    assert observed.total_requested == 0
    instance.report_runless_asset_event(dg.AssetMaterialization(key))
    assert dg.evaluate_automation_conditions(defs, instance, cursor=observed.cursor).total_requested == 1


def test_a_quiet_source_gets_one_run_by_which_its_idle_partitions_count(
    shop: Config, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    """Of its partitions one has never sent anything; and nothing has for long."""
    ends = {("t", 0): (0, 10), ("t", 1): (0, 0)}
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", lambda _, source: ends)
    for source in shop.sources:
        ledger(shop, *((source.name, "t", p, 0, end - 1, "landed", end) for (_, p), (_, end) in ends.items()))

    def marked(batch: int, second: int, ago: int) -> None:
        row = {"source": "shop-dts", "scope": "partition", "batch": batch, "topic": "t", "partition": 0, "offset": 9}
        told = {"source_time": MIDNIGHT + timedelta(seconds=second), "at": datetime.now(UTC) - timedelta(seconds=ago)}
        add(shop.lake, tables.WATERMARKS, {**row, **told})

    def asked(cursor: str | None = None) -> tuple[list[str], str | None]:
        found = tick(shop, instance, cursor)
        return [str(r.run_key).rpartition(":")[2] for r in found.run_requests or []], found.cursor

    assert asked()[0] == []
    marked(0, 5, ago=119)
    assert asked()[0] == [], "idle_partition_s has not passed"
    marked(1, 9, ago=121)
    runs, cursor = asked()
    assert runs == ["idle"]
    assert asked(cursor)[0] == [], "once"
    ends["t", 0] = (0, 11)
    failed = {"shop-dts": position_id(ends)}
    requested = {"positions": {**failed, "shop_debezium": failed["shop-dts"]}, "complete": {}, "again": {}}
    assert asked(json.dumps(requested))[0] == [], "what it was requested for comes first"
    ends["t", 0] = (0, 10)
    complete(shop, "shop-dts", 0, MIDNIGHT + timedelta(seconds=9))
    assert asked()[0] == [], "it is complete up to what came"
    complete(shop, "shop-dts", 1, None)
    del ends["t", 1]
    assert asked()[0] == [], "no other partition can tell anything of one"


def test_quiet_and_complete_reads_otherwise_than_quiet_and_held_back(shop: Config):
    """The check `heartbeat` of a source to which nothing comes."""
    naming, source = Naming(shop), shop.sources[0]

    def text(**row: Any) -> str:
        kept = {"source": source.name, "scope": "source", "batch": 0, "source_time": MIDNIGHT, "proven": True}
        add(shop.lake, tables.WATERMARKS, {**kept, "at": datetime.now(UTC), **row}, overwrite=True)
        return checks.heartbeat_text(naming, source, Heartbeat("quiet", "no record for 9 minutes"))

    up_to = f"quiet: no record for 9 minutes; complete up to {when(MIDNIGHT)}"
    assert text() == up_to
    assert text(reason="quarantine holds t/0/4") == f"{up_to}, held back: quarantine holds t/0/4"
    assert (
        text(reason="nothing that tells a time comes by t/1", proven=False)
        == f"{up_to} (assumed: nothing that tells a time comes by t/1)"
    )
    behind = [{"db": "shop", "table": "orders", "reason": "stopped: no key"}]
    assert text(behind=behind) == f"{up_to}, 1 table up to an earlier time: stopped: no key"
    assert text(source_time=None, reason="no event of t/1 tells it").endswith(
        "complete up to no time: no event of t/1 tells it"
    )
    assert checks.heartbeat_text(naming, source, Heartbeat("silent", "no record")) == "silent: no record"
