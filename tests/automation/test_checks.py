"""Checks find what is wrong in real Delta tables, and pass when it is right."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest

from cdc_platform import tables
from cdc_platform.automation import checks, table_status
from cdc_platform.automation.accounting import ledger_result
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_news import TableNews
from cdc_platform.definitions import build
from cdc_platform.launch import Launcher
from cdc_platform.reconcile.binlog import Risk
from cdc_platform.reconcile.result import TableResult
from tests.automation.conftest import NoSpark, landing, ledger, make_config, schema_history, snapshot
from tests.rows import add

LANDED = ("shop-dts", "dts-shop", 0, 0, 9, "landed", 10)


def outcome(name: str, records: int) -> tuple:
    return ("shop-dts", "dts-shop", 0, 0, 9, name, records)


@pytest.mark.parametrize(
    "rows",
    [
        [LANDED, outcome("applied", 7), outcome("control", 2), outcome("filtered", 1)],
        [LANDED, outcome("duplicate", 1), outcome("quarantined", 1), outcome("waiting", 8)],
        [LANDED, outcome("waiting", 8), outcome("waiting", -8), outcome("applied", 10)],
        [LANDED, outcome("applied", 10), ("shop-dts", "dts-shop", 0, 20, 29, "lost", 10)],
        [LANDED, outcome("applied", 10), ("shop_debezium", "t", 0, 0, 4, "landed", 5)],
    ],
    ids=["sorted", "all outcomes", "waited, then applied", "lost is beside", "another source is mid-run"],
)
def test_accounted(config, rows):
    ledger(config, *rows)
    landing(config, "shop-dts", 10)
    result = ledger_result(config, config.source("shop-dts"))
    assert result.passed, result.description


@pytest.mark.parametrize(
    ("rows", "records", "told"),
    [
        ([LANDED, outcome("applied", 9)], 10, "dts-shop/0: 10 records landed, 9 of them accounted for"),
        ([LANDED, outcome("applied", 10), outcome("duplicate", 1)], 10, "11 of them accounted for"),
        ([LANDED, outcome("applied", 10)], 11, "landing holds 11 records, the ledger counts 10"),
        ([LANDED, outcome("applied", 10)], 0, "landing holds 0 records"),
    ],
    ids=["a hole", "counted twice", "landed unseen", "landing gone"],
)
def test_holes_fail(config, rows, records, told):
    ledger(config, *rows)
    if records:
        landing(config, "shop-dts", records)
    result = ledger_result(config, config.source("shop-dts"))
    assert not result.passed
    assert told in str(result.description)


def test_reconcile_is_a_check_of_its_own_job(tmp_path, instance, monkeypatch):
    """A catch-up run doesn't read the source's database; without its DSN nothing is proven."""
    monkeypatch.delenv("SHOP_DSN", raising=False)
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    schema_history(config, ("shop-dts", "shop", "orders"))
    defs = build(config)
    checks_of = {
        job: {
            k.asset_key.to_user_string()
            for k in defs.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
            if k.name == checks.EQUALS_SOURCE
        }
        for job in ("catch_up", "reconcile")
    }
    compared = {"reconcile/shop-dts", "snapshots/shop-dts/shop/orders", "reconcile/shop_debezium"}
    assert checks_of == {"catch_up": set(), "reconcile": compared}
    graph = defs.resolve_asset_graph()
    keeps = {k.to_user_string() for k in graph.get_all_asset_keys() - graph.materializable_asset_keys}
    assert {"reconcile/shop-dts", "reconcile/shop_debezium"} < keeps  # no run makes what was found look out of date
    found = defs.resolve_job_def("reconcile").execute_in_process(instance=instance).get_asset_check_evaluations()
    assert {(c.asset_key.to_user_string(), c.passed) for c in found} == {(name, False) for name in compared}
    assert all("not compared: SHOP_DSN" in str(c.description) for c in found)


def test_what_a_comparison_found_stays_shown_when_runs_go_on(tmp_path, instance, stages, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    monkeypatch.delenv("SHOP_DSN", raising=False)
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    defs, naming = build(config), Naming(config)
    defs.resolve_job_def("reconcile").execute_in_process(instance=instance)
    keys = naming.run_keys(config.source("shop-dts"))
    assert Launcher(defs.resolve_job_def("catch_up"), instance).execute(keys, "shop-dts").success
    key = dg.AssetCheckKey(dg.AssetKey(["reconcile", "shop-dts"]), checks.EQUALS_SOURCE)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.evaluation.passed is False
    assert asyncio.run(record.targets_latest_materialization(LoadingContextForTest(instance))), "as the pages ask"


@pytest.mark.parametrize("by", ["schedule", "command"])
def test_no_run_of_a_source_reads_its_database(tmp_path, instance, stages, monkeypatch, by):
    """A run names assets: without names of checks Dagster would run all of theirs, those of other jobs, too."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    defs, keys = build(config), Naming(config).run_keys(config.source("shop-dts"))
    if by == "schedule":
        repository = defs.get_repository_def()
        context = dg.build_schedule_context(
            instance=instance, scheduled_execution_time=datetime(2026, 11, 20, tzinfo=UTC), repository_def=repository
        )
        request = (repository.get_schedule_def("catch_up_schedule").evaluate_tick(context).run_requests or [])[0]
        assert (request.tags[SOURCE_TAG], list(request.asset_selection or [])) == ("shop-dts", keys)
        told = request.asset_check_keys or []
    else:
        result = Launcher(defs.resolve_job_def("catch_up"), instance).execute(keys, "shop-dts")
        told = [c.asset_check_key for c in result.get_asset_check_evaluations()]
    assert sorted(k.name for k in told) == [
        "every_landed_offset_is_accounted_for",
        *("heartbeat", "no_record_is_missing", "no_table_is_stopped", "nothing_is_held"),
    ]


