"""Runs killed at named points: an ordinary run afterwards gives the tables of an undisturbed one.

Where this process's own code comes to the point, the run kills itself there, all its processes. Where Spark does, a
watcher looks at the lake's files every millisecond and kills the run's whole session in the moment the point is
reached. What lies on disk afterwards proves that the kill hit it.
"""

import json
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from cdc_platform.chain import STAGES
from cdc_platform.config import load_config
from cdc_platform.feeds.shop import ORDERS
from cdc_platform.lake import delta_table
from cdc_platform.tables import CHANGELOG, CHANGES, CHECKPOINT, LANDING, OFFSET_LEDGER, SNAPSHOT_PATH, WAITING
from tests.changelog.feed import Feed, Image, SourceTable
from tests.e2e.driver import KILL
from tests.e2e.e2e_shop import Shop, facts, run_stages, unaccounted
from tests.lakes import store_at

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
        self.changes = Delta(CHANGES.at(lake, format="tencent_dts", source="dts"))
        self.changelog, self.ledger = Delta(CHANGELOG.at(lake)), Delta(OFFSET_LEDGER.at(lake))
        self.orders = Delta(SNAPSHOT_PATH.at(lake, source="dts", db="shop", table="orders"))
        tables = (self.landing, self.waiting, self.changes, self.changelog, self.ledger, self.orders)
        self.versions = {t.path: t.version() for t in tables}
        self.files = {t.path: t.data_files() for t in tables}

    def grown(self, table):
        return table.version() > self.versions[table.path]

    def new_files(self, table):
        return table.data_files() - self.files[table.path]

    def batches(self, stage, which):
        """Batches that a stage's checkpoint names under `offsets` (planned) or `commits` (done)."""
        name = "dts.0" if stage == "landing" else "dts"
        folder = Path(CHECKPOINT.at(self.config.lake, room=stage, source=name)) / which
        return {int(p.name) for p in folder.glob("*") if p.name.isdigit()}

    def pending(self, stage):
        return self.batches(stage, "offsets") - self.batches(stage, "commits")

    def accounted(self):
        """Newest batch of the changelog that the ledger has."""
        told = "SELECT max(batch) AS batch FROM {t} WHERE source = 'dts' AND room = 'changelog'"
        return delta_table.ask(told, t=store_at(self.ledger.path))[0]["batch"]


def files_without_commit(lake):
    return bool(lake.new_files(lake.landing)) and not lake.grown(lake.landing)


def commit_without_checkpoint(lake):
    return lake.grown(lake.landing) and bool(lake.pending("landing"))


def half_a_message(lake):
    return lake.grown(lake.waiting) and bool(lake.pending("envelopes"))


def changelog_without_ledger(lake):
    """Of the batch that isn't done."""
    batch = lake.changelog.committed("changelog dts")
    return lake.grown(lake.changelog) and batch in lake.pending("changelog") and batch > lake.accounted()


def changelog_without_checkpoint(lake):
    return lake.grown(lake.changelog) and {lake.accounted()} == lake.pending("changelog")


def changes_without_commit(lake):
    return bool(lake.new_files(lake.changes)) and not lake.grown(lake.changes)


def merge_without_commit(lake):
    new = {f for f in lake.new_files(lake.orders) if f.endswith(".parquet")}
    return bool(new) and not new & lake.orders.added()


class Point(NamedTuple):
    """disk: what the disk looks like there. stages: that the killed run works on; those before them are undisturbed.
    call: instead of which the run kills itself (driver.KILL); None: a watcher kills it, where the work is Spark's."""

    disk: Callable[[Lake], bool]
    stages: tuple[str, ...]
    call: tuple[str, ...] | None = None


COMMIT, NOTE, APPEND = (
    f"cdc_platform.{function}"
    for function in ("lake.commits.append_files", "lake.checkpoints.note", "lake.delta_table.append_rows")
)
CHAIN = ("landing", "envelopes", "changes", "changelog")

