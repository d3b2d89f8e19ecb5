"""The component in a dg project: scaffolded, checked and listed by dg itself, and loaded with its options."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from cdc_platform.integrations import CdcAsset, CdcPlatformComponent, SnapshotsIOManager, SnapshotsResource
from tests.automation.conftest import NoSpark, make_config, schema_history, snapshot

ROOT = Path(__file__).parents[2]
PROJECT = """
[project]
name = "mine"
version = "0.1"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "mine"
"""
CODE = """
from pathlib import Path
import dagster as dg

@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


def dg_cli(project: Path, *arguments: str) -> str:
    """What `dg` prints in a project."""
    pytest.importorskip("dagster_dg_cli")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(project / "src"), str(ROOT)])}
    done = subprocess.run(
        [Path(sys.executable).with_name("dg"), *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty dg project."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    package = tmp_path / "src" / "mine"
    (package / "defs").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "definitions.py").write_text(CODE)
    return tmp_path


@pytest.mark.thorough
def test_what_dg_scaffolds_loads(project: Path) -> None:
    name = "cdc_platform.integrations.CdcPlatformComponent"
    assert name in dg_cli(project, "list", "components", "--json")
    dg_cli(project, "scaffold", "defs", name, "cdc")
    written = yaml.safe_load((project / "src" / "mine" / "defs" / "cdc" / "defs.yaml").read_text())
    assert written == {
        "type": name,
        "attributes": {"config": "{{ context.project_root }}/cdc.yaml", "snapshots_key": "snapshots"},
    }
    assert "All definitions loaded" in dg_cli(project, "check", "defs")
    listed = json.loads(dg_cli(project, "list", "defs", "--json"))
    assert "landing/shop" in {a["asset_key"] for a in listed["assets"]}
    config = project / "cdc.yaml"
    config.write_text(config.read_text().replace("name: shop", "name: mine"))
    dg_cli(project, "scaffold", "defs", name, "again")
    assert "name: mine" in config.read_text()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`load(**attributes)`: the definitions of a component with one table."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    config = make_config(tmp_path)
    raw = {
        "lake": "./lake",
        "spark": {"remote": "sc://127.0.0.1:1"},
        "kafka": config.kafka,
        "sources": [{"name": "shop-dts", "format": "tencent_dts", "topics": ["dts-shop"]}],
    }
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    schema_history(config, ("shop-dts", "shop", "orders"))
    snapshot(config, "shop-dts", "shop.orders", 3)

    def loaded(component: type[CdcPlatformComponent] = CdcPlatformComponent, **attributes: Any) -> dg.Definitions:
        file = str(tmp_path / "cdc.yaml")
        context = dg.ComponentTree.for_test().load_context
        made = component.load(component.get_model_cls()(config=file, **attributes), context)
        return made.build_defs(context)

    return loaded


KEY = dg.AssetKey(["cdc", "snapshots", "shop-dts", "shop", "orders"])


def test_attributes_place_and_describe_the_tables(load: Any) -> None:
    translation = {"group_name": "{{ asset.stage }}", "tags": {"db": "{{ asset.db or 'none' }}"}, "owners": ["team:a"]}
    defs = load(prefix=["cdc"], resource_key="cdc_spark", snapshots_key="tables", translation=translation)
    table = defs.resolve_asset_graph().get(KEY)
    assert (table.group_name, table.owners, table.tags["db"]) == ("table", ["team:a"], "shop")
    resources = defs.resources
    assert set(resources) == {"cdc_spark", "tables", "tables_io_manager"}
    assert isinstance(resources["tables"], SnapshotsResource)
    assert isinstance(resources["tables_io_manager"], SnapshotsIOManager)
    assert resources["tables"].arrow(KEY).num_rows == 3


def test_nothing_but_the_session_is_given_by_default(load: Any) -> None:
    assert set(load().resources) == {"spark"}


class Lower(CdcPlatformComponent):
    """A company's own."""

    def get_asset_spec(self, data: CdcAsset) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=["raw", *spec.key.path[-2:]]) if data.stage == "table" else spec


def test_a_subclass_changes_specs(load: Any) -> None:
    assert dg.AssetKey(["raw", "shop", "orders"]) in load(Lower).resolve_asset_graph().get_all_asset_keys()
