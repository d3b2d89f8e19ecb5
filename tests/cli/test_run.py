"""`run`: what it chooses, what it does with failures, what it tells."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from dagster import ConfigurableResource, DagsterExecutionInterruptedError

from cdc_platform import chain, tables
from cdc_platform.cli.app import run
from cdc_platform.cli.run import choose
from cdc_platform.config import Config, load_config
from cdc_platform.errors import ConfigError, OffsetsLost
from cdc_platform.results import StageResult
from tests.automation.conftest import snapshot
from tests.rows import add

YAML = """
lake: ./lake
spark: {remote: "sc://127.0.0.1:1"}
kafka: {bootstrap.servers: "127.0.0.1:1"}
sources:
  - {name: orders, format: tencent_dts, topics: [a], tables: {include: ["shop.*"]}}
  - {name: stock, format: debezium, topics: [b], tables: {include: ["depot.*"]}}
"""


class NoSpark(ConfigurableResource):
    """Stands where the session would be."""

    @property
    def spark_session(self) -> Any:
        return Mock()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    (tmp_path / "cdc.yaml").write_text(YAML)
    monkeypatch.setenv("CDC_CONFIG", str(tmp_path / "cdc.yaml"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return load_config()


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The stages replaced by ones that note their call; landing of `orders` finds a loss."""
    calls: list[tuple[str, str]] = []

    def fake(stage: str) -> chain.Stage:
        def call(spark, config, source) -> StageResult:
            calls.append((stage, source.name))
            if (stage, source.name) == ("landing", "orders"):
                raise OffsetsLost(
                    "orders",
                    [{"topic": "a", "partition": 0, "from_offset": 1, "to_offset": 3, "why": "retention"}],
                )
            tables = {"depot.bins": {"rows": 7, "changes": 4, "state": "live"}}
            return StageResult(stage, source.name, 4, 1, 2.0, {}, tables if stage == "snapshots" else {})

        return call

    for name in chain.STAGES:
        monkeypatch.setitem(chain.STAGES, name, fake(name))
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.05)
    return calls


@pytest.mark.thorough
def test_a_failing_source_is_told_and_stops_no_other(config, stages, capsys):
    snapshot(config, "stock", "depot.bins", 7)
    assert run(["run", "--json"]) == 1
    out, err = capsys.readouterr()
    data = json.loads(out)
    orders, stock = data["sources"]
    assert (orders["ok"], stock["ok"]) == (False, True)
    assert "a[0] offsets 1..2 (retention)" in orders["error"]
    assert [(r["source"], r["stage"], r["records"], r["events_per_second"]) for r in data["stages"]] == [
        ("stock", stage, 4, 2.0) for stage in ("landing", "envelopes", "changes", "changelog", "snapshots")
    ]
    assert [(t["table"], t["rows"]) for t in data["tables"]] == [("depot.bins", 7)]
    assert "landing stock: started" in err
    assert stages[0] == ("landing", "orders")


@pytest.mark.thorough
def test_a_source_alone_can_succeed(config, stages, capsys):
    assert run(["run", "--source", "stock"]) == 0
    assert {source for _, source in stages} == {"stock"}


