"""Properties of a Spark session, before there is one."""

import os
from pathlib import Path

import pytest

from cdc_platform.config import parse_config
from cdc_platform.jars import spark_jars
from cdc_platform.resources.spark import server_config


def properties(tmp_path: Path, **spark: object) -> dict[str, str]:
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    return server_config(
        parse_config({"lake": str(tmp_path), "spark": spark, "sources": [source]}, tmp_path / "c.yaml")
    )


def test_a_class_path_of_the_users_own_stands_beside_deltas(tmp_path: Path) -> None:
    told = properties(tmp_path, master="local[2]", conf={"spark.driver.extraClassPath": "/own/hadoop-aws.jar"})
    assert told["spark.driver.extraClassPath"].split(os.pathsep) == [*spark_jars(), "/own/hadoop-aws.jar"]


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]"])
def test_executors_of_their_own_are_sent_the_jars(tmp_path: Path, master: str) -> None:
    told = properties(tmp_path, master=master, conf={"spark.driver.extraClassPath": "/own/hadoop-aws.jar"})
    assert told["spark.jars"].split(",") == spark_jars()
    assert told["spark.driver.extraClassPath"] == "/own/hadoop-aws.jar"
