"""The page `health`, and what it makes of names and reasons."""

from datetime import UTC, datetime
from decimal import Decimal

import dagster as dg

from cdc_platform.automation import overview
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from tests.automation.conftest import (
    complete,
    cut,
    decoded_with,
    held,
    make_config,
    schema_history,
    snapshot,
    table_state,
)


def test_one_row_per_source_with_what_needs_attention(config, naming, instance):
    at = datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC)
    schema_history(config, ("shop-dts", "shop", "orders"), ("shop-dts", "shop", "audit"))
    snapshot(config, "shop-dts", "shop.orders", 3)
    table_state(config, "shop-dts", "shop.audit", "stopped", "no key")
    cut(config, "shop-dts", 1, at)
    complete(config, "shop-dts", 0, at, {"binlog_file": "binlog.000007", "binlog_pos": Decimal(1000), "gtid": "u:1-7"})
    held(config, "shop-dts", None)
    source, other = config.sources
    found = overview.row(naming, instance, source)
    assert (found["state"], found["tables"], found["stopped"], found["held"]) == ("unreachable", 2, ["shop.audit"], 1)
    assert (found["complete_up_to"], found["cut_position"]) == (at, "binlog.000007:1234")
    assert found["healthy"] is False
    assert overview.row(naming, instance, other)["tables"] == 0
    metadata = overview.health_metadata([found, overview.row(naming, instance, other)])
    assert (metadata["unhealthy_sources"], metadata["stopped_tables"], metadata["held_rows"]) == (2, 1, 1)
    lines = metadata["sources"].value.splitlines()
    assert lines[2].startswith("| shop-dts | unreachable | shop.audit | 1 | – | 2026-11-20 01:02:03 UTC | 2 | –")
    assert "- shop-dts: complete up to binlog.000007:1000" in lines
    assert "- shop-dts: complete up to GTIDs u:1-7" in lines
    assert "- shop-dts: the newest change in its cut is at binlog.000007:1234" in lines


def test_rows_that_name_no_table_make_a_source_unhealthy(config, naming, instance, monkeypatch):
    from cdc_platform.automation.observe import Heartbeat

    monkeypatch.setattr("cdc_platform.automation.observe.heartbeat", lambda *_: Heartbeat("no_topic", ""))
    monkeypatch.setattr(Heartbeat, "passed", True)
    source = config.sources[0]
    assert overview.row(naming, instance, source)["healthy"] is True
    held(config, "shop-dts", None)
    assert overview.row(naming, instance, source)["healthy"] is False


def test_changed_options_of_a_source_are_told(config, naming, instance):
    source, other = config.sources
    assert overview.row(naming, instance, source)["options_changed"] == []
    decoded_with(config, source, time_zone="Asia/Shanghai")
    decoded_with(config, other)
    rows = [overview.row(naming, instance, s) for s in config.sources]
    metadata = overview.health_metadata(rows)
    assert metadata["options_changed"] == 1
    told = next(line for line in metadata["sources"].value.splitlines() if "options" in line)
    assert told.startswith('- shop-dts: options.time&#95;zone was "Asia/Shanghai" and is ')


def test_the_last_run_of_a_source_is_told(config, naming, instance):
    from dagster._core.test_utils import create_run_for_test

    create_run_for_test(instance, "catch_up", tags={SOURCE_TAG: "shop-dts"}, status=dg.DagsterRunStatus.FAILURE)
    assert str(overview.row(naming, instance, config.sources[0])["last_run"]).startswith("failure 20")


def test_names_and_reasons_are_no_markup():
    row = {
        "source": "s",
        "state": "silent",
        "detail": "<script>alert(1)</script> [x](javascript:y)",
        "lag_records": 0,
        "complete_up_to": None,
        "tables": 1,
        "stopped": ["db.a|b`*_"],
        "held": 0,
        "last_run": None,
        "reconciled": None,
    }
    text = overview.markdown([row])
    assert not set("<>`*[]()_") & set(text.replace("---", ""))
    assert text.splitlines()[2].count("|") == len(text.splitlines()[0].split("|")) - 1


def test_two_platforms_in_one_code_location(tmp_path, monkeypatch):
    from cdc_platform.definitions import build
    from tests.automation.conftest import NoSpark

    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = make_config(tmp_path / "a"), make_config(tmp_path / "b")
    schema_history(one, ("shop-dts", "shop", "orders"))
    schema_history(two, ("shop-dts", "shop", "orders"))

    @dg.asset(deps=[dg.AssetKey(["eu", "snapshots", "shop-dts", "shop", "orders"])])
    def report() -> None: ...

    merged = dg.Definitions.merge(
        build(one, prefix=["eu"], resource_key="spark_eu"),
        build(two, prefix=["us"], resource_key="spark_us"),
        dg.Definitions(assets=[report]),
    )
    dg.Definitions.validate_loadable(merged)
    keys = {k.to_user_string() for k in merged.resolve_asset_graph().get_all_asset_keys()}
    assert {"eu/snapshots/shop-dts/shop/orders", "us/snapshots/shop-dts/shop/orders", "eu/health"} <= keys
    jobs = {j.name for j in merged.resolve_all_job_defs()}
    assert {"eu_catch_up", "us_catch_up", "eu_maintain", "us_maintain"} <= jobs


def test_a_translator_decides_keys_owners_and_groups(config):
    from cdc_platform.automation.naming import CdcAsset, CdcTranslator
    from cdc_platform.definitions import build

    class Mine(CdcTranslator):
        def get_asset_spec(self, data: CdcAsset) -> dg.AssetSpec:
            if data.stage != "table":
                return data.spec
            return data.spec.replace_attributes(
                key=dg.AssetKey(["raw", str(data.table)]), owners=["team:sales"], group_name="sales"
            )

    schema_history(config, ("shop-dts", "shop", "orders"))
    graph = build(config, translator=Mine()).resolve_asset_graph()
    node = graph.get(dg.AssetKey(["raw", "orders"]))
    assert (node.group_name, list(node.owners)) == ("sales", ["team:sales"])
    assert {k.name for k in node.check_keys} == {"not_stopped", "no_held_rows", "certified", "schema_unchanged"}
    assert node.parent_keys == {Naming(config).key("snapshots", config.sources[0])}


def test_owners_tags_and_descriptions_are_those_of_the_configuration(tmp_path):
    rules = {
        "owners": {"shop.orders": ["team:sales"]},
        "tags": {"shop.*": {"tier": "gold"}},
        "descriptions": {"shop.orders": "Orders of the web shop."},
    }
    config = make_config(tmp_path, owners=["team:data"], tags={"tier": "silver"}, description="The shop.", tables=rules)
    naming, source = Naming(config), config.sources[0]
    orders, items = (naming.table(source, "shop", name) for name in ("orders", "items"))
    assert (list(orders.owners), list(items.owners)) == (["team:sales"], ["team:data"])
    assert (orders.tags["tier"], naming.spec("landing", source).tags["tier"]) == ("gold", "silver")
    assert orders.description == "Orders of the web shop."
    assert str(naming.spec("landing", source).description).endswith("The shop.")
