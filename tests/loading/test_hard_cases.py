"""Loads beside DDL, routes, histories and late feeds; a killed process. On a real MariaDB and broker."""

import os
import signal
import subprocess
import sys
import time

import pytest

from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.lake import stores
from cdc_platform.loading import run
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.run import load
from cdc_platform.replay.run import replay
from cdc_platform.tables import HISTORY_PATH, SNAPSHOT_PATH
from tests.loading.test_run import ITEMS

pytestmark = [
    *(pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.thorough),
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("format", ["canal", "debezium"])
def test_a_feed_that_is_behind_a_statement(world, format):
    """The load is ahead of an ALTER TABLE that the feed hasn't sent."""
    w = world(format)
    name = f"altered_{format}"
    w.db.create(name, ITEMS)
    w.db.run(*(f"INSERT INTO {name} VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(10)))
    w.publish()
    w.catch_up()
    w.db.alter(name, "ADD COLUMN more int NOT NULL DEFAULT 5 AFTER name")
    w.db.run(f"INSERT INTO {name} VALUES (20, 'late', 6, 1, NULL)", f"UPDATE {name} SET more = 9 WHERE id = 2")
    with pytest.raises(LoadRefused, match="the feed doesn't tell column more"):
        load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=4)
    w.publish()
    load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=4)
    assert w.problems(name) == []
    w.db.run(f"UPDATE {name} SET more = 10 WHERE id = 3", f"DELETE FROM {name} WHERE id = 4")
    w.publish()
    w.catch_up()
    assert w.problems(name) == []
    w.db.alter(name, "MODIFY price decimal(14,4)")
    w.db.run(f"UPDATE {name} SET price = 1.2345 WHERE id = 5")
    with pytest.raises(LoadRefused, match="a row can't be told as the feed states its table"):
        load(w.spark, w.config, w.source, w.server, [("oracle", name)])
    w.publish()
    load(w.spark, w.config, w.source, w.server, [("oracle", name)])
    assert w.problems(name) == []


def test_a_table_that_is_swapped_between_chunks(world, monkeypatch):
    """The load doesn't go on in the other table, in this call or the next one."""
    w = world("canal")
    for name, price in (("swapped", 1), ("ghost", 2)):
        w.db.create(name, ITEMS)
        w.db.run(*(f"INSERT INTO {name} VALUES ({i}, 'n{i}', {price}, NULL)" for i in range(12)))
    w.publish()
    w.catch_up()
    views = iter(range(100))

    def swaps(*args, opened=run.opened):
        if next(views) == 1:
            time.sleep(1.1)  # the server tells seconds
            w.db.swap("swapped", "ghost", "old")
        return opened(*args)

    with monkeypatch.context() as patched, pytest.raises(LoadRefused, match="another table took its name"):
        patched.setattr(run, "opened", swaps)
        load(w.spark, w.config, w.source, w.server, [("oracle", "swapped")], chunk_rows=5)
    w.publish()
    w.catch_up()
    [done] = load(w.spark, w.config, w.source, w.server, [("oracle", "swapped")], chunk_rows=5)
    assert (done.resumed, done.rows, w.problems("swapped", "old")) == (False, 12, [])


def test_a_virtual_column_that_the_log_carries(world):
    w = world("debezium")
    w.db.create("virtual", "(id int NOT NULL PRIMARY KEY, a int, v int AS (a + 1) VIRTUAL)")
    w.db.run(*(f"INSERT INTO virtual (id, a) VALUES ({i}, {i})" for i in range(9)))
    w.skip()
    w.db.run("UPDATE virtual SET a = 50 WHERE id = 1")
    w.publish()
    load(w.spark, w.config, w.source, w.server, [("oracle", "virtual")], chunk_rows=5)
    assert w.problems("virtual") == []
    w.db.run("UPDATE virtual SET a = 60 WHERE id = 2")
    w.publish()
    w.catch_up()
    assert w.problems("virtual") == []


def test_a_feed_that_is_behind_all_of_it(world):
    """What the feed sends after the load, and was before it in the log, changes nothing: even a row whose delete is
    lost."""
    w = world("tencent_dts")
    w.db.create("behind", ITEMS)
    w.db.run(*(f"INSERT INTO behind VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(12)))
    w.publish()
    w.catch_up()
    w.db.run("INSERT INTO behind VALUES (50, 'shortly', 1, NULL)", "UPDATE behind SET name = 'b' WHERE id < 6")
    w.db.run("DELETE FROM behind WHERE id = 50", "DELETE FROM behind WHERE id = 1")
    load(w.spark, w.config, w.source, w.server, [("oracle", "behind")], chunk_rows=5)
    assert w.problems("behind") == []
    w.publish(lambda tx: any(c.op == "delete" for c in tx.events))
    w.catch_up()
    assert w.problems("behind") == []
    assert all(row["unaccounted"] == 0 for row in w.ledger())


def test_routes_and_histories(world):
    w = world(
        "canal",
        routes={r"oracle\.part_[0-9]": "oracle.parts_all"},
        history=["oracle.kept"],
    )
    for name in ("part_1", "part_2", "kept"):
        w.db.create(name, ITEMS)
        w.db.run(*(f"INSERT INTO {name} VALUES ({i}, '{name}', {i}, NULL)" for i in range(6)))
    w.publish()
    w.catch_up()
    w.db.run("DELETE FROM part_1 WHERE id = 2", "DELETE FROM kept WHERE id = 3", "UPDATE part_2 SET price = 9")
    w.skip()
    names = [("oracle", n) for n in ("part_1", "part_2", "kept")]
    before = w.ledger()
    with pytest.raises(LoadRefused, match=r"a load ends history of oracle\.kept"):
        load(w.spark, w.config, w.source, w.server, names)
    assert w.ledger() == before
    done = load(w.spark, w.config, w.source, w.server, names, end_history=True)
    assert [d.state for d in done] == ["live"] * 3
    assert w.problems("kept") == []
    lake = stores.lake(w.config)
    parts = read_snapshot(SNAPSHOT_PATH.of(lake, "oracle", ("oracle", "parts_all")).uri()).to_pylist()
    told = sorted((r["name"], r["id"], int(r["price"])) for r in parts)
    assert told == sorted([("part_1", i, i) for i in range(6) if i != 2] + [("part_2", i, 9) for i in range(6)])
    versions = read_snapshot(HISTORY_PATH.of(lake, "oracle", ("oracle", "kept")).uri()).to_pylist()
    assert sorted(v["id"] for v in versions if v["_cdc_order_to"] is None) == [0, 1, 2, 4, 5]


def test_a_killed_load_goes_on(world):
    w = world("debezium")
    w.db.create("killed", ITEMS)
    w.db.run(*(f"INSERT INTO killed VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(400)))
    w.publish()
    w.catch_up()
    w.db.run("DELETE FROM killed WHERE id IN (3, 390)", "UPDATE killed SET price = 7 WHERE id IN (4, 391)")
    w.skip()
    program = "from cdc_platform.cli.app import main; main()"
    command = [sys.executable, "-c", program, "load", w.source.name, "oracle.killed", "--chunk-rows", "10"]
    command += ["--config", str(w.file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " in 7 chunks" in line:
                os.kill(process.pid, signal.SIGKILL)
                break
    time.sleep(0.5)
    w.catch_up()
    assert 0 < len(w.problems("killed")) < 5
    [done] = load(w.spark, w.config, w.source, w.server, [("oracle", "killed")], chunk_rows=100)
    assert done.resumed and done.rows == 398 and done.chunks > 10
    assert w.problems("killed") == []
    assert all(row["unaccounted"] == 0 for row in w.ledger())


def test_a_replay_makes_the_same_of_it(world):
    """What landed is decoded again, beside the lake, in whatever batches."""
    w = world("canal")
    w.db.create("again", ITEMS)
    w.db.run(*(f"INSERT INTO again VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(10)))
    w.publish()
    w.catch_up()
    w.db.run("DELETE FROM again WHERE id = 2", "UPDATE again SET price = 9 WHERE id = 3")
    w.skip()
    load(w.spark, w.config, w.source, w.server, [("oracle", "again")], chunk_rows=4)
    w.db.run("UPDATE again SET price = 10 WHERE id = 4")
    w.publish()
    w.catch_up()
    assert w.problems("again") == []
    found = replay(w.spark, w.config, w.source)
    assert found["equal"], found
