"""Properties of a Spark session, before there is one."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from cdc_platform.config import parse_config
from cdc_platform.config.storage import Kind
from cdc_platform.errors import ConfigError
from cdc_platform.setup.jars import spark_jars
from cdc_platform.spark import connect
from cdc_platform.spark.session import _STORES, prepare, server_config


def properties(tmp_path: Path, **spark: object) -> dict[str, str]:
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    return server_config(
        parse_config({"lake": str(tmp_path), "spark": spark, "sources": [source]}, tmp_path / "c.yaml")
    )


def test_a_class_path_of_the_users_own_stands_beside_deltas(tmp_path: Path) -> None:
    told = properties(tmp_path, master="local[2]", conf={"spark.driver.extraClassPath": "/own/hadoop-aws.jar"})
    assert told["spark.driver.extraClassPath"].split(os.pathsep) == [*spark_jars(), "/own/hadoop-aws.jar"]


@pytest.mark.thorough
def test_the_jars_of_a_store_are_not_on_the_class_path_that_the_archive_of_classes_is_for(tmp_path: Path) -> None:
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    told = {"lake": "s3a://bucket/lake", "spark": {"master": "local[2]"}, "sources": [source]}
    found = server_config(parse_config(told, tmp_path / "c.yaml"))
    assert found["spark.driver.extraClassPath"].split(os.pathsep) == spark_jars()
    assert {*found["spark.jars"].split(",")} == {*spark_jars("s3")} - {*spark_jars()}


def test_java_options_of_the_users_own_stand_after_ours(tmp_path: Path) -> None:
    key = "spark.driver.extraJavaOptions"
    ours = properties(tmp_path, master="local[2]")[key]
    told = properties(tmp_path, master="local[2]", conf={key: "-Djavax.net.ssl.trustStore=/own.jks"})
    assert told[key] == f"{ours} -Djavax.net.ssl.trustStore=/own.jks"
    other = properties(tmp_path, master="local[2]", conf={key: "-Xss4m -XX:+UseG1GC"})
    subprocess.run(["java", *other[key].split(), "-version"], check=True, capture_output=True)
    assert other[key].split() == [o for o in ours.split() if o != "-XX:+UseParallelGC"] + ["-Xss4m", "-XX:+UseG1GC"]


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]"])
def test_executors_of_their_own_are_sent_the_jars(tmp_path: Path, master: str) -> None:
    told = properties(tmp_path, master=master, conf={"spark.driver.extraClassPath": "/own/hadoop-aws.jar"})
    assert told["spark.jars"].split(",") == spark_jars()
    assert told["spark.driver.extraClassPath"] == "/own/hadoop-aws.jar"
    told = properties(tmp_path, master=master, conf={"spark.jars": "/own/a.jar,/own/b.jar"})
    assert told["spark.jars"].split(",") == [*spark_jars(), "/own/a.jar", "/own/b.jar"]


@pytest.mark.parametrize(("master", "heap"), [("local[2]", "1200m"), ("local[16,3]", "4000m"), ("local[*]", None)])
def test_the_heap_grows_with_the_tasks_at_once(tmp_path: Path, master: str, heap: str | None) -> None:
    cores = os.cpu_count()
    assert cores
    assert properties(tmp_path, master=master)["spark.driver.memory"] == (heap or f"{800 + 200 * cores}m")
    assert properties(tmp_path, master=master, conf={"spark.driver.memory": "3g"})["spark.driver.memory"] == "3g"


_SECRET = """
import os, sys
from contextlib import suppress
from pathlib import Path
import psutil
from cdc_platform.config import parse_config
from cdc_platform.spark.session import open_session
source = {"name": "s", "format": "debezium", "topics": ["t"]}
conf = {"spark.own.secret": "${CANARY}", "spark.log.level": "OFF"}
config = {"lake": sys.argv[1], "spark": {"master": "local[1]", "conf": conf}, "sources": [source]}
spark = open_session(parse_config(config, Path(sys.argv[1], "cdc.yaml")))
java = []
for process in psutil.Process().children(recursive=True):
    with suppress(psutil.NoSuchProcess):
        java.append(process.cmdline())
assert any("SparkSubmit" in word for words in java for word in words), java
assert os.environ["CANARY"] not in str(java)
assert spark.conf.get("spark.own.secret") == os.environ["CANARY"]
assert spark.conf.get("spark.master") == "local[1]"
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.thorough
def test_secrets_are_not_on_javas_command_line(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _SECRET, str(tmp_path)]
    env = {**os.environ, "CANARY": "hunter2-canary"}
    run = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120, env=env)
    assert run.returncode == 0, run.stderr[-3000:]


