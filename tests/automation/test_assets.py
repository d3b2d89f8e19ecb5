"""The asset graph, and what a run does with it."""

import dagster as dg
import pytest

from cdc_platform.automation import keys, metadata, observe
from cdc_platform.chain import RoomResult
from cdc_platform.definitions import build
from cdc_platform.errors import KafkaUnreachable, OffsetsLost
from cdc_platform.resources.lock import source_lock
from cdc_platform.tables import CHANGELOG, LANDING
from tests.automation.conftest import NoSpark


def test_graph(config, snapshot):
    defs = build(config)
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    assert {
        key.to_user_string(): {
            "deps": sorted(k.to_user_string() for k in graph.get(key).parent_keys),
            "group": graph.get(key).group_name,
            "kinds": sorted(graph.get(key).kinds),
            "owners": list(graph.get(key).owners),
            "tags": {k: v for k, v in sorted(graph.get(key).tags.items()) if not k.startswith("dagster/")},
            "code_version": graph.get(key).code_version,
            "partitioned": graph.get(key).is_partitioned,
            "described": bool(graph.get(key).description),
            "checks": sorted(k.name for k in graph.get(key).check_keys),
            "pools": sorted(graph.get(key).pools or ()),
        }
        for key in sorted(graph.get_all_asset_keys())
    } == snapshot


def test_column_schema_is_the_tables_ddl():
    columns = {c.name: c for c in metadata.column_schema(CHANGELOG).columns}
    assert list(columns)[:5] == ["source", "format", "decoder_version", "topic", "partition"]
    assert columns["key"].type == "map<string, string>"
    assert columns["key"].description == "primary key of the row before"
    assert columns["binlog_pos"].type == "decimal(20,0)"
    assert columns["order_key"].type.startswith("struct<epoch: bigint, ")
    headers = {c.name: c.type for c in metadata.column_schema(LANDING).columns}["headers"]
    assert headers == "array<struct<`key`: string, value: binary>>"


def test_a_run_of_one_source_leaves_the_other_alone(config, run_job, rooms):
    result = run_job(*keys.run_keys(config.source("shop-dts")))
    assert result.success
    assert rooms.calls == [(room, "shop-dts") for room in ("landing", "envelopes", "changes", "changelog", "snapshots")]


def test_a_run_of_everything_catches_up_all_sources(run_job, rooms):
    assert run_job().success
    assert sorted(set(rooms.calls)) == sorted(rooms.calls)
    assert {source for room, source in rooms.calls if room == "snapshots"} == {"shop-dts", "shop_debezium"}


def test_upkeep_is_a_job_of_its_own(config, instance, rooms, monkeypatch):
    def maintain(spark, config, source):
        rooms.calls.append(("maintenance", source.name))
        return RoomResult("maintenance", source.name, 0, 0, 1.5, {"files_before": 9, "files": 2})

    monkeypatch.setattr("cdc_platform.automation.rooms.maintain", maintain)
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    result = build(config).resolve_job_def("maintain").execute_in_process(instance=instance)
    assert rooms.calls == [("maintenance", "shop-dts"), ("maintenance", "shop_debezium")]
    [event] = result.get_asset_materialization_events()
    figures = {k: v.value for k, v in event.materialization.metadata.items()}
    assert (figures["shop-dts/files_before"], figures["shop-dts/files"], figures["shop_debezium/seconds"]) == (
        9,
        2,
        1.5,
    )


def test_shared_assets_alone_follow_the_tag_else_take_all(run_job, rooms):
    assert run_job(keys.CHANGELOG, tags={keys.SOURCE_TAG: "shop_debezium"}).success
    assert run_job(keys.CHANGELOG).success
    assert [source for _, source in rooms.calls] == ["shop_debezium", "shop-dts", "shop_debezium"]


def test_figures_of_shared_assets_are_kept_apart_by_source(config, run_job):
    result = run_job(*keys.run_keys(config.source("shop_debezium")))
    events = {e.asset_key: e.materialization.metadata for e in result.get_asset_materialization_events()}
    own = events[keys.landing_key(config.source("shop_debezium"))]
    assert (own["records"].value, own["events_per_second"].value, own["lag"].value) == (10, 5.0, 0)
    assert metadata.read_figures(events[keys.CHANGELOG], "shop_debezium/")["records"] == 10


def snapshot_result(source: str, **found: dict) -> RoomResult:
    return RoomResult("snapshots", source, 3, 1, 1.0, {}, {f"shop.{k}": v for k, v in found.items()})


def live(rows: int, changes: int) -> dict:
    return {"rows": rows, "changes": changes, "seconds": 0.5, "state": "live"}


