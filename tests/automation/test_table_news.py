"""What a run tells of its source's tables, and in which order; without Spark."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.events import AssetObservationData, StepMaterializationData
from dagster._core.loader import LoadingContextForTest
from deltalake import write_deltalake

from cdc_platform.automation import beside, table_status
from cdc_platform.automation.assets import all_assets
from cdc_platform.automation.table_news import TableNews
from cdc_platform.lake import new_tables, stores
from cdc_platform.lake.beside import KINDS, States
from cdc_platform.results import StageResult
from cdc_platform.tables import BESIDE_STATE, CHANGELOG, WATERMARKS
from tests.automation.conftest import schema_history, snapshot, table_state
from tests.rows import add

NAMES = [f"t{i:02}" for i in range(20)]
CHECK = dg.AssetCheckEvaluation
ROW = pa.table({"id": [1]})
OWN = "its own"
"""The run that tells."""


@pytest.fixture
def source(config):
    return config.source("shop-dts")


@pytest.fixture
def tables(config):
    """Twenty tables of one row, which a batch brought."""
    schema_history(config, *(("shop-dts", "shop", n) for n in NAMES))
    for name in NAMES:
        snapshot(config, "shop-dts", f"shop.{name}", 1)


@pytest.fixture
def news(instance, naming, source):
    """The news of a new run."""
    return lambda: TableNews(instance, naming, source, run_id=OWN)


def brought(changes: int, *names: str) -> StageResult:
    return StageResult("snapshots", "shop-dts", 1, 1, 1.0, {}, {f"shop.{n}": {"changes": changes} for n in names})


def told(config, source, instance, news: TableNews, seconds: float | None = None) -> list:
    """What is told now, which Dagster then knows."""
    return [log(instance, [e])[0] for e in news.events(table_status.statuses(config, source), seconds)]


def log(instance, events: list, run_id: str = OWN) -> list:
    """As a run's `context.log_event` does it."""
    for event in events:
        kind, data = _KINDS[type(event)]
        told = dg.DagsterEvent(kind.value, "catch_up", event_specific_data=data(event) if data else event)
        instance.report_dagster_event(told, run_id)
    return events


_KINDS: dict[type, Any] = {
    dg.AssetMaterialization: (dg.DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData),
    dg.AssetObservation: (dg.DagsterEventType.ASSET_OBSERVATION, AssetObservationData),
    dg.AssetCheckEvaluation: (dg.DagsterEventType.ASSET_CHECK_EVALUATION, None),
}


def named(events: list, kind: type) -> list[str]:
    return [e.asset_key.path[-1] for e in events if isinstance(e, kind)]


