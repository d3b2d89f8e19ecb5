"""A thousand tables."""

import time

from cdc_platform.config import Config, parse_config
from cdc_platform.definitions import build
from tests.automation.conftest import schema_history

TABLES = 1000
SECONDS = 20
"""Of CPU, at most: it takes 2 on a quiet machine. What grows with the square of the tables takes minutes."""


def config(folder) -> Config:
    source = {"name": "one", "format": "tencent_dts", "topics": ["t"]}
    return parse_config({"lake": str(folder / "lake"), "sources": [source]}, folder / "cdc.yaml")


def test_a_thousand_tables_are_assets_within_seconds(tmp_path):
    wide = config(tmp_path)
    schema_history(wide, *(("one", "shop", f"t{i}") for i in range(TABLES)))
    started = time.process_time()
    keys = {"/".join(k.path) for k in build(wide).get_repository_def().asset_graph.get_all_asset_keys()}
    assert time.process_time() - started < SECONDS
    assert {f"snapshots/one/shop/t{i}" for i in range(TABLES)} <= keys
