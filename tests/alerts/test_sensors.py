"""Alerts as a daemon sends them: ticks of the real definitions' sensors on a real instance, with a lake, and servers
that catch the messages."""

import time
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from cdc_platform.automation import overview
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.config import Config, parse_config
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.definitions import build
from cdc_platform.errors import AlertNotSent, ConfigError
from cdc_platform.lake import beside, held_rows, new_tables, stores
from cdc_platform.lake.beside import ANEW, States
from cdc_platform.tables import BESIDE_STATE, CHANGELOG
from tests.alerts.conftest import Caught
from tests.automation.conftest import NoSpark, held, resolve, table_state

SECRETS = {"ALERT_URL": "", "ALERT_TOKEN": "s3cret-t0ken", "SLACK_TOKEN": "xoxb-s3cret", "SMTP_PASSWORD": "right"}


@pytest.fixture
def make(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, web: Caught) -> Any:
    """`make(alerts)`: the configuration with those alerts, and its definitions."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    for name, value in {**SECRETS, "ALERT_URL": f"{web.url}/hook"}.items():
        monkeypatch.setenv(name, value)

    def made(**alerts: Any) -> Config:
        raw = {
            "lake": "./lake",
            "spark": {"remote": "sc://127.0.0.1:1"},
            "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            "sources": [{"name": "shop-dts", "format": "tencent_dts", "topics": ["dts-shop"]}],
            "alerts": alerts,
        }
        return parse_config(raw, tmp_path / "cdc.yaml")

    return made


class Ticks:
    """A sensor as the daemon evaluates it: the cursor of a tick that succeeded is the next one's."""

    def __init__(self, config: Config, instance: dg.DagsterInstance, name: str, **more: Any):
        self.defs, self.instance, self.name = build(config, **more), instance, name
        self.cursor: str | None = None

    def __call__(self) -> str:
        sensor = self.defs.resolve_sensor_def(self.name)
        repository = self.defs.get_repository_def()
        context = dg.build_sensor_context(self.instance, self.cursor, repository_def=repository, sensor_name=self.name)
        result = sensor.evaluate_tick(context)
        assert result.run_requests == []
        self.cursor = result.cursor
        return str(result.skip_message)


WEBHOOK = {"webhook": [{"url": "${ALERT_URL}", "headers": {"Authorization": "Bearer ${ALERT_TOKEN}"}}]}


