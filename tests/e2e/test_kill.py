"""Runs killed at named points, of a lake in a folder and one on S3: an ordinary run afterwards gives the tables of an
undisturbed one.

Where this process's own code comes to the point, the run kills itself there, all its processes. Where Spark does, a
watcher looks at the lake's files every millisecond and kills the run's whole session in the moment the point is
reached. The files that lie there afterwards prove that the kill hit it.
"""

import json
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdc_platform.chain import STAGES
from cdc_platform.config import load_config
from cdc_platform.feeds.shop import ORDERS
from cdc_platform.lake import stores
from cdc_platform.lake.store import shown
from tests.changelog.feed import Feed, Image, SourceTable
from tests.e2e.driver import KILL
from tests.e2e.e2e_shop import Shop, facts, run_stages, unaccounted
from tests.e2e.points import APPEND, COMMIT, NOTE, POINTS, Delta, Lake, half_a_message
from tests.lakes import forget_all

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]

ATTEMPTS = 4


SMALL = {"max_records_per_batch": 24, "max_bytes_per_batch": "1"}
"""The message of 60 records comes in several batches, and each landed file is a batch of the later stages."""


@pytest.fixture(params=["folder", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.thorough])])
def place(request):
    """What a cdc.yaml says of its lake: beside it, or in a bucket."""
    return {"lake": "./lake"} if request.param == "folder" else request.getfixturevalue("in_a_bucket")


@dataclass
class World:
    """A lake after a backlog, more in Kafka, and the facts of an undisturbed run over both."""

    shop: Shop
    base: Path
    expected: dict

    def copy(self, folder, place, **bounds):
        """The lake after the backlog, for one run to disturb."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder)
        config = self.config(folder, place, **bounds)
        if (lake := stores.lake(config)).remote:
            shutil.move(folder / "lake", folder / "was")
            files = [f for f in (folder / "was").rglob("*") if f.is_file() and shown(f.name)]
            lake.remove(lake.below(""))  # of the attempt before
            for file in files:
                lake.put(str(file.relative_to(folder / "was")), file.read_bytes())
        forget_all()
        return config

    def config(self, folder, place, **bounds):
        return self.shop.config(folder, [{**self.shop.sources()[0], **bounds}], **place)


FOLDER = {"lake": "./lake"}


@pytest.fixture(scope="module")
def world(broker, spark, tmp_path_factory):
    shop = Shop(broker.bootstrap_servers, "kill", 10)
    world = World(shop, tmp_path_factory.mktemp("kill") / "base", {})
    run_stages(spark, world.config(world.base, FOLDER))
    big = shop.workload.truth[ORDERS.full_name][(9_000_001,)]
    shop.workload.update(ORDERS, ((9_000_001,), {"note": big["note"][::-1]}))
    shop.advance(10)
    undisturbed = world.copy(tmp_path_factory.mktemp("kill") / "undisturbed", FOLDER)
    run_stages(spark, undisturbed)
    assert shop.differences(undisturbed) == []
    world.expected = facts(undisturbed)
    assert unaccounted(world.expected["outcomes"]) == {}
    return world


def killed(run):
    """What has killed itself, and all of its processes have ended."""
    run.popen.wait()
    run.kill()
    assert run.popen.returncode == -signal.SIGKILL, run.tail()
    forget_all()


def kill_at(point, config, process):
    """Run the stages and kill them at the point. Whether it was hit."""
    lake = Lake(config)
    assert not point.files(lake)
    if point.call:
        function, *mentioned = point.call
        grown = lake.waiting.commit(lake.waiting.version() + 1) if point.files is half_a_message else None
        killed(process(config, *point.stages, env={KILL: json.dumps([function, mentioned, grown])}))
        assert point.files(lake)
        return True
    run = process(config, *point.stages, env={})
    while not (reached := point.files(lake)) and run.popen.poll() is None:
        time.sleep(0.001)
    run.kill()
    assert reached or run.popen.returncode == 0, run.tail()
    return point.files(lake)


def done(spark, config, process, *stages):
    """An ordinary run; on S3 in a process of its own, as this one's JVM knows no S3."""
    if not stores.lake(config).remote:
        run_stages(spark, config, *stages)
        return
    run = process(config, *stages)
    assert run.popen.wait() == 0, run.tail()
    forget_all()


@pytest.mark.thorough
@pytest.mark.parametrize("name", POINTS)
def test_a_killed_run_leaves_nothing_behind(world, spark, process, tmp_path, place, name):
    point = POINTS[name]
    for attempt in range(ATTEMPTS):
        folder = tmp_path / f"lake{attempt}"
        config = world.copy(folder, place, **(SMALL if point.files is half_a_message else {}))
        if before := list(STAGES)[: list(STAGES).index(point.stages[0])]:
            done(spark, config, process, *before)
        if kill_at(point, config, process):
            break
    else:
        pytest.fail(f"the point was missed {ATTEMPTS} times")
    config = world.config(folder, place)
    done(spark, config, process, *STAGES)
    assert world.shop.differences(config) == []
    found = facts(config)
    for part, expected in world.expected.items():
        assert found[part] == expected, part


