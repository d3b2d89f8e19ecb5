"""The reader's desk: a folder with the `cdc.yaml` that the pages speak of, its topics in Kafka, its lake, and a warm
Spark Connect server, so that a command of the pages takes a second and not fifteen."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.config import load_config
from cdc_platform.demo.run import as_of_now
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import Workload
from cdc_platform.setup.ports import free_port
from cdc_platform.spark import connect
from tests.docs import bank
from tests.e2e.e2e_shop import run_stages

CDC_YAML = """
lake: ./lake
kafka: {bootstrap.servers: "BOOTSTRAP"}
sources:
  - name: shop
    format: tencent_dts
    topics: [dts-shop]
    heartbeat_timeout_s: 86400
    tables: {history: [shop.orders], typed_changes: [shop.orders]}
  - {name: crm, format: canal_json, topics: [crm], heartbeat_timeout_s: 86400}
  - {name: bank, format: tdsql, topics: [tdsql-bank], heartbeat_timeout_s: 86400}
shadow: {of: shop, by: crm}
spark:
  conf:  # compiling code for a query takes longer than running it over a few rows
    spark.sql.codegen.wholeStage: "false"
    spark.sql.codegen.factoryMode: NO_CODEGEN
    spark.sql.shuffle.partitions: "2"
    spark.databricks.delta.snapshotPartitions: "1"
"""
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Desk:
    """A reader's folder. ports: what a default port of the pages is here."""

    folder: Path
    env: dict[str, str]
    ports: dict[str, str]

    @property
    def lake(self) -> str:
        """The lake that `<lake>` on a page stands for."""
        return str(self.folder / "lake")

    def bash(self, script: str) -> subprocess.CompletedProcess[str]:
        """A script of a page, as its reader runs it: from this folder, until the first command that fails."""
        text = script.replace(".venv/bin/cdc-platform", "cdc-platform")
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.filled(text)],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def filled(self, text: str) -> str:
        """`<lake>` and default ports as they are here."""
        text = text.replace("<lake>", self.lake).replace("broker start", self.ports.get("broker", "broker start"))
        return re.sub(r"127\.0\.0\.1:9092|localhost:9092", self.ports["kafka"], text)


def desk_at(folder: Path, bootstrap: str, **ports: str) -> Desk:
    """A new desk."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {k: v for k, v in os.environ.items() if k not in ("CDC_CONFIG", "DAGSTER_HOME", "PYSPARK_GATEWAY_PORT")}
    env["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), env["PATH"]))
    env["COLUMNS"] = "100"
    return Desk(folder, env, {"kafka": bootstrap, **ports})


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[connect.Server]:
    """A Spark Connect server as `ui` starts it."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "cdc.yaml").write_text(CDC_YAML)
    config = load_config(folder / "cdc.yaml")
    config.state_dir.mkdir()
    process, server = connect.launch(config, folder / "connect.log")
    try:
        deadline = time.monotonic() + 120
        while not connect.answers(server.port):
            assert process.poll() is None, (folder / "connect.log").read_text()[-3000:]
            assert time.monotonic() < deadline, "Spark doesn't answer"
            time.sleep(0.2)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="session")
def desk(broker: Any, spark: Any, spark_server: connect.Server, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """The one that most pages speak of: sources `shop`, `crm` and `bank`; `shop` is caught up. By the session of
    the tests, which is warm; the blocks have the server."""
    made = desk_at(tmp_path_factory.mktemp("desk"), broker.bootstrap_servers)
    made.env["CDC_CONFIG"] = str(made.folder / "cdc.yaml")
    (made.folder / "cdc.yaml").write_text(CDC_YAML.replace("BOOTSTRAP", broker.bootstrap_servers))
    shop = Workload(seed=3, transactions=40)
    bad = Record("crm", 0, None, b'{"database": "shop", "table": "orders", "type": "INSERT", "data": 1}')
    feeds = [*DtsEncoder("dts-shop", partitions=1).encode(shop.transactions), bad]
    feeds += CanalJsonEncoder("crm").encode(shop.transactions)
    feeds += bank.records("tdsql-bank")
    publish(as_of_now(feeds), broker.bootstrap_servers, default_partitions=1)
    config = load_config(made.folder / "cdc.yaml")
    run_stages(spark, config.model_copy(update={"sources": [config.source("shop")]}))
    warm(made, spark_server)
    return made


@pytest.fixture(scope="session")
def whole_desk(desk: Desk, spark: Any) -> Desk:
    """With all sources caught up, one message in quarantine, and an export."""
    run_stages(spark, load_config(desk.folder / "cdc.yaml"))
    export_of_orders(desk)
    return desk


def warm(at: Desk, server: connect.Server) -> None:
    """Commands at this desk use the running server, as beside `cdc-platform ui`."""
    from dataclasses import asdict
    from json import dumps

    (at.folder / ".cdc").mkdir(exist_ok=True)
    (at.folder / ".cdc" / "connect.json").write_text(dumps(asdict(server)))


def export_of_orders(at: Desk) -> None:
    """`exports/orders.parquet`: what a database's export of shop.orders would hold."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, QueryBuilder

    rows = pa_table(
        QueryBuilder()
        .register("orders", DeltaTable(f"{at.lake}/snapshots/shop/shop/orders"))
        .execute("SELECT * FROM orders")
        .read_all()
    )
    (at.folder / "exports").mkdir()
    own = [name for name in rows.column_names if not name.startswith("_cdc_")]
    pq.write_table(rows.select(own), at.folder / "exports" / "orders.parquet")


def pa_table(rows: Any) -> Any:
    """delta-rs's own Arrow table as pyarrow's."""
    import pyarrow as pa

    return pa.table(rows)


@pytest.fixture(scope="session")
def own_desk(spark_server: connect.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The empty folder in which the quick start begins, with ports of its own."""
    port = free_port()
    made = desk_at(tmp_path_factory.mktemp("own"), f"127.0.0.1:{port}", broker=f"broker start --port {port}")
    warm(made, spark_server)
    yield made
    made.bash("cdc-platform broker stop --home .cdc/broker || true")
