"""Complete up to T, held against a real database: no change that it had committed before T is missing in a table that
is called complete up to T."""

import json
import random
import time
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.lake import stores, watermarks
from cdc_platform.lake.watermarks import Complete
from cdc_platform.snapshots.target import Target
from tests.oracle import server
from tests.oracle.clocked import TABLES, Commit, made
from tests.oracle.lake import SOURCE, Lake
from tests.oracle.session import DB
from tests.rows import add

pytestmark = [pytest.mark.spark, pytest.mark.oracle]

SEED, STEPS = 20261128, 120
ENCODERS: dict[str, Callable[[], Any]] = {
    "tencent_dts": lambda: DtsEncoder("feed", partitions=3, merge_bytes=300),
    "canal": lambda: CanalEncoder("feed"),
    "debezium": lambda: DebeziumEncoder("feed"),
}
Where = tuple[str, int]


@pytest.fixture(scope="module")
def workload() -> list[Commit]:
    if reason := server.missing():
        pytest.skip(reason)
    return made(SEED, STEPS)


def test_the_log_has_rows_that_are_stamped_before_earlier_commits(workload: list[Commit]):
    stamps = [c.transaction.timestamp_ms for c in workload]
    assert stamps != sorted(stamps)
    assert [c.time for c in workload] == sorted(c.time for c in workload)


class Feed:
    """What the capture has sent waits in Kafka; `land` lands some of each partition, as landing notes it. broken: which
    of the records can't be read."""

    def __init__(self, spark: Any, make_config: Any, format: str, commits: list[Commit], broken: int | None = None):
        self.lake = Lake(spark, make_config, format, {})
        source = self.lake.config.source(SOURCE).model_copy(update={"idle_partition_s": 1})
        self.lake.config = self.lake.config.model_copy(update={"sources": [source]})
        self.encoder, self.commits, self.dice = ENCODERS[format](), commits, random.Random(SEED)
        self.broken, self.sent, self.batch, self.records = broken, 0, 0, 0
        self.waiting: dict[Where, list[Record]] = {}
        self.landed: dict[Where, int] = {}

    def send(self, transactions: int) -> None:
        some = self.commits[self.sent : self.sent + transactions]
        self.sent += len(some)
        for r in self.encoder.encode(c.transaction for c in some):
            partition = zlib.crc32(r.key or b"") % 2 if r.partition is None else r.partition
            where = r.topic.replace("`", ""), partition
            value = b"\xff" if self.records == self.broken else r.value
            self.records += 1
            self.waiting.setdefault(where, []).append(r._replace(topic=where[0], partition=partition, value=value))

    def land(self, *, whole: bool) -> None:
        """whole: up to the ends, which were looked at before."""
        looked, rows, records = datetime.now(UTC), [], []
        for where, waiting in self.waiting.items():
            many = len(waiting) if whole else self.dice.randrange(len(waiting) + 1)
            first = self.landed.get(where, 0)
            self.landed[where] = first + many
            records += waiting[:many]
            self.waiting[where] = waiting[many:]
            told = {"source": SOURCE, "batch": self.batch, "room": "landing", "topic": where[0], "partition": where[1]}
            rows.append(
                {**told, "from_offset": first, "to_offset": first + many - 1, "outcome": "landed", "records": many}
            )
        if records:
            self.lake.land(records, looked)
        add(self.lake.config.lake, tables.OFFSET_LEDGER, *rows)
        log = tables.CHECKPOINT.at(stores.lake(self.lake.config), room="landing", source=f"{SOURCE}.0")
        entry = {"batchTimestampMs": 1, **({"lookedMs": round(looked.timestamp() * 1000)} if whole else {})}
        log.put(f"offsets/{self.batch}", f"v1\n{json.dumps(entry)}\n{{}}".encode())
        log.put(f"commits/{self.batch}", b"v1\n{}")
        self.batch += 1
        self.lake.catch_up()

    def told(self) -> Complete:
        found = watermarks.complete(tables.WATERMARKS.at(stores.lake(self.lake.config)), SOURCE)
        assert found is not None
        return found

    def shown(self, table: str) -> set[tuple[int, int]]:
        path = Target.of(self.lake.config, SOURCE, DB, table).snapshot.uri()
        if not DeltaTable.is_deltatable(path):
            return set()
        return {(r["id"], r["v"]) for r in read_snapshot(path).to_pylist()}

    def missing(self) -> Iterable[str]:
        """Rows that aren't as they were at the time up to which their table is called complete, or later."""
        for table in TABLES:
            up_to = self.told().of((DB, table))
            if up_to is None:
                continue
            before = [i for i, c in enumerate(self.commits) if c.time < up_to.timestamp()]
            since = [c.rows.get(table, frozenset()) for c in self.commits[max(before, default=0) :]]
            shown = self.shown(table)
            for id_ in {i for rows in since for i, _ in rows} | {i for i, _ in shown}:
                ever = [{v for i, v in rows if i == id_} for rows in since]
                if (found := {v for i, v in shown if i == id_}) not in ever:
                    yield f"{table} {id_} at {up_to}: {found}, not of {ever[:3]} …"


def follow(feed: Feed, runs: int) -> list[datetime | None]:
    """Runs of which every other one lands all that was sent; up to when the source was complete after each."""
    times = []
    each = len(feed.commits) // runs + 1
    for n in range(runs):
        feed.send(each)
        feed.land(whole=n % 2 == 1)
        assert list(feed.missing()) == []
        times.append(feed.told().source_time)
    return times


def newest(commits: list[Commit]) -> datetime:
    """The latest time that the log tells."""
    return datetime.fromtimestamp(max(c.transaction.timestamp_ms for c in commits) // 1000, UTC)


ALL = [pytest.param(f, 12, marks=pytest.mark.thorough) for f in ENCODERS]


@pytest.mark.parametrize(("format", "runs"), ALL)
def test_what_was_committed_before_is_there(
    format: str, runs: int, workload: list[Commit], spark: Any, make_config: Any
):
    feed = Feed(spark, make_config, format, workload)
    times = follow(feed, runs)
    time.sleep(1.1)  # what nothing comes by counts as idle then
    feed.land(whole=True)
    feed.land(whole=True)
    assert (feed.lake.quarantined(), feed.lake.stopped()) == ([], [])
    known = [t for t in times if t is not None]
    assert known == sorted(known)
    assert len(set(known)) > runs // 3
    assert feed.told().source_time == newest(workload)
    assert list(feed.missing()) == []
    assert all(feed.shown(t) == workload[-1].rows[t] for t in TABLES)


@pytest.mark.thorough
@pytest.mark.parametrize("broken", [9, 20])
def test_what_cannot_be_read_holds_it_back(broken: int, workload: list[Commit], spark: Any, make_config: Any):
    feed = Feed(spark, make_config, "tencent_dts", workload, broken)
    known = [t for t in follow(feed, 12) if t is not None]
    assert known == sorted(known)
    assert len(feed.lake.quarantined()) == 1
    told = feed.told()
    assert told.source_time is None or told.source_time < newest(workload)
    assert (told.reason or "").startswith("quarantine holds feed/")
