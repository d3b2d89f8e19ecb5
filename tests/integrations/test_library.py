"""`build()` in somebody's own definitions: no name clashes, two configurations on one instance, a translator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_platform.automation.naming import SOURCE_TAG
from cdc_platform.config import Config
from cdc_platform.definitions import build
from cdc_platform.integrations import CdcAsset, CdcTranslator, SnapshotsResource
from tests.automation.conftest import NoSpark, make_config, schema_history, snapshot


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())


def config_in(folder: Path) -> Config:
    """Two sources; the table shop.orders of the first."""
    folder.mkdir()
    config = make_config(folder)
    schema_history(config, ("shop-dts", "shop", "orders"))
    snapshot(config, "shop-dts", "shop.orders", 3)
    return config


@dg.asset(name="changelog")
def theirs(spark: dg.ResourceParam[str]) -> str:
    """An asset and a resource called as the platform's are."""
    return spark


@dg.job(name="catch_up")
def their_job() -> None: ...


@pytest.fixture
def merged(tmp_path: Path) -> dg.Definitions:
    """Two configurations with sources of the same names, in a company's definitions."""
    own = dg.Definitions(
        assets=[theirs], jobs=[their_job], resources={"spark": "theirs"}, executor=dg.multiprocess_executor
    )
    built = [build(config_in(tmp_path / name), prefix=[name], resource_key=f"{name}_spark") for name in ("eu", "us")]
    return dg.Definitions.merge(own, *built)


def assets(defs: dg.Definitions) -> Iterator[dg.AssetKey]:
    return iter(defs.resolve_asset_graph().get_all_asset_keys())


def test_definitions_merge_without_a_clash(merged: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(merged)
    mine = [k for k in assets(merged) if k.path[0] not in ("eu", "us")]
    assert sorted(k.to_user_string() for k in mine) == ["changelog", "kafka/dts-shop", "kafka/shop_debezium"]
    repository = merged.get_repository_def()
    named = [
        *repository.job_names,
        *(s.name for s in repository.sensor_defs),
        *(s.name for s in repository.schedule_defs),
    ]
    others = {n for n in named if not n.startswith(("eu_", "us_", "__"))}
    assert others == {"catch_up"}
    assert {"eu_catch_up", "us_catch_up", "eu_checkpoint_sensor", "us_checkpoint_sensor"} <= set(named)
    steps = {a.node_def.name for a in repository.assets_defs_by_key.values() if a.is_executable}
    assert all(step.startswith(("eu_", "us_")) for step in steps - {"changelog"})


def test_a_run_of_one_configuration_is_none_of_the_others(
    merged: dg.Definitions,
    instance: dg.DagsterInstance,
    stages: Any,
) -> None:
    job = merged.resolve_job_def("eu_catch_up")
    result = job.execute_in_process(instance=instance, raise_on_error=False, tags={SOURCE_TAG: "eu.shop-dts"})
    assert result.success, [e.step_failure_data for e in result.get_step_failure_events()]
    done = {e.asset_key for e in result.get_asset_materialization_events()}
    assert dg.AssetKey(["eu", "snapshots", "shop-dts", "shop", "orders"]) in done
    assert {k.path[0] for k in done if k} == {"eu"}
    assert instance.get_latest_materialization_event(dg.AssetKey(["us", "landing", "shop-dts"])) is None

    requests = [
        {r.tags[SOURCE_TAG] for r in tick.run_requests}
        for name in ("eu", "us")
        if (tick := schedule_tick(merged, f"{name}_catch_up_schedule", instance))
    ]
    assert requests == [{"eu.shop-dts", "eu.shop_debezium"}, {"us.shop-dts", "us.shop_debezium"}]


def schedule_tick(defs: dg.Definitions, name: str, instance: dg.DagsterInstance) -> Any:
    import datetime

    now = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    context = dg.build_schedule_context(
        instance, scheduled_execution_time=now, repository_def=defs.get_repository_def()
    )
    return defs.resolve_schedule_def(name).evaluate_tick(context)


def test_the_default_executor_is_left_to_the_project(tmp_path: Path) -> None:
    assert build(config_in(tmp_path / "one")).executor is None


class Company(CdcTranslator):
    """Tables by short keys and of a team each; stages in one group."""

    def get_asset_spec(self, data: CdcAsset) -> dg.AssetSpec:
        if data.stage != "table":
            return data.spec.replace_attributes(group_name="cdc")
        return data.spec.replace_attributes(
            key=dg.AssetKey(["bronze", str(data.db), str(data.table)]), owners=["team:sales"], group_name="bronze"
        ).merge_attributes(tags={"of": data.source.name if data.source else ""})


def test_a_translator_says_how_tables_appear(tmp_path: Path, instance: dg.DagsterInstance, stages: Any) -> None:
    config = config_in(tmp_path / "one")
    seen: list[int] = []

    @dg.asset(deps=[dg.AssetKey(["bronze", "shop", "orders"])])
    def report(snapshots: SnapshotsResource) -> None:
        [spec] = [s for a in defs.assets or [] for s in getattr(a, "specs", []) if s.key.path[-1] == "orders"]
        seen.append(snapshots.arrow(spec).num_rows)

    mine = dg.Definitions(assets=[report], resources={"snapshots": SnapshotsResource(lake=config.lake)})
    defs = dg.Definitions.merge(build(config, translator=Company()), mine)
    graph = defs.resolve_asset_graph()
    table = graph.get(dg.AssetKey(["bronze", "shop", "orders"]))
    assert (table.group_name, table.owners, table.tags["of"]) == ("bronze", ["team:sales"], "shop-dts")
    assert table.parent_keys
    assert all(graph.has(key) for key in table.parent_keys)
    assert graph.get(dg.AssetKey(["landing", "shop-dts"])).group_name == "cdc"
    assert graph.get(dg.AssetKey("report")).parent_keys == {table.key}
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance, asset_selection=[table.key, dg.AssetKey("report")])
    assert seen == [3]
    assert table.key in {e.asset_key for e in result.get_asset_materialization_events()}
