"""Runs killed at named points: an ordinary run afterwards gives the tables of an undisturbed one.

A watcher looks at the lake's files every millisecond and kills the whole session of the run in the moment the
point is reached; what lies on disk afterwards proves that the kill hit it.
"""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdc_platform.chain import ROOMS
from cdc_platform.demo.shop import ORDERS
from cdc_platform.tables import CHANGELOG, CHECKPOINT, LANDING, OFFSET_LEDGER, SNAPSHOT_PATH, WAITING
from tests.e2e.e2e_shop import Shop, facts, run_rooms, unaccounted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]

ATTEMPTS = 4


class Delta:
    """A Delta table by its files."""

    def __init__(self, path):
        self.path, self.log = Path(path), Path(path) / "_delta_log"

    def version(self):
        return max((int(p.stem) for p in self.log.glob("*.json") if p.stem.isdigit()), default=-1)

    def data_files(self):
        """Data files and deletion vectors on disk, committed or not."""
        return {
            p.name
            for pattern in ("*.parquet", "*.bin")
            for p in self.path.rglob(pattern)
            if "_delta_log" not in p.parts
        }

    def added(self):
        """Data files that commits name."""
        actions = (json.loads(line) for c in self.log.glob("*.json") for line in c.read_text().splitlines())
        return {a["add"]["path"] for a in actions if "add" in a}

    def committed(self, app):
        """Highest txnVersion of an application."""
        found = -1
        for commit in self.log.glob("*.json"):
            for line in commit.read_text().splitlines():
                txn = json.loads(line).get("txn", {})
                if txn.get("appId") == app:
                    found = max(found, txn["version"])
        return found


@dataclass
class Lake:
    """The tables and checkpoints that the points look at, and how they were before the run."""

    config: object

    def __post_init__(self):
        lake = self.config.lake
        self.landing = Delta(LANDING.at(lake, source="dts"))
        self.waiting = Delta(WAITING.at(lake, source="dts"))
        self.changelog, self.ledger = Delta(CHANGELOG.at(lake)), Delta(OFFSET_LEDGER.at(lake))
        self.orders = Delta(SNAPSHOT_PATH.at(lake, source="dts", db="shop", table="orders"))
        tables = (self.landing, self.waiting, self.changelog, self.ledger, self.orders)
        self.versions = {t.path: t.version() for t in tables}
        self.files = {t.path: t.data_files() for t in tables}

    def grown(self, table):
        return table.version() > self.versions[table.path]

    def new_files(self, table):
        return table.data_files() - self.files[table.path]

    def batches(self, room, which):
        """Batches that a room's checkpoint names under `offsets` (planned) or `commits` (done)."""
        name = "dts.0" if room == "landing" else "dts"
        folder = Path(CHECKPOINT.at(self.config.lake, room=room, source=name)) / which
        return {int(p.name) for p in folder.glob("*") if p.name.isdigit()}

    def pending(self, room):
        return self.batches(room, "offsets") - self.batches(room, "commits")


def files_without_commit(lake):
    return bool(lake.new_files(lake.landing)) and not lake.grown(lake.landing)


def commit_without_checkpoint(lake):
    return lake.grown(lake.landing) and bool(lake.pending("landing"))


def half_a_message(lake):
    return lake.grown(lake.waiting) and bool(lake.pending("envelopes"))


def one_of_changelog_and_ledger(lake):
    """They are written at the same time; either may come first."""
    if not (lake.grown(lake.changelog) or lake.pending("changelog")):
        return False
    return lake.changelog.committed("changelog dts") != lake.ledger.committed("changelog dts")


def merge_without_commit(lake):
    new = {f for f in lake.new_files(lake.orders) if f.endswith(".parquet")}
    return bool(new) and not new & lake.orders.added()


POINTS = {
    "landing: files written, not committed": (files_without_commit, ("landing",)),
    "landing: committed, checkpoint not yet": (commit_without_checkpoint, ("landing",)),
    "envelopes: half of a split message waits": (half_a_message, ("landing", "envelopes")),
    "changelog: one of changelog and ledger committed, the other not yet": (
        one_of_changelog_and_ledger,
        ("landing", "envelopes", "changes", "changelog"),
    ),
    "snapshots: MERGE has written files, not committed": (merge_without_commit, ("snapshots",)),
}
"""Point → what the disk looks like there, rooms that the killed run works on. Those before them are undisturbed."""

SHORT = ("snapshots: MERGE has written files, not committed",)
"""The point of `make test`; the others are left to `make test-all`."""

SMALL = {"max_records_per_batch": 24, "max_bytes_per_batch": "1"}
"""The message of 60 records comes in several batches, and each landed file is a batch of the later rooms."""


@dataclass
class World:
    """A lake after a backlog, more in Kafka, and the facts of an undisturbed run over both."""

    shop: Shop
    base: Path
    expected: dict

    def copy(self, folder, **bounds):
        """The lake after the backlog, for one run to disturb."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder)
        return self.config(folder, **bounds)

    def config(self, folder, **bounds):
        return self.shop.config(folder, [{**self.shop.sources()[0], **bounds}])


@pytest.fixture(scope="module")
def world(broker, spark, tmp_path_factory):
    shop = Shop(broker.bootstrap_servers, "kill", 10)
    world = World(shop, tmp_path_factory.mktemp("kill") / "base", {})
    run_rooms(spark, world.config(world.base))
    big = shop.workload.truth[ORDERS.full_name][(9_000_001,)]
    shop.workload.update(ORDERS, ((9_000_001,), {"note": big["note"][::-1]}))
    shop.advance(10)
    undisturbed = world.copy(tmp_path_factory.mktemp("kill") / "undisturbed")
    run_rooms(spark, undisturbed)
    assert shop.differences(undisturbed) == []
    world.expected = facts(undisturbed)
    assert unaccounted(world.expected["outcomes"]) == {}
    return world


def kill_at(point, rooms, config, process):
    """Run the rooms and kill them at the point. Whether it was hit."""
    lake = Lake(config)
    assert not point(lake)
    run = process(config, *rooms)
    while not (reached := point(lake)) and run.popen.poll() is None:
        time.sleep(0.001)
    run.kill()
    assert reached or run.popen.returncode == 0, run.tail()
    return point(lake)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in SHORT else pytest.mark.thorough) for n in POINTS])
def test_a_killed_run_leaves_nothing_behind(world, spark, process, tmp_path, name):
    point, rooms = POINTS[name]
    for attempt in range(ATTEMPTS):
        folder = tmp_path / f"lake{attempt}"
        config = world.copy(folder, **(SMALL if point is half_a_message else {}))
        if before := list(ROOMS)[: list(ROOMS).index(rooms[0])]:
            run_rooms(spark, config, *before)
        if kill_at(point, rooms, config, process):
            break
    else:
        pytest.fail(f"the point was missed {ATTEMPTS} times")
    config = world.config(folder)
    run_rooms(spark, config)
    assert world.shop.differences(config) == []
    found = facts(config)
    for part, expected in world.expected.items():
        assert found[part] == expected, part
