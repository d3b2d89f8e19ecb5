"""The job `replay`: a partition per source, and the difference as metadata."""

from typing import Any

import dagster as dg
import pytest

from cdc_platform.automation.replays import difference
from cdc_platform.definitions import build
from cdc_platform.errors import ConfigError, RunInProgress
from tests.automation.conftest import NoSpark

FOUND = {
    "source": "shop-dts",
    "path": "/lake/_replays/shop-dts/1",
    "equal": False,
    "decoders": {"in_use": [{"decoder_version": "1", "changes": 9}], "replay": "2"},
    "options": {},
    "held": {"in_use": 2, "replay": 0},
    "tables": [
        {
            "table": "shop.orders",
            "equal": False,
            "state": {"in_use": "live", "replay": "live"},
            "reason": {"in_use": None, "replay": None},
            "rows": {"in_use": 4, "replay": 5},
            "only_in_use": 0,
            "only_in_replay": 1,
            "differing": 1,
            "keys": ["id"],
            "types": [],
            "columns": [{"column": "note", "rows": 1}],
            "reasons": [{"column": "note", "reason": "decoder 1 is 2", "rows": 1}],
            "samples": [
                {"kind": "differing", "rows": 1, "key": {"id": "1"},
                 "cells": [{"column": "note", "in_use": None, "replay": "<b>\x1b"}]},
                {"kind": "only_in_replay", "rows": 1, "key": {"id": "5"},
                 "cells": [{"column": "note", "in_use": None, "replay": ""}]},
            ],
        }
    ],
    "swapped": False,
    "seconds": 1.5,
}  # fmt: skip


@pytest.fixture
def job(config, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    return build(config).resolve_job_def("replay")


def test_the_difference_is_the_metadata_of_the_steps_output(job, instance, monkeypatch):
    asked = []
    monkeypatch.setattr("cdc_platform.replay.run.replay", lambda *of, **how: asked.append((of[2].name, how)) or FOUND)
    given = {
        "tables": ["shop.orders"],
        "since": ["dts-shop/0/7"],
        "options": {"time_zone": "Asia/Shanghai"},
        "samples": 2,
    }
    config = {"ops": {"replay_source": {"config": given}}}
    assert job.partitions_def.get_partition_keys() == ["shop-dts", "shop_debezium"]
    result = job.execute_in_process(run_config=config, partition_key="shop-dts", instance=instance)
    assert result.success
    assert asked == [("shop-dts", {**given, "swap": False})]
    [output] = [e.event_specific_data for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    told = {
        name: value.value for name, value in output.metadata.items() if not isinstance(value, dg.TableMetadataValue)
    }
    assert told == {
        **{"only_in_use": 0, "only_in_replay": 1, "differing": 1, "equal": False, "swapped": False, "seconds": 1.5},
        **{"held_in_use": 2, "held_replay": 0, "decoder": "2", "side_lake": FOUND["path"]},
    }
    tables = {
        n: [r.data for r in v.records] for n, v in output.metadata.items() if isinstance(v, dg.TableMetadataValue)
    }
    assert tables["columns"] == [{"table": "shop.orders", "column": "note", "rows": 1}]
    assert tables["reasons"] == [{"table": "shop.orders", "column": "note", "reason": "decoder 1 is 2", "rows": 1}]
    assert [(r["key"], r["in_use"], r["replay"]) for r in tables["rows"]] == [
        ('id="1"', "NULL", '"<b>\\u001b"'),
        ('id="5"', "(no row)", '""'),
    ]
    assert tables["tables"][0]["state_replay"] == "live"


def test_a_side_lake_that_is_gone_isnt_named():
    assert "side_lake" in difference(FOUND)
    assert "side_lake" not in difference({**FOUND, "swapped": True})


def test_no_values_come_to_dagsters_database_unless_asked_for(job, instance, monkeypatch):
    asked = []
    monkeypatch.setattr("cdc_platform.replay.run.replay", lambda *_, **how: asked.append(how["samples"]) or FOUND)
    assert job.execute_in_process(partition_key="shop-dts", instance=instance).success
    assert asked == [0]


@pytest.mark.thorough
def test_a_replay_that_is_refused_fails_with_its_reason(job, instance, monkeypatch):
    def refused(*_, **__):
        raise RunInProgress("shop-dts", 60)

    monkeypatch.setattr("cdc_platform.replay.run.replay", refused)
    result = job.execute_in_process(partition_key="shop-dts", instance=instance, raise_on_error=False)
    [failed] = result.get_step_failure_events()
    assert "another run is writing its tables" in failed.step_failure_data.user_failure_data.description


def test_a_run_that_is_terminated_says_so(job, instance, monkeypatch):
    def terminated(*_, **__):
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr("cdc_platform.replay.run.replay", terminated)
    with pytest.raises(dg.DagsterExecutionInterruptedError, match="ended from outside"):
        job.execute_in_process(partition_key="shop-dts", instance=instance)


@pytest.mark.parametrize(
    ("called", "valid", "said"),
    [
        ("--table", "shop.orders", "tables: no; valid: shop.orders"),
        ("--from", "dts-shop/0/7", "since: no; valid: dts-shop/0/7"),
        ("--options.time_zone", "+08:00", "options.time_zone: no; valid: +08:00"),
        ("--swap", "without --table", "swap: no; valid: without tables"),
        ("cdc.yaml", "a file", "cdc.yaml: no; valid: a file"),
    ],
)
def test_what_is_wrong_is_named_as_the_runs_configuration_names_it(job, instance, monkeypatch, called, valid, said):
    def wrong(*_, **__):
        raise ConfigError(called, "no", [valid])

    monkeypatch.setattr("cdc_platform.replay.run.replay", wrong)
    assert reason(job, instance, partition_key="shop-dts") == said


@pytest.mark.parametrize(
    ("tags", "said"),
    [({}, "partition: names no source"), ({"dagster/partition": "shop"}, "partition: no source 'shop'")],
)
def test_a_run_without_a_source_says_which_there_are(job, instance, tags, said):
    """Dagster's pages ask "Are you sure?" of a run without a partition, and launch it."""
    told = reason(job.get_subset(op_selection=["replay_source"]), instance, tags=tags)
    assert told == f"{said}; valid: shop-dts, shop_debezium"


def reason(job: Any, instance: dg.DagsterInstance, **how: Any) -> str | None:
    """Why a run fails."""
    [failed] = job.execute_in_process(instance=instance, raise_on_error=False, **how).get_step_failure_events()
    told = failed.step_failure_data.user_failure_data
    return told and told.description