@pytest.mark.thorough
def test_what_there_is_no_time_for_comes_the_next_time(config, source, instance, tables, news):
    run = news()
    run.add(brought(3, *NAMES))
    first = told(config, source, instance, run, seconds=0)
    assert (named(first, dg.AssetMaterialization), run.left) == (NAMES[:16], True)
    run.add(brought(4, *NAMES[10:]))
    rest = told(config, source, instance, run)
    assert (named(rest, dg.AssetMaterialization), run.left) == ([*NAMES[16:], *NAMES[10:16]], False)
    assert [e.metadata["changes"].value for e in rest if isinstance(e, dg.AssetMaterialization)] == [7] * 4 + [4] * 6
    assert len(named(rest, dg.AssetCheckEvaluation)) == 4 * 4, "of those that weren't told yet"
    assert told(config, source, instance, run) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_which_more_is_kept_tells_of_it_too(config, source, instance, tables, naming, kind):
    getattr(source.tables, kind).append("shop.t0[01]")
    lake, name = stores.lake(config), ("shop", "t01")
    path = KINDS[kind].path.of(lake, source.name, name)
    op = pa.field("_cdc_op", pa.string(), metadata={"comment": "what made it"})
    columns = pa.schema([pa.field("id", pa.int64()), op])
    write_deltalake(path.uri(), pa.table({"id": [1, 1, 2], "_cdc_op": ["read"] * 3}, columns))
    for table in (BESIDE_STATE, CHANGELOG):
        new_tables.create(table.at(lake), table)
    States(config, source, kind).note({name: ("kept", None)})
    assets = {a.key: a for a in all_assets(naming) if isinstance(a, dg.AssetSpec)}
    spec = assets[dg.AssetKey([kind, "shop-dts", "shop", "t01"])]
    assert [d.asset_key.path for d in spec.deps] == [["snapshots", "shop-dts", "shop", "t01"]]
    run = TableNews(instance, naming, source, run_id=OWN)
    run.add(brought(1, *NAMES))
    events = told(config, source, instance, run)
    [made, found] = [e for e in events if e.asset_key.path[0] == kind]
    assert (made.asset_key, made.metadata["dagster/row_count"].value) == (spec.key, 3)
    assert isinstance(made, dg.AssetMaterialization)
    shown = made.metadata["dagster/column_schema"].schema.columns
    assert [(c.name, c.type, c.description) for c in shown] == [
        ("id", "long", None),
        ("_cdc_op", "string", "what made it"),
    ]
    assert (found.asset_key, found.check_name, found.passed) == (spec.key, beside.HAS_ALL_CHANGES, True)
    States(config, source, kind).note({name: ("lacking", "no room")})
    status = {s.name: s for s in table_status.statuses(config, source)}
    [lacks, found] = beside.events(instance, naming, status["shop.t01"])
    assert (type(lacks), lacks.metadata["state"].value) == (dg.AssetMaterialization, "lacking: no room")
    assert (found.passed, found.description) == (False, "lacking: no room")
    log(instance, [lacks, found])
    assert type(next(beside.events(instance, naming, status["shop.t01"]))) is dg.AssetObservation, "its page says so"
    assert list(beside.events(instance, naming, status["shop.t00"])) == [], "no run has made it so far"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_beside_a_table_is_told_when_it_changes_without_the_table(
    config, source, instance, tables, naming, kind
):
    told(config, source, instance, TableNews(instance, naming, source, run_id=OWN))
    getattr(source.tables, kind).append("shop.t01")
    lake, name = stores.lake(config), ("shop", "t01")

    def note(state: str, reason: str | None = None) -> list:
        States(config, source, kind).note({name: (state, reason)})
        events = told(config, source, instance, TableNews(instance, naming, source, run_id=OWN))
        assert all(e.passed == (state == "kept") for e in events if isinstance(e, dg.AssetCheckEvaluation))
        return [e for e in events if not isinstance(e, dg.AssetCheckEvaluation)]

    for table in (BESIDE_STATE, CHANGELOG):
        new_tables.create(table.at(lake), table)
    assert told(config, source, instance, TableNews(instance, naming, source, run_id=OWN)) == [], (
        "no run has made it so far"
    )
    write_deltalake(KINDS[kind].path.of(lake, source.name, name).uri(), pa.table({"id": [1]}))
    [made] = note("kept")
    assert (type(made), made.asset_key.path[0]) == (dg.AssetMaterialization, kind)
    assert note("kept") == []
    [lacks] = note("lacking", "no room")
    assert (type(lacks), lacks.metadata["state"].value) == (dg.AssetMaterialization, "lacking: no room")
    assert note("lacking", "no room") == []
    assert [e.metadata["state"].value for e in note("lacking", "no disk")] == ["lacking: no disk"]
    assert [type(e) for e in note("kept")] == [dg.AssetMaterialization]
    table_state(config, "shop-dts", "shop.t01", "stopped", "no key", rebuild=1)
    events = told(config, source, instance, TableNews(instance, naming, source, run_id=OWN))
    assert [
        getattr(e, "description", None) or e.metadata["state"].value for e in events if e.asset_key.path[0] == kind
    ] == 2 * ["stopped: its table is stopped"]


