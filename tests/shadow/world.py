"""A real MariaDB, two feeds of its binlog in two formats on the real broker, and one lake that reads both."""

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from cdc_platform import chain
from cdc_platform.config import load_config
from cdc_platform.feeds.publish import publish
from cdc_platform.feeds.workload import Transaction
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.shadow import kept
from cdc_platform.shadow.run import compare
from cdc_platform.spark.session import leased
from tests.loading.world import Database
from tests.oracle.feeds import FEEDS
from tests.oracle.session import DB

OF, BY = "first", "second"
Change = Callable[[Transaction], Transaction | None]


class Side:
    """One feed. sent: how many of the server's transactions it has sent, or lost."""

    def __init__(self, name: str, format: str, sent: int):
        self.name, self.format, self.sent = name, format, sent
        self.topic = f"shadow-{uuid.uuid4().hex[:8]}"
        self.encoder = FEEDS[format].encoder()

    def source(self, **more: Any) -> dict[str, Any]:
        tables = {"include": [f"{DB}.*"], **more}
        named = {"name": self.name, "format": self.format, "topic_pattern": f"{self.topic}.*"}
        return {**named, "tables": tables, "idle_partition_s": 1}


class Pair:
    """`send` gives a feed what is new in the binlog, `catch_up` brings it into the lake, `compare` compares."""

    def __init__(self, spark: Any, bootstrap: str, db: Database, folder: Path, of: str, by: str, **more: Any):
        self.spark, self.bootstrap, self.db = spark, bootstrap, db
        self.numbered = 0
        self.clock = int(time.time()) - 7200
        self.sides = {n: Side(n, f, len(db.log())) for n, f in ((OF, of), (BY, by))}
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "cdc.yaml"
        told = {
            **{"lake": str(folder / "lake"), "kafka": {"bootstrap.servers": bootstrap}},
            **{"spark": {"master": "local[2]"}, "sources": [s.source() for s in self.sides.values()]},
            "shadow": {"of": OF, "by": BY, "settle_s": 10, **more},
        }
        self.file.write_text(yaml.safe_dump(told))
        self.config = load_config(self.file)
        self.pair = self.config.shadow_of(OF)

    def run(self, *statements: str) -> None:
        """Statements, a minute after those before by the server's clock."""
        self.clock += 60
        self.db.run(f"SET timestamp = {self.clock}", *statements)

    def create(self, name: str, definition: str) -> None:
        self.clock += 60
        self.db.run(f"SET timestamp = {self.clock}")
        self.db.create(name, definition)

    def send(self, name: str, change: Change = lambda tx: tx) -> None:
        """change: what becomes of a transaction on its way; None: it is lost."""
        side, log = self.sides[name], self.db.log()
        new, side.sent = log[side.sent :], len(log)
        made = (change(tx) for tx in new)
        records = side.encoder.encode(tx for tx in made if tx is not None)
        placed = (r._replace(topic=f"{side.topic}.{r.topic}".replace("`", "").replace(" ", "_")) for r in records)
        publish(placed, self.bootstrap, default_partitions=1)

    def pass_on(self, other: str, *names: str) -> None:
        """Later changes of another table come by feeds, and all is brought into the lake. Twice where partitions to
        which nothing comes have to be known to be idle."""
        names = names or (OF, BY)
        for _ in range(2 if any(self.sides[n].format == "debezium" for n in names) else 1):
            for _ in range(2):
                self.numbered += 1
                self.run(f"INSERT INTO {other} (id) VALUES ({self.numbered})")
            for name in names:
                self.send(name)
            self.catch_up(*names)
            time.sleep(1.2 if any(self.sides[n].format == "debezium" for n in names) else 0)

    def catch_up(self, *names: str) -> None:
        for name in names or (OF, BY):
            source = self.config.source(name)
            with source_lock(self.config, source) as lease, leased(self.spark, lease):
                for stage in chain.STAGES.values():
                    stage(self.spark, self.config, source)

    def compare(self, **how: Any) -> dict[str, dict[str, Any]]:
        """Table → row of its newest comparison; `*`: the whole."""
        found = compare(self.spark, self.config, self.pair, **how)
        return {"*": found, **{f"{r['db']}.{r['table']}": r for r in found["rows"]}}

    def open(self) -> list[tuple[Any, ...]]:
        """Open differences: table, value of the key's only column, kind, of_row, by_row."""
        rows = kept.differences(self.config, self.pair, 1000)
        told = [(r["table"], *json.loads(r["key"]).values(), r["kind"], r["of_row"], r["by_row"]) for r in rows]
        return sorted(told, key=repr)
