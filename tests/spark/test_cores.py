"""How many tasks run at once."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from cdc_platform.lake.data_files import Unit
from cdc_platform.spark import arrow_tasks, connect
from cdc_platform.spark.cores import cores_of
from tests.lakes import file_at

_GB = [Unit(file_at(f"/f{i}"), 0, 1, 8 << 20) for i in range(128)]


class Cluster:
    """A session of a cluster of which so many cores are there."""

    def __init__(self, there, **conf):
        self.sparkContext = SimpleNamespace(defaultParallelism=there)
        self.conf = SimpleNamespace(get=lambda key, default=None: conf.get(key, default))


@pytest.mark.spark
def test_a_setting_of_sparks_own_shuffles_says_nothing(spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        for partitions in ("2", "200"):
            spark.conf.set("spark.sql.shuffle.partitions", partitions)
            assert cores_of(spark) == 2
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_a_small_cluster_writes_files_of_128_mb():
    tasks = arrow_tasks.shared_out(_GB, cores_of(Cluster(2)))
    assert [sum(u.bytes for u in task) >> 20 for task in tasks] == [128] * 8


def test_executors_that_are_yet_to_come_count():
    conf = {"spark.executor.cores": "4", "spark.executor.instances": "5"}
    assert cores_of(Cluster(2, **conf)) == 20
    assert cores_of(Cluster(24, **conf)) == 24
    assert cores_of(Cluster(2, **conf, **{"spark.dynamicAllocation.initialExecutors": "8"})) == 32
    assert cores_of(Cluster(6, **conf, **{"spark.default.parallelism": "6"})) == 6
    assert cores_of(Cluster(2, **{"spark.executor.cores": "4"})) == 2


@contextmanager
def _connected(make_config, folder, master, **conf):
    config = make_config([{"name": "a", "format": "debezium", "topics": ["t"]}], spark={"master": master, "conf": conf})
    config.state_dir.mkdir(parents=True, exist_ok=True)
    process, server = connect.launch(config, folder / "connect.log")
    try:
        until = time.monotonic() + 120
        while not connect.answers(server.port):
            assert process.poll() is None and time.monotonic() < until, (folder / "connect.log").read_text()[-3000:]
            time.sleep(0.2)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


_ASKS = """
import sys, time
from pyspark.sql import SparkSession
from cdc_platform.spark import cores
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
cores._KNOWN_S = 0
until, found = time.monotonic() + 60, 0
while found < int(sys.argv[2]) and time.monotonic() < until:
    found = cores.cores_of(spark)
print(found)
"""


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.parametrize(("master", "cores"), [("local[3]", 3), ("local-cluster[2,2,1024]", 4)])
def test_a_connect_server_tells_it(make_config, tmp_path, master, cores):
    """A cluster's as soon as its executors are there."""
    with _connected(make_config, tmp_path, master, **{"spark.executor.memory": "512m"}) as server:
        env = {**os.environ, **server.env}
        command = [sys.executable, "-c", _ASKS, server.remote, str(cores)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == f"{cores}\n", done.stderr[-3000:]
