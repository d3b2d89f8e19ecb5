"""The Dagster job `load` on a real MariaDB and broker."""

from typing import Any

import dagster as dg
import pytest

from cdc_platform.definitions import build

pytestmark = [
    *(pytest.mark.thorough, pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle),
    pytest.mark.timeout(600),
]


class TheSession(dg.ConfigurableResource):
    """The tests' session."""

    @property
    def spark_session(self) -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.active()


def test_a_table_that_the_topic_never_told(world, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: TheSession())
    w = world("debezium")
    w.db.create("by_job", "(id int NOT NULL PRIMARY KEY, name varchar(40))")
    w.db.run(*(f"INSERT INTO by_job VALUES ({i}, 'n{i}')" for i in range(20)))
    w.skip()
    w.db.run("UPDATE by_job SET name = 'new' WHERE id < 3")
    w.publish()
    w.catch_up()
    assert w.problems("by_job")
    config = {"ops": {"load_tables": {"config": {"tables": ["oracle.by_job"], "chunk_rows": 7}}}}
    job = build(w.config).resolve_job_def("load")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config=config, partition_key=w.source.name, instance=instance)
        log = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert any("oracle.by_job: 20 rows in 3 chunks" in line for line in log)
    [output] = [e.event_specific_data for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    [told] = [r.data for r in output.metadata["tables"].records]
    assert (told["table"], told["rows"], told["chunks"], told["state"]) == ("oracle.by_job", 20, 3, "live")
    assert w.problems("by_job") == []
    assert all(row["unaccounted"] == 0 for row in w.ledger())
