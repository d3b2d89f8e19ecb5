"""An asset per source table: what runs of the chain, of single tables and of checks say of them. Real Delta tables and
a real Dagster instance; stages that only say what they were asked."""

import shlex
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import dagster as dg
import pyarrow as pa
import pytest

from cdc_platform.automation import beside
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.table_assets import run_config
from cdc_platform.automation.table_events import CERTIFIED, NO_HELD_ROWS, NOT_STOPPED, SCHEMA_UNCHANGED
from cdc_platform.definitions import build
from cdc_platform.errors import TableStopped
from cdc_platform.launch import Launcher
from cdc_platform.results import StageResult
from tests.automation.conftest import (
    NoSpark,
    complete,
    cut,
    held,
    make_config,
    resolve,
    schema_history,
    snapshot,
    table_state,
)

ALL = [("landing", "shop-dts"), ("envelopes", "shop-dts"), ("changes", "shop-dts"), ("changelog", "shop-dts")]


@pytest.fixture
def source(config):
    return config.source("shop-dts")


@pytest.fixture
def run(naming, source, run_job):
    """A catch-up run of the source."""
    return lambda: run_job(*naming.run_keys(source))


@pytest.fixture
def orders(config, naming, source):
    """The asset of shop.orders, which has three rows."""
    schema_history(config, ("shop-dts", "shop", "orders"))
    snapshot(config, "shop-dts", "shop.orders", 3)
    return naming.table(source, "shop", "orders").key


def brought(stages, **changes: int) -> None:
    """What the stage snapshots says that it did."""
    found = {f"shop.{name}": {"changes": n, "state": "live"} for name, n in changes.items()}
    stages.give["snapshots", "shop-dts"] = StageResult("snapshots", "shop-dts", 3, 1, 1.0, {}, found)


