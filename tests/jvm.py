"""The JVM of a test run: one for all its workers, so that classes are loaded and code is compiled once.

The process that starts the workers launches it and ends it; each worker attaches to its gateway, as pyspark lets a
process do (`PYSPARK_GATEWAY_PORT`), and takes a session of its own: settings, views and streams are apart, the Spark
context is shared.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from filelock import FileLock

from cdc_platform.config import Config, parse_config

_WHERE = "CDC_TEST_JVM"
"""Port, token and folder of the JVM, for the workers."""

_LOOKED_UP = ("functions", "PythonUtils", "org.apache.spark.sql.functions")
"""Classes that pyspark asks the JVM for with each expression; for a short name it looks into all jars in vain first."""

FAST = {  # Delta's own fast test settings, and room for many small queries
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.log.cacheSize": "6",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    # Compiling code for a query takes longer than running it over a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "3g",  # for two sessions, and less to clear away
}


def config(folder: Path) -> Config:
    """Of the session, made as the platform makes it."""
    conf = {**FAST, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    source = {"name": "unused", "format": "debezium", "topics": ["unused"]}
    return parse_config({"lake": str(folder), "spark": {"master": "local[2]", "conf": conf}, "sources": [source]})


def launch(run: pytest.Config) -> None:
    """Start it, for as long as this run lasts."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    from cdc_platform.setup.java import java_env
    from cdc_platform.spark.session import spark_config

    folder = TemporaryDirectory(prefix="cdc-tests-", ignore_cleanup_errors=True)
    run.add_cleanup(folder.cleanup)
    conf = SparkConf(loadDefaults=False).setAll(list(spark_config(config(Path(folder.name))).items()))
    with mock.patch.dict(os.environ, java_env()):
        gateway: Any = launch_gateway(conf)
    run.add_cleanup(gateway.shutdown)
    os.environ[_WHERE] = f"{gateway.gateway_parameters.port} {gateway.gateway_parameters.auth_token} {folder.name}"


def session() -> Any:
    """A worker's session in the JVM that was launched; None: none was."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from cdc_platform.spark.session import prepare

    if _WHERE not in os.environ:
        return None
    port, token, folder = os.environ[_WHERE].split(" ", 2)

    def attached(port: str, token: str) -> Any:
        # Only here: a process that a test starts has a JVM of its own.
        with mock.patch.dict(os.environ, {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": token}):
            return launch_gateway()

    # A gateway of its own: what Java calls back (foreachBatch) goes to the last process that asked a gateway for it.
    first = attached(port, token)
    server = first.jvm.org.apache.spark.api.python.Py4JServer(first.jvm.org.apache.spark.SparkConf(False))
    server.start()
    gateway = attached(str(server.getListeningPort()), server.secret())
    java: Any = gateway.jvm
    for name in _LOOKED_UP:
        setattr(java, name, getattr(java, name))
    context = None
    with FileLock(Path(folder, "lock")):
        made = Path(folder, "made")
        if made.exists():
            there = java.org.apache.spark.SparkContext.getOrCreate()
            context = java.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(there)
        own = SparkSession(SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jvm=java))).newSession()
        made.touch()
    SparkSession._instantiatedSession = own  # what getOrCreate() finds
    return prepare(own)
