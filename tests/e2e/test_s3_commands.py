"""The lake on S3: the command line as a user runs it, against the tests' S3 server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from cdc_platform.config import load_config
from cdc_platform.lake import handles, stores
from cdc_platform.tables import HISTORY_PATH, SNAPSHOT_PATH, TYPED_CHANGES_PATH
from tests import s3_server
from tests.e2e.e2e_shop import Shop, facts, unaccounted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e, pytest.mark.s3]


@pytest.fixture
def config_on_s3(in_a_bucket, tmp_path):
    """`config_on_s3(shop)`: its cdc.yaml with a lake of its own in a bucket."""
    return lambda shop, **top: shop.config(tmp_path, **in_a_bucket, **top)


def command(config, *words):
    """A command of the platform, in a process of its own."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("cdc-platform")), *words, "--config", str(config.file)],
        cwd=config.file.parent,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def not_as_now(config):
    """Sources whose history of shop.orders hasn't just the snapshot's rows as those of now, or nothing besides; or
    whose typed changes don't come to them."""

    def rows(path):
        found = pa.table(QueryBuilder().register("t", handles.opened(path)).execute("SELECT * FROM t").read_all())
        return found.to_pylist()

    def cells(some):
        return sorted(repr({k: v for k, v in r.items() if not k.startswith("_cdc")}) for r in some)

    wrong = []
    for source in config.sources:
        at = stores.lake(config), source.name, ("shop", "orders")
        history, snapshot = rows(HISTORY_PATH.of(*at)), rows(SNAPSHOT_PATH.of(*at))
        now = [r for r in history if r["_cdc_order_to"] is None]
        ends = {}
        for change in sorted(
            rows(TYPED_CHANGES_PATH.of(*at)), key=lambda c: [int(v) for v in c["_cdc_order"].values()]
        ):
            before, after = change["before"], change["after"]
            ends |= {row["id"]: None for row in (before,) if row} | {row["id"]: row for row in (after,) if row}
        same = cells(now) == cells(snapshot) == cells(filter(None, ends.values()))
        wrong += [] if same and len(history) > len(now) else [source.name]
    return wrong


@pytest.mark.thorough
@pytest.mark.parametrize("sources", [1, 2])
def test_a_backlog_and_an_increment_end_equal(broker, config_on_s3, sources):
    shop = Shop(broker.bootstrap_servers, f"s3-{sources}", 8)
    kept = {"history": ["shop.orders"], "typed_changes": ["shop.orders"]}
    followed = [{**source, "tables": kept} for source in shop.sources()[:sources]]
    config = config_on_s3(shop, sources=followed)
    for more in (0, 5):
        if more:
            shop.advance(more)
        ran = command(config, "run", "--json")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert all(s["ok"] for s in json.loads(ran.stdout)["sources"])
        assert shop.differences(config) == []
        assert not_as_now(config) == []
        assert s3_server.SECRET not in ran.stdout + ran.stderr
    found = facts(load_config(config.file))
    assert unaccounted(found["outcomes"]) == {}
    assert found["quarantine"] == []
    for words in (("status",), ("tables",), ("cut", "list", "dts"), ("quarantine", "list")):
        told = command(config, *words, "--json")
        assert "error" not in json.loads(told.stdout), (words, told.stdout + told.stderr)
        assert told.returncode == 0 or words == ("status",)  # the shop's feed has been silent for long
        assert s3_server.SECRET not in told.stdout + told.stderr
    if sources == 1:  # decoded again beside, found equal, put in place
        told = command(config, "replay", "dts", "--swap", "--json")
        assert told.returncode == 0, told.stdout + told.stderr
        assert (json.loads(told.stdout)["equal"], json.loads(told.stdout)["swapped"]) == (True, True)
        assert shop.differences(config) == []
        assert not_as_now(config) == []
        assert unaccounted(facts(load_config(config.file))["outcomes"]) == {}
    logs = [f for f in config.state_dir.rglob("*") if f.is_file()]
    assert not [f for f in logs if s3_server.SECRET.encode() in f.read_bytes()]
