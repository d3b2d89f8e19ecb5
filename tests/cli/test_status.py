"""`status` from Kafka and Delta tables."""

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    CodeLocationOrigin,
    GrpcServerCodeLocationOrigin,
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster_shared.error import SerializableErrorInfo
from deltalake import DeltaTable, write_deltalake

from cdc_platform import chain
from cdc_platform.automation.instance import open_instance
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.cli.app import run
from cdc_platform.cli.status import look
from cdc_platform.config import Config, load_config
from cdc_platform.errors import OffsetsLost, StorageError
from cdc_platform.lake import stores
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.tables import CONTROL_EVENTS, OFFSET_LEDGER, QUARANTINE, SCHEMA_HISTORY, SNAPSHOT_PATH, TABLE_STATE
from tests.cli.test_run import NoSpark
from tests.rows import add

FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS


def configure(folder: Path, monkeypatch: pytest.MonkeyPatch, servers: str, topic: str) -> str:
    (folder / "cdc.yaml").write_text(
        f"lake: ./lake\nkafka: {{bootstrap.servers: '{servers}'}}\n"
        f"sources: [{{name: orders, format: tencent_dts, topics: [{topic}]}}]\n"
    )
    monkeypatch.setenv("CDC_CONFIG", str(folder / "cdc.yaml"))
    return str(folder / "lake")


