"""`reconcile --repair` that is killed: the next one does what it would have done, and nothing twice."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.cli.app import run
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.lake import held_rows, stores
from tests.killed import dies
from tests.loading.world import NAME, World
from tests.oracle.session import DB

pytestmark = [
    *(pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.thorough),
    pytest.mark.timeout(600),
]

LANDING = f"landing/{NAME}"


def differing(w: World, name: str) -> list[str]:
    """A table of which the feed lost an insert, two deletes and an update; the repair's arguments."""
    w.db.create(name, "(id int PRIMARY KEY, v int)")
    w.db.run(*(f"INSERT INTO {name} VALUES ({i}, {i})" for i in range(9)))
    w.publish()
    w.db.run(
        f"INSERT INTO {name} VALUES (20, 20)",
        f"DELETE FROM {name} WHERE id < 2",
        f"UPDATE {name} SET v = 50 WHERE id = 5",
    )
    w.skip()
    w.catch_up()
    assert len(w.problems(name)) == 4
    return ["reconcile", NAME, f"{DB}.{name}", "--repair", "--config", str(w.file), "--json"]


def repaired(w: World, name: str, arguments: list[str], capsys: Any) -> list[dict[str, Any]]:
    """What the next one did; and that all is right, and nothing there twice."""
    capsys.readouterr()
    assert run(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["equal"]
    assert w.problems(name) == []
    ledger = w.ledger()
    assert [(r["unaccounted"], r["lost"]) for r in ledger] == [(0, 0)] * len(ledger)
    assert [r["landed"] for r in ledger if r["topic"] == tables.LOADED] == [1]
    assert not held_rows.by_table(w.config)
    lake = stores.lake(w.config)
    rows = read_snapshot(tables.CHANGELOG.at(lake).uri()).to_pylist()
    put_in = [dict(r["key"])["id"] for r in rows if r["topic"] == tables.LOADED]
    assert sorted(put_in, key=int) == ["0", "1", "5", "20"]
    versions = read_snapshot(tables.HISTORY_PATH.of(lake, NAME, (DB, name)).uri()).to_pylist()
    assert sorted(r["id"] for r in versions) == [*range(6), 5, 6, 7, 8, 20]
    return told["repaired"]


def test_a_repair_that_is_killed_behind_its_landing(world: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    w = world("canal", history=[f"{DB}.*"])
    arguments = differing(w, "killed_behind")
    dies(monkeypatch, str(w.config.lake), LANDING, lambda: run(arguments), done=True)
    assert w.problems("killed_behind")
    assert repaired(w, "killed_behind", arguments, capsys) == []


WRITES = (
    (LANDING, False),
    ("offset_ledger", False),
    (f"changes/canal/{NAME}", True),
    ("changelog", False),
    ("changelog", True),
    (f"_checkpoints/changelog/{NAME} commits", False),
    ("table_state", False),
)


@pytest.mark.parametrize("number", range(len(WRITES)), ids=[f"{where} {done}" for where, done in WRITES])
def test_a_repair_that_is_killed_at_a_write(world: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, number: int):
    (where, done), name = WRITES[number], f"killed_{number}"
    w = world("canal", history=[f"{DB}.*"])
    arguments = differing(w, name)
    dies(monkeypatch, str(w.config.lake), where, lambda: run(arguments), done=done)
    again = repaired(w, name, arguments, capsys)
    assert [(r["rows"], r["gone"]) for r in again] == ([(2, 2)] if where == LANDING else [])


PROGRAM = """
import os, signal
from cdc_platform.cli.app import main
from cdc_platform.loading import repair
own = repair.land.land
repair.land.land = lambda *given: (own(*given), os.kill(os.getpid(), signal.SIGKILL))
main()
"""


def test_a_repair_whose_process_is_killed(world: Any, capsys: Any):
    w = world("canal", history=[f"{DB}.*"])
    arguments = differing(w, "killed_process")
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    time.sleep(0.5)
    assert repaired(w, "killed_process", arguments, capsys) == []
