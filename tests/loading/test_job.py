"""The Dagster job `load` on a real MariaDB and broker."""

from typing import Any

import dagster as dg
import pytest

from cdc_platform.definitions import build

pytestmark = [
    *(pytest.mark.thorough, pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle),
    pytest.mark.timeout(600),
]


ENDS = ("STEP_OUTPUT", "STEP_FAILURE")


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


@pytest.mark.parametrize("values", [False, True])
def test_rows_that_differ_are_put_right(world, monkeypatch, values):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: TheSession())
    w, name = world("debezium"), f"repaired_{values}".lower()
    w.db.create(name, "(id int NOT NULL PRIMARY KEY, name varchar(40))")
    w.db.create(f"{name}_keyless", "(a int)")
    w.db.run(*(f"INSERT INTO {name} VALUES ({i}, 'n{i}')" for i in range(5)), f"INSERT INTO {name}_keyless VALUES (1)")
    w.publish()
    w.catch_up()
    w.db.run(
        "SET sql_log_bin = 0",
        f"DELETE FROM {name} WHERE id = 1",
        f"UPDATE {name} SET name = 'secret' WHERE id = 2",
        f"INSERT INTO {name} VALUES (7, 'new')",
        f"INSERT INTO {name}_keyless VALUES (2)",
        "SET sql_log_bin = 1",
    )

    def run(*tables: str) -> tuple[bool, dict[str, Any], dict[dg.AssetKey, bool]]:
        job = build(w.config).resolve_job_def("repair")
        asked = {"tables": [f"oracle.{t}" for t in tables], "values": values}
        told = {"run_config": {"ops": {"repair_tables": {"config": asked}}}, "partition_key": w.source.name}
        with dg.DagsterInstance.ephemeral() as instance:
            result = job.execute_in_process(**told, instance=instance, raise_on_error=False)
            events = [e.event_specific_data for e in result.all_events if e.event_type_value in ENDS]
            logs = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        checks = [entry.get_dagster_event().asset_check_evaluation_data for entry in logs]
        [metadata] = [getattr(e, "user_failure_data", None) or e for e in events]
        return result.success, metadata.metadata, {c.asset_key: c.passed for c in checks}

    success, metadata, checks = run(name, f"{name}_keyless")
    assert w.problems(name) == []
    assert not success  # the other has no key
    assert checks == {dg.AssetKey(["snapshots", "oracle", "oracle", t]): t == name for t in (name, f"{name}_keyless")}
    of = {r.data["table"]: r.data for r in metadata["tables"].records}
    repaired, left = of[f"oracle.{name}"], of[f"oracle.{name}_keyless"]
    assert (repaired["put_in"], repaired["taken_out"], repaired["equal_now"], repaired["left"]) == (2, 1, True, "")
    assert (left["put_in"], left["equal_now"]) == (0, False)
    assert "has no key" in left["left"]
    whys = {
        (r.data["why"], r.data["column"]) for r in metadata["reasons"].records if r.data["table"] == f"oracle.{name}"
    }
    assert whys == {("the row was lacking", ""), ("the server has no such row", ""), ("columns differed", "name")}
    assert ("secret" in str(metadata["rows"])) == values
    success, metadata, checks = run(name)
    assert success
    assert metadata["differed"].value == 0
    assert set(checks.values()) == {True}