def status(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    code = run(["status", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_an_unreachable_broker_is_a_problem_not_a_crash(tmp_path, monkeypatch, capsys):
    configure(tmp_path, monkeypatch, "127.0.0.1:1", "a")
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    code, data = status(capsys)
    assert code == 1
    assert (data["sources"][0]["state"], data["sources"][0]["lag"]) == ("unreachable", None)
    assert "no answer from Kafka at 127.0.0.1:1" in data["problems"][0]


@pytest.mark.s3
def test_rows_are_counted_by_logs_and_of_a_table_that_waits_not_at_all(make_config, on_s3, s3, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    config = on_s3(make_config([{"name": "orders", "format": "tencent_dts", "topics": ["t"]}], kafka=kafka))
    options = stores.lake(config).options
    said = {"source": "orders", "kind": "message", "db": "shop"}
    state = {"source": "orders", "db": "shop", "batch": 0, "rebuild": 0, "invalid_dates": 0, "at": datetime.now(UTC)}
    states = [
        {**state, "table": "counted", "state": "live", "rows": 9},
        {**state, "table": "stopped", "state": "stopped", "reason": "no key"},
        {**state, "table": "never", "state": "left_out"},
    ]
    for table, of in ((SCHEMA_HISTORY, [{**said, "table": "to_come"}]), (TABLE_STATE, states)):
        data = pa.Table.from_pylist(of, table.arrow())
        write_deltalake(table.at(config.lake), data, storage_options=options, partition_by=list(table.partition_by))
    path = SNAPSHOT_PATH.at(config.lake, source="orders", db="shop", table="stopped")
    for n in range(3):
        write_deltalake(path, pa.table({"id": [n, n]}), mode="append", storage_options=options)
    s3.reset()
    found = look(config)["tables"]
    asked = [r for r in s3.reset() if "/snapshots/" in r or "snapshots%2F" in r]
    assert {t["table"]: t["rows"] for t in found} == {
        **{"shop.counted": 9, "shop.stopped": 6},
        **{"shop.never": None, "shop.to_come": None},
    }
    assert not [r for r in asked if ".parquet" in r or "counted" in r or "to_come" in r], asked


def test_what_else_fails_is_told_as_what_it_is(tmp_path, monkeypatch, capsys):
    configure(tmp_path, monkeypatch, "127.0.0.1:1", "a")

    def heartbeat(*_):
        raise StorageError("s3://lake/landing", "no answer", retriable=True)

    monkeypatch.setattr("cdc_platform.automation.observe.heartbeat", heartbeat)
    code, data = status(capsys)
    assert (code, data["sources"][0]["state"]) == (1, "unknown")
    assert data["problems"][0] == "orders: unknown: s3://lake/landing: no answer"


@pytest.fixture
def fed(tmp_path, monkeypatch, broker) -> str:
    """Three records in Kafka, two of them landed; the lake's path."""
    topic, servers = f"dts-{uuid4().hex}", str(broker.bootstrap_servers)
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(3):
        producer.produce(topic, b"x")
    assert producer.flush(10) == 0
    lake = configure(tmp_path, monkeypatch, servers, topic)
    row = {
        "source": "orders",
        "topic": topic,
        "partition": 0,
        "batch": 0,
        "from_offset": 0,
        "to_offset": 1,
        "outcome": "landed",
        "records": 2,
    }
    add(lake, OFFSET_LEDGER, row, {**row, "outcome": "applied"})
    beat = {"source": "orders", "kind": "heartbeat", "landed_at": datetime(2026, 11, 20, tzinfo=UTC)}
    add(lake, CONTROL_EVENTS, beat)
    return lake


def table_state(lake: str, table: str, state: str, reason: str | None) -> None:
    row = {"source": "orders", "db": "shop", "table": table, "batch": 0, "rebuild": 0, "state": state, "reason": reason}
    row |= {"invalid_dates": 0, "at": datetime.now(UTC)}
    add(lake, TABLE_STATE, row)


def held(lake: str, *names: tuple[str | None, str | None]) -> None:
    """Rows of `orders` in quarantine, of these tables."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    said = {"source": "orders", "reason": "torn", "quarantined_at": now}
    add(lake, QUARANTINE, *({**said, "db": d, "table": t} for d, t in names))


@pytest.mark.broker
def test_all_well(fed, capsys):
    table_state(fed, "items", "live", None)
    write_deltalake(SNAPSHOT_PATH.at(fed, source="orders", db="shop", table="items"), pa.table({"id": [1, 2, 3]}))
    code, data = status(capsys)
    source = data["sources"][0]
    assert (code, data["problems"]) == (0, [])
    assert (source["state"], source["lag"], source["landed"]) == ("quiet", 1, 2)
    assert source["heartbeat"].startswith("2026-11-20T00:00:00")
    assert [(t["table"], t["rows"], t["state"]) for t in data["tables"]] == [("shop.items", 3, "live")]


@pytest.mark.broker
def test_a_stopped_table_is_a_problem(fed, capsys):
    table_state(fed, "audit", "stopped", "no key")
    code, data = status(capsys)
    assert code == 1
    assert data["problems"] == ["orders: table shop.audit is stopped: no key"]


@pytest.mark.broker
def test_records_that_nobody_accounts_for_are_a_problem_unless_a_run_is_at_work(fed, capsys):
    ledger = DeltaTable(OFFSET_LEDGER.at(fed))
    ledger.delete("outcome = 'applied'")
    code, data = status(capsys)
    [problem] = data["problems"]
    assert code == 1
    assert "2 records landed, 0 of them accounted for" in problem
    config = load_config()
    with source_lock(config, config.sources[0]):
        assert status(capsys)[0] == 0


@pytest.mark.broker
def test_held_rows_are_a_problem_unless_they_are_allowed(fed, capsys):
    held(fed, ("shop", "orders"), ("shop", "orders"), (None, None))
    code, data = status(capsys)
    assert code == 1
    assert data["problems"] == [
        "orders: 3 rows held in quarantine (shop.orders 2); `cdc-platform quarantine list --source orders` shows them"
    ]
    assert run(["status", "--allow-held", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][0]["quarantined"] == 3


@pytest.mark.broker
def test_people_see_units_in_lines_that_fit(fed, capsys):
    table_state(fed, "audit", "stopped", " ".join(["it has no key, and that is why"] * 8))
    held(fed, ("shop", "orders"))
    assert run(["status"]) == 1
    out = capsys.readouterr().out
    assert "1 record" in out
    assert all(len(line) <= 100 for line in out.splitlines() if " " in line.strip())
    assert not re.search(" $", out, re.M)
    assert "needs attention" in out.split("tables")[-1]


def test_a_failed_run_is_a_problem(tmp_path, monkeypatch, capsys):
    """As Dagster's own daemon and runs note them."""
    configure(tmp_path, monkeypatch, "127.0.0.1:1", "a")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())

    def lost(*_args, **_how):
        raise OffsetsLost("orders", [{"topic": "a", "partition": 0, "from_offset": 1, "to_offset": 3, "why": "gone"}])

    monkeypatch.setitem(chain.STAGES, "landing", lost)
    assert run(["run"]) == 1
    capsys.readouterr()
    code, data = status(capsys)
    failed = [f["text"] for f in data["findings"] if f["kind"] == "run"]
    assert code == 1
    assert len(failed) == 1
    assert re.match(r"the last run failed at \S+ \S+Z: source orders: records are gone from Kafka", failed[0])


@pytest.mark.parametrize("name", ["orders", "orders_" * 9 + "s"], ids=["short", "long"])
def test_a_load_or_a_repair_isnt_the_last_run(tmp_path, monkeypatch, capsys, name):
    configure(tmp_path, monkeypatch, "127.0.0.1:1", "a")
    file = tmp_path / "cdc.yaml"
    file.write_text(file.read_text().replace("orders", name))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    config = load_config(file)
    with open_instance(config) as instance:
        tags = {SOURCE_TAG: Naming(config).tag(config.sources[0])}
        for number, (job, state) in enumerate(
            [("catch_up", FAILURE), ("load", SUCCESS), ("catch_up", SUCCESS), ("repair", FAILURE)]
        ):
            instance.add_run(dg.DagsterRun(job, f"00000000-0000-4000-8000-{number:012d}", status=state, tags=tags))
            if number in (1, 3):
                _, data = status(capsys)
                assert [f["kind"] for f in data["findings"]].count("run") == int(number == 1)


OURS = ManagedGrpcPythonEnvCodeLocationOrigin(
    LoadableTargetOrigin(executable_path=sys.executable, module_name="cdc_platform.definitions"), "cdc"
)


def tick(config: Config, status: TickStatus, error: str | None = None, location: CodeLocationOrigin = OURS) -> None:
    """A tick of `catch_up_schedule`, as the daemon notes it."""
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(location, "__repository__"), "catch_up_schedule")
    with open_instance(config) as instance:
        if not instance.all_instigator_state():
            running = InstigatorState(
                origin, InstigatorType.SCHEDULE, InstigatorStatus.RUNNING, ScheduleInstigatorData("* * * * *")
            )
            instance.add_instigator_state(running)
        selector = instance.all_instigator_state()[0].selector_id
        info = SerializableErrorInfo(error, [], "ValueError") if error else None
        instance.create_tick(
            TickData(
                origin.get_id(),
                "catch_up_schedule",
                InstigatorType.SCHEDULE,
                status,
                datetime.now(UTC).timestamp(),
                error=info,
                selector_id=selector,
            )
        )


def test_a_schedule_whose_tick_failed_is_a_problem_until_one_goes_well(tmp_path, monkeypatch, capsys):
    configure(tmp_path, monkeypatch, "127.0.0.1:1", "a")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    config = load_config()

    def told() -> list[str]:
        return [f["text"] for f in status(capsys)[1]["findings"] if f["kind"] == "schedule"]

    tick(config, TickStatus.FAILURE, "CheckError: no run_key\n  more\n")
    [problem] = told()
    assert re.fullmatch(r"schedule catch_up_schedule: its tick at \S+ \S+Z failed: CheckError: no run_key", problem)
    tick(config, TickStatus.SKIPPED)
    assert told() == []


@pytest.mark.parametrize(("location", "problems"), [("cdc", 1), ("theirs", 0)])
def test_a_failed_tick_of_a_deployments_code_server_is_a_problem(tmp_path, monkeypatch, capsys, location, problems):
    configure(tmp_path, monkeypatch, "127.0.0.1:1", "a")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    server = GrpcServerCodeLocationOrigin(host="127.0.0.1", port=4000, location_name=location)
    tick(load_config(), TickStatus.FAILURE, "ValueError: x", server)
    assert len([f for f in status(capsys)[1]["findings"] if f["kind"] == "schedule"]) == problems
