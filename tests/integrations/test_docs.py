"""The Python blocks of docs/dagster.md and docs/completeness.md, each run as it stands, on a lake; what they define is
loaded and run."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from cdc_platform.config import load_config
from tests.automation.conftest import NoSpark, complete, schema_history
from tests.docs.pages import ROOT, Block, parse
from tests.reading.lake import cut, state, write


def _blocks(name: str) -> list[Block]:
    return [b for b in parse((ROOT / name).read_text(encoding="utf-8"), name).blocks if b.language == "python"]


BLOCKS = _blocks("docs/dagster.md")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the cdc.yaml and the lake of a reader."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "examples" / "company" / "cdc.yaml").read_text(encoding="utf-8")
    (tmp_path / "cdc.yaml").write_text(text)
    lake = tmp_path / ".cdc" / "lake"
    orders = {"id": [1, 2, 3], "status": ["open", "lost", "paid"], "amount": [Decimal("1.00")] * 3}
    write(lake, "shop", "shop", "orders", pa.table(orders))
    write(lake, "shop", "shop", "order_items", pa.table({"id": [1, 2, 3], "order_id": [1, 2, 2]}))
    for table in ("orders", "order_items"):
        state(lake, "shop", "shop", table)
    cut(lake, "shop", 1, "position", orders=0, order_items=0)
    schema_history(load_config("cdc.yaml"), ("shop", "shop", "orders"), ("shop", "shop", "order_items"))
    return tmp_path


EXPECTED: dict[str, dict[str, Any]] = {
    "open_orders": {"open": 1},
    "items_per_order": {"mean": 1.5, "cut": 1},
    "lost_items": {"lost": 2},
    "order_report": {},
}
"""Asset → what its run says."""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: f"line {b.line}")
def test_a_block_runs(block: Block, shop: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(block.text, block.where, "exec"), names)
    defs: dg.Definitions = names["defs"]
    dg.Definitions.validate_loadable(defs)
    mine = [k for k in map(dg.AssetKey, EXPECTED) if k in defs.resolve_asset_graph().get_all_asset_keys()]
    if not mine:
        return
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=dg.DagsterInstance.ephemeral(), asset_selection=mine)
    for key in mine:
        [done] = result.asset_materializations_for_node(key.path[-1])
        told = {k: v.value for k, v in done.metadata.items()}
        assert {k: told[k] for k in EXPECTED[key.path[-1]]} == EXPECTED[key.path[-1]]


def test_every_asset_of_the_page_was_run() -> None:
    assert all(any(f"def {name}(" in b.text for b in BLOCKS) for name in EXPECTED)


def test_the_translators_keys_are_the_tables(shop: Path) -> None:
    [block] = [b for b in BLOCKS if "class Company" in b.text]
    names: dict[str, Any] = {}
    exec(compile(block.text, block.where, "exec"), names)
    keys = names["defs"].resolve_asset_graph().get_all_asset_keys()
    assert {dg.AssetKey(["bronze", "shop", t]) for t in ("orders", "order_items")} <= keys


def test_a_report_runs_when_its_tables_are_complete_up_to_midnight(shop: Path) -> None:
    block = next(b for b in _blocks("docs/completeness.md") if "day_is_complete" in b.text)
    names: dict[str, Any] = {}
    exec(compile(block.text, block.where, "exec"), names)
    defs: dg.Definitions = names["defs"]
    repository = defs.get_repository_def()

    def asked() -> list[str | None]:
        """Days that a tick requests runs for."""
        own = {"snapshots": dict(defs.resources or {})["snapshots"]}
        with dg.build_sensor_context(repository_def=repository, resources=own) as context:
            found = repository.get_sensor_def("day_is_complete").evaluate_tick(context)
        return [r.partition_key for r in found.run_requests or []]

    config = load_config("cdc.yaml")
    assert asked() == []
    complete(config, "shop", 0, datetime(2026, 11, 3, 23, 59, 59, tzinfo=UTC))
    assert asked() == ["2026-11-01", "2026-11-02"]
    complete(config, "shop", 1, datetime(2026, 11, 4, tzinfo=UTC), orders="quarantine holds a row")
    assert asked() == []
    complete(config, "shop", 2, datetime(2026, 11, 4, tzinfo=UTC))
    assert asked() == ["2026-11-01", "2026-11-02", "2026-11-03"]
    snapshots = dict(defs.resources or {})["snapshots"]
    assert snapshots.complete_up_to("shop/shop.orders", proven=True) == datetime(2026, 11, 4, tzinfo=UTC)
    complete(config, "shop", 3, datetime(2026, 11, 5, tzinfo=UTC), {"proven": False})
    assert asked()[-1] == "2026-11-04", "assumed, as the page says"
    assert snapshots.complete_up_to("shop/shop.orders", proven=True) is None
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=dg.DagsterInstance.ephemeral(), partition_key="2026-11-03")
    [done] = result.asset_materializations_for_node("daily_report")
    assert (done.metadata["orders"].value, done.metadata["items"].value) == (3, 3)
