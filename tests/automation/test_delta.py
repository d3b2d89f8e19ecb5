"""What the Delta tables tell without Spark: which snapshots there are or will be."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform import tables
from cdc_platform.automation import delta
from cdc_platform.cli.run import choose
from cdc_platform.config import Config, parse_config
from cdc_platform.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Config:
    rules = {"include": ["shop*.*"], "exclude": ["shop.gone"], "routes": {"shop_[0-9]+\\..*": "shop.orders"}}
    source = {"name": "s", "format": "canal", "topics": ["t"], "tables": rules}
    made = parse_config({"lake": str(tmp_path), "sources": [source]}, tmp_path / "cdc.yaml")
    stated = [("shop_1", "a"), ("shop_2", "b"), ("shop", "own"), ("shop", "gone"), ("other", "x")]
    history = [{"source": "s", "kind": "message", "db": db, "table": t} for db, t in stated]
    write_deltalake(tables.SCHEMA_HISTORY.at(made.lake), pa.Table.from_pylist(history))
    known = {"source": "s", "rebuild": 0, "batch": 0}
    states = [
        {**known, "db": "shop", "table": "orders", "state": "live", "reason": None},
        {**known, "db": "shop", "table": "gone", "state": "left_out", "reason": "tables.exclude"},
    ]
    write_deltalake(tables.TABLE_STATE.at(made.lake), pa.Table.from_pylist(states))
    return made


def test_merged_tables_are_known_by_their_snapshot_and_those_left_out_stay_visible(config: Config) -> None:
    assert [(db, t) for _, db, t in delta.known_tables(config)] == [
        ("shop", "gone"),
        ("shop", "orders"),
        ("shop", "own"),
    ]
    assert ("shop_2", "b") in delta.stated_tables(config, config.source("s"))


def test_a_merged_table_is_chosen_by_the_name_of_its_snapshot(config: Config) -> None:
    assert [s.name for s in choose(config, [], "shop.orders")] == ["s"]
    with pytest.raises(ConfigError, match=r"keep shop_1.a in another snapshot.*shop.orders"):
        choose(config, [], "shop_1.a")
    with pytest.raises(ConfigError, match=r"no chosen source keeps shop.gone"):
        choose(config, [], "shop.gone")