def test_what_is_kept_beside_many_tables_is_asked_of_dagster_at_once(
    config, source, instance, tables, naming, news, monkeypatch
):
    source.tables.history.append("shop.*")
    for table in (BESIDE_STATE, CHANGELOG):
        new_tables.create(table.at(stores.lake(config)), table)
    for name in NAMES[1:]:
        write_deltalake(KINDS["history"].path.of(stores.lake(config), source.name, ("shop", name)).uri(), ROW)
    lacking = {("shop", NAMES[0]): ("lacking", "no room")}
    States(config, source, "history").note({**{("shop", n): ("kept", None) for n in NAMES[1:]}, **lacking})
    events = told(config, source, instance, news())
    [seen] = [e for e in events if isinstance(e, dg.AssetObservation)]
    assert (seen.asset_key.path[-1], seen.metadata["state"].value) == (NAMES[0], "lacking: no room"), (
        "it was never made"
    )
    asked: list[str] = []
    for name in ("get_asset_records", "fetch_materializations", "fetch_observations"):
        ask = getattr(instance, name)
        monkeypatch.setattr(instance, name, lambda *a, _n=name, _ask=ask, **k: asked.append(_n) or _ask(*a, **k))
    run = news()
    assert told(config, source, instance, run) == []
    assert sorted(asked) == ["fetch_observations", *["get_asset_records"] * 3]
    assert told(config, source, instance, run) == []
    assert len(asked) == 4 + 2
    States(config, source, "history").note({("shop", NAMES[3]): ("lacking", "no disk")})
    [made, _] = told(config, source, instance, news())
    assert (made.asset_key.path[-1], made.metadata["state"].value) == (NAMES[3], "lacking: no disk")


def test_a_run_tells_of_a_check_once_until_it_says_otherwise(config, source, instance, tables, news):
    run = news()
    run.add(brought(1, "t00"))
    told(config, source, instance, run)
    run.add(brought(1, "t00"))
    again = told(config, source, instance, run)
    assert (named(again, dg.AssetMaterialization), named(again, dg.AssetCheckEvaluation)) == (["t00"], [])
    table_state(config, "shop-dts", "shop.t00", "stopped", "no key", rebuild=1)
    stopped = told(config, source, instance, run)
    wrong = {(e.check_name, e.passed) for e in stopped if isinstance(e, dg.AssetCheckEvaluation)}
    assert wrong == {("not_stopped", False), ("certified", False)}
    assert named(stopped, dg.AssetMaterialization) == ["t00"], "an asset's page shows its newest materialization"
    assert told(config, source, instance, news()) == [], "Dagster knows it"
    run = news()
    run.add(brought(1, "t00"))
    later = told(config, source, instance, run)
    assert (named(later, dg.AssetMaterialization), named(later, dg.AssetObservation)) == ([], ["t00"])


def test_a_page_that_calls_a_stopped_table_live_is_put_right(config, source, instance, tables, news):
    """Earlier versions told an observation of it and its failed checks, as a run does that was asked for the table."""
    run = news()
    run.add(brought(1, "t00"))
    told(config, source, instance, run)
    table_state(config, "shop-dts", "shop.t00", "stopped", "no key", rebuild=1)
    events = list(news().events(table_status.statuses(config, source)))
    [made] = [e for e in events if isinstance(e, dg.AssetMaterialization)]
    log(instance, [dg.AssetObservation(e.asset_key, metadata=e.metadata) if e is made else e for e in events])
    [shown] = [e for e in told(config, source, instance, news()) if isinstance(e, dg.AssetMaterialization)]
    assert (shown.asset_key, shown.metadata["state"].value) == (made.asset_key, "stopped")
    assert told(config, source, instance, news()) == []


def test_what_a_killed_run_left_untold_another_tells(config, source, instance, tables, news):
    told(config, source, instance, news())
    assert told(config, source, instance, news()) == []
    table_state(config, "shop-dts", "shop.t07", rebuild=1)  # and its run was killed
    found = told(config, source, instance, news())
    assert named(found, dg.AssetMaterialization) == ["t07"]
    assert len(named(found, dg.AssetCheckEvaluation)) == 4, "of the new run"


@pytest.mark.thorough
def test_tables_that_were_told_of_longest_ago_come_first(config, source, instance, tables, news):
    told(config, source, instance, news())
    run = news()
    run.add(brought(1, "t19"))
    told(config, source, instance, run)
    run.add(brought(1, *NAMES))
    assert named(told(config, source, instance, run), dg.AssetMaterialization) == NAMES