def made(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> list[dict]:
    found = [e.materialization for e in result.get_asset_materialization_events() if e.asset_key == key]
    return [{k: v.value for k, v in m.metadata.items()} for m in found]


def latest(instance: dg.DagsterInstance, key: dg.AssetKey, name: str) -> tuple[bool, str]:
    """The state of a check as Dagster's pages show it."""
    check = dg.AssetCheckKey(key, name)
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
    assert found.evaluation is not None
    return found.evaluation.passed, str(found.evaluation.description)


def test_a_catch_up_run_tells_of_each_table_that_changed(config, instance, run, stages, orders, source):
    at = datetime.now(UTC) - timedelta(seconds=90)
    cut(config, "shop-dts", 4, at)
    complete(config, "shop-dts", 0, at, {"binlog_file": "binlog.000007", "binlog_pos": Decimal(1000), "gtid": "u:1-7"})
    brought(stages, orders=7)
    [found] = made(run(), orders)
    assert (found["dagster/row_count"], found["changes"], found["state"], found["held_rows"]) == (3, 7, "live", 0)
    assert (found["cut_position"], found["cut"], found["cut_kind"]) == (
        "binlog.000007:1234",
        4,
        "transaction",
    )
    assert (found["complete_up_to_position"], found["complete_up_to_gtids"]) == ("binlog.000007:1000", "u:1-7")
    assert 90 <= found["lag_seconds"] < 120
    assert (found["complete_up_to"], found["complete_up_to_is"]) == (at.timestamp(), "proven")
    columns = {c.name: c for c in found["dagster/column_schema"].columns}
    assert list(columns) == ["id"]
    assert (columns["id"].type, columns["id"].constraints.other) == ("long", ["key"])
    brought(stages)
    assert made(run(), orders) == [], "no news, no event"


def test_a_tables_page_has_the_commands_that_explain_it(naming, source):
    told = naming.table(source, "shop", "it's $(odd)").metadata
    explain, as_of = (shlex.split(told[name]) for name in ("why_a_row_is_as_it_is", "as_it_was"))
    assert explain == ["cdc-platform", "explain", "shop-dts", "shop.it's $(odd)", "KEY"]
    assert as_of == ["cdc-platform", "as-of", "shop-dts", "shop.it's $(odd)", "TIME", "--to", "PATH"]


def test_a_table_that_dagster_does_not_know_yet_is_told_although_nothing_changed(run, stages, orders):
    assert made(run(), orders)[0]["changes"] == 0


@pytest.mark.thorough
def test_no_table_is_called_out_of_date_by_runs_that_brought_it_nothing(
    config, run, run_job, stages, orders, naming, source, instance
):
    from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
    from dagster._core.loader import LoadingContextForTest

    schema_history(config, ("shop-dts", "shop", "items"))
    snapshot(config, "shop-dts", "shop.items", 2)
    tables = {orders, naming.table(source, "shop", "items").key}
    graph = build(config).resolve_asset_graph()

    def out_of_date() -> list[str]:
        """As the pages say it: Unsynced."""
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        return [key.to_user_string() for key in tables if resolver.get_status(key) != StaleStatus.FRESH]

    for change in ({}, {"items": 1}, {}):
        brought(stages, **change)
        run()
        assert out_of_date() == []
    run_job(orders)
    assert out_of_date() == []
    brought(stages)
    run()
    assert out_of_date() == []


def test_materializing_one_table_catches_its_source_up(run_job, stages, orders, naming, source, instance):
    result = run_job(orders)
    assert result.success
    assert stages.calls == [*ALL, ("snapshots", "shop-dts")]
    assert made(result, orders)[0]["dagster/row_count"] == 3
    assert made(result, naming.key("landing", source))[0]["records"] == 10, "the stages show what they did"


def test_materializing_one_table_tells_of_the_others_that_the_catch_up_changed(
    config, run, run_job, stages, orders, naming, source
):
    schema_history(config, ("shop-dts", "shop", "items"))
    snapshot(config, "shop-dts", "shop.items", 2)
    items = naming.table(source, "shop", "items").key
    run()
    brought(stages, orders=1, items=4)
    result = run_job(orders)
    assert [m["changes"] for m in made(result, items)] == [4]
    assert len(made(result, naming.key("snapshots", source))) == 1


def test_materializing_everything_with_nothing_new_ends_as_it_is(config, run_job, stages, orders):
    brought(stages)
    graph = build(config).resolve_asset_graph()
    everything = [k for k in graph.get_all_asset_keys() if graph.get(k).is_executable]
    for _ in range(2):
        result = run_job(*everything)
        assert result.success
        assert len(made(result, orders)) == 1
        assert stages.calls.count(("snapshots", "shop-dts")) == 1
        stages.calls.clear()


def test_a_table_without_rows_yet_fails_nothing(config, run_job, stages, orders, naming, source):
    schema_history(config, ("shop-dts", "shop", "empty"))
    key = naming.table(source, "shop", "empty").key
    result = run_job(orders, key)
    assert result.success
    assert made(result, key) == []


def test_a_stopped_table_is_red_everywhere_until_it_lives_again(config, instance, run, run_job, stages, orders):
    run()
    table_state(config, "shop-dts", "shop.orders", "stopped", "tables.ddl is stop", rebuild=1)
    before = instance.get_latest_materialization_event(orders).asset_materialization
    result = run()
    assert result.success, "other tables' run is no failure"
    [shown] = made(result, orders)  # an asset's page shows its newest materialization
    assert shown["state"] == "stopped"
    newest = instance.get_latest_materialization_event(orders).asset_materialization
    assert newest.tags["dagster/data_version"] == before.tags["dagster/data_version"], (
        "what is downstream stays as it is"
    )
    assert latest(instance, orders, NOT_STOPPED) == (
        False,
        "stopped: tables.ddl is stop. `cdc-platform run --source shop-dts --table shop.orders --rebuild` rebuilds it "
        "once the cause is gone",
    )
    asked = run_job(orders)
    assert not asked.success
    [failure] = asked.get_step_failure_events()
    assert "shop.orders is stopped: tables.ddl is stop" in str(failure.step_failure_data.user_failure_data.description)
    table_state(config, "shop-dts", "shop.orders", "live", rebuild=2)
    run()
    assert latest(instance, orders, NOT_STOPPED) == (True, "live")


@pytest.mark.thorough
def test_stopped_tables_of_a_source_are_its_own(config, naming, instance, run_job, stages, orders):
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key", rebuild=1)
    mine, other = (naming.key("snapshots", s) for s in config.sources)
    run_job(*naming.run_keys(config.sources[0]))
    run_job(*naming.run_keys(config.sources[1]))
    assert latest(instance, mine, "no_table_is_stopped") == (False, "shop.orders: no key")
    assert latest(instance, other, "no_table_is_stopped") == (True, "no table is stopped")


def test_held_rows_are_red_on_their_table_and_source_until_resolved(config, naming, instance, run_job, orders, source):
    quarantine = naming.key("quarantine", source)
    run_job(*naming.run_keys(source))
    assert latest(instance, orders, NO_HELD_ROWS) == (True, "no rows held")
    held(config, "shop-dts", "shop.orders")
    held(config, "shop-dts", None, "not JSON")
    run_job(*naming.run_keys(source))
    run_job(*naming.run_keys(config.source("shop_debezium")))  # overwrites nothing
    passed, text = latest(instance, orders, NO_HELD_ROWS)
    assert not passed
    assert text.startswith("1 row held, the newest because: bad decimal")
    passed, text = latest(instance, quarantine, "nothing_is_held")
    assert not passed
    assert "shop.orders: 1 row" in text
    assert "no table named: 1 row, the newest because: not JSON" in text
    resolve(config, "shop-dts")
    run_job(*naming.run_keys(source))
    assert latest(instance, orders, NO_HELD_ROWS)[0]
    assert latest(instance, quarantine, "nothing_is_held") == (True, "nothing is held")


@pytest.mark.thorough
def test_a_change_of_columns_warns_once(config, instance, run, stages, orders):
    run()
    snapshot(config, "shop-dts", "shop.orders", 3, total=pa.decimal128(10, 2))
    brought(stages, orders=1)
    run()
    assert latest(instance, orders, SCHEMA_UNCHANGED) == (False, "column total decimal(10,2) added")
    run()
    assert latest(instance, orders, SCHEMA_UNCHANGED)[0]


def test_checks_alone_do_no_work(config, instance, stages, run_job, orders):
    job = build(config).resolve_implicit_global_asset_job_def()
    check = dg.AssetCheckKey(orders, NOT_STOPPED)
    result = job.get_subset(asset_selection=set(), asset_check_selection={check}).execute_in_process(instance=instance)
    assert [(e.asset_key, e.check_name, e.passed) for e in result.get_asset_check_evaluations()] == [
        (orders, NOT_STOPPED, True)
    ]
    assert stages.calls == []


def test_rebuild_is_a_run_configuration_of_the_tables_page(
    config, naming, source, run_job, stages, orders, monkeypatch
):
    built = []

    def rebuild(spark, config, source, db, table):
        built.append((source.name, db, table))
        return StageResult("snapshots", source.name, 5, 1, 1.0, {"changes": 5})

    monkeypatch.setattr("cdc_platform.automation.table_assets.rebuild", rebuild)
    result = run_job(orders, run_config=run_config(naming, source, rebuild=True))
    assert result.success
    assert built == [("shop-dts", "shop", "orders")]
    assert stages.calls == [("snapshots", "shop-dts")], "publishes what the table is complete up to now"
    assert made(result, orders)[0]["changes"] == 5
    assert made(result, naming.key("snapshots", source))[0]["rebuilt"] == 1


def test_a_rebuild_that_stops_fails_with_the_reason(naming, source, run_job, stages, orders, monkeypatch):
    def rebuild(spark, config, source, db, table):
        raise TableStopped(source.name, (db, table), "two rows with one key")

    monkeypatch.setattr("cdc_platform.automation.table_assets.rebuild", rebuild)
    result = run_job(orders, run_config=run_config(naming, source, rebuild=True))
    [failure] = result.get_step_failure_events()
    assert "shop.orders is stopped: two rows with one key" in str(
        failure.step_failure_data.user_failure_data.description
    )


ODD = [("a/b", "a-b", "a_b", "a.b", "a~2Fb"), ("中", "/", "..", "..."), ("", " ")]


@pytest.mark.parametrize("names", ODD)
def test_any_table_name_is_an_asset_of_its_own(config, naming, source, names, instance, run_job):
    schema_history(config, *(("shop-dts", "shop", name) for name in names))
    for name in names:
        snapshot(config, "shop-dts", f"shop.{name}", 1)
    keys = [naming.table(source, "shop", name).key for name in names]
    assert len(set(keys)) == len(names)
    assert run_job(*keys).success
    assert all(instance.get_latest_materialization_event(key) for key in keys)


@pytest.mark.parametrize("names", ODD)
def test_what_is_kept_beside_a_table_of_any_name_is_an_asset_of_its_own(tmp_path, instance, stages, monkeypatch, names):
    """A name that Dagster refuses in one of them would leave the deployment without any definition."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    everything = {"history": ["*.*"], "typed_changes": ["*.*"]}
    config = make_config(tmp_path, tables=everything, reconcile={"dsn_env": "SHOP_DSN"})
    naming, source = Naming(config), config.source("shop-dts")
    schema_history(config, *(("shop-dts", "shop", name) for name in names))
    defs = build(config)
    graph, repository = defs.resolve_asset_graph(), defs.get_repository_def()
    keys = [spec.key for name in names for spec in naming.beside(source, "shop", name).values()]
    assert len(set(keys)) == 2 * len(names)
    checks = {dg.AssetCheckKey(key, beside.HAS_ALL_CHANGES) for key in keys}
    assert checks <= graph.asset_check_keys
    job = repository.get_implicit_global_asset_job_def()
    subset = job.get_subset(asset_selection=set(), asset_check_selection=checks)
    assert subset.execute_in_process(instance=instance).success


def test_a_table_that_is_asked_for_is_told_and_its_broken_certificate_fails_the_run(config, instance, run_job, stages):
    schema_history(config, ("shop-dts", "shop", "orders"))
    snapshot(config, "shop-dts", "shop.orders", 1)
    held(config, "shop-dts", "shop.orders")
    key = dg.AssetKey(["snapshots", "shop-dts", "shop", "orders"])
    result = run_job(key)
    assert not result.success
    assert len(made(result, key)) == 1
    assert latest(instance, key, "certified") == (False, "broken: quarantine holds 1 row of it")


def test_a_table_rebuilt_by_command_is_no_failure_for_rows_of_it_that_are_held(
    config, naming, source, instance, run_job, stages, orders, monkeypatch
):
    snapshot(config, "shop-dts", "shop.orders", 1)
    held(config, "shop-dts", "shop.orders")
    done = StageResult("snapshots", source.name, 5, 1, 1.0, {"changes": 5})
    monkeypatch.setattr("cdc_platform.automation.table_assets.rebuild", lambda *asked: done)
    ready = Launcher(build(config).resolve_implicit_global_asset_job_def(), instance)
    result = ready.execute([orders], "shop-dts", run_config(naming, source, rebuild=True))
    assert result.success
    assert latest(instance, orders, "certified") == (False, "broken: quarantine holds 1 row of it")


@pytest.mark.thorough
def test_quiet_tables_are_told_again_within_their_freshness_window(tmp_path, instance, stages, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    config = make_config(tmp_path, freshness_s=60)
    naming, source = Naming(config), config.source("shop-dts")
    snapshot(config, "shop-dts", "shop.orders", 1)
    key = naming.table(source, "shop", "orders").key
    defs = build(config)
    policy = defs.resolve_asset_graph().get(key).freshness_policy
    assert policy.fail_window.to_timedelta() == timedelta(seconds=60)

    def catch_up() -> int:
        job = defs.resolve_job_def("catch_up")
        return len(made(job.execute_in_process(instance=instance, asset_selection=naming.run_keys(source)), key))

    assert [catch_up(), catch_up()] == [1, 0]

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(seconds=31)

    monkeypatch.setattr("cdc_platform.automation.table_news.datetime", Later)
    assert catch_up() == 1


@pytest.mark.parametrize(
    ("of", "seconds"),
    [
        ({}, (21_600, None)),  # Tencent DTS sends checkpoints; Debezium needn't send anything
        ({"freshness_s": 0}, (None, None)),
        ({"heartbeat_timeout_s": 14_400}, (28_800, 28_800)),
    ],
)
def test_tables_have_a_freshness_policy_by_what_their_source_promises(tmp_path, of, seconds):
    config = make_config(tmp_path, **of)
    naming = Naming(config)
    for source in config.sources:
        snapshot(config, source.name, "shop.orders", 1)
    graph = build(config).resolve_asset_graph()
    policies = [graph.get(naming.table(s, "shop", "orders").key).freshness_policy for s in config.sources]
    assert tuple(p and p.fail_window.to_timedelta().total_seconds() for p in policies) == seconds


@pytest.mark.thorough
def test_a_run_of_one_table_leaves_the_page_of_all_sources_as_things_are_after_it(
    config, naming, run_job, stages, orders, instance, monkeypatch
):
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key", rebuild=1)
    health = naming.key("health")

    def rebuilt(spark, config, source, db, table) -> StageResult:
        table_state(config, source.name, f"{db}.{table}", "live", rebuild=2)
        return StageResult("snapshots", source.name, 3, 1, 1.0)

    run_job(orders)
    [shown] = instance.fetch_materializations(health, limit=1).records
    assert shown.asset_materialization.metadata["stopped_tables"].value == 1
    monkeypatch.setattr("cdc_platform.automation.table_assets.rebuild", rebuilt)
    assert run_job(orders, run_config=run_config(naming, config.source("shop-dts"), rebuild=True)).success
    [shown] = instance.fetch_materializations(health, limit=1).records
    assert shown.asset_materialization.metadata["stopped_tables"].value == 0


def test_an_asset_downstream_in_the_same_run_is_left_out_while_the_certificate_is_broken(
    config, instance, stages, orders, monkeypatch
):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    seen: list[int] = []

    @dg.asset(deps=[orders])
    def report() -> None:
        seen.append(1)

    def run() -> tuple[bool, bool]:
        """Whether the run ended well, and whether it made the report."""
        defs = dg.Definitions.merge(build(config), dg.Definitions(assets=[report]))
        job, before = defs.resolve_implicit_global_asset_job_def(), len(seen)
        done = job.execute_in_process(asset_selection=[orders, report.key], instance=instance, raise_on_error=False)
        return done.success, len(seen) > before

    held(config, "shop-dts", "shop.orders")
    assert run() == (False, False)
    assert not latest(instance, orders, CERTIFIED)[0]
    assert instance.fetch_materializations(orders, limit=1).records, "the table itself is told"
    resolve(config, "shop-dts")
    assert run() == (True, True)
