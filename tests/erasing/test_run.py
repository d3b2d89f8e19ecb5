"""A subject's bytes out of a lake that a real broker feeds from a real MariaDB: gone from every file, other rows as
they were, and the platform goes on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import chain
from cdc_platform.erasing import run as running
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.errors import ConfigError, RunInProgress
from cdc_platform.lake import delta_table, erasing, stores
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.replay import side
from cdc_platform.replay.run import asked, replay
from cdc_platform.snapshots.target import Target
from cdc_platform.spark.session import leased
from cdc_platform.tables import ERASURES
from tests.erasing.bytes import holding
from tests.erasing.people import MAIL, SECRET, erasure, filled, lake, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "format", [*(pytest.param(f, marks=pytest.mark.thorough) for f in ("debezium", "canal")), "tencent_dts"]
)
def test_nothing_is_left(world, format, monkeypatch):
    w = world(format)
    name = f"people_{format}"
    filled(w, name)
    before, there = rows(w, name), w.ledger()
    killed_rebuilds(w, name)
    assert holding(lake(w), SECRET, MAIL)
    plan = erasure(w, name).plan()
    killed = [Path(of.uri(), "rebuild-0") for of in (target(w, name).snapshot, target(w, name).tombstones)]
    assert all(any(path.iterdir()) for path in killed), "a plan leaves all as it is"
    assert plan["alive"] and plan["messages"] and not plan["not_read"]
    assert any(m["shared"] for m in plan["messages"]) == (format != "debezium")
    tried = []

    def finish(*given: Any) -> None:
        """No replay begins with what is about to go."""
        with pytest.raises(RunInProgress), side.held(w.config, w.source):
            pass
        with pytest.raises(ConfigError, match="an erasure of it was begun"):
            asked(w.config, w.source, (), (), None, swap=False)
        tried.append(given)
        finished(*given)

    finished = running.erasing.finish
    with monkeypatch.context() as patched:
        patched.setattr(side, "_WAIT_S", 0.1)
        patched.setattr(running.erasing, "finish", finish)
        told = erasure(w, name).erase(w.spark)
    assert tried
    assert told["proof"]["left"] == 0, told
    assert (told["proof"]["values"], told["proof"]["too_short"], told["proof"]["doubts"]) == (3, 2, [])  # 7, a date
    [kept] = delta_table.ask("SELECT proof FROM {t} WHERE stage = 'done'", t=ERASURES.at(stores.lake(w.config)))
    assert json.loads(kept["proof"]) == told["proof"]
    assert holding(lake(w), SECRET, MAIL) == []
    assert rows(w, name) == {k: v for k, v in before.items() if k != 7}
    now = w.ledger()
    assert [r["unaccounted"] for r in now] == [0] * len(now)
    assert sum(r["erased"] for r in now) == sum(not m["shared"] for m in plan["messages"])
    assert [r["landed"] for r in now] == [r["landed"] for r in there]


def target(w: Any, name: str) -> Target:
    return Target.of(w.config, w.source.name, "oracle", name)


def killed_rebuilds(w: Any, name: str) -> None:
    """What runs left that were killed while they made tables anew: of one that is there, and of one that never was."""
    there = target(w, name)
    for of in (there.tombstones, there.snapshot):
        shutil.copytree(there.snapshot.uri(), Path(of.uri(), "rebuild-0"))


def follow_up(w: Any, name: str, others: dict[int, Any]) -> None:
    """What comes after an erasure: runs, a rebuild, a replay, a swap. `others` is what is to be there."""
    changed = {**others, 2: {**others[2], "mail": "later"}, 20: {"id": 20, "name": "x", "mail": None, "born": None}}
    w.db.run(f"UPDATE {name} SET mail = 'later' WHERE id = 2", f"INSERT INTO {name} VALUES (20, 'x', NULL, NULL)")
    w.publish()
    w.catch_up()
    assert rows(w, name) == changed
    with source_lock(w.config, w.source) as lease, leased(w.spark, lease):
        chain.rebuild(w.spark, w.config, w.source, "oracle", name)
    assert rows(w, name) == changed
    told = replay(w.spark, w.config, w.source)
    assert told["equal"], told
    replay(w.spark, w.config, w.source, swap=True)
    assert rows(w, name) == changed
    assert holding(lake(w), SECRET, MAIL) == []
    assert [r["unaccounted"] for r in w.ledger()] == [0] * len(w.ledger())


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["debezium", "canal", "tencent_dts"])
def test_the_platform_goes_on(world, format):
    w = world(format)
    name = f"after_{format}"
    filled(w, name)
    others = {k: v for k, v in rows(w, name).items() if k != 7}
    held = stores.lake(w.config)
    erasing.decide(held, "beside", [], number=1)
    with pytest.raises(EraseRefused, match="an erasure of source beside isn't finished"):
        erasure(w, name).erase(w.spark)
    erasing.done(held, "beside")
    assert erasing.pending(held, w.source.name) is None
    erased = erasure(w, name).erase(w.spark)
    assert erased["proof"]["left"] == 0
    counted = w.ledger()
    w.catch_up()
    assert rows(w, name) == others
    assert w.ledger() == counted
    follow_up(w, name, others)
    with pytest.raises(EraseRefused, match="gone already: erasure 1"):
        erasure(w, name).erase(w.spark)
    w.db.create(f"{name}_other", "(id int NOT NULL PRIMARY KEY)")
    w.db.run(f"INSERT INTO {name}_other VALUES (1)")
    w.publish()
    w.catch_up()
    with pytest.raises(EraseRefused, match="nothing of this key"):
        erasure(w, f"{name}_other").erase(w.spark)