@pytest.mark.parametrize(
    ("own", "source_told", "again"),
    [
        (None, None, True),  # the feed tells no times
        ("late", "late", True),
        ("early", "early", True),  # its database is quiet, its capture is heard
        ("early", "late", False),  # held
        (None, "late", False),  # never up to date
    ],
)
def test_a_table_that_is_held_at_an_early_time_is_not_told_to_be_fresh(
    config, source, instance, tables, news, monkeypatch, own, source_told, again
):
    now = datetime.now(UTC)
    times = {"early": now - timedelta(days=3), "late": now, None: None}
    monkeypatch.setattr("cdc_platform.automation.silence.freshness", lambda *_: 3600)
    mark = {"source": source.name, "scope": "partition", "batch": 0, "topic": "t", "partition": 0, "at": now}
    mark |= {"offset": 9, "source_time": times[source_told]}
    behind = {"db": "shop", "table": "t00", "source_time": times[own], "reason": "quarantine holds a row"}
    publication = {"source": source.name, "scope": "source", "batch": 0, "source_time": times[source_told], "at": now}
    publication |= {"proven": True, "behind": [behind] if own != source_told else []}
    add(config.lake, WATERMARKS, mark, publication)
    told(config, source, instance, news())
    assert told(config, source, instance, news()) == []

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(minutes=40)

    monkeypatch.setattr("cdc_platform.automation.table_news.datetime", Later)
    found = named(told(config, source, instance, news()), dg.AssetMaterialization)
    assert ("t00" in found, found[-19:]) == (again, NAMES[1:])


def test_whether_it_has_all_changes_may_be_asked_for(config, source, instance, tables, naming):
    source.tables.history.append("shop.t0[012]")
    for table in (BESIDE_STATE, CHANGELOG):
        new_tables.create(table.at(stores.lake(config)), table)
    States(config, source, "history").note({("shop", "t00"): ("kept", None), ("shop", "t01"): ("lacking", "no room")})
    known = [("shop", name) for name in NAMES]
    [check] = beside.check(naming, source, known)
    specs = [spec for name in known for spec in naming.beside(source, *name).values()]
    job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(*check.check_keys))
    found = dg.Definitions(assets=specs, asset_checks=[check], jobs=[job]).resolve_job_def("look")
    told = found.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert {(e.asset_key.path[-1], e.passed, e.description) for e in told} == {
        ("t00", True, "it has all changes of its table"),
        ("t01", False, "lacking: no room"),
        ("t02", True, "waiting: the next run makes it"),
    }


def evaluated(instance, name: str, passed: bool) -> None:
    """`certified` of a table, by another run."""
    key = dg.AssetKey(["snapshots", "shop-dts", "shop", name])
    log(instance, [dg.AssetCheckEvaluation(asset_key=key, check_name="certified", passed=passed)], "another")


@pytest.mark.thorough
def test_what_another_run_said_of_a_check_meanwhile_is_told_anew_with_the_next_materialization(
    config, source, instance, tables, naming
):
    run = TableNews(instance, naming, source, run_id=OWN)
    run.add(brought(1, *NAMES))
    told(config, source, instance, run)
    evaluated(instance, "t01", False)
    evaluated(instance, "t01", True)
    for _ in range(2):
        run.add(brought(1, "t01"))
        assert named(told(config, source, instance, run), dg.AssetMaterialization) == ["t01"]
        certified = dg.AssetCheckKey(dg.AssetKey(["snapshots", "shop-dts", "shop", "t01"]), "certified")
        [newest] = instance.event_log_storage.get_asset_check_execution_history(certified, limit=1)
        assert asyncio.run(newest.targets_latest_materialization(LoadingContextForTest(instance)))
        assert told(config, source, instance, run) == []


def test_a_check_that_is_older_than_the_newest_materialization_is_told_again(config, source, instance, tables, news):
    run = news()
    run.add(brought(1, *NAMES))
    told(config, source, instance, run)
    assert told(config, source, instance, news()) == []
    log(
        instance,
        [dg.AssetMaterialization(["snapshots", "shop-dts", "shop", "t01"], metadata={"state": "live"})],
        "another",
    )
    again = told(config, source, instance, news())
    assert named(again, dg.AssetMaterialization) == ["t01"]
    assert len(named(again, CHECK)) == 4
