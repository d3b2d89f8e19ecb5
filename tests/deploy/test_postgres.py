"""A deployment as processes: the entrypoints of the image on a real PostgreSQL and a real Kafka."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable, QueryBuilder

from cdc_platform.setup.ports import free_port
from tests.deploy import postgres

ENTRYPOINT = Path(__file__).resolve().parents[2] / "deploy" / "entrypoint.sh"
PROGRAMS = ("code-server", "webserver", "daemon")

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason="no PostgreSQL: apt-get install postgresql")


def until(what: Callable[[], Any], seconds: float, told: Callable[[], str]) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, told()
        time.sleep(1)
    return found


@contextmanager
def started(env: dict[str, str], logs: Path) -> Iterator[Callable[[], str]]:
    """The three programs, and a function that gives the ends of their logs."""
    running = []
    for program in PROGRAMS:
        with open(logs / program, "wb") as out:
            running.append(
                subprocess.Popen([ENTRYPOINT, program], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            )
    try:
        yield lambda: "\n".join(f"{program}: …{(logs / program).read_text()[-1500:]}" for program in PROGRAMS)
    finally:
        for process in running:
            process.terminate()
        codes = [process.wait(60) for process in running]
    assert len(codes) == len(PROGRAMS)


def insert(key: int) -> bytes:
    return json.dumps(
        {
            **{"database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "id": key, "es": 1767323045000},
            **{"ts": 1767323045100, "sql": "", "pkNames": ["id"], "mysqlType": {"id": "int", "v": "varchar(9)"}},
            **{"sqlType": {"id": 4, "v": 12}, "data": [{"id": str(key), "v": "a"}], "old": None},
        }
    ).encode()


def publish(servers: str, topic: str) -> None:
    errors: list[object] = []
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for key in range(3):
        producer.produce(topic, insert(key), on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors == [None] * 3


def environment(database: postgres.Server, etc: Path, home: Path) -> dict[str, str]:
    """Of the entrypoints: nothing of the platform's but what a deployment sets."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("CDC_", "DAGSTER_")) or k == "CDC_JARS"},
        **database.env,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CDC_ETC": str(etc),
        "CDC_HOME": str(home),
        "CDC_CODE_SERVER_PORT": str(free_port()),
        "CDC_WEBSERVER_PORT": str(free_port()),
    }


def run(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ENTRYPOINT, *args], env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.thorough
def test_dagster_makes_its_tables_on_postgres(tmp_path):
    etc, home = tmp_path / "etc", tmp_path / "home"
    etc.mkdir()
    source = "{name: s, format: canal_json, topics: [t]}"
    (etc / "cdc.yaml").write_text(f"lake: ./lake\nkafka: {{bootstrap.servers: 'h:1'}}\nsources: [{source}]\n")
    with postgres.server() as database:
        env = environment(database, etc, home)
        done = run(env, "migrate")
        assert done.returncode == 0, done.stderr
        assert database.ask("SELECT count(*) FROM runs") == "0"
        tables = set(database.ask("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split())
        assert {"runs", "event_logs", "job_ticks", "instigators", "daemon_heartbeats", "concurrency_limits"} <= tables
        assert not list(home.rglob("*.db"))
        wrong = run(env | {"DAGSTER_PG_PASSWORD": "x"}, "migrate")
        assert wrong.returncode != 0
        assert "password authentication failed" in wrong.stderr


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.thorough
def test_a_deployment_on_postgres_follows_a_topic(broker, tmp_path):
    etc, home, logs = tmp_path / "etc", tmp_path / "home", tmp_path / "logs"
    for folder in (etc, logs):
        folder.mkdir()
    (etc / "cdc.yaml").write_text(
        f"lake: ./lake\nspark: {{master: 'local[2]'}}\nkafka: {{bootstrap.servers: '{broker.bootstrap_servers}'}}\n"
        "sources: [{name: s, format: canal_json, topics: [deployed], follow_s: 0}]\n"
    )
    with postgres.server() as database:
        env = environment(database, etc, home)
        pages = env["CDC_WEBSERVER_PORT"]

        def healthy(program: str) -> bool:
            return run(env, "health", program).returncode == 0

        def graphql(query: str) -> Any:
            body = json.dumps({"query": query}).encode()
            request = Request(f"http://127.0.0.1:{pages}/graphql", body, {"content-type": "application/json"})
            with urlopen(request, timeout=30) as answer:
                return json.load(answer)["data"]

        def assets() -> list[list[str]]:
            return [node["assetKey"]["path"] for node in graphql("{assetNodes {assetKey {path}}}")["assetNodes"]]

        def ended() -> list[str]:
            runs = graphql("{runsOrError {... on Runs {results {status}}}}")["runsOrError"]["results"]
            states = [run["status"] for run in runs]
            return states if states and all(s in ("SUCCESS", "FAILURE", "CANCELED") for s in states) else []

        assert not healthy("webserver")
        publish(broker.bootstrap_servers, "deployed")
        with started(env, logs) as told:
            for program in PROGRAMS:
                until(lambda program=program: healthy(program), 240, told)
            # The sensor sees the new offsets, the daemon launches the run, the code server runs it.
            states = until(ended, 300, told)
            # The table's asset appears without a hand: a sensor asks the webserver to load the code location anew.
            until(lambda: ["snapshots", "s", "shop", "t"] in assets(), 180, told)
        assert set(states) == {"SUCCESS"}, told()
        assert database.ask("SELECT DISTINCT status FROM runs") == "SUCCESS"
        assert int(database.ask("SELECT count(*) FROM job_ticks")) > 0
        assert not list(home.rglob("*.db"))  # nothing is kept in SQLite beside it
        snapshot = DeltaTable(str(home / "lake" / "snapshots" / "s" / "shop" / "t"))
        rows = QueryBuilder().register("t", snapshot).execute("SELECT id FROM t ORDER BY id").read_all()
        assert pa.table(rows).column("id").to_pylist() == [0, 1, 2]
        status = run(env, "status", "--json")
        assert "sources" in json.loads(status.stdout), status.stdout
        assert json.loads(status.stdout)["sources"][0]["landed"] == 3, status.stderr
