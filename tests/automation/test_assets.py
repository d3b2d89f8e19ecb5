"""The asset graph, and what a run of the chain does with it."""

import dagster as dg

from cdc_platform.automation import metadata
from cdc_platform.automation.accounting import ACCOUNTED
from cdc_platform.definitions import build
from cdc_platform.errors import KafkaUnreachable, OffsetsLost
from cdc_platform.results import StageResult
from cdc_platform.tables import CHANGELOG, LANDING
from tests.automation.conftest import NoSpark, another_process_has, decoded_with, ledger, snapshot

STAGES = ("landing", "envelopes", "changes", "changelog", "snapshots")


def test_graph(config, snapshot):
    from tests.automation.conftest import schema_history

    for patterns in ((rules := config.source("shop-dts").tables).history, rules.typed_changes):
        patterns.append("shop.orders")
    schema_history(config, ("shop-dts", "shop", "orders"), ("shop-dts", "shop", "a/b"), ("shop-dts", "shop", "a-b"))
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
            "executable": graph.get(key).is_executable,
        }
        for key in sorted(graph.get_all_asset_keys())
    } == snapshot


def test_column_schema_is_the_tables_own():
    columns = {c.name: c for c in metadata.column_schema(CHANGELOG).columns}
    assert list(columns)[:5] == ["source", "format", "decoder_version", "topic", "partition"]
    assert columns["key"].type == "map<string, string>"
    assert columns["key"].description == "primary key of the row before"
    assert columns["binlog_pos"].type == "decimal(20,0)"
    assert columns["order_key"].type.startswith("struct<epoch: bigint, ")
    headers = {c.name: c.type for c in metadata.column_schema(LANDING).columns}["headers"]
    assert headers == "array<struct<key: string, value: binary>>"


def test_a_run_of_one_source_leaves_the_other_alone(config, naming, run_job, stages):
    result = run_job(*naming.run_keys(config.source("shop-dts")))
    assert result.success
    assert stages.calls == [(stage, "shop-dts") for stage in STAGES]


def test_a_run_of_everything_catches_up_all_sources_once(run_job, stages):
    assert run_job().success
    assert sorted(set(stages.calls)) == sorted(stages.calls)
    assert {source for stage, source in stages.calls if stage == "snapshots"} == {"shop-dts", "shop_debezium"}


def test_a_failing_source_fails_none_of_another(config, naming, run_job, stages):
    stages.give["changelog", "shop-dts"] = OffsetsLost("shop-dts", [])
    result = run_job()
    assert not result.success
    made = {e.asset_key for e in result.get_asset_materialization_events()}
    assert naming.key("snapshots", config.source("shop_debezium")) in made
    assert naming.key("snapshots", config.source("shop-dts")) not in made


def test_a_ledger_that_does_not_add_up_blocks_the_snapshots_of_its_source(config, naming, run_job, stages):
    ledger(config, ("shop-dts", "dts-shop", 0, 0, 9, "landed", 10), ("shop-dts", "dts-shop", 0, 0, 9, "applied", 9))
    result = run_job()
    assert not result.success
    assert ("snapshots", "shop-dts") not in stages.calls
    assert ("snapshots", "shop_debezium") in stages.calls
    failed = [c for c in result.get_asset_check_evaluations() if c.check_name == ACCOUNTED and not c.passed]
    assert [c.asset_key for c in failed] == [naming.key("offset_ledger", config.source("shop-dts"))]


def test_upkeep_is_a_job_of_its_own_and_reports_per_source(config, naming, instance, stages, monkeypatch):
    def maintain(spark, config, source):
        stages.calls.append(("maintenance", source.name))
        if source.name == "shop-dts":
            raise OffsetsLost("shop-dts", [])
        return StageResult("maintenance", source.name, 0, 0, 1.5, {"files_before": 9, "files": 2})

    monkeypatch.setattr("cdc_platform.automation.stages.maintain", maintain)
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    job = build(config).resolve_job_def("maintain")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert stages.calls == [("maintenance", "shop-dts"), ("maintenance", "shop_debezium")]
    assert not result.success
    made = instance.get_latest_materialization_event(naming.key("maintenance", config.source("shop_debezium")))
    figures = metadata.read_metrics(made.asset_materialization.metadata)
    assert figures == {"files_before": 9, "files": 2, "seconds": 1.5}


