"""The demo's shop on the session's broker, and a chain that runs in this process or in one of its own."""

import os
import signal
import subprocess
import sys
from collections import ChainMap
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from cdc_platform import chain
from cdc_platform.config import load_config
from cdc_platform.feeds.compare import compare, read_snapshot
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.feeds import Feed, source_config
from cdc_platform.feeds.publish import publish
from cdc_platform.feeds.shop import TABLES
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import Workload
from cdc_platform.lake import stores
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import CHANGELOG, LANDING, OFFSET_LEDGER, QUARANTINE

DRIVER = Path(__file__).with_name("driver.py")
FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Compiling code for a query takes longer than running it over a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
}


class Shop:
    """A seeded workload whose encodings lie in topics of its own: `feeds` is source → Feed of the demo, by default
    DTS and Debezium under topics that begin with `name`."""

    def __init__(self, servers, name, transactions, feeds=None):
        self.servers, self.name = servers, name
        self.workload = Workload(1, transactions)
        self.feeds = feeds or {
            "dts": Feed("tencent_dts", lambda: DtsEncoder(f"{name}-dts", partitions=2), {"topics": [f"{name}-dts"]}),
            "deb": Feed("debezium", lambda: DebeziumEncoder(f"{name}-deb"), {"topic_pattern": f"{name}-deb.*"}),
        }
        self._encoders = {source: feed.encoder() for source, feed in self.feeds.items()}
        self._publish(self.workload.transactions)

    def advance(self, transactions):
        self._publish(self.workload.advance(transactions))

    def _publish(self, transactions):
        for encoder in self._encoders.values():
            publish(
                encoder.encode(transactions), self.servers, partitions={f"{self.name}-dts": 2}, default_partitions=1
            )

    def sources(self):
        return [source_config(name, feed) for name, feed in self.feeds.items()]

    def config(self, folder, sources=None, **top):
        """A cdc.yaml in `folder`, its lake beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "cdc.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "lake": "./lake",
                    "kafka": {"bootstrap.servers": self.servers},
                    "sources": sources or self.sources(),
                    "spark": {"master": "local[2]", "conf": FAST},
                    **top,
                }
            )
        )
        return load_config(file)

    def differences(self, config):
        """Lines that tell how the snapshots of all sources differ from the truth."""
        lines = []
        for source in config.sources:
            sent = self.feeds[source.name].as_sent(self.workload.truth)
            for name, table in TABLES.items():
                at = Target.of(config, source.name, *name.split(".")).snapshot
                found = compare(table, sent[name], at.uri(), storage_options=at.options)
                lines += [f"{source.name} {line}" for line in found.describe()]
        return lines


def run_stages(spark, config, *stages):
    """Stages of all sources in this process, the sources at the same time: (source, stage) → RoomResult."""

    def follow(source):
        return {(source.name, stage): chain.STAGES[stage](spark, config, source) for stage in stages or chain.STAGES}

    with ThreadPoolExecutor(len(config.sources)) as pool:
        return dict(ChainMap(*pool.map(follow, config.sources)))


def facts(config):
    """What has to be equal however often a run was killed: landed addresses and bytes, addresses in the
    changelog, records by outcome, quarantine."""
    lake = stores.lake(config)
    landed = {
        s.name: sorted(
            _rows(LANDING.at(lake, source=s.name), "topic", "partition", "offset", "key", "value"),
            key=str,
        )
        for s in config.sources
    }
    changes = _rows(
        CHANGELOG.at(lake),
        "source",
        "topic",
        "partition",
        "offset",
        "entry_index",
        "row_index",
        "op",
        "db",
        "table",
    )
    outcomes = {}
    for source, topic, partition, outcome, records in _rows(
        OFFSET_LEDGER.at(lake), "source", "topic", "partition", "outcome", "records"
    ):
        at = (source, topic, partition, outcome)
        outcomes[at] = outcomes.get(at, 0) + records
    return {
        "landed": landed,
        "changelog": sorted(changes, key=str),
        "outcomes": {k: v for k, v in outcomes.items() if v},
        "quarantine": _rows(QUARANTINE.at(lake), "source", "topic", "partition", "offset", "reason"),
    }


def unaccounted(outcomes):
    """(source, topic, partition) whose landed records aren't the sum of all their outcomes."""
    sums = {}
    for (*at, outcome), records in outcomes.items():
        sums[tuple(at)] = sums.get(tuple(at), 0) + (
            -records if outcome == "landed" else records if outcome != "lost" else 0
        )
    return {at: n for at, n in sums.items() if n}


def _rows(at, *columns):
    table = read_snapshot(at.uri(), at.options).select(list(columns))
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


class Process:
    """The driver in a session of its own, so that all its children can be found and killed."""

    def __init__(self, config, *stages, env=None):
        self.log = config.file.parent / "driver.log"
        with open(self.log, "wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, str(DRIVER), str(config.file), *stages],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(env or {})},
                cwd=config.file.parent,
                start_new_session=True,
            )

    def kill(self):
        """SIGKILL everything in the session at once: Python, its JVM, the JVM's Python workers (they form a
        process group of their own)."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        left = [p for p in psutil.process_iter() if _session(p.pid) == self.popen.pid]
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, 10)

    def tail(self):
        return self.log.read_text(errors="replace")[-3000:]


def _session(pid):
    with suppress(OSError):
        return os.getsid(pid)
    return None