def test_runs_go_into_the_history_that_the_ui_shows(config, stages, capsys):
    from cdc_platform.automation.instance import open_instance

    assert run(["run", "--source", "stock", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["sources"][0]["run_id"]
    with open_instance(config) as instance:
        found = instance.get_run_by_id(made)
    assert found and (found.job_name, found.tags["cdc/source"], found.status.value) == (
        "catch_up",
        "stock",
        "SUCCESS",
    )


def test_choose(config):
    assert [s.name for s in choose(config, [], None)] == ["orders", "stock"]
    assert [s.name for s in choose(config, ["stock", "stock"], None)] == ["stock"]
    assert [s.name for s in choose(config, [], "depot.bins")] == ["stock"]


@pytest.mark.parametrize(
    ("names", "table", "told"),
    [
        (["nope"], None, "orders, stock"),
        ([], "bins", "db.table"),
        (["orders"], "depot.bins", "no chosen source keeps"),
    ],
)
def test_a_wrong_choice_says_what_is_valid(config, names, table, told):
    with pytest.raises(ConfigError, match=told):
        choose(config, names, table)


def interrupted():
    raise DagsterExecutionInterruptedError


def interrupted_and_tidied_up_in_vain():
    try:
        interrupted()
    finally:
        raise ValueError("an answer to another question")


@pytest.mark.parametrize("end", [interrupted, interrupted_and_tidied_up_in_vain])
def test_an_interrupt_ends_the_run_at_once(config, stages, monkeypatch, capsys, end):
    """Stages are tried again when they fail, but not then; and no other source is begun."""
    calls = []
    monkeypatch.setitem(chain.STAGES, "landing", lambda _s, _c, source: calls.append(source.name) or end())
    assert run(["run"]) == 130
    assert (calls, stages) == (["orders"], [])
    assert "Traceback" not in capsys.readouterr().err


def states(config: Config, *rows: tuple[str, str, str, str]) -> None:
    """Rows of table_state: source, db, table, state."""
    names = ("source", "db", "table", "state")
    rest = {"reason": "no key", "rebuild": 0, "batch": 0, "invalid_dates": 0, "at": datetime.now(UTC)}
    add(config.lake, tables.TABLE_STATE, *({**dict(zip(names, r, strict=True)), **rest} for r in rows))


def quarantine(config: Config, *sources: str) -> None:
    """A row in quarantine of each of these."""
    add(config.lake, tables.QUARANTINE, *({"source": s, "reason": "torn"} for s in sources))


def test_held_rows_of_the_chosen_sources_end_it_with_1_unless_they_are_allowed(config, stages, capsys):
    quarantine(config, "stock")
    assert run(["run", "--source", "stock", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["sources"][0]["ok"]
    assert [p.split(";")[0] for p in told["problems"]] == ["stock: 1 row held in quarantine"]
    assert run(["run", "--source", "stock", "--allow-held", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []
    assert run(["run", "--source", "stock"]) == 1
    assert "1 row held in quarantine" in capsys.readouterr().out


def test_what_is_wrong_with_one_source_doesnt_fail_anothers_run(config, stages, capsys):
    quarantine(config, "orders")
    assert run(["run", "--source", "stock"]) == 0


def test_a_stopped_table_ends_it_with_1(config, stages, capsys):
    states(config, ("stock", "depot", "bins", "stopped"))
    assert run(["run", "--source", "stock", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == ["stock: table depot.bins is stopped: no key"]


@pytest.mark.thorough
def test_a_table_that_nobody_has_seen_is_an_error_with_the_known_ones(config, stages, capsys, monkeypatch):
    states(config, ("stock", "depot", "bins", "live"))
    monkeypatch.setattr("cdc_platform.kafka.offsets.TIMEOUT_S", 0.5)
    for more in ([], ["--json"]):
        assert run(["run", "--table", "depot.bin", *more]) == 2
        out, err = capsys.readouterr()
        told = json.loads(out)["error"]["message"] if more else err.splitlines()[-1]
        assert told.endswith("--table: no change of depot.bin has come from stock; valid: depot.bins")
    before = list(stages)  # it may be in Kafka, which doesn't answer here: so it was run
    assert before
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", lambda config, source: {})
    assert run(["run", "--table", "depot.bin"]) == 2
    assert stages == before  # nothing is new in Kafka: it isn't there either
    assert run(["run", "--table", "depot.bins"]) == 0


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_wrong_master_is_told_at_once(config, more, capsys):
    started = time.monotonic()
    for args in (["run"], ["maintain"], ["reconcile", "orders"]):
        assert run([*args, "--master", "bogus", *more]) == 2
        out, err = capsys.readouterr()
        told = json.loads(out)["error"]["message"] if more else err.strip()
        assert told.endswith(
            "--master: 'bogus' is no Spark master; valid: local, local[4], local[*], spark://host:7077, "
            "k8s://https://host:443, yarn"
        )
        assert len(err.splitlines()) == (0 if more else 1)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("command", ["run", "status", "maintain", "quarantine list", "cut list"])
def test_a_configuration_that_isnt_there_is_told_by_the_name_of_the_input(command, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CDC_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run([*command.split(), "--config", "x.yaml"]) == 2
    assert f"error: --config: there is no file {tmp_path}/x.yaml" in capsys.readouterr().err
    assert run(command.split()) == 2
    assert f"error: cdc.yaml: there is no file {tmp_path}/cdc.yaml" in capsys.readouterr().err
    monkeypatch.setenv("CDC_CONFIG", "y.yaml")
    assert run([*command.split(), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["key"] == "CDC_CONFIG"
