"""Kubernetes without a cluster: its API server in memory, by the library that is Spark's client of one, and in the
kubelet's place a thread that runs each executor's pod as a process of the image's entry point.

What else a cluster does isn't here: scheduling, images, limits, volumes that pods share, the pods' own network.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import requests

from cdc_platform.setup.jars import ensure_jars, jars_dir, say
from cdc_platform.setup.java import find_java
from cdc_platform.setup.ports import free_port

ENTRYPOINT = Path(__file__).parents[2] / "deploy" / "entrypoint.sh"
NAMESPACE = "cdc"
_SERVER = Path(__file__).with_name("KubernetesServer.java")
_WAIT_S = 60
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_REQUEST = re.compile(r"received request: (\w+) /api/v1/namespaces/\w+/(\w+)(/[^?\s]+)?(\?\S+)?")

Pod = dict[str, Any]


@dataclass
class Kubernetes:
    """An API server and its pods. api: its address; folder: of the pods, each with one of its own; pods: all executors'
    that there ever were, by name, as they were made."""

    api: str
    folder: Path
    pods: dict[str, Pod] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def master(self) -> str:
        """For Spark."""
        return f"k8s://{self.api}"

    def url(self, name: str = "") -> str:
        """Of all pods, or of one."""
        return f"{self.api}/api/v1/namespaces/{NAMESPACE}/pods{name and '/'}{name}"

    def add(self, name: str) -> None:
        """A pod that nobody runs: the one that the driver believes itself to be in."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": []}}
        requests.post(self.url(), json=pod, timeout=10).raise_for_status()
        self._report(name, "Running", ready="True")

    def asked(self) -> set[tuple[str, str]]:
        """(verb, resource) of all requests, as a Role names them. The kubelet's are to a pod's status."""
        found = set()
        for method, resource, name, query in _REQUEST.findall((self.folder / "server.log").read_text()):
            verb = _VERBS[method]
            if not name and method == "GET":
                verb = "watch" if "watch=true" in query else "list"
            elif not name and method == "DELETE":
                verb = "deletecollection"
            if not name.endswith("/status"):
                found.add((verb, resource))
        return found

    def names(self) -> set[str]:
        """Executors' pods that are there now."""
        label = {"labelSelector": "spark-role=executor"}
        return {pod["metadata"]["name"] for pod in requests.get(self.url(), params=label, timeout=10).json()["items"]}

    def pod(self, name: str) -> Pod | None:
        """One as it is now; None: it is gone."""
        answer = requests.get(self.url(name), timeout=10)
        return answer.json() if answer.ok else None

    def follow(self) -> None:
        """What the kubelet does, once: new pods are started, those that are gone are ended, and it is told what became
        of the others."""
        there = self.names()
        for name in there - self.pods.keys():
            if pod := self.pod(name):
                self.pods[name] = pod
                ip = f"127.0.1.{len(self.pods)}"
                self._running[name] = self._start(pod, ip)
                self._report(name, "Running", ip=ip)
        for name, process in list(self._running.items()):
            if name not in there:
                _end(self._running.pop(name))
            elif (code := process.poll()) is not None:
                self._running.pop(name)
                self._report(name, "Failed" if code else "Succeeded")

    def end(self) -> None:
        """Ends what still runs."""
        for process in self._running.values():
            _end(process)

    def _start(self, pod: Pod, ip: str) -> subprocess.Popen[bytes]:
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        home = self.folder / name
        home.mkdir()
        fields = {"status.podIP": ip, "metadata.name": name}
        mounted = {mount["mountPath"]: home / mount["name"] for mount in container["volumeMounts"]}
        for folder in mounted.values():
            folder.mkdir()
        env = _of_the_image(home)
        for one in container["env"]:
            told = one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            env[one["name"]] = str(mounted.get(told, told))
        with (home / "log").open("wb") as log:
            return subprocess.Popen(
                [str(ENTRYPOINT), *container["args"]],
                cwd=home,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _report(self, name: str, phase: str, *, ready: str = "False", ip: str | None = None) -> None:
        if pod := self.pod(name):
            pod["status"] = {"phase": phase, "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}
            requests.put(f"{self.url(name)}/status", json=pod, timeout=10)  # refused: the pod is gone meanwhile


def _of_the_image(home: Path) -> dict[str, str]:
    """The environment that the image has, and nothing of this process's."""
    programs = (Path(sys.executable).parent, find_java().binary.parent, "/usr/bin", "/bin")
    env = {"PATH": os.pathsep.join(map(str, programs)), "HOME": str(home), "CDC_JARS": str(jars_dir())}
    return env | ({"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {})


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def running(folder: Path) -> Iterator[Kubernetes]:
    """An API server without pods, and one that runs those it gets. The server's jars are fetched at the first use."""
    folder.mkdir()
    port, java = free_port(), find_java()
    jars = (ensure_jars(java, say, ("kubernetes",)) / "kubernetes", Path(pyspark.__file__).parent / "jars")
    command = [str(java.binary), "-cp", os.pathsep.join(f"{of}/*" for of in jars), str(_SERVER), str(port)]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    found, over = Kubernetes(f"http://127.0.0.1:{port}", folder), threading.Event()

    def follow() -> None:
        while not over.wait(0.2):
            found.follow()

    kubelet = threading.Thread(target=follow, daemon=True)
    try:
        _wait(found, folder / "server.log")
        kubelet.start()
        yield found
    finally:
        over.set()
        if kubelet.is_alive():
            kubelet.join()
        found.end()
        _end(server)


def _wait(server: Kubernetes, log: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            server.names()
            return
        except requests.ConnectionError:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
