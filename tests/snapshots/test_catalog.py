"""Snapshots as tables of a catalog, Spark's own Hive catalog with an embedded metastore: in a process of its own, for a
session has one catalog from its start."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.config import Catalog, parse_config
from cdc_platform.errors import ConfigError
from cdc_platform.snapshots.catalog import allowed, entry
from cdc_platform.spark.session import server_config

NAMES = st.text(st.sampled_from("aZ_5é-. "), max_size=8)


@given(NAMES, NAMES)
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (allowed(one) == allowed(other)) is (one == other)


@given(st.text(max_size=20))
def test_names_are_lower_case_letters_digits_and_underscores(name: str) -> None:
    assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in allowed(name))


def test_usual_names_stay_as_they_are() -> None:
    assert [allowed(n) for n in ("order_items_2", "Orders", "a__b", "`; DROP")] == [
        "order_items_2", "__4frders", "a__5f__5fb", "__60__3b__20__44__52__4f__50",
    ]  # fmt: skip


def test_the_database_is_named_by_the_pattern() -> None:
    assert str(entry(Catalog(kind="hive"), "my-shop", ("db", "t"))) == "`spark_catalog`.`my__2dshop_db`.`t`"
    named = Catalog(kind="spark", name="unity", database="cdc_{db}")
    assert str(entry(named, "shop", ("db", "t"))) == "`unity`.`cdc_db`.`t`"


@pytest.mark.parametrize("database", ["", "{table}", "Cdc", "a b", "a.b"])
def test_a_pattern_that_no_catalog_takes_is_an_error(tmp_path: Path, database: str) -> None:
    settings = {"kind": "hive", "database": database}
    with pytest.raises(ConfigError, match=r"catalog\.database"):
        config_of(tmp_path, catalog=settings)


def config_of(folder: Path, **rest: Any) -> Any:
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    return parse_config({"lake": str(folder / "lake"), "sources": [source], **rest}, folder / "cdc.yaml")


def test_a_metastore_is_where_spark_is_told(tmp_path: Path) -> None:
    config = config_of(tmp_path, catalog={"kind": "hive", "uris": "thrift://m:9083"})
    told = server_config(config)
    assert told["spark.sql.catalogImplementation"] == "hive"
    assert told["spark.hadoop.hive.metastore.uris"] == "thrift://m:9083"
    assert "spark.sql.catalogImplementation" not in server_config(config_of(tmp_path))


@pytest.mark.spark
def test_tables_are_made_follow_and_go(tmp_path: Path) -> None:
    program = Path(__file__).with_name("hive.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    made, altered, dropped, taken = json.loads(done.stdout.splitlines()[-1])
    assert made == {
        "tables": ["__54 odd".replace(" ", "__20"), "t"],
        "columns": [["id", "bigint"], ["a", "int"]],
        "comment": "Live rows of shop.t from source s",
        "rows": [[1, 1]],
        "not_registered": 0.0,
    }
    assert altered["columns"] == [["id", "bigint"], ["n", "int"], ["b", "decimal(9,2)"]]
    assert altered["rows"] == [[1, 5, "2.50"]]
    assert dropped["tables"] == ["__54__20odd"] and dropped["not_registered"] == 0.0
    assert taken == {"not_registered": 1.0, "rows": ["somebody's"]}
