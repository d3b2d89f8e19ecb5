"""The chain, unchanged, where driver and executors are processes of their own. Alone: `pytest -m cluster`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pyspark
import pytest
import yaml

from cdc_platform.feeds.feeds import Feed
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.setup.ports import free_port
from tests import s3_server
from tests.docs.pages import ROOT, pages
from tests.e2e import kubernetes as of_kubernetes
from tests.e2e.e2e_shop import FAST, Shop, facts, unaccounted

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.e2e,
    pytest.mark.cluster,
    pytest.mark.thorough,
]
HERE = {
    **FAST,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
}


@pytest.fixture(scope="module")
def shop(broker):
    feed = Feed("tencent_dts", lambda: DtsEncoder("cluster-dts", partitions=2), {"topics": ["cluster-dts"]})
    return Shop(broker.bootstrap_servers, "cluster", 20, {"dts": feed})


@pytest.fixture
def standalone(tmp_path):
    """Address of a master with two workers of one core each, every one a process of its own."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g"]
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        *([*worker, "-d", str(tmp_path / f"work{i}"), master] for i in range(2)),
    ]
    started = [_start(command, tmp_path / f"{i}.log", port if i else None) for i, command in enumerate(commands)]
    try:
        yield master
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(command, log, after):
    """One of Spark's daemons; when `after` is told, not before that port answers."""
    deadline = time.monotonic() + 60
    while after is not None:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", after)) == 0:
                break
        assert time.monotonic() < deadline, log.with_name("0.log").read_text()[-3000:]
        time.sleep(0.1)
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as out:
        return subprocess.Popen(
            [str(spark_class), *command], stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )


@pytest.fixture
def kubernetes(tmp_path):
    with of_kubernetes.running(tmp_path / "pods") as found:
        yield found


def run_twice(shop, process, folder, master, conf=HERE, **top):
    """A backlog, then an increment, each by a driver of its own: every cell as in the source."""
    config = shop.config(folder, spark={"master": master, "conf": conf}, **top)
    for _ in range(2):
        driver = process(config, env={"SPARK_LOCAL_IP": "127.0.0.1"})
        assert driver.popen.wait(1200) == 0, driver.tail()
        assert shop.differences(config) == []
        found = facts(config)
        assert unaccounted(found["outcomes"]) == {}
        assert found["quarantine"] == []
        shop.advance(10)


def test_on_executors_of_their_own(shop, process, tmp_path):
    run_twice(shop, process, tmp_path, "local-cluster[2,1,1024]")


def executors(folder):
    """Folders of the executors that the two workers had."""
    return [p for work in (folder / "work0", folder / "work1") for p in work.glob("app-*/*") if p.is_dir()]


def test_on_a_standalone_cluster_of_two_workers(shop, standalone, process, tmp_path):
    run_twice(shop, process, tmp_path, standalone)
    assert len({p.name for p in executors(tmp_path)}) == 2  # both workers had an executor


@pytest.mark.s3
def test_on_a_standalone_cluster_with_the_lake_in_a_bucket(shop, standalone, process, tmp_path, in_a_bucket):
    """Executors that get the store's secrets with their tasks: not in their environment, command line or logs."""
    run_twice(shop, process, tmp_path, standalone, **in_a_bucket)
    assert len({p.name for p in executors(tmp_path)}) == 2
    told = [log.read_text(errors="replace") for folder in executors(tmp_path) for log in folder.glob("std*")]
    assert told and not [text for text in told if s3_server.SECRET in text]


EXECUTORS = ROOT / "deploy" / "kubernetes" / "executors"


def told_for_kubernetes():
    """The conf of docs/deployment.md, for pods that are smaller and have the template of this checkout."""
    (told,) = [b.text for page in pages() for b in page.blocks if "spark.kubernetes.container.image" in b.text]
    smaller = {"spark.executor.cores": "1", "spark.executor.memory": "1g"}
    template = {"spark.kubernetes.executor.podTemplateFile": str(EXECUTORS / "executor.yaml")}
    return FAST | yaml.safe_load(told)["spark"]["conf"] | smaller | template


@pytest.mark.s3
def test_on_pods_of_kubernetes_with_the_lake_in_a_bucket(shop, kubernetes, process, tmp_path, in_a_bucket, monkeypatch):
    """As docs/deployment.md says, with pods that share nothing but the bucket and know no secret."""
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    monkeypatch.setenv("POD_NAME", "cdc-code-server-0")
    kubernetes.add("cdc-code-server-0")
    run_twice(shop, process, tmp_path, kubernetes.master, told_for_kubernetes(), **in_a_bucket)
    assert len(kubernetes.pods) == 4  # two executors for each of the two drivers
    assert kubernetes.names() == set()
    ran = [(kubernetes.folder / name / "log").read_text(errors="replace") for name in kubernetes.pods]
    assert all("Finished task" in text for text in ran)
    assert not [text for text in [*ran, json.dumps(kubernetes.pods)] if s3_server.SECRET in text]

    role = next(d for d in yaml.safe_load_all((EXECUTORS / "access.yaml").read_text()) if d["kind"] == "Role")
    allowed = {(v, r) for rule in role["rules"] for v in rule["verbs"] for r in rule["resources"]}
    assert kubernetes.asked() <= allowed
    for pod in kubernetes.pods.values():
        kubernetes_validate.validate(pod, "1.33", strict=True)
        assert pod["metadata"]["ownerReferences"][0]["name"] == "cdc-code-server-0"
        (container,) = pod["spec"]["containers"]
        # What the namespace's level, `restricted`, asks of a pod.
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