def partitions(result: dg.ExecuteInProcessResult) -> dict[str, int]:
    events = [e.materialization for e in result.get_asset_materialization_events() if e.asset_key == keys.SNAPSHOTS]
    return {str(m.partition): int(m.metadata["dagster/partition_row_count"].value) for m in events}


def test_each_touched_table_shows_as_its_partition(config, instance, run_job, rooms):
    rooms.give["snapshots", "shop-dts"] = snapshot_result("shop-dts", orders=live(5, 7), **{"a/b": live(1, 1)})
    assert partitions(run_job(*keys.run_keys(config.source("shop-dts")))) == {
        "shop-dts/shop/orders": 5,
        "shop-dts/shop/a~2Fb": 1,
    }
    assert set(instance.get_dynamic_partitions("tables")) == {"shop-dts/shop/orders", "shop-dts/shop/a~2Fb"}
    rooms.give["snapshots", "shop-dts"] = snapshot_result("shop-dts", orders=live(5, 0), **{"a/b": live(2, 1)})
    assert partitions(run_job(*keys.run_keys(config.source("shop-dts")))) == {"shop-dts/shop/a~2Fb": 2}


def test_chosen_partitions_run_their_sources(instance, run_job, rooms):
    instance.add_dynamic_partitions("tables", ["shop_debezium/shop/orders", "shop_debezium/shop/items"])
    rooms.give["snapshots", "shop_debezium"] = snapshot_result("shop_debezium", orders=live(5, 0), items=live(2, 0))
    result = run_job(keys.SNAPSHOTS, partition_key="shop_debezium/shop/orders")
    assert rooms.calls == [("snapshots", "shop_debezium")]
    assert partitions(result)["shop_debezium/shop/orders"] == 5


def test_a_stopped_table_is_not_materialised(config, run_job, rooms):
    stopped = {"rows": 0, "changes": 4, "state": "stopped", "reason": "no key"}
    rooms.give["snapshots", "shop-dts"] = snapshot_result("shop-dts", orders=live(5, 7), audit=stopped)
    result = run_job(*keys.run_keys(config.source("shop-dts")))
    assert set(partitions(result)) == {"shop-dts/shop/orders"}


def test_bad_data_is_not_retried_and_says_what(config, run_job, rooms):
    loss = {"topic": "dts-shop", "partition": 0, "from_offset": 3, "to_offset": 9, "why": "retention"}
    rooms.give["landing", "shop-dts"] = OffsetsLost("shop-dts", [loss])
    result = run_job(*keys.run_keys(config.source("shop-dts")))
    assert not result.success
    assert rooms.calls == [("landing", "shop-dts")]
    failure = result.get_step_failure_events()[0].step_failure_data
    assert failure.user_failure_data and "dts-shop[0] offsets 3..8 (retention)" in str(
        failure.user_failure_data.description
    )


def test_a_retriable_error_is_tried_again(config, run_job, rooms, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.assets.RETRY", dg.RetryPolicy(max_retries=2))
    rooms.give["landing", "shop-dts"] = KafkaUnreachable("shop-dts", "h:1", "timed out")
    result = run_job(keys.landing_key(config.source("shop-dts")))
    assert rooms.calls == [("landing", "shop-dts")] * 3
    failure = result.get_step_failure_events()[0].step_failure_data
    assert failure.user_failure_data and "no answer from Kafka at h:1" in str(failure.user_failure_data.description)


def test_one_failing_source_leaves_the_others_changelog_done(run_job, rooms):
    rooms.give["changelog", "shop-dts"] = OffsetsLost("shop-dts", [])
    assert not run_job(keys.CHANGELOG).success
    assert rooms.calls == [("changelog", "shop-dts"), ("changelog", "shop_debezium")]


def test_a_second_writer_of_a_source_is_refused(config, run_job, rooms, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.assets.RETRY", dg.RetryPolicy(max_retries=2))
    monkeypatch.setattr("cdc_platform.resources.lock.WAIT_S", 0.05)
    source = config.source("shop-dts")
    with source_lock(config, source):
        result = run_job(keys.landing_key(source))
    assert not result.success
    assert rooms.calls == []
    assert run_job(keys.landing_key(source)).success


@pytest.mark.parametrize("names", [("a", "b...c"), ("a", "b", ".."), ("中", "/"), ("a", "..."), ("~2E", "~")])
def test_partition_keys_are_fit_for_dagster_and_differ(instance, names):
    made = [observe.partition_key("s", name, "t") for name in names]
    instance.add_dynamic_partitions("tables", made)
    assert len(set(made)) == len(names)