def test_materialize_all_leaves_upkeep_out(config, run_job, stages):
    graph = build(config).resolve_asset_graph()
    executable = {k for k in graph.get_all_asset_keys() if graph.get(k).is_executable}
    assert run_job(*executable).success
    assert {stage for stage, _ in stages.calls} == set(STAGES)


def test_figures_are_of_their_source(config, naming, run_job):
    source = config.source("shop_debezium")
    result = run_job(*naming.run_keys(source))
    events = {e.asset_key: e.materialization.metadata for e in result.get_asset_materialization_events()}
    own = events[naming.key("landing", source)]
    assert (own["records"].value, own["events_per_second"].value, own["lag"].value) == (10, 5.0, 0)
    assert metadata.read_metrics(events[naming.key("changelog", source)])["records"] == 10


def test_what_sources_share_shows_all_of_them_whoever_ran(config, naming, run_job, instance):
    for source in config.sources:
        ledger(config, (source.name, "t", 0, 0, 9, "landed", 10), (source.name, "t", 0, 0, 9, "applied", 10))
    assert run_job(naming.key("offset_ledger")).success
    made = instance.get_latest_materialization_event(naming.key("offset_ledger")).asset_materialization
    assert made.metadata["landed"].value == 20
    rows = {r.data["source"]: r.data for r in made.metadata["sources"].value.records}
    assert {name: row["applied"] for name, row in rows.items()} == {"shop-dts": 10, "shop_debezium": 10}


def test_bad_data_is_not_retried_and_says_what(config, naming, run_job, stages):
    loss = {"topic": "dts-shop", "partition": 0, "from_offset": 3, "to_offset": 9, "why": "retention"}
    stages.give["landing", "shop-dts"] = OffsetsLost("shop-dts", [loss])
    result = run_job(*naming.run_keys(config.source("shop-dts")))
    assert not result.success
    assert stages.calls == [("landing", "shop-dts")]
    failure = result.get_step_failure_events()[0].step_failure_data
    assert failure.user_failure_data and "dts-shop[0] offsets 3..8 (retention)" in str(
        failure.user_failure_data.description
    )


def test_a_retriable_error_is_tried_again(config, naming, run_job, stages, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.assets.RETRY", dg.RetryPolicy(max_retries=2))
    stages.give["landing", "shop-dts"] = KafkaUnreachable("shop-dts", "h:1", "timed out")
    result = run_job(naming.key("landing", config.source("shop-dts")))
    assert stages.calls == [("landing", "shop-dts")] * 3
    failure = result.get_step_failure_events()[0].step_failure_data
    assert failure.user_failure_data and "no answer from Kafka at h:1" in str(failure.user_failure_data.description)


def test_a_second_writer_of_a_source_is_refused(config, naming, run_job, stages, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.assets.RETRY", dg.RetryPolicy(max_retries=2))
    monkeypatch.setattr("cdc_platform.lake.writer_lock.WAIT_S", 0.05)
    source = config.source("shop-dts")
    with another_process_has(config, source):
        result = run_job(naming.key("landing", source))
    assert not result.success
    assert stages.calls == []
    assert run_job(naming.key("landing", source)).success


def test_a_lake_that_cannot_be_read_leaves_the_definitions_loadable(config, caplog):
    snapshot(config, "shop-dts", "shop.orders", 1)
    from pathlib import Path

    for log in Path(config.lake, "table_state", "_delta_log").iterdir():
        log.write_text("not JSON")
    dg.Definitions.validate_loadable(build(config))
    assert "can't be read" in caplog.text


def test_changed_options_are_told_on_the_page_of_the_decoded_changes(config, naming, run_job, stages):
    source = config.source("shop-dts")
    decoded_with(config, source, time_zone="Asia/Shanghai")
    result = run_job(*naming.run_keys(source))
    found = {
        stage: m.metadata["options_changed"].value
        for stage in STAGES
        for m in result.asset_materializations_for_node(naming.name(f"{stage}_{source.slug}"))
        if "options_changed" in m.metadata
    }
    assert list(found) == ["changes"]
    assert found["changes"].startswith('options.time_zone was "Asia/Shanghai" and is ')
