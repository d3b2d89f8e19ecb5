"""The Dagster job `replay` with Spark: the difference that another option makes, and the same put in place."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_platform.definitions import build
from tests.changes.test_again import Topic
from tests.loading.test_job import TheSession
from tests.replay.test_run import STRING, in_use, lines, numbers

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600)]


def ran(topic: Topic, **given: Any) -> dict[str, Any]:
    """Metadata of the job's output."""
    job = build(topic.config).resolve_job_def("replay")
    config = {"ops": {"replay_source": {"config": given}}}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config=config, partition_key="s", instance=instance)
    output: Any
    [output] = [e.event_specific_data for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    return {name: value.value if hasattr(value, "value") else value for name, value in output.metadata.items()}


def test_what_another_option_makes_and_puts_in_place(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: TheSession())
    topic = Topic(spark, tmp_path)
    topic.land(*lines())
    topic.catch_up()
    before = in_use(topic)
    told = ran(topic, tables=["d.t"], options=STRING, samples=9)
    kinds = ("only_in_use", "only_in_replay", "differing", "equal", "swapped", "held_in_use", "held_replay")
    assert [told[k] for k in kinds] == [1, 1, 1, False, False, 2, 1]
    [column] = [r.data for r in told["columns"].records]
    assert column == {"table": "d.t", "column": "n", "rows": 1}
    assert sorted(r.data["row"] for r in told["rows"].records) == sorted(kinds[:3])
    assert in_use(topic) == before, "nothing in use has changed"

    topic.with_options(**STRING)
    told = ran(topic, swap=True)
    assert [told[k] for k in ("equal", "swapped", "held_replay")] == [False, True, 1]
    assert "rows" not in told, "no values unless they are asked for"
    assert numbers(topic) == [(1, 1234), (2, 1234), (3, 55)]
    told = ran(topic)
    assert [told[k] for k in ("equal", "swapped", "differing")] == [True, False, 0]
