"""What Dagster's pages do and show: web server and daemon as `cdc-platform ui` starts them, asked by GraphQL."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from cdc_platform.automation.instance import dagster_home, make_storage
from cdc_platform.automation.reload import VARIABLE
from cdc_platform.config import Config, load_config
from cdc_platform.setup.ports import free_port
from cdc_platform.setup.processes import Group
from tests.automation.conftest import held, schema_history, snapshot, table_state

CONFIG = """
lake: ./lake
spark: {remote: "sc://127.0.0.1:1"}
kafka: {bootstrap.servers: "127.0.0.1:1"}
sources:
  - {name: one, format: tencent_dts, topics: [a]}
  - {name: two, format: tencent_dts, topics: [b]}
"""
_LAUNCH = """mutation($p: ExecutionParams!) { launchPipelineExecution(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_BACKFILL = """mutation($b: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $b) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_CHECKS = """query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization {
    evaluation { success } } } } } } } }"""


@dataclass
class Pages:
    """Dagster's web server over a lake of two sources with the table shop.orders each."""

    config: Config
    url: str

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        answer = json.load(urlopen(request, timeout=60))
        assert "errors" not in answer, answer
        return answer["data"]

    def assets(self) -> list[list[str]]:
        """Keys of all assets that can be materialized."""
        nodes = self.ask("{ assetNodes { assetKey { path } isExecutable } }")["assetNodes"]
        return [n["assetKey"]["path"] for n in nodes if n["isExecutable"]]

    def launch(self, keys: list[list[str]]) -> str:
        selector = {"repositoryLocationName": "cdc", "repositoryName": "__repository__", "pipelineName": "__ASSET_JOB"}
        selector["assetSelection"] = [{"path": key} for key in keys]
        found = self.ask(_LAUNCH, p={"selector": selector, "runConfigData": {}, "mode": "default"})
        return found["launchPipelineExecution"]["run"]["runId"]

    def ended(self, run: str) -> str:
        """Status of a run at its end."""

        def status() -> str:
            return self.ask("query($i: ID!) { runOrError(runId: $i) { ... on Run { status } } }", i=run)["runOrError"][
                "status"
            ]

        return until(status, lambda s: s in ("SUCCESS", "FAILURE", "CANCELED"))

    def checks(self, *key: str) -> dict[str, bool | None]:
        """Check → whether it passed, as the asset's page shows it; None: not evaluated."""
        found = self.ask(_CHECKS, k={"path": list(key)})["assetNodeOrError"]["assetChecksOrError"]["checks"]
        done = {c["name"]: c["executionForLatestMaterialization"] for c in found}
        return {n: e["evaluation"]["success"] if e and e["evaluation"] else None for n, e in done.items()}


def until(look: Callable[[], Any], good: Callable[[Any], bool], seconds: float = 900) -> Any:
    """What `look` gives once it is good."""
    deadline = time.monotonic() + seconds
    while not good(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "cdc.yaml").write_text(CONFIG)
    config = load_config(folder / "cdc.yaml")
    for source in config.sources:
        schema_history(config, (source.name, "shop", "orders"))
        snapshot(config, source.name, "shop.orders", 3)
    make_storage(config)
    url = f"http://127.0.0.1:{(port := free_port())}"
    env = {"DAGSTER_HOME": str(dagster_home(config)), "CDC_CONFIG": str(config.file), VARIABLE: url}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    (folder / "workspace.yaml").write_text(
        "load_from: [{python_module: {module_name: tests.automation.site, location_name: cdc}}]"
    )
    group, programs = Group(), Path(sys.executable).parent
    made = Pages(config, url)

    def serves() -> bool:
        try:
            return bool(made.assets())
        except (URLError, OSError):
            return False

    try:
        for name, *more in (("dagster-webserver", "-h", "127.0.0.1", "-p", str(port)), ("dagster-daemon", "run")):
            command = [str(programs / name), *more, "-w", str(folder / "workspace.yaml")]
            group.start(name, command, folder / f"{name}.log", env)
        until(serves, bool)
        yield made
    finally:
        group.stop()


@pytest.mark.thorough
def test_materialize_all_with_nothing_new_succeeds_and_each_table_says_so(pages):
    assert pages.ended(pages.launch(pages.assets())) == "SUCCESS"
    assert pages.checks("snapshots", "one", "shop", "orders") == {
        "not_stopped": True,
        "no_held_rows": True,
        "certified": True,
        "schema_unchanged": True,
    }


@pytest.mark.thorough
def test_a_back_fill_of_tables_with_nothing_new_completes(pages):
    tables = [{"path": key} for key in pages.assets() if key[0] == "snapshots" and len(key) == 4]
    found = pages.ask(_BACKFILL, b={"assetSelection": tables, "allPartitions": True})["launchPartitionBackfill"]

    def status() -> str:
        query = (
            "query($i: String!) { partitionBackfillOrError(backfillId: $i) { ... on PartitionBackfill { status } } }"
        )
        return pages.ask(query, i=found["backfillId"])["partitionBackfillOrError"]["status"]

    assert until(status, lambda s: s not in ("REQUESTED", "CANCELING")) == "COMPLETED_SUCCESS"


@pytest.mark.thorough
def test_two_sources_at_once_overwrite_nothing_of_each_other(pages):
    table_state(pages.config, "one", "shop.orders", "stopped", "no key", rebuild=1)
    held(pages.config, "one", "shop.orders")
    of = {s: [k for k in pages.assets() if s in k and len(k) < 4] for s in ("one", "two")}
    runs = [pages.launch(of[source]) for source in ("one", "two")]
    assert [pages.ended(run) for run in runs] == ["SUCCESS", "SUCCESS"]
    assert pages.ended(pages.launch(of["two"])) == "SUCCESS"
    assert pages.checks("snapshots", "one") == {"no_table_is_stopped": False}
    assert pages.checks("snapshots", "two") == {"no_table_is_stopped": True}
    assert pages.checks("quarantine", "one") == {"nothing_is_held": False}
    assert pages.checks("quarantine", "two") == {"nothing_is_held": True}
    assert pages.checks("offset_ledger", "one") == dict.fromkeys(
        ("every_landed_offset_is_accounted_for", "no_record_is_missing"), True
    )
    orders = pages.checks("snapshots", "one", "shop", "orders")
    assert (orders["not_stopped"], orders["no_held_rows"]) == (False, False)
    assert pages.checks("snapshots", "two", "shop", "orders")["not_stopped"] is True


@pytest.mark.thorough
def test_a_new_table_gets_its_asset_without_a_hand(pages):
    key = ["snapshots", "two", "shop", "new"]
    assert key not in pages.assets()
    schema_history(pages.config, ("two", "shop", "new"))
    until(pages.assets, lambda assets: key in assets)
