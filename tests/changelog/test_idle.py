"""Up to when a source is complete to some of whose partitions nothing comes."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import checkpoints, stores
from cdc_platform.lake import watermarks as watermarks_of
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import Where
from cdc_platform.snapshots.cuts import complete
from tests.changelog.test_watermarks import at, source
from tests.rows import add

A, B = ("t", 0), ("t", 1)
NOW = datetime.now(UTC)
MINUTE = 60


@dataclass
class Lake:
    """A lake with two partitions, as landing, changelog and ledger leave it."""

    path: Path
    config: Config
    source: Source

    @classmethod
    def of(cls, path: Path) -> "Lake":
        feed = source("canal").model_copy(update={"idle_partition_s": MINUTE})
        for topic, p in (A, B):
            told = {"source": "s", "batch": 0, "topic": topic, "partition": p, "from_offset": 0, "to_offset": 9}
            rows = (("landing", "landed"), ("changelog", "applied"))
            add(path, tables.OFFSET_LEDGER, *({**told, "records": 10, "room": r, "outcome": o} for r, o in rows))
        add(path, tables.QUARANTINE, overwrite=True)
        return cls(path, Config.model_validate({"lake": str(path), "sources": [feed.model_dump()]}), feed)

    @property
    def landing(self) -> Store:
        return tables.CHECKPOINT.at(stores.lake(self.config), room="landing", source="s.0")

    def batch(self, number: int, ago: float, told: dict[Where, tuple[float | None, int | None]]) -> None:
        """told: time of each partition, and the batch that brought its newest change."""
        mark = {"source": "s", "scope": "partition", "batch": number, "at": NOW - timedelta(seconds=ago), "offset": 9}
        rows = [
            {**mark, "topic": w[0], "partition": w[1], "source_time": None if s is None else at(s), "change_batch": b}
            for w, (s, b) in told.items()
        ]
        add(self.path, tables.WATERMARKS, *rows)

    def published(self, looked: datetime | None) -> tuple[datetime | None, bool]:
        entry = {"batchTimestampMs": 1, **({"lookedMs": round(looked.timestamp() * 1000)} if looked else {})}
        self.landing.put("offsets/0", f"v1\n{json.dumps(entry)}\n{{}}".encode())
        self.landing.put("commits/0", b"v1\n{}")
        complete.publish(self.config, self.source, {})
        found = watermarks_of.complete(tables.WATERMARKS.at(stores.lake(self.config)), "s")
        assert found is not None
        return found.source_time, found.proven


def test_what_is_published_of_an_idle_partition(tmp_path: Path):
    lake = Lake.of(tmp_path)
    lake.batch(0, 300, {A: (100, 0), B: (5, 0)})
    lake.batch(1, 90, {A: (200, 1), B: (5, 0)})
    lake.batch(2, 30, {A: (300, 2), B: (5, 0)})
    assert lake.published(None) == (at(5), True), "the batch didn't reach Kafka's ends"
    assert lake.published(NOW - timedelta(seconds=100)) == (at(100), False)
    assert lake.published(NOW) == (at(200), False)
    assert lake.published(NOW - timedelta(seconds=100)) == (at(200), False), "it never goes back"
    checkpoints.note_look(lake.landing, round((NOW + timedelta(seconds=40)).timestamp() * 1000))
    assert lake.published(NOW) == (at(300), False), "a run found nothing new"


def test_a_partition_that_lags_is_not_idle(tmp_path: Path):
    """Its capture was down for hours and catches up, while that of the other lives."""
    lake, ago = Lake.of(tmp_path), 10 * MINUTE
    for n in range(8):
        lake.batch(n, ago - n * MINUTE, {A: (10_000 + n * MINUTE, n), B: (100 + n, n)})
        found = lake.published(NOW - timedelta(seconds=ago - n * MINUTE + 1))
        assert found == (at(100 + n), True), f"batch {n}"
    for n in (8, 9):  # nothing comes by it any more
        lake.batch(n, ago - n * MINUTE, {A: (10_000 + n * MINUTE, n), B: (107, 7)})
    assert lake.published(NOW - timedelta(seconds=MINUTE - 1)) == (at(10_000 + 8 * MINUTE), False)


def test_a_partition_by_which_changes_come_is_not_idle_whatever_their_times(tmp_path: Path):
    """A capture that sends again what it had sent, and rows that tell no time of the log, as dtle's."""
    for name, told in {"again": 100, "no time": None}.items():
        lake = Lake.of(tmp_path / name)
        for n in range(4):
            lake.batch(n, 240 - n * MINUTE, {A: (1000 + n, n), B: (told, n)})
            assert lake.published(NOW - timedelta(seconds=239 - n * MINUTE))[0] == (told and at(told)), f"{name}, {n}"
        checkpoints.note_look(lake.landing, round((NOW + timedelta(seconds=MINUTE)).timestamp() * 1000))
        assert lake.published(NOW) == (at(1003), False), "nothing comes any more"


