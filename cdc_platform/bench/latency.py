"""From a change's way into Kafka to a reader of the snapshot, everything as a user runs it: `cdc-platform ui` with its
sensors, changes at a modest rate, and somebody who looks at the Delta table again and again.

A change's time begins before it is handed to Kafka's client and ends when a reader has seen its row: both are a
little late, so the figures are upper bounds.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cdc_platform.bench.breadth import DB, TYPES, canal_json, name, wrong
from cdc_platform.bench.settings import Settings, lake_config
from cdc_platform.config import Config, load_config
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.store import Store
from cdc_platform.setup.ports import free_port
from cdc_platform.setup.processes import Group
from cdc_platform.tables import SNAPSHOT_PATH

WARM_S = 30
"""How long changes don't count after the first one was seen: the platform has started, its programs are warm."""
_FORMAT = "canal_json"  # a record per row
_LOOK_S = 0.2
_READY_S = 180
_FIRST_S = 300
_LATE_S = 180


class _Paced:
    """Changes at a steady rate, to so many tables in turn, as many as it takes until `WARM_S` and then `seconds` have
    passed since the first one was seen. sent: when each was handed to Kafka's client."""

    def __init__(self, rate: int, seconds: int, tables: int):
        self.rate, self.seconds, self.tables = rate, seconds, tables
        self.sent: list[float] = []
        self.most = rate * (_FIRST_S + WARM_S + seconds)
        self.end: int | None = None

    @property
    def counted(self) -> int:
        return self.rate * self.seconds

    def first_seen(self) -> None:
        self.end = self.end or min(self.most, len(self.sent) + self.rate * (WARM_S + self.seconds))

    def __iter__(self) -> Iterator[Record]:
        started = time.monotonic()
        for i in range(self.most):
            if i == self.end:
                return
            time.sleep(max(0.0, started + i / self.rate - time.monotonic()))
            self.sent.append(time.monotonic())
            yield canal_json("latency", i + 1, name(i % self.tables), "INSERT", TYPES, _row(i), None)

    def differences(self, config: Config) -> list[str]:
        """Tables whose snapshot isn't what was sent."""
        sent = range(len(self.sent))
        told = (wrong(config, name(t), list(TYPES), map(_row, sent[t :: self.tables])) for t in range(self.tables))
        return [difference for difference in told if difference]


def _row(number: int) -> dict[str, str]:
    return {"id": str(number), "name": f"n-{number}", "amount": f"{number}.25", "qty": str(number % 77)}


def measure(work: Path, settings: Settings) -> tuple[dict[str, Any], list[str]]:
    """`rate` inserts a second into `over` tables, as Canal JSON; those of the last `seconds` count: rate, tables,
    changes, p50_s, p99_s, max_s; and differences: the snapshots must hold every change in the end. Raises
    PublishFailed."""
    config, paced = _config(work, settings), _Paced(settings.rate, settings.seconds, settings.over)
    with _platform(config, work), ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish, paced, config.kafka["bootstrap.servers"], default_partitions=1)
        seen = _watch(config, paced, publishing)
    sent = np.array(paced.sent)
    took = (seen[: len(sent)] - sent)[-paced.counted :]
    arrived = took[~np.isnan(took)]
    differences = paced.differences(config)
    if len(arrived) < len(took):
        differences.append(f"{len(took) - len(arrived)} changes weren't seen within {_LATE_S} s")
    percentiles = np.percentile(arrived, (50, 99, 100)).round(1).tolist() if len(arrived) else [None] * 3
    return {
        "rate": settings.rate,
        "tables": settings.over,
        "changes": len(took),
        **dict(zip(("p50_s", "p99_s", "max_s"), percentiles, strict=True)),
    }, differences


def _config(work: Path, settings: Settings) -> Config:
    work.mkdir(parents=True, exist_ok=True)
    found = lake_config(work, settings, "latency-lake", _FORMAT, "latency", f"127.0.0.1:{free_port()}")
    (work / "cdc.yaml").write_text(yaml.safe_dump(found))
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


def _watch(config: Config, paced: _Paced, publishing: "Future[Any]") -> np.ndarray:
    """When each row was seen first (seconds, NaN: not at all)."""
    versions = dict.fromkeys((_snapshot(config, t) for t in range(paced.tables)), -1)
    seen, deadline = np.full(paced.most, np.nan), float("inf")
    while time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        if publishing.done() and deadline == float("inf"):
            publishing.result()
            deadline = time.monotonic() + _LATE_S
        for path, version in versions.items():
            newest = delta_table.version_or_none(path)
            if newest is not None and newest != version:
                ids = read_snapshot(path.uri(), path.options).column("id").to_numpy()
                seen[ids[np.isnan(seen[ids])]] = time.monotonic()
                versions[path] = newest
                if len(ids):
                    paced.first_seen()
        if publishing.done() and not np.isnan(seen[: len(paced.sent)]).any():
            break
    return seen


def _snapshot(config: Config, table: int) -> Store:
    return SNAPSHOT_PATH.at(stores.lake(config), source="bench", db=DB, table=name(table))
