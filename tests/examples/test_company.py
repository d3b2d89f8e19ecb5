"""`examples/company`: loads in dg, and its reports run on a lake."""

import csv
import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integrations.test_component import dg_cli
from tests.reading.lake import cut, state, write

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "company"


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with a lake of two tables, of which the newest cut is behind the newest version."""
    project = tmp_path_factory.mktemp("examples") / "company"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    lake = project / ".cdc" / "lake"
    write(lake, "shop", "shop", "customers", pa.table({"id": [1, 2, 3], "name": ["Ann", "Bo", "Cy"]}))
    first = orders((1, "open", "10.50"), (1, "paid", "0.50"), (2, "paid", "7.00"))
    write(lake, "shop", "shop", "orders", first, orders((3, "lost", "99.00")))
    for table in ("customers", "orders"):
        state(lake, "shop", "shop", table)
    cut(lake, "shop", 1, "position", customers=0, orders=0)
    from cdc_platform.config import load_config
    from tests.automation.conftest import schema_history

    config = load_config(project / "cdc.yaml")
    schema_history(config, ("shop", "shop", "customers"), ("shop", "shop", "orders"))
    return project


def orders(*rows: tuple[int, str, str]) -> pa.Table:
    """(customer, status, amount) → rows of shop.orders."""
    return pa.table(
        {
            "customer_id": pa.array([r[0] for r in rows], pa.int64()),
            "status": [r[1] for r in rows],
            "amount": pa.array([Decimal(r[2]) for r in rows], pa.decimal128(12, 2)),
        }
    )


@pytest.mark.thorough
def test_dg_checks_and_lists_it(company: Path) -> None:
    assert "All definitions loaded" in dg_cli(company, "check", "defs")
    assets = {a["asset_key"]: a for a in json.loads(dg_cli(company, "list", "defs", "--json"))["assets"]}
    tables = [f"cdc/snapshots/shop/shop/{t}" for t in ("customers", "orders")]
    assert all(assets[t]["is_executable"] for t in tables)
    assert sorted(assets["revenue"]["dependency_keys"]) == tables
    assert assets["order_states"]["dependency_keys"] == tables[1:]
    assert assets[tables[0]]["owners"] == [{"team": "data"}]


@pytest.mark.thorough
def test_its_reports_run(company: Path, tmp_path: Path) -> None:
    environment: dict[str, Any] = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(company / "src"), str(ROOT)]),
    }
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "company.definitions"]
    done = subprocess.run(
        [*command, "--select", "group:reports"],
        cwd=company,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert pq.read_table(company / ".reports" / "revenue.parquet").to_pylist() == [
        {"id": 1, "name": "Ann", "orders": 2, "revenue": Decimal("11.00")},
        {"id": 2, "name": "Bo", "orders": 1, "revenue": Decimal("7.00")},
    ]  # of the cut; the newest version has another order
    with (company / ".reports" / "order_states.csv").open() as file:
        assert list(csv.reader(file)) == [["status", "orders"], ["lost", "1"]]
