"""Pairs of feeds in Dagster: a check that a job of its own runs, by a schedule for each pair."""

import asyncio
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest

from cdc_platform import tables
from cdc_platform.automation import shadows, table_status
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.table_news import TableNews
from cdc_platform.config import parse_config
from cdc_platform.config.shadow import Shadow
from cdc_platform.definitions import build
from cdc_platform.errors import RunInProgress
from cdc_platform.shadow import kept
from tests.automation.conftest import NoSpark, schema_history, snapshot
from tests.rows import add

COUNTS = ("only_of", "only_by", "differing", "unsettled")
PAIR = Shadow(of="a-1", by="b")
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def table(name: str, state: str, reason: str | None = None, **counts: int) -> dict:
    numbers = {**dict.fromkeys(COUNTS, 0), **counts}
    named = {"db": "d", "schema": None, "table": name, "state": state, "reason": reason, "not_compared": [], "at": AT}
    return {**named, **numbers}


def found(*rows: dict) -> dict:
    """What a comparison returns."""
    tables = {(r["db"], r["table"]): r for r in rows}
    return {**kept.summary(PAIR, tables), "compared": 1, "seconds": 0.5, "rows": list(rows)}


@pytest.fixture
def config(tmp_path):
    raw = {
        "lake": "./lake",
        "spark": {"remote": "sc://127.0.0.1:1"},
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "sources": [{"name": n, "format": "tdsql", "topics": [n]} for n in ("a-1", "b")],
        "shadow": {"of": "a-1", "by": "b", "cron": "0 * * * *"},
    }
    return parse_config(raw, tmp_path / "cdc.yaml")


def told(*rows: dict) -> tuple[bool, str, str]:
    result = shadows.result(PAIR, found(*rows))
    return result.passed, result.severity.value, str(result.description)


def test_what_was_found_is_told_in_words():
    passed = (True, "WARN")
    assert told(table("t", "equal")) == (*passed, "the same in b: 1 table")
    assert told(table("t", "equal"), table("u", "behind", unsettled=2))[2].endswith("of 1 not all can be judged yet")
    assert told() == (False, "WARN", "neither feed has a table yet")
    wrong = told(table("t", "different", only_of=2, differing=1), table("u", "not_compared", "b has no such table"))
    assert wrong == (
        *(False, "ERROR"),
        "d.t: 2 rows lacking in b, 1 row with other values; d.u: not compared: b has no such table",
    )
    assert told(table("u", "not_compared", "why"))[:2] == (False, "WARN")


def test_nothing_judged_is_not_equal():
    """A table that waits isn't the same; one of which rows are too new is, in all others."""
    waits, late = table("u", "behind", "quarantine holds 1 row"), table("v", "behind", unsettled=2)
    outcome = (False, "WARN", "d.u: can't be judged yet: quarantine holds 1 row")
    assert told(waits) == told(table("t", "equal"), waits, late) == outcome
    assert [found(*rows)["equal"] for rows in ((waits,), (table("t", "equal"), waits), (late,))] == [False, False, True]
    assert [found(waits, late)[n] for n in ("tables", "behind", "waiting")] == [2, 2, 1]
    assert told(table("t", "different", only_of=1), waits)[1:] == (
        "ERROR",
        "d.t: 1 row lacking in b; d.u: can't be judged yet: quarantine holds 1 row",
    )


def test_a_job_of_its_own_runs_the_check(config, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    answers = [found(table("<b>", "different", only_by=1)), RunInProgress("shadow of a-1", 60.0)]

    def compare(*_, **__):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("cdc_platform.shadow.run.compare", compare)
    defs = build(config)
    own = {
        job: [k for k in defs.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys if k.name == shadows.SHADOW]
        for job in ("catch_up", "shadow")
    }
    assert own == {"catch_up": [], "shadow": [dg.AssetCheckKey(dg.AssetKey(["shadow", "a-1"]), "shadow")]}
    job = defs.resolve_job_def("shadow")
    [check] = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert (check.passed, check.metadata["only_by"].value) == (False, 1)
    [record] = check.metadata["states"].records
    assert (record.data["table"], record.data["state"]) == ("d.<b>", "different")
    [check] = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert not check.passed
    assert "not compared: " in str(check.description)


def test_what_it_found_stays_in_sight_when_a_run_brings_changes(config, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    monkeypatch.setattr("cdc_platform.shadow.run.compare", lambda *_, **__: found(table("t", "different", only_by=1)))
    naming = Naming(config)
    build(config).resolve_job_def("shadow").execute_in_process(instance=instance)
    for source in config.sources:
        instance.report_runless_asset_event(dg.AssetMaterialization(naming.key("snapshots", source)))
    key = shadows.key(naming, config.shadow_of("a-1"))
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.status.value == "FAILED"
    assert asyncio.run(record.targets_latest_materialization(LoadingContextForTest(instance)))


def test_a_difference_is_told_by_the_checks_of_both_tables(config, instance, monkeypatch):
    """Neither source sends anything."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    naming, keys = Naming(config), {}
    for source in config.sources:
        schema_history(config, (source.name, "d", "t"))
        snapshot(config, source.name, "d.t", 1)
        keys[source.name] = dg.AssetCheckKey(naming.table(source, "d", "t").key, "certified")
        for event in TableNews(instance, naming, source).events(table_status.statuses(config, source)):
            instance.report_runless_asset_event(event)

    def compare(*_, **__):
        row = {
            "source": "a-1",
            "by": "b",
            "number": 0,
            "db": "d",
            "table": "t",
            "key": "1",
            "kind": "only_by",
            "rows": 1,
        }
        add(config.lake, tables.SHADOW_DIFFERENCES, {**row, "kind": "only_by", "rows": 1, "first_seen": AT, "at": AT})
        return found(table("t", "different", only_by=1))

    monkeypatch.setattr("cdc_platform.shadow.run.compare", compare)

    def passed() -> dict[str, bool]:
        latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys.values()))
        return {name: latest[key].evaluation.passed for name, key in keys.items()}

    assert passed() == {"a-1": True, "b": True}
    build(config).resolve_job_def("shadow").execute_in_process(instance=instance)
    assert passed() == {"a-1": False, "b": False}


def test_a_schedule_asks_for_the_check_alone_and_one_at_a_time(config, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    defs = build(config)
    [schedule] = [s for s in defs.schedules or [] if s.name == "shadow_a_1_schedule"]
    assert (schedule.cron_schedule, schedule.job_name) == ("0 * * * *", "shadow")

    def tick():
        with dg.build_schedule_context(
            instance, scheduled_execution_time=AT, repository_def=defs.get_repository_def()
        ) as context:
            return schedule.evaluate_tick(context)

    [request] = tick().run_requests
    assert request.asset_check_keys == [shadows.key(Naming(config), config.shadow_of("a-1"))]
    assert not request.asset_selection
    run = instance.create_run_for_job(
        defs.resolve_job_def("shadow"), tags=dict(request.tags), status=dg.DagsterRunStatus.STARTED
    )
    assert not tick().run_requests
    instance.report_run_failed(run)
    assert len(tick().run_requests) == 1