POINTS = {
    "landing: files written, not committed": Point(files_without_commit, CHAIN[:1], (COMMIT, "landing/dts")),
    "landing: committed, checkpoint not yet": Point(
        commit_without_checkpoint, CHAIN[:1], (NOTE, "landing/dts.0", "'commits'")
    ),
    "envelopes: half of a split message waits": Point(half_a_message, CHAIN[:2], (NOTE, "envelopes/dts", "'commits'")),
    "changes: files written, not committed": Point(changes_without_commit, CHAIN[:3], (COMMIT, "changes/")),
    "changelog: committed, ledger not yet": Point(
        changelog_without_ledger, CHAIN, (APPEND, "offset_ledger", "room = 'changelog'")
    ),
    "changelog: all written, checkpoint not yet": Point(
        changelog_without_checkpoint, CHAIN, (NOTE, "changelog/dts", "'commits'")
    ),
    "snapshots: MERGE has written files, not committed": Point(merge_without_commit, ("snapshots",)),
}

SMALL = {"max_records_per_batch": 24, "max_bytes_per_batch": "1"}
"""The message of 60 records comes in several batches, and each landed file is a batch of the later stages."""


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
    run_stages(spark, world.config(world.base))
    big = shop.workload.truth[ORDERS.full_name][(9_000_001,)]
    shop.workload.update(ORDERS, ((9_000_001,), {"note": big["note"][::-1]}))
    shop.advance(10)
    undisturbed = world.copy(tmp_path_factory.mktemp("kill") / "undisturbed")
    run_stages(spark, undisturbed)
    assert shop.differences(undisturbed) == []
    world.expected = facts(undisturbed)
    assert unaccounted(world.expected["outcomes"]) == {}
    return world


def kill_at(point, config, process):
    """Run the stages and kill them at the point. Whether it was hit."""
    lake = Lake(config)
    assert not point.disk(lake)
    if point.call:
        function, *mentioned = point.call
        grown = lake.waiting.log / f"{lake.waiting.version() + 1:020d}.json" if point.disk is half_a_message else None
        run = process(config, *point.stages, env={KILL: json.dumps([function, mentioned, grown and str(grown)])})
        run.popen.wait()
        run.kill()
        assert run.popen.returncode == -signal.SIGKILL, run.tail()
        assert point.disk(lake)
        return True
    run = process(config, *point.stages, env={})
    while not (reached := point.disk(lake)) and run.popen.poll() is None:
        time.sleep(0.001)
    run.kill()
    assert reached or run.popen.returncode == 0, run.tail()
    return point.disk(lake)


@pytest.mark.thorough
@pytest.mark.parametrize("name", POINTS)
def test_a_killed_run_leaves_nothing_behind(world, spark, process, tmp_path, name):
    point = POINTS[name]
    for attempt in range(ATTEMPTS):
        folder = tmp_path / f"lake{attempt}"
        config = world.copy(folder, **(SMALL if point.disk is half_a_message else {}))
        if before := list(STAGES)[: list(STAGES).index(point.stages[0])]:
            run_stages(spark, config, *before)
        if kill_at(point, config, process):
            break
    else:
        pytest.fail(f"the point was missed {ATTEMPTS} times")
    config = world.config(folder)
    run_stages(spark, config)
    assert world.shop.differences(config) == []
    found = facts(config)
    for part, expected in world.expected.items():
        assert found[part] == expected, part


PLAIN = SourceTable("shop", "plain", [("id", "int"), ("note", "text")])

CALLS = {
    "tombstones": (COMMIT, "tombstones/"),
    "rows, of which files and vectors are written": ("cdc_platform.lake.commits.commit",),
    "what became of the tables": (APPEND, "table_state"),
    "the batch's end": (NOTE, "snapshots/s", "'commits'"),
}
"""Instead of which the run kills itself."""

