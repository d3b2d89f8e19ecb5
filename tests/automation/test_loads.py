"""The job `load`: a partition per source whose server can be read, and what was loaded as metadata."""

from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from cdc_platform.automation import runs
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.sensors import is_running
from cdc_platform.definitions import build
from cdc_platform.errors import ConfigError, TableStopped
from cdc_platform.loading.run import TableLoad
from tests.automation.conftest import NoSpark, make_config


class Dear(dg.ConfigurableResource):
    """A session that nobody is to ask for."""

    @property
    def spark_session(self) -> Any:
        raise AssertionError("Spark was started")


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    monkeypatch.setenv("SHOP_DSN", "mysql://reader:secret@127.0.0.1:1/shop")
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    return build(config).resolve_job_def("load")


def run(job: Any, instance: Any, *tables: str, fails: bool = False) -> Any:
    config = {"ops": {"load_tables": {"config": {"tables": list(tables), "chunk_rows": 7}}}}
    return job.execute_in_process(
        run_config=config, partition_key="shop_debezium", instance=instance, raise_on_error=not fails
    )


def loaded(monkeypatch, **told: Any) -> list[Any]:
    asked = []

    def load(_spark, _config, source, server, names, *, chunk_rows, end_history, told=told):
        asked.append((source.name, names, chunk_rows, end_history))
        return [TableLoad(".".join(n), "1/0", "bin.1/4", "bin.1/9", rows=3, **fields) for n in names]

    fields = told
    monkeypatch.setattr("cdc_platform.loading.run.load", load)
    monkeypatch.setattr("cdc_platform.loading.run.there", lambda *_: [])
    return asked


def test_what_was_loaded_is_the_metadata_of_the_steps_output(job, instance, monkeypatch):
    asked = loaded(monkeypatch, state="live")
    assert job.partitions_def.get_partition_keys() == ["shop-dts", "shop_debezium"]
    result = run(job, instance, "shop.orders", "shop.items", "shop.orders")
    assert asked == [("shop_debezium", [("shop", "orders"), ("shop", "items")], 7, False)]
    [output] = [e.event_specific_data for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    assert output.metadata["rows"].value == 6
    tables = output.metadata["tables"]
    assert isinstance(tables, dg.TableMetadataValue)
    assert [(r.data["table"], r.data["rows"], r.data["state"]) for r in tables.records] == [
        ("shop.orders", 3, "live"),
        ("shop.items", 3, "live"),
    ]


def test_a_table_that_is_stopped_behind_it_fails_the_run(job, instance, monkeypatch):
    loaded(monkeypatch, state="stopped", reason="a value doesn't fit")
    result = run(job, instance, "shop.orders", fails=True)
    [failed] = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert "'shop'.'orders' is stopped: a value doesn't fit" in str(failed.event_specific_data.error)
    assert TableStopped.__name__ in str(failed.event_specific_data.error)


@pytest.mark.parametrize(("given", "said"), [(["orders"], "'orders' is no table"), ([], "names no table")])
def test_a_name_that_is_none_says_what_is_one(job, instance, monkeypatch, given, said):
    asked = loaded(monkeypatch)
    result = run(job, instance, *given, fails=True)
    [failed] = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert said in str(failed.event_specific_data.error)
    assert "db.table" in str(failed.event_specific_data.error)
    assert asked == []
    assert ConfigError.__name__ in str(failed.event_specific_data.error)


def test_a_table_that_the_server_has_not_is_refused_before_spark_is_started(tmp_path, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: Dear())
    monkeypatch.setenv("SHOP_DSN", "mysql://reader:secret@127.0.0.1:1/shop")
    asked = loaded(monkeypatch)

    def there(_server, db, name):
        raise ConfigError(f"{db}.{name}", "the source has no such table", ["shop.orders"])

    monkeypatch.setattr("cdc_platform.loading.run.there", there)
    job = build(make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})).resolve_job_def("load")
    result = run(job, instance, "shop.oders", fails=True)
    [failed] = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert "shop.oders: the source has no such table; valid: shop.orders" in str(failed.event_specific_data.error)
    assert asked == []


def test_without_a_server_to_read_there_is_no_job(config):
    with pytest.raises(dg.DagsterInvariantViolationError, match="load"):
        build(config).resolve_job_def("load")


def test_a_source_whose_server_cant_be_read_is_no_partition(tmp_path, instance, monkeypatch):
    """Dagster takes any text for a partition."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: Dear())
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    config.sources[1] = config.sources[1].model_copy(update={"reconcile": None})
    job = build(config).resolve_job_def("load")
    given = {"ops": {"load_tables": {"config": {"tables": ["shop.orders"]}}}}
    result = job.execute_in_process(
        run_config=given, tags={"dagster/partition": config.sources[1].name}, instance=instance, raise_on_error=False
    )
    [failed] = result.get_step_failure_events()
    told = failed.step_failure_data.user_failure_data
    assert told is not None and told.description == "partition: no source 'shop_debezium'; valid: shop-dts"


def test_what_is_wrong_is_named_as_the_step_is_called(tmp_path, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: Dear())
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    job = build(config, prefix=["cdc"]).resolve_job_def("cdc_load")
    given = {"ops": {"cdc_load_tables": {"config": {"tables": []}}}}
    result = job.execute_in_process(run_config=given, partition_key="shop-dts", instance=instance, raise_on_error=False)
    assert "ops.cdc_load_tables.config.tables: names no table" in str(result.get_step_failure_events()[0])


@pytest.mark.parametrize("name", ["load", "repair"])
def test_its_runs_wait_for_those_of_their_source_and_those_for_them(tmp_path, instance, name):
    """Dagster's queue goes by the tag, which dagster.yaml limits to one run."""
    config = make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"})
    job = build(config).resolve_job_def(name)
    source, naming = config.sources[0], Naming(config)
    tags = dict(job.get_tags_for_partition_key(source.name, selected_asset_keys=None))
    assert tags[SOURCE_TAG] == naming.tag(source)
    run = create_run_for_test(instance, name, tags=tags, status=dg.DagsterRunStatus.STARTED)
    assert is_running(instance, naming, source)
    assert runs.of_source(instance, naming, source) == []  # it is no catch-up
    instance.report_run_failed(run)
    assert not is_running(instance, naming, source)
