"""From a change's way into Kafka to a reader of the snapshot, everything as a user runs it: `cdc-platform ui` with its
sensors, changes at a modest rate, and somebody who looks at the Delta table again and again.

A change's time begins before it is handed to Kafka's client and ends when a reader has seen its row: both are a
little late, so the figures are upper bounds.
"""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cdc_platform.config import Config, load_config
from cdc_platform.demo.compare import compare, read_snapshot
from cdc_platform.demo.generators import bench_records, bench_truth
from cdc_platform.demo.publish import Record, publish
from cdc_platform.demo.shop import BENCH
from cdc_platform.resources.ports import free_port
from cdc_platform.resources.processes import Group
from cdc_platform.tables import SNAPSHOT_PATH

WARM_S = 30
_FORMAT = "canal_json"  # a record per row
_LOOK_S = 0.2
_READY_S = 180
_LATE_S = 180


def measure(work: Path, rate: int, seconds: int) -> tuple[dict[str, Any], list[str]]:
    """`rate` inserts a second as Canal JSON for `seconds`, after WARM_S at the same rate that don't count: rate,
    changes, p50_s, p99_s, max_s; and differences: the snapshot must hold every change in the end."""
    n, warm = rate * (WARM_S + seconds), rate * WARM_S
    config = _config(work)
    with _platform(config, work), ThreadPoolExecutor(1) as pool:
        sent: list[float] = []
        records = _paced(bench_records(_FORMAT, n, n, topic="latency", partitions=1), n, rate, sent)
        publishing = pool.submit(publish, records, config.kafka["bootstrap.servers"], default_partitions=1)
        seen = _watch(config, n, publishing)
    took = (seen - np.array(sent))[warm:]
    arrived = took[~np.isnan(took)]
    differences = compare(BENCH, bench_truth(n, n), _snapshot(config)).describe()
    if len(arrived) < len(took):
        differences.append(f"{len(took) - len(arrived)} changes weren't seen within {_LATE_S} s")
    told = dict(zip(("p50_s", "p99_s", "max_s"), np.percentile(arrived, (50, 99, 100)).round(1).tolist(), strict=True))
    return {"rate": rate, "changes": len(took), **told}, differences


def _config(work: Path) -> Config:
    work.mkdir(parents=True, exist_ok=True)
    source = {"name": "bench", "format": _FORMAT, "topics": ["latency"]}
    told = {"lake": "./lake", "kafka": {"bootstrap.servers": f"127.0.0.1:{free_port()}"}, "sources": [source]}
    (work / "cdc.yaml").write_text(yaml.safe_dump(told))
    return load_config(work / "cdc.yaml")


@contextmanager
def _platform(config: Config, work: Path) -> Iterator[None]:
    """Broker, Spark, Dagster's pages and daemon, as one command starts them."""
    group, log = Group(), work / "ui.log"
    command = [str(Path(sys.executable).with_name("cdc-platform")), "ui", "--config", str(config.file)]
    try:
        program = group.start("cdc-platform ui", [*command, "--port", str(free_port())], log, {})
        group.until(lambda: b"ready:" in log.read_bytes(), program, _READY_S)
        yield
    finally:
        _stop(group)


def _stop(group: Group) -> None:
    """`ui` stops its own programs first, which takes longer than a Group waits."""
    for program in group.programs:
        program.process.terminate()
        try:
            program.process.wait(_READY_S)
        except subprocess.TimeoutExpired:
            continue
    group.stop()


def _paced(records: Iterable[Record], n: int, rate: int, sent: list[float]) -> Iterator[Record]:
    started = time.monotonic()
    for i, record in enumerate(islice(records, n)):
        time.sleep(max(0.0, started + i / rate - time.monotonic()))
        sent.append(time.monotonic())
        yield record


def _watch(config: Config, n: int, publishing: "Future[Any]") -> np.ndarray:
    """When each of the rows 0 … n-1 was seen first (seconds, NaN: not at all)."""
    from deltalake import DeltaTable

    seen, version, deadline = np.full(n, np.nan), -1, float("inf")
    while np.isnan(seen).any() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        if publishing.done() and deadline == float("inf"):
            publishing.result()
            deadline = time.monotonic() + _LATE_S
        if not DeltaTable.is_deltatable(_snapshot(config)):
            continue
        newest = DeltaTable(_snapshot(config)).version()
        if newest != version:
            ids = read_snapshot(_snapshot(config)).column("id").to_numpy()
            seen[ids[np.isnan(seen[ids])]] = time.monotonic()
            version = newest
    return seen


def _snapshot(config: Config) -> str:
    return SNAPSHOT_PATH.at(config.lake, source="bench", db=BENCH.db, table=BENCH.name)