KEPT = ("what became of the tables",)
"""Of `make test`: the rows are there, and nothing tells it."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KEPT else pytest.mark.thorough) for n in CALLS])
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_run_killed_while_workers_bring_rows_in_leaves_nothing_behind(spark, process, tmp_path, name, small):
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    told = {"lake": str(tmp_path / "lake"), "kafka": kafka, "sources": [source]}
    (tmp_path / "cdc.yaml").write_text(json.dumps(told))
    config = load_config(tmp_path / "cdc.yaml")
    feed = Feed(spark, config, "s")
    feed.say(PLAIN.stated(), *(PLAIN.insert((1, i), {"id": str(i), "note": "a" * 9}) for i in range(9)))
    feed.catch_up()
    path = feed.target("shop", "plain").snapshot.uri()
    if not small:
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    changes = [PLAIN.update((2, i), {"id": str(i), "note": "a" * 9}, {"id": str(i), "note": "b"}) for i in (1, 2, 3)]
    feed.say(PLAIN.stated(), *changes, PLAIN.delete((2, 8), {"id": "8", "note": "a" * 9}))
    feed.unify()
    function, *mentioned = CALLS[name]
    run = process(config, "snapshots", env={KILL: json.dumps([function, mentioned, None])})
    run.popen.wait()
    run.kill()
    assert run.popen.returncode == -signal.SIGKILL, run.tail()
    table = Delta(path)
    assert bool({f for f in table.data_files() if f.endswith(".parquet")} - table.added()) is (name in list(CALLS)[:2])
    feed.snapshot()
    assert {r["id"]: r["note"] for r in feed.live("shop", "plain")} == {
        i: "b" if i in (1, 2, 3) else "a" * 9 for i in range(8)
    }
    assert [t["_k0"] for t in feed.tombstones("shop", "plain")] == [8]
    assert feed.state("shop", "plain") == ("live", None)


MANY = [SourceTable("shop", f"m{i:02}", [("id", "int"), ("note", "text")]) for i in range(12)]


@pytest.mark.thorough
def test_a_run_killed_between_two_tables_of_a_round_leaves_nothing_behind(spark, process, tmp_path):
    """Every third was truncated, between an update and an insert."""
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    told = {"lake": str(tmp_path / "lake"), "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "sources": [source]}
    (tmp_path / "cdc.yaml").write_text(json.dumps(told))
    feed = Feed(spark, load_config(tmp_path / "cdc.yaml"), "s")
    rows: list[Image] = [{"id": str(i), "note": "a"} for i in range(5)]
    feed.say(*(e for t in MANY for e in (t.stated(), *(t.insert((1, i), row) for i, row in enumerate(rows)))))
    feed.catch_up()
    for n, table in enumerate(MANY):
        feed.say(table.stated(), table.update((2, 1), rows[1], {"id": "1", "note": "b"}), table.delete((2, 2), rows[2]))
        if n % 3 == 0:
            feed.say({**table.change("truncate", (2, 3)), "key": None, "schema_version": None})
        feed.say(table.insert((2, 4), {"id": "9", "note": "c"}))
    feed.unify()
    made = [Delta(feed.target("shop", t.name).snapshot.uri()) for t in MANY]
    before = [table.version() for table in made]
    first = made[0].log / f"{before[0] + 1:020d}.json"
    call = ["cdc_platform.lake.commits.commit", ["snapshots/s/shop/m"], str(first)]
    run = process(feed.config, "snapshots", env={KILL: json.dumps(call)})
    run.popen.wait()
    run.kill()
    assert run.popen.returncode == -signal.SIGKILL, run.tail()
    done = [table.version() > version for table, version in zip(made, before, strict=True)]
    assert done[0] and not all(done)
    feed.snapshot()
    for n, table in enumerate(MANY):
        kept = {9: "c"} if n % 3 == 0 else {0: "a", 1: "b", 3: "a", 4: "a", 9: "c"}
        assert {r["id"]: r["note"] for r in feed.live("shop", table.name)} == kept
        told = [(t["scope"], t["_k0"]) for t in feed.tombstones("shop", table.name)]
        assert told == ([("table", None)] if n % 3 == 0 else [("row", 2)])
        assert feed.state("shop", table.name) == ("live", None)