def summary(body: dict[str, Any]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    return tuple([(p["kind"], p["what"]) for p in body[part]] for part in ("problems", "recovered"))  # type: ignore


def test_a_stopped_table_is_told_once_and_when_it_is_live_again(make: Any, instance: Any, web: Caught) -> None:
    config = make(pages="https://dagster.example.com/", **WEBHOOK)
    tick = Ticks(config, instance, "alert_webhook")
    table_state(config, "shop-dts", "shop.fine")
    assert tick() == "0 problems known"
    table_state(config, "shop-dts", "shop.orders", "stopped", "ddl: stop, DROP COLUMN seen")
    assert tick() == "sent: CDC platform: 1 problem"
    assert tick() == "1 problems known"
    table_state(config, "shop-dts", "shop.orders", "live", rebuild=1)
    assert tick() == "sent: CDC platform: 1 recovered"
    assert tick() == "0 problems known"
    [path, headers, body], [_, _, over] = web.came
    assert (path, headers["Authorization"]) == ("/hook", "Bearer s3cret-t0ken")
    assert body["problems"] == [
        {
            "kind": "table_stopped",
            "what": "shop-dts/shop.orders",
            "why": "ddl: stop, DROP COLUMN seen",
            "count": 1,
            "url": "https://dagster.example.com/assets/snapshots/shop-dts/shop/orders",
        }
    ]
    assert "table_stopped: shop-dts/shop.orders: ddl: stop, DROP COLUMN seen" in body["text"]
    assert summary(over) == ([], [("table_stopped", "shop-dts/shop.orders")])


def test_held_rows_are_told_again_when_they_are_ten_times_as_many(make: Any, instance: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    tick = Ticks(config, instance, "alert_webhook")
    for rows in (1, 2, 9, 10, 11):
        while held_rows.by_source(config).get("shop-dts", 0) < rows:
            held(config, "shop-dts", "shop.orders")
        tick()
    assert [[(p["count"], p["why"]) for p in body["problems"]] for body in web.bodies] == [
        [(1, "1 row, the newest because: bad decimal")],
        [(10, "10 rows, the newest because: bad decimal")],
    ]
    held(config, "shop-dts", None, "not JSON")
    tick()
    assert summary(web.bodies[-1]) == ([("rows_held", "shop-dts/(no table named)")], [])
    resolve(config, "shop-dts")
    tick()
    assert len(web.bodies[-1]["recovered"]) == 2


def test_a_history_that_lacks_changes_is_told_once_and_when_it_has_them(
    make: Any, instance: Any, web: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(pages="https://dagster.example.com/", **WEBHOOK)
    source, name = config.sources[0], ("shop", "orders")
    source.tables.history.append("shop.*")
    table_state(config, "shop-dts", "shop.orders")
    for table in (BESIDE_STATE, CHANGELOG):
        new_tables.create(table.at(stores.lake(config)), table)
    tick = Ticks(config, instance, "alert_webhook")

    def note(state: str, reason: str | None = None) -> str:
        States(config, source, "history").note({name: (state, reason)})
        return tick()

    assert tick() == "0 problems known", "the next run makes it"
    assert note("lacking", ANEW) == "0 problems known", "a run is making it"
    assert note("lacking", "no room is left") == "sent: CDC platform: 1 problem"
    assert note("lacking", ANEW) == "1 problems known", "a run tries again"
    assert note("lacking", "no room is left") == "1 problems known"
    assert note("kept") == "sent: CDC platform: 1 recovered"
    with monkeypatch.context() as ended:
        ended.setattr(beside, "_behind", lambda *_: "a run was ended before its end")
        assert tick() == "sent: CDC platform: 1 problem"
    assert tick() == "sent: CDC platform: 1 recovered"
    [problem] = web.bodies[0]["problems"]
    assert (problem["what"], problem["why"]) == ("history of shop-dts/shop.orders", "no room is left")
    assert problem["url"] == "https://dagster.example.com/assets/history/shop-dts/shop/orders"


def failed_check(instance: dg.DagsterInstance, key: dg.AssetKey, passed: bool, severity: str = "ERROR") -> None:
    evaluation = dg.AssetCheckEvaluation(
        asset_key=key,
        check_name="heartbeat",
        passed=passed,
        severity=dg.AssetCheckSeverity(severity),
        description="silent: no change for 125 s",
        metadata={},
    )
    instance.report_runless_asset_event(evaluation)


def test_a_failed_check_is_told_once_and_warnings_are_not(make: Any, instance: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    tick, naming = Ticks(config, instance, "alert_webhook"), Naming(config)
    key = naming.key("landing", config.sources[0])
    failed_check(instance, key, passed=False, severity="WARN")
    tick()
    failed_check(instance, key, passed=False)
    tick()
    failed_check(instance, key, passed=False)
    tick()
    failed_check(instance, dg.AssetKey(["not", "ours"]), passed=False)
    tick()
    failed_check(instance, key, passed=True)
    tick()
    what = ("check_failed", "heartbeat of landing/shop-dts")
    assert [summary(b) for b in web.bodies] == [([what], []), ([], [what])]
    assert web.bodies[0]["problems"][0]["why"] == "silent: no change for 125 s"


def test_checks_that_say_what_another_kind_says_are_not_told_twice(make: Any, instance: Any, web: Caught) -> None:
    config = make(
        webhook=[{"url": "${ALERT_URL}"}, {"url": "${ALERT_URL}", "name": "checks", "report": ["check_failed"]}]
    )
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    both, checks = Ticks(config, instance, "alert_webhook"), Ticks(config, instance, "alert_checks")
    key = Naming(config).table(config.sources[0], "shop", "orders").key
    evaluation = dg.AssetCheckEvaluation(
        asset_key=key, check_name="not_stopped", passed=False, severity=dg.AssetCheckSeverity.ERROR, metadata={}
    )
    instance.report_runless_asset_event(evaluation)
    both()
    assert summary(web.bodies[-1])[0] == [("table_stopped", "shop-dts/shop.orders")]
    checks()
    assert summary(web.bodies[-1])[0] == [("check_failed", f"not_stopped of {key.to_user_string()}")]


def test_a_check_that_is_running_changes_nothing(make: Any, instance: Any, web: Caught) -> None:
    from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
    from dagster._core.events import DagsterEvent, DagsterEventType
    from dagster._core.events.log import EventLogEntry

    config = make(**WEBHOOK)
    tick, key = Ticks(config, instance, "alert_webhook"), Naming(config).key("landing", config.sources[0])
    failed_check(instance, key, passed=False)
    tick()
    run = create_run_for_test(instance, "catch_up")
    planned = DagsterEvent(
        DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
        "catch_up",
        event_specific_data=AssetCheckEvaluationPlanned(asset_key=key, check_name="heartbeat"),
    )
    instance.store_event(EventLogEntry(None, "info", "", run.run_id, time.time(), dagster_event=planned))
    tick()
    assert len(web.came) == 1


def catch_up(config: Config, instance: dg.DagsterInstance, **tags: str) -> dg.ExecuteInProcessResult:
    naming = Naming(config)
    return (
        build(config)
        .resolve_job_def("catch_up")
        .execute_in_process(
            instance=instance,
            raise_on_error=False,
            asset_selection=[naming.key("landing", config.sources[0])],
            tags={SOURCE_TAG: naming.tag(config.sources[0]), **tags},
        )
    )


def test_a_failed_run_is_told_once_with_its_reason(make: Any, instance: Any, stages: Any, web: Caught) -> None:
    config = make(webhook=[{"url": "${ALERT_URL}", "report": ["run_failed"]}], pages="http://127.0.0.1:3000")
    tick = Ticks(config, instance, "alert_webhook")
    stages.give["landing", "shop-dts"] = ConfigError("kafka", "no such topic <b>", ["dts-shop"])
    runs = [catch_up(config, instance)]
    assert tick() == "sent: CDC platform: 1 problem"
    runs.append(catch_up(config, instance))
    assert tick() == "1 problems known"
    create_run_for_test(instance, "catch_up", tags={SOURCE_TAG: "shop-dts"}, status=dg.DagsterRunStatus.STARTED)
    assert tick() == "1 problems known"
    del stages.give["landing", "shop-dts"]
    catch_up(config, instance)
    assert tick() == "sent: CDC platform: 1 recovered"
    [problem] = web.bodies[0]["problems"]
    assert (problem["what"], problem["why"]) == ("source shop-dts", "kafka: no such topic <b>; valid: dts-shop")
    assert problem["url"] == f"http://127.0.0.1:3000/runs/{runs[0].run_id}"


def test_what_people_did_to_a_source_and_failed_is_told_of_it_and_not_of_its_chain(
    make: Any, instance: Any, web: Caught
) -> None:
    config = make(webhook=[{"url": "${ALERT_URL}", "report": ["run_failed"]}])
    readable = {"reconcile": Reconcile(dsn_env="SHOP_DSN")}
    one = config.sources[0].model_copy(update=readable)
    other = one.model_copy(update={"name": "crm", "topics": ["crm"]})
    config = config.model_copy(update={"sources": [one, other]})
    tick = Ticks(config, instance, "alert_webhook")

    def ended(job: str, source: str, status: dg.DagsterRunStatus) -> None:
        tags = build(config).resolve_job_def(job).get_tags_for_partition_key(source, selected_asset_keys=None)
        create_run_for_test(instance, job, tags=dict(tags), status=status)

    ended("load", "shop-dts", dg.DagsterRunStatus.FAILURE)
    ended("load", "crm", dg.DagsterRunStatus.SUCCESS)  # says nothing of the other source
    ended("replay", "crm", dg.DagsterRunStatus.FAILURE)
    ended("repair", "crm", dg.DagsterRunStatus.FAILURE)
    tick()
    told = [("run_failed", f"job {what}") for what in ("load of source shop-dts", "repair of source crm")]
    told.append(("run_failed", "job replay of source crm"))
    assert summary(web.bodies[-1]) == (told, [])
    ended("load", "shop-dts", dg.DagsterRunStatus.SUCCESS)
    tick()
    assert summary(web.bodies[-1]) == ([], [("run_failed", "job load of source shop-dts")])


def by_hand(config: Config, instance: dg.DagsterInstance, job: str, *keys: dg.AssetKey) -> dg.ExecuteInProcessResult:
    """As Dagster's pages launch it: no tag, and the job's own assets or some of them."""
    defs = build(config)
    found = defs.resolve_implicit_global_asset_job_def() if job == "__ASSET_JOB" else defs.resolve_job_def(job)
    return found.execute_in_process(instance=instance, raise_on_error=False, asset_selection=list(keys) or None)


def test_a_run_by_hand_counts_for_the_sources_that_it_materializes(
    make: Any, instance: Any, stages: Any, web: Caught
) -> None:
    config = make(webhook=[{"url": "${ALERT_URL}", "report": ["run_failed"]}])
    other = config.sources[0].model_copy(update={"name": "crm", "topics": ["crm"]})
    config = config.model_copy(update={"sources": [*config.sources, other]})
    tick, naming = Ticks(config, instance, "alert_webhook"), Naming(config)
    shop, crm = config.sources
    stages.give["landing", "shop-dts"] = ConfigError("kafka", "no such topic", ["dts-shop"])
    by_hand(config, instance, "__ASSET_JOB", naming.key("landing", shop))
    tick()
    assert summary(web.bodies[-1]) == ([("run_failed", "source shop-dts")], [])
    by_hand(config, instance, "__ASSET_JOB", naming.key("landing", crm))  # says nothing of the other source
    assert tick() == "1 problems known"
    assert str(overview.row(naming, instance, crm)["last_run"]).startswith("success 20")
    del stages.give["landing", "shop-dts"]
    by_hand(config, instance, "__ASSET_JOB", naming.key("landing", shop), naming.key("landing", crm))
    tick()
    assert summary(web.bodies[-1]) == ([], [("run_failed", "source shop-dts")])
    stages.give["landing", "crm"] = ConfigError("kafka", "no such topic", ["crm"])
    by_hand(config, instance, "catch_up")  # the job's page, everything selected
    tick()
    assert summary(web.bodies[-1]) == ([("run_failed", "source crm")], [])
    assert [str(overview.row(naming, instance, s)["last_run"])[:7] for s in config.sources] == ["failure"] * 2


def test_a_run_that_is_retried_decides_nothing(make: Any, instance: Any, stages: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    tick = Ticks(config, instance, "alert_webhook")
    stages.give["landing", "shop-dts"] = ConfigError("kafka", "no such topic", ["dts-shop"])
    catch_up(config, instance, **{"dagster/will_retry": "true"})
    tick()
    assert web.came == []


def test_a_failed_upkeep_is_told(make: Any, instance: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    create_run_for_test(instance, "maintain", status=dg.DagsterRunStatus.FAILURE)
    create_run_for_test(instance, "somebody_elses", status=dg.DagsterRunStatus.FAILURE)
    Ticks(config, instance, "alert_webhook")()
    assert summary(web.bodies[0]) == ([("run_failed", "job maintain")], [])


def test_a_lake_that_cant_be_read_silences_no_other_kind(
    make: Any, instance: Any, web: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(**WEBHOOK)
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    tick = Ticks(config, instance, "alert_webhook")
    tick()

    def unreadable(config: Config) -> Any:
        raise OSError("disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr("cdc_platform.lake.queries.table_states", unreadable)
        failed_check(instance, Naming(config).key("landing", config.sources[0]), passed=False)
        tick()
    assert sorted(summary(web.bodies[-1])[0]) == [
        ("check_failed", "heartbeat of landing/shop-dts"),
        ("table_stopped", "can't be looked at"),
    ]
    tick()
    assert summary(web.bodies[-1]) == ([], [("table_stopped", "can't be looked at")])


def test_many_problems_are_one_message(make: Any, instance: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    for n in range(23):
        table_state(config, "shop-dts", f"shop.t{n:02}", "stopped", "no key")
    Ticks(config, instance, "alert_webhook")()
    assert len(web.came) == 1
    assert web.bodies[0]["text"].splitlines()[-1] == "… and 3 more"
    assert len(web.bodies[0]["problems"]) == 23


@pytest.mark.parametrize("answer", [500, 302])
def test_what_wasnt_taken_is_sent_by_the_next_tick(make: Any, instance: Any, web: Caught, answer: int) -> None:
    config = make(**WEBHOOK)
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    tick = Ticks(config, instance, "alert_webhook")
    web.answer = (answer, {})
    with pytest.raises(AlertNotSent, match=f"alerts channel webhook: the webhook answered {answer}$"):
        tick()
    web.answer = (200, {})
    assert tick() == "sent: CDC platform: 1 problem"
    assert [path for path, _, _ in web.came] == ["/hook", "/hook"]


def test_an_address_that_nobody_answers_is_in_no_error(
    make: Any, instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALERT_URL", "http://127.0.0.1:1/s3cret-path")
    config = make(**WEBHOOK)
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    with pytest.raises(AlertNotSent) as failed:
        Ticks(config, instance, "alert_webhook")()
    assert str(failed.value) == "alerts channel webhook: the webhook can't be reached: ConnectionError"
    assert failed.value.__suppress_context__
    assert "s3cret" not in f"{config!r}{config.alerts}"


def test_names_are_no_markup_and_no_lines_of_a_message(make: Any, instance: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    table_state(config, "shop-dts", "shop.<!channel>\nrecovered: table_stopped: shop-dts/shop.pay", "stopped", "no key")
    Ticks(config, instance, "alert_webhook")()
    [body] = web.bodies
    assert body["text"].splitlines()[2:] == [
        r"table_stopped: shop-dts/shop.&lt;!channel&gt;\nrecovered: table_stopped: shop-dts/shop.pay: no key"
    ]
    assert body["problems"][0]["what"].startswith("shop-dts/shop.<!channel>\n"), "programs read it as it is"


def test_kinds_that_are_reported_no_more_are_not_called_recovered(make: Any, instance: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    held(config, "shop-dts", "shop.orders")
    tick = Ticks(config, instance, "alert_webhook")
    assert tick() == "sent: CDC platform: 2 problems"
    [hook] = WEBHOOK["webhook"]
    narrowed = Ticks(make(webhook=[{**hook, "report": ["rows_held"]}]), instance, "alert_webhook")
    narrowed.cursor = tick.cursor
    assert narrowed() == "1 problems known"
    resolve(config, "shop-dts")
    assert narrowed() == "sent: CDC platform: 1 recovered"
    assert summary(web.bodies[-1]) == ([], [("rows_held", "shop-dts/shop.orders")])


def test_a_prefix_is_in_names_and_messages(make: Any, instance: Any, web: Caught) -> None:
    config = make(**WEBHOOK)
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    Ticks(config, instance, "eu_alert_webhook", prefix=["eu"])()
    assert web.bodies[0]["text"].startswith("CDC platform eu: 1 problem")


def test_slack(make: Any, instance: Any, web: Caught, monkeypatch: pytest.MonkeyPatch) -> None:
    import urllib.parse

    from dagster_slack import SlackResource
    from slack_sdk import WebClient

    here = f"{web.url}/api/"
    monkeypatch.setattr(SlackResource, "get_client", lambda self: WebClient(token=self.token, base_url=here))
    config = make(slack=[{"channel": "#cdc", "token": "${SLACK_TOKEN}"}])
    table_state(config, "shop-dts", "shop.<!channel>", "stopped", "``` & more")
    tick = Ticks(config, instance, "alert_slack")
    web.answer = (200, {"ok": False, "error": "channel_not_found"})
    with pytest.raises(AlertNotSent, match=r"alerts channel slack: Slack answered channel_not_found$"):
        tick()
    web.answer = (200, {"ok": True})
    assert tick() == "sent: CDC platform: 1 problem"
    path, headers, body = web.came[-1]
    sent = body if isinstance(body, dict) else dict(urllib.parse.parse_qsl(body))
    assert (path, sent["channel"]) == ("/api/chat.postMessage", "#cdc")
    assert headers["Authorization"] == "Bearer xoxb-s3cret"
    assert "shop.&lt;!channel&gt;: ` ` ` &amp; more" in sent["text"]
    assert "<" not in sent["text"]


MAIL = {"sender": "cdc@example.com", "to": ["data@example.com", "ops@example.com"], "host": "localhost"}


def test_e_mail_by_a_relay(make: Any, instance: Any, mail_server: Any) -> None:
    box = mail_server()
    config = make(email=[{**MAIL, "host": "127.0.0.1", "port": box.port, "security": "none"}])
    table_state(config, "shop-dts", "shop.ö\nBcc: evil@example.com", "stopped", "no key")
    assert Ticks(config, instance, "alert_email")() == "sent: CDC platform: 1 problem"
    [mail] = box.mails
    assert (mail["Subject"], mail["From"]) == ("CDC platform: 1 problem", "cdc@example.com")
    assert (mail["To"], mail["Bcc"]) == ("data@example.com, ops@example.com", None)
    assert "table_stopped: shop-dts/shop.ö" in mail.get_payload(decode=True).decode()  # type: ignore[union-attr]


def test_who_an_e_mail_was_refused_for_is_told_to_the_others(make: Any, instance: Any, mail_server: Any) -> None:
    box = mail_server()
    box.kept.refused = "ops@example.com"
    config = make(email=[{**MAIL, "host": "127.0.0.1", "port": box.port, "security": "none"}])
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    tick = Ticks(config, instance, "alert_email")
    assert tick() == "sent: CDC platform: 1 problem"
    assert tick() == "1 problems known", "the others don't get it again"
    _, told = box.mails
    assert (told["Subject"], told["To"]) == ("CDC platform: some didn't get the last message", "data@example.com")
    assert "ops@example.com: 550 no such mailbox" in told.get_payload(decode=True).decode()  # type: ignore[union-attr]


def test_e_mail_by_starttls_and_login(
    make: Any, instance: Any, mail_server: Any, certificate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = mail_server(tls=True)
    config = make(email=[{**MAIL, "port": box.port, "user": "cdc", "password": "${SMTP_PASSWORD}"}])
    table_state(config, "shop-dts", "shop.orders", "stopped", "no key")
    tick = Ticks(config, instance, "alert_email")
    with pytest.raises(AlertNotSent, match="certificate verify failed"):
        tick()  # nobody vouches for the certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert tick() == "sent: CDC platform: 1 problem"
    assert len(box.mails) == 1

    monkeypatch.setenv("SMTP_PASSWORD", "wr0ng")
    wrong = make(email=[{**MAIL, "port": box.port, "user": "cdc", "password": "${SMTP_PASSWORD}"}])
    with pytest.raises(AlertNotSent, match=f"localhost:{box.port} answered 535") as refused:
        Ticks(wrong, instance, "alert_email")()
    assert "wr0ng" not in str(refused.value)


def test_a_tick_needs_no_spark_and_no_kafka(make: Any, instance: Any, web: Caught) -> None:
    """Nobody answers at the address of either."""
    config = make(**WEBHOOK)
    for n in range(50):
        table_state(config, "shop-dts", f"shop.t{n}")
    tick = Ticks(config, instance, "alert_webhook")
    started = time.monotonic()
    tick()
    assert time.monotonic() - started < 10