_REMOTE = """
import os, sys
from pathlib import Path
from cdc_platform.config import parse_config
from cdc_platform.errors import SparkUnreachable
from cdc_platform.spark.session import open_session
source = {"name": "s", "format": "debezium", "topics": ["t"]}
config = {"lake": sys.argv[1], "spark": {"remote": sys.argv[2]}, "sources": [source]}
try:
    spark = open_session(parse_config(config, Path(sys.argv[1], "cdc.yaml")))
except SparkUnreachable as error:
    sys.exit(str(error))
if server := sys.argv[3:]:
    os.killpg(int(server[0]), 9)
    spark.range(1).count()
"""


def test_a_connect_server_that_does_not_answer_is_told_at_once(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _REMOTE, str(tmp_path), "sc://127.0.0.1:1"]
    run = subprocess.run(program, check=False, capture_output=True, text=True, timeout=30)
    assert "no session from the Spark Connect server at sc://127.0.0.1:1" in run.stderr
    assert "onnection refused" in run.stderr


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], connect.Server]]:
    """A Connect server for a lake in a folder, which answers."""
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    config = parse_config({"lake": str(folder), "spark": {"master": "local[1]"}, "sources": [source]}, folder / "c")
    process, server = connect.launch(config, folder / "connect.log")
    try:
        deadline = time.monotonic() + 120
        while not connect.answers(server.port):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield process, server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)


def opened(folder: Path, server: connect.Server, *more: str) -> subprocess.CompletedProcess[str]:
    """A process that opens a session there."""
    program = [sys.executable, "-c", _REMOTE, str(folder), server.remote, *more]
    env = {**os.environ, **server.env}
    return subprocess.run(program, check=False, capture_output=True, text=True, timeout=90, env=env)


@pytest.mark.thorough
@pytest.mark.spark
def test_a_connect_server_that_dies_ends_the_run(tmp_path: Path) -> None:
    with served(tmp_path) as (process, server):
        run = opened(tmp_path, server, str(process.pid))
        assert process.wait(10) == -9  # it was there to be killed
        assert run.returncode == 1
        assert "UNAVAILABLE" in run.stderr


class Server:
    """A Connect server's session, as far as `prepare` asks it: with these properties."""

    version, client = "4.2.0", MagicMock()

    def __init__(self, properties: dict[str, str]) -> None:
        self.conf = MagicMock()
        self.conf.get.side_effect = properties.get


@pytest.mark.parametrize(("store", "scheme"), [("folder", "file"), ("s3", "s3a")])
def test_a_connect_server_that_commits_without_the_lease_is_refused(store: Kind, scheme: str) -> None:
    key = f"spark.delta.logStore.{scheme}.impl"
    for other in ({}, {key: "io.delta.storage.HDFSLogStore"}):
        with pytest.raises(ConfigError, match="another log store") as caught:
            prepare(cast("Any", Server(other)), "sc://spark:15002", store)
        assert caught.value.key == "spark.remote"
        assert f"{key}=cdc_platform.LogStore" in str(caught.value)
        assert "log-store.jar" in str(caught.value)
    prepare(cast("Any", Server({key: "cdc_platform.LogStore"})), "sc://spark:15002", store)


@pytest.mark.thorough
@pytest.mark.spark
def test_a_connect_server_without_the_log_store_is_told_what_mends_it(tmp_path: Path, monkeypatch) -> None:
    """One that was started with Delta's jars, extension and catalog only."""
    monkeypatch.setitem(_STORES, "folder", {})
    with served(tmp_path) as (_, server):
        run = opened(tmp_path, server)
        assert run.returncode == 1
        assert "spark.delta.logStore.file.impl=cdc_platform.LogStore" in run.stderr


_LONG_ROWS = """
import sys
from pathlib import Path
from cdc_platform.config import parse_config
from cdc_platform.spark.session import open_session
source = {"name": "s", "format": "debezium", "topics": ["t"]}
conf = {"spark.driver.memory": "600m", "spark.log.level": "OFF"}
config = {"lake": sys.argv[1], "spark": {"master": "local[2]", "conf": conf}, "sources": [source]}
spark = open_session(parse_config(config, Path(sys.argv[1], "cdc.yaml")))
rows = spark.range(0, 4000, 1, 2).selectExpr(f"repeat(cast(id % 10 as string), {300 * 1024}) AS value")
rows.write.parquet(sys.argv[1] + "/rows")
print(spark.read.parquet(sys.argv[1] + "/rows").selectExpr("sum(length(value)) AS n").collect()[0]["n"])
spark.stop()
"""


@pytest.mark.thorough
@pytest.mark.spark
def test_long_rows_are_read_in_a_small_heap(tmp_path: Path) -> None:
    """1.2 GB in rows of 300 KB."""
    program = [sys.executable, "-c", _LONG_ROWS, str(tmp_path)]
    run = subprocess.run(program, check=False, capture_output=True, text=True, timeout=500)
    assert run.stdout.split()[-1:] == [str(4000 * 300 * 1024)], run.stderr[-3000:]
