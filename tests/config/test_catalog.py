"""`catalog:` of cdc.yaml."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.config import parse_config
from cdc_platform.errors import ConfigError
from cdc_platform.spark.session import server_config

SERVER = "https://unity.example.com"


def config_of(folder: Path, **catalog: Any) -> Any:
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    settings = {"lake": str(folder / "lake"), "sources": [source], "catalog": catalog or None}
    return parse_config(settings, folder / "cdc.yaml")


@pytest.mark.parametrize("database", ["", "{table}", "Cdc", "a b", "a.b"])
def test_a_pattern_that_no_catalog_takes_is_an_error(tmp_path: Path, database: str) -> None:
    with pytest.raises(ConfigError, match=r"catalog\.database"):
        config_of(tmp_path, kind="hive", database=database)


def test_a_metastore_is_where_spark_is_told(tmp_path: Path) -> None:
    told = server_config(config_of(tmp_path, kind="hive", uris="thrift://m:9083"))
    assert told["spark.sql.catalogImplementation"] == "hive"
    assert told["spark.hadoop.hive.metastore.uris"] == "thrift://m:9083"
    assert "spark.sql.catalogImplementation" not in server_config(config_of(tmp_path))


@pytest.mark.parametrize(
    ("catalog", "problem"),
    [
        ({"kind": "unity", "uri": SERVER}, "kind unity needs name"),
        ({"kind": "unity"}, "kind unity needs name, uri"),
        ({"kind": "hive", "uri": SERVER}, "uri: only for kind unity"),
        ({"kind": "unity", "uri": SERVER, "name": "c", "uris": "thrift://m:9083"}, "uris: only for kind hive"),
        ({"kind": "unity", "uri": SERVER, "name": "c", "region": "eu-central-1"}, "region: only for kind glue"),
        ({"kind": "glue", "uri": SERVER}, "uri: only for kind unity"),
        ({"kind": "glue", "endpoint": "glue.example.com"}, "http"),
        ({"kind": "unity", "uri": SERVER, "name": "a.b"}, "no period"),
        ({"kind": "unity", "uri": "unity.example.com", "name": "c"}, "http"),
        ({"kind": "unity", "uri": "https://me:secret@unity", "name": "c"}, "without a login"),
    ],
)
def test_keys_that_do_not_fit_the_kind_are_errors(tmp_path: Path, catalog: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"catalog.*{problem}") as told:
        config_of(tmp_path, **catalog)
    assert "me:secret" not in str(told.value)


def test_a_token_comes_from_the_environment_and_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"catalog\.token: is a secret") as told:
        config_of(tmp_path, kind="unity", uri=SERVER, name="c", token="dapi-plain")
    assert "dapi-plain" not in str(told.value)
    monkeypatch.setenv("UNITY_TOKEN", "dapi-hidden")
    config = config_of(tmp_path, kind="unity", uri=SERVER, name="c", token="${UNITY_TOKEN}")
    assert config.catalog.token.get_secret_value() == "dapi-hidden"
    assert "dapi-hidden" not in repr(config) + str(config.model_dump())