def feed_of(spark, folder, place):
    """An empty lake of one source, whose changes a test says."""
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    told = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "sources": [source], **place}
    (folder / "cdc.yaml").write_text(json.dumps(told))
    return Feed(spark, load_config(folder / "cdc.yaml"), "s")


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
def test_a_run_killed_while_workers_bring_rows_in_leaves_nothing_behind(spark, process, tmp_path, place, name, small):
    feed = feed_of(spark, tmp_path, place)
    feed.say(PLAIN.stated(), *(PLAIN.insert((1, i), {"id": str(i), "note": "a" * 9}) for i in range(9)))
    feed.catch_up()
    table = Delta(feed.target("shop", "plain").snapshot)
    if not small:
        table.let_rows_be_marked()
    changes = [PLAIN.update((2, i), {"id": str(i), "note": "a" * 9}, {"id": str(i), "note": "b"}) for i in (1, 2, 3)]
    feed.say(PLAIN.stated(), *changes, PLAIN.delete((2, 8), {"id": "8", "note": "a" * 9}))
    feed.unify()
    function, *mentioned = CALLS[name]
    killed(process(feed.config, "snapshots", env={KILL: json.dumps([function, mentioned, None])}))
    assert bool({f for f in table.data_files() if f.endswith(".parquet")} - table.added()) is (name in list(CALLS)[:2])
    done(spark, feed.config, process, "snapshots")
    assert {r["id"]: r["note"] for r in feed.live("shop", "plain")} == {
        i: "b" if i in (1, 2, 3) else "a" * 9 for i in range(8)
    }
    assert [t["_k0"] for t in feed.tombstones("shop", "plain")] == [8]
    assert feed.state("shop", "plain") == ("live", None)


MANY = [SourceTable("shop", f"m{i:02}", [("id", "int"), ("note", "text")]) for i in range(24)]
"""More than are committed at once, on S3 too."""


@pytest.mark.thorough
def test_a_run_killed_between_two_tables_of_a_round_leaves_nothing_behind(spark, process, tmp_path, place):
    """Every third was truncated, between an update and an insert."""
    feed = feed_of(spark, tmp_path, place)
    rows: list[Image] = [{"id": str(i), "note": "a"} for i in range(5)]
    feed.say(*(e for t in MANY for e in (t.stated(), *(t.insert((1, i), row) for i, row in enumerate(rows)))))
    done(spark, feed.config, process, "changelog", "snapshots")
    for n, table in enumerate(MANY):
        feed.say(table.stated(), table.update((2, 1), rows[1], {"id": "1", "note": "b"}), table.delete((2, 2), rows[2]))
        if n % 3 == 0:
            feed.say({**table.change("truncate", (2, 3)), "key": None, "schema_version": None})
        feed.say(table.insert((2, 4), {"id": "9", "note": "c"}))
    done(spark, feed.config, process, "changelog")
    made = [Delta(feed.target("shop", t.name).snapshot) for t in MANY]
    before = [table.version() for table in made]
    call = ["cdc_platform.lake.commits.commit", ["snapshots/s/shop/m"], made[0].commit(before[0] + 1)]
    killed(process(feed.config, "snapshots", env={KILL: json.dumps(call)}))
    brought = [table.version() > version for table, version in zip(made, before, strict=True)]
    assert brought[0] and not all(brought)
    done(spark, feed.config, process, "snapshots")
    for n, table in enumerate(MANY):
        kept = {9: "c"} if n % 3 == 0 else {0: "a", 1: "b", 3: "a", 4: "a", 9: "c"}
        assert {r["id"]: r["note"] for r in feed.live("shop", table.name)} == kept
        told = [(t["scope"], t["_k0"]) for t in feed.tombstones("shop", table.name)]
        assert told == ([("table", None)] if n % 3 == 0 else [("row", 2)])
        assert feed.state("shop", table.name) == ("live", None)


_TAKEN = "cdc_platform.lake.takeover.take_over"
COMMANDS = {
    "rebuild, with nothing in place": (_TAKEN, "snapshots/dts/shop/orders"),
    "rebuild, with rows in place and no tombstones": (_TAKEN, "tombstones/dts/shop/orders"),
    "maintain, with bookkeeping folded": ("cdc_platform.maintenance.run._snapshots",),
    "maintain, with some tables put together": ("cdc_platform.maintenance.run._size",),
}
"""Instead of which a command kills itself."""
REBUILD = ("run", "--source", "dts", "--table", ORDERS.full_name, "--rebuild")


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_was_killed_is_given_once_more(world, spark, process, tmp_path, place, name):
    """Meanwhile readers find the rows, and nothing that was told is told otherwise."""
    config = world.copy(tmp_path / "lake", place)
    done(spark, config, process)
    function, *mentioned = COMMANDS[name]
    command = ["cdc-platform", *(REBUILD if function == _TAKEN else ("maintain",))]
    ledger = Lake(config).ledger
    grown = ledger.commit(ledger.version() + 1) if function.endswith("_size") else None
    killed(process(config, *command, env={KILL: json.dumps([function, mentioned, grown])}))
    assert world.shop.differences(config) == []
    again = process(config, *command)
    assert again.popen.wait() == 0, again.tail()
    forget_all()
    assert world.shop.differences(config) == []
    assert facts(config) == world.expected
    done(spark, config, process)  # which has nothing to do
    assert facts(config) == world.expected
