"""A run that goes on following: real Kafka, real Dagster, stages that only say what they were asked."""

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from cdc_platform.automation import following
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.reporting import added
from cdc_platform.automation.stages import RETRY
from cdc_platform.automation.table_assets import run_config
from cdc_platform.chain import STAGES
from cdc_platform.definitions import build
from cdc_platform.errors import ConfigError, OffsetsLost
from cdc_platform.results import StageResult
from tests.automation.conftest import NoSpark, another_process_has, landing, ledger, make_config, new_topic, send

pytestmark = pytest.mark.broker

ROUND = [*((stage, "shop-dts") for stage in STAGES if stage != "snapshots"), ("snapshots without a cut", "shop-dts")]
CUT = ("snapshots", "shop-dts")
FIRST = CUT  # the step's own catch-up, before it follows
AFTER_THAT = ("snapshots", lambda: None)  # nothing happens meanwhile


@pytest.fixture
def shop(tmp_path, servers):
    return make_config(tmp_path, servers, topics=[new_topic(servers)], topic_pattern=None, follow_s=1)


@pytest.fixture
def naming(shop):
    return Naming(shop)


@pytest.fixture
def run(shop, naming, instance, stages, monkeypatch):
    """The step `snapshots` with `follow: true`, by itself or after the stages before it."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    monkeypatch.setattr("cdc_platform.automation.table_assets.RETRY", None)
    source = shop.sources[0]

    def go(*first: dg.AssetKey) -> dg.ExecuteInProcessResult:
        return (
            build(shop)
            .resolve_job_def("catch_up")
            .execute_in_process(
                instance=instance,
                raise_on_error=False,
                asset_selection=[*first, naming.key("snapshots", source)],
                tags={SOURCE_TAG: source.name},
                run_config=run_config(naming, source, follow=True),
            )
        )

    return go


def ended(result: dg.ExecuteInProcessResult) -> dict:
    """What the step said of following at its end."""
    [found] = [e.asset_observation_data.asset_observation for e in result.get_asset_observation_events()]
    return {k: v.value for k, v in found.metadata.items()}


def queued(instance: dg.DagsterInstance) -> dg.DagsterRun:
    """A run that waits for a place."""
    place = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="cdc_platform.definitions"))
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(place, "r"), "catch_up")
    return create_run_for_test(instance, "catch_up", status=dg.DagsterRunStatus.QUEUED, remote_job_origin=origin)


def figures(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> list[dict]:
    told = [e.materialization.metadata for e in result.get_asset_materialization_events() if e.asset_key == key]
    return [{k: v.value for k, v in metadata.items()} for metadata in told]


def test_every_new_offset_is_a_round_until_nothing_comes(shop, run, stages):
    servers, topic = shop.kafka["bootstrap.servers"], shop.sources[0].topics[0]
    send(servers, topic)
    stages.meanwhile += [AFTER_THAT, ("snapshots", lambda: send(servers, topic))]
    result = run()
    assert result.success
    assert stages.calls == [FIRST, *ROUND, *ROUND, CUT]
    assert ended(result)["rounds"] == 2
    assert ended(result)["ended"] == "nothing new for 1 s"
    [landed] = figures(result, Naming(shop).key("landing", shop.sources[0]))
    assert (landed["records"], landed["batches"], landed["seconds"], landed["lag"]) == (20, 2, 4.0, 0)
    assert figures(result, Naming(shop).key("changelog", shop.sources[0]))[0]["records"] == 20


def test_under_load_a_cut_is_published_a_minute(shop, run, stages, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.following.CUT_S", 0.0)
    servers, topic = shop.kafka["bootstrap.servers"], shop.sources[0].topics[0]
    send(servers, topic)
    stages.give["snapshots", "shop-dts"] = StageResult("snapshots", "shop-dts", 1, 1, 1.0, {"cut_held_back": 1})
    stages.meanwhile += [AFTER_THAT, ("snapshots", lambda: send(servers, topic))]
    assert run().success
    assert stages.calls == [FIRST, *ROUND[:-1], CUT, *ROUND[:-1], CUT, CUT], "one held back is tried again"


def test_a_cut_that_is_owed_is_published_at_the_end(shop, run, stages, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.following.LONGEST_S", 2.0)
    servers, topic = shop.kafka["bootstrap.servers"], shop.sources[0].topics[0]
    send(servers, topic)
    stages.meanwhile += [AFTER_THAT, ("snapshots", lambda: time.sleep(2))]
    result = run()
    assert ended(result)["ended"] == "after 2 s"
    assert stages.calls == [FIRST, *ROUND, CUT]


def test_what_has_landed_is_no_news(shop, run, stages):
    topic = shop.sources[0].topics[0]
    send(shop.kafka["bootstrap.servers"], topic)
    ledger(shop, ("shop-dts", topic, 0, 0, 0, "landed", 1), ("shop-dts", topic, 0, 0, 0, "applied", 1))
    assert run().success
    assert stages.calls == [FIRST]


def test_checks_of_the_run_come_before_it_and_its_own_with_its_figures(shop, run, stages, instance):
    servers, topic = shop.kafka["bootstrap.servers"], shop.sources[0].topics[0]
    send(servers, topic)
    landing(shop, "shop-dts", 1)
    ledger(shop, ("shop-dts", topic, 0, 5, 5, "landed", 1), ("shop-dts", topic, 0, 5, 5, "applied", 1))
    stages.meanwhile += [AFTER_THAT, ("snapshots", lambda: ledger(shop, ("shop-dts", topic, 0, 6, 6, "landed", 1)))]
    result = run(*Naming(shop).stages(shop.sources[0])[:-1])
    events = [e.dagster_event for e in instance.all_logs(result.run_id) if e.dagster_event]
    steps = [str(e.step_key) for e in events if e.event_type_value == "STEP_START"]
    assert steps[-1].startswith("snapshots"), steps
    checks = [(e.check_name, e.passed) for e in result.get_asset_check_evaluations()]
    ledgers = [passed for name, passed in checks if name == "every_landed_offset_is_accounted_for"]
    assert ledgers == [True, False]
    assert checks.count(("no_table_is_stopped", True)) == 2
    assert checks.count(("nothing_is_held", True)) == 2


def test_it_makes_stage_for_a_run_that_waits(shop, run, stages, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.following.WAITING_S", -1.0)
    queued(instance)
    result = run()
    assert ended(result)["ended"] == "another run waits"


def test_a_run_that_was_queued_just_now_is_left_to_the_queue(shop, run, instance):
    queued(instance)
    assert ended(run())["ended"] == "nothing new for 1 s"


def test_it_ends_after_its_longest_time(shop, run, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.following.LONGEST_S", 0.1)
    assert ended(run())["ended"] == "after 0 s"


def test_another_writer_of_the_source_ends_it(shop, run, stages, monkeypatch):
    monkeypatch.setattr("cdc_platform.lake.writer_lock.WAIT_S", 0.05)
    with ExitStack() as stack:

        def taken(config, source):
            stack.enter_context(another_process_has(config, source))
            return lambda: True

        monkeypatch.setattr("cdc_platform.automation.following.news_of", taken)
        result = run()
    assert result.success
    assert "shop-dts" in ended(result)["ended"]
    assert stages.calls == [FIRST]


def test_a_stage_that_fails_fails_the_run_and_what_was_done_is_told(shop, run, stages):
    servers, topic = shop.kafka["bootstrap.servers"], shop.sources[0].topics[0]
    send(servers, topic)

    def spoil() -> None:
        stages.give["changes", "shop-dts"] = OffsetsLost("shop-dts", [])
        send(servers, topic)

    stages.meanwhile += [AFTER_THAT, ("snapshots", spoil)]
    result = run()
    assert not result.success
    assert [f["records"] for f in figures(result, Naming(shop).key("landing", shop.sources[0]))] == [10]


def test_a_topic_that_is_gone_is_left_to_landing_to_tell(shop, run, stages):
    shop.sources[0] = shop.sources[0].model_copy(update={"topics": ["never-there"]})
    stages.give["landing", "shop-dts"] = ConfigError("topics", "never-there not in this Kafka")
    result = run()
    assert stages.calls == [FIRST, ("landing", "shop-dts")]
    failure = result.get_step_failure_events()[0].step_failure_data
    assert failure.user_failure_data and "never-there" in str(failure.user_failure_data.description)


def test_figures_come_while_it_follows(shop, run, stages, instance, monkeypatch):
    """Not only at its end: a step may last an hour."""
    monkeypatch.setattr("cdc_platform.automation.following.TOLD_S", 0.0)
    servers, topic = shop.kafka["bootstrap.servers"], shop.sources[0].topics[0]
    send(servers, topic)
    seen: list[bool] = []

    def look() -> None:
        seen.append(instance.get_latest_materialization_event(Naming(shop).key("landing", shop.sources[0])) is not None)

    stages.meanwhile += [AFTER_THAT, ("snapshots", lambda: send(servers, topic)), ("landing", look)]
    assert run().success
    assert seen == [True]


def test_levels_are_the_newest_counts_are_sums():
    first = StageResult(
        "snapshots", "s", 3, 1, 1.0, {"changes": 3, "cut": 7}, {"a.b": {"rows": 1, "changes": 3}, "a.c": {"changes": 1}}
    )
    second = StageResult("snapshots", "s", 2, 1, 2.0, {"changes": 2, "cut": 8}, {"a.b": {"rows": 5, "changes": 2}})
    both = added(added(None, first), second)
    assert (both.rows, both.batches, both.seconds) == (5, 2, 3.0)
    assert both.metrics == {"changes": 5, "cut": 8}
    assert both.tables == {"a.b": {"rows": 5, "changes": 5}, "a.c": {"changes": 1}}
    assert isinstance(both.tables["a.b"]["changes"], int), "Dagster keeps a chart's type: 5, not 5.0"


def test_the_age_of_a_queued_run_is_told_in_one_zone(instance):
    """create_timestamp must be comparable with now, whatever the machine's zone."""
    run = queued(instance)
    [record] = instance.get_run_records(dg.RunsFilter(run_ids=[run.run_id]))
    assert abs(datetime.now(UTC) - record.create_timestamp) < timedelta(minutes=1)
    assert following.WAITING_S < 60


def test_an_interrupt_between_rounds_ends_the_run(shop, run, stages, monkeypatch):
    """It isn't tried again, as a failure is."""
    monkeypatch.setattr("cdc_platform.automation.table_assets.RETRY", RETRY)
    looks = []

    def interrupted(_source, _config):
        looks.append(1)
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr("cdc_platform.automation.following.news_of", interrupted)
    result = run()
    assert (len(looks), stages.calls) == (1, [FIRST])
    [failure] = result.get_step_failure_events()
    assert failure.step_failure_data.error_source.name == "INTERRUPT"