def test_what_an_earlier_version_kept_tells_by_its_times_whether_changes_came(tmp_path: Path):
    lake = Lake.of(tmp_path)
    for n in range(4):
        lake.batch(n, 240 - n * MINUTE, {A: (1000 + n, None), B: (100 + n, None)})
    assert lake.published(NOW - timedelta(seconds=MINUTE)) == (at(103), True)


TABLE = ("shop.shop.orders", 0)
COMES = {
    "heartbeats": ("__debezium-heartbeat.shop", "control", None, True),
    "heartbeats, so far none": ("__debezium-heartbeat.shop", None, None, True),
    "heartbeats under another name": ("pulse.shop", "control", "heartbeat", False),
    "heartbeats by a topic for all": ("shop", "control", "heartbeat", False),
    "rows by a topic of heartbeats": ("__debezium-heartbeat.shop", "applied", None, False),
    "what is no heartbeat there": ("__debezium-heartbeat.shop", "quarantined", None, False),
    "transactions": ("shop.transaction", "control", "begin", True),
    "ends of transactions": ("shop.transaction", "control", "commit", True),
    "a tombstone of a table called transaction": ("shop.shop.transaction", "control", None, False),
    "rows of a table called transaction": ("shop.shop.transaction", "applied", None, False),
    "transactions and rows by one topic": ("all.transaction", "applied", "begin", False),
    "transactions by a topic of another name": ("shop.borders", "control", "begin", False),
    "statements": ("shop", "applied", None, False),
    "a table without changes": ("shop.shop.items", None, None, False),
}


@pytest.mark.parametrize("name", COMES)
def test_topics_that_bring_no_changes_are_not_waited_for(tmp_path: Path, name: str):
    """Beside a topic that tells all there is: proven by it alone, or the other one is taken for idle."""
    topic, outcome, kind, proven = COMES[name]
    feed = source("debezium").model_copy(update={"idle_partition_s": MINUTE})
    lake = Lake(tmp_path, Config.model_validate({"lake": str(tmp_path), "sources": [feed.model_dump()]}), feed)
    for where, became in ((TABLE, "applied"), ((topic, 0), outcome)):
        told = {"source": "s", "batch": 0, "topic": where[0], "partition": 0, "from_offset": 0, "to_offset": 9}
        rows = (("landing", "landed"), ("changelog", became)) if became else (("landing", "landed"),)
        count = 10 if became else 0
        add(tmp_path, tables.OFFSET_LEDGER, *({**told, "records": count, "room": r, "outcome": o} for r, o in rows))
    add(tmp_path, tables.QUARANTINE, overwrite=True)
    told = {"source": "s", "topic": topic, "partition": 0, "offset": 0, "kind": kind}
    add(tmp_path, tables.CONTROL_EVENTS, *([told] if kind else []))
    came = 0 if outcome in ("applied", "quarantined") else None
    for batch, ago in enumerate((300, 200, 30)):
        lake.batch(batch, ago, {TABLE: (batch * 100, batch), (topic, 0): (None, came)})
    assert lake.published(NOW) == ((at(200), True) if proven else (at(100), False))