def test_each_table_is_compared_for_itself_and_the_source_as_a_whole(tmp_path, instance, monkeypatch):
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    schema_history(config, ("shop-dts", "shop", "orders"), ("shop-dts", "shop", "items"))
    naming, source = Naming(config), config.source("shop-dts")
    asked = []

    def against_server(spark, config, source, server, table=None, **how):
        asked.append(table)
        found = [TableResult("shop.orders"), TableResult("shop.items", missing=2)]
        return [r for r in found if table in (None, tuple(r.table.split(".")))]

    class Server:
        def __init__(self, dsn): ...

    monkeypatch.setattr("cdc_platform.reconcile.run.against_server", against_server)
    monkeypatch.setattr("cdc_platform.reconcile.server.Server", Server)
    monkeypatch.setattr("cdc_platform.reconcile.server.dsn_from", lambda name: name)
    monkeypatch.setattr("cdc_platform.reconcile.binlog.risks_of", lambda server, source: [])
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    job = build(config).resolve_job_def("reconcile")

    def passed(*keys: dg.AssetKey) -> dict[str, bool]:
        chosen = {dg.AssetCheckKey(k, checks.EQUALS_SOURCE) for k in keys}
        subset = job.get_subset(asset_selection=set(), asset_check_selection=chosen)
        found = subset.execute_in_process(instance=instance).get_asset_check_evaluations()
        return {c.asset_key.path[-1]: c.passed for c in found}

    tables = [naming.table(source, "shop", name).key for name in ("orders", "items")]
    assert passed(naming.key("reconcile", source), *tables) == {"shop-dts": False, "orders": True, "items": False}
    assert asked == [None]
    assert passed(tables[0]) == {"orders": True}


def test_a_comparison_tells_the_check_of_tables_whose_source_is_quiet(tmp_path, instance, monkeypatch):
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    naming, source, equal = Naming(config), config.source("shop-dts"), {"items": True, "orders": True}
    for table in equal:
        schema_history(config, ("shop-dts", "shop", table))
        snapshot(config, "shop-dts", f"shop.{table}", 1)
    key = naming.table(source, "shop", "orders").key
    certified = dg.AssetCheckKey(key, "certified")
    news = TableNews(instance, naming, source)
    for event in news.events(table_status.statuses(config, source)):
        instance.report_runless_asset_event(event)

    def against_server(spark, config, source, server, table=None, **how):
        said = {"source": "shop-dts", "db": "shop", "against": "server", "at": datetime.now(UTC), "differing": 1}
        add(config.lake, tables.RECONCILIATIONS, *({**said, "table": t, "equal": e} for t, e in equal.items()))
        return [TableResult(f"shop.{t}", changed=not e) for t, e in equal.items()]

    monkeypatch.setattr("cdc_platform.reconcile.run.against_server", against_server)
    monkeypatch.setattr("cdc_platform.reconcile.server.Server", lambda dsn: None)
    monkeypatch.setattr("cdc_platform.reconcile.server.dsn_from", lambda name: name)
    monkeypatch.setattr("cdc_platform.reconcile.binlog.risks_of", lambda server, source: [])
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    chosen = {dg.AssetCheckKey(naming.key("reconcile", source), checks.EQUALS_SOURCE)}
    job = build(config).resolve_job_def("reconcile").get_subset(asset_selection=set(), asset_check_selection=chosen)

    def told() -> list[tuple[bool, str]]:
        job.execute_in_process(instance=instance)
        records = instance.event_log_storage.get_asset_check_execution_history(certified, limit=9)
        assert asyncio.run(records[0].targets_latest_materialization(LoadingContextForTest(instance)))
        return [(r.evaluation.passed, str(r.evaluation.description)) for r in records]

    assert [passed for passed, _ in told()] == [True]
    equal["orders"] = False
    (passed, why), *before = told()
    assert (passed, len(before)) == (False, 1)
    assert why.startswith("broken: shop.orders differs from the source: 1 row at ")
    assert len(told()) == 2, "once"
    equal["orders"] = True
    assert [passed for passed, _ in told()] == [True, False, True]


def test_what_a_comparison_found_passes_only_when_all_is_equal():
    equal = TableResult("a.b", expected_rows=5, actual_rows=5, not_compared={"doc": "json"})
    source = make_config(Path("x")).sources[0]
    passed = checks.reconcile_result(source, [equal])
    assert (passed.passed, passed.description) == (True, "the table equals its source; 1 column not compared")
    view = {"file": "b.1", "position": 4, "gtid": None, "exact": True}
    at = checks.reconcile_result(source, [TableResult("a.b", expected_rows=5, position=view, digest="d")])
    assert at.metadata["compared"].data == {"a.b": {"rows": 5, "position": "b.1:4", "digest": "d"}}
    for wrong in ({"missing": 1}, {"extra": 1}, {"changed": 1}, {"not_looked_into": 1}, {"problems": ["gone"]}):
        failed = checks.reconcile_result(source, [equal, TableResult("a.c", **wrong)])
        assert not failed.passed
        assert str(failed.description).startswith("a.c: ")
    assert not checks.reconcile_result(source, []).passed
    risky = checks.reconcile_result(source, [equal], [Risk("binlog_format", "MIXED", "statements may stand there")])
    assert risky.passed
    assert str(risky.description).endswith("; changes may be missing: binlog_format is MIXED")
