"""The page `health`, and what it makes of names and reasons."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import dagster as dg
import pytest

from cdc_platform import metrics, tables
from cdc_platform.automation import checks, overview
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.observe import Heartbeat
from tests.automation.conftest import (
    complete,
    cut,
    decoded_with,
    held,
    ledger,
    make_config,
    schema_history,
    snapshot,
    table_state,
)
from tests.rows import add


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
    monkeypatch.setattr("cdc_platform.automation.observe.heartbeat", lambda *_: Heartbeat("no_topic", ""))
    monkeypatch.setattr(Heartbeat, "passed", True)
    source = config.sources[0]
    assert overview.row(naming, instance, source)["healthy"] is True
    held(config, "shop-dts", None)
    assert overview.row(naming, instance, source)["healthy"] is False


@pytest.fixture
def alive(monkeypatch):
    """Sources that are alive."""
    beat = Heartbeat("alive", "newest record 1 s ago")
    monkeypatch.setattr("cdc_platform.automation.observe.heartbeat", lambda *_: beat)
    monkeypatch.setattr("cdc_platform.automation.observe.kafka_ends", lambda *_: {})
    return beat


def test_tables_that_are_behind_their_source_are_told_beside_its_time(config, naming, instance, alive):
    at, source = datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC), config.sources[0]
    for name in ("orders", "items", "old"):
        schema_history(config, (source.name, "shop", name))
        snapshot(config, source.name, f"shop.{name}", 1)
    table_state(config, source.name, "shop.old", "dropped", rebuild=1)
    behind = {"orders": at - timedelta(hours=2), "items": at - timedelta(hours=1), "old": at - timedelta(days=9)}

    def publish(number: int, **times: datetime | None) -> None:
        rows = [{"db": "shop", "table": t, "source_time": b, "reason": "an offset was lost"} for t, b in times.items()]
        told = {"source": source.name, "scope": "source", "batch": number, "source_time": at, "proven": True}
        add(config.lake, tables.WATERMARKS, {**told, "behind": rows, "at": at})

    publish(0, **behind)
    lines = overview.health_metadata([overview.row(naming, instance, source)])["sources"].value.splitlines()
    assert "| 2026-11-20 01:02:03 UTC, but 2 tables up to an earlier time |" in lines[2]
    assert "- shop-dts: up to an earlier time, shop.items, shop.orders: an offset was lost" in lines
    metadata = checks.heartbeat_metadata(naming, source, alive)
    assert metadata["complete_up_to"].value == behind["orders"].timestamp()
    assert metadata["tables_behind"] == 2
    seconds = (datetime.now(UTC) - behind["orders"]).total_seconds()
    assert metadata["lag_seconds"] == pytest.approx(seconds, abs=60)

    rows = {f"t{i:02}": f"held {min(i, 11)}" for i in range(30)}
    told = {"behind": {why: [t for t, of in rows.items() if of == why] for why in rows.values()}, "tables_behind": 30}
    said = [text for text in overview._reasons(told) if text]
    assert (len(said), said[0]) == (11, "up to an earlier time, t00: held 0")
    assert said[-1] == "up to an earlier time, 20 other tables: `cdc-platform status --json` says why"

    def metric(name: str) -> list[float]:
        return [value for of, labels, value in metrics.samples(config) if (of, labels) == (name, (source.name,))]

    assert metric("cdc_source_complete_timestamp_seconds") == [behind["orders"].timestamp()]
    assert metric("cdc_source_tables_behind") == [2]
    publish(1, items=None)  # complete up to no time
    assert metric("cdc_source_complete_timestamp_seconds") == []
    assert "complete_up_to" not in checks.heartbeat_metadata(naming, source, alive)
    publish(2)
    assert metric("cdc_source_complete_timestamp_seconds") == [at.timestamp()]
    assert metric("cdc_source_tables_behind") == [0]


@pytest.mark.parametrize("how", ["never came", "lost"])
def test_a_source_of_which_records_are_missing_is_not_healthy(config, naming, instance, alive, how):
    source = config.sources[0]
    schema_history(config, (source.name, "shop", "orders"))
    snapshot(config, source.name, "shop.orders", 1)
    ledger(config, (source.name, "dts-shop", 0, 0, 9, "landed", 10), (source.name, "dts-shop", 0, 0, 9, "applied", 10))
    assert overview.row(naming, instance, source)["healthy"] is True
    if how == "lost":
        ledger(config, (source.name, "dts-shop", 0, 10, 12, "lost", 3))
    else:
        said = {"source": source.name, "batch": 0, "topic": "dts-shop", "partition": 0, "shard": ""}
        said["at"] = datetime(2026, 11, 20, tzinfo=UTC)
        came = ((1, 5, 0, 4), (8, 12, 5, 9))
        rows = [{**said, **dict(zip(("first", "last", "from_offset", "to_offset"), r, strict=True))} for r in came]
        add(config.lake, tables.SEQUENCES, *rows)
    found = overview.row(naming, instance, source)
    assert (found["healthy"], found["held"], found["stopped"]) == (False, 0, [])
    lines = overview.health_metadata([found])["sources"].value.splitlines()
    expected = "lost before they were landed: dts-shop/0 10 to 12" if how == "lost" else "they never came to the topic"
    assert any(line.startswith("- shop-dts: ") and line.endswith(expected) for line in lines)
    at = datetime.now(UTC) + timedelta(minutes=1)
    row = {"source": source.name, "db": "shop", "table": "orders", "against": "server", "equal": True, "version": 0}
    add(config.lake, tables.RECONCILIATIONS, {**row, "rows": 1, "differing": 0, "lost": 3, "at": at})
    assert overview.row(naming, instance, source)["healthy"] is True, "a comparison found it equal"


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
