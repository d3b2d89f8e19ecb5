"""An erasure that is killed at any step: what follows it is right, and the same command finishes it."""

import pytest

from cdc_platform.erasing import proof
from cdc_platform.erasing import run as running
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.lake import commits, erasing, rewritten_logs
from tests.erasing.bytes import holding
from tests.erasing.people import PEOPLE, erasure, lake, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(900)]

STEPS = (
    (running.ledger, "moves", 0, "files are written"),
    (running.erasing, "finish", 0, "it is decided"),
    (erasing, "_apply", 0, "before the first table"),
    (erasing, "_apply", 3, "between two tables"),
    (rewritten_logs, "_rewrite_commit", 2, "in a log"),
    (commits, "replace", 1, "before the commit that tells it"),
    (rewritten_logs, "checkpoint_alone", 1, "before a checkpoint"),
    (running.ledger, "append", 0, "before the ledger"),
    (proof, "look_through", 0, "before files are looked through"),
    (erasing, "remove", 0, "before old files are removed"),
    (erasing, "remove", 2, "while they are"),
    (running.chain, "snapshot", 1, "before its cut"),
    (erasing, "done", 0, "before the note is gone"),
)
"""Where it is killed: a function, and before which call of it."""
ESSENTIAL = (3, 10)


def secret(key: int) -> str:
    return f"Secret of Person {chr(65 + key)}{key}x"


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [[STEPS[i] for i in ESSENTIAL], pytest.param(STEPS, marks=pytest.mark.thorough)])
def test_it_is_finished(world, monkeypatch, steps):
    """Of each step another person; an ordinary run comes in between of every second one."""
    w, name = world("canal"), f"killed_{len(steps)}"
    w.db.create(name, PEOPLE)
    for key in range(20):
        w.db.run(f"INSERT INTO {name} VALUES ({key}, '{secret(key)}', 'm', NULL), ({key + 100}, 'o{key}', 'n', NULL)")
        if key % 5 == 0:
            w.publish()
            w.catch_up()
    w.publish()
    w.catch_up()
    expected, erased, failed = rows(w, name), 0, []
    for key, (module, function, call, step) in enumerate(steps):
        killed(w, name, key, monkeypatch, module, function, call)
        if key % 2:
            w.catch_up()
        told = erasure(w, name, str(key)).erase(w.spark) if not done(w, name, key) else {"proof": {"left": 0}}
        expected.pop(key)
        wrong = {
            "left": told["proof"]["left"],
            "bytes": holding(lake(w), secret(key)),
            "note": erasing.pending(erasure(w, name, str(key)).lake, w.source.name),
            "rows": rows(w, name) != expected,
            "unaccounted": sum(r["unaccounted"] for r in w.ledger()),
        }
        failed += [(step, wrong)] if any(wrong.values()) else []
        erased += 1
    assert failed == []
    w.db.run(f"INSERT INTO {name} VALUES (500, 'later', 'm', NULL)")
    w.publish()
    w.catch_up()
    assert rows(w, name).keys() == {*expected, 500}
    assert erased == len(steps)


def killed(w, name, key, monkeypatch, module, function, call):
    count = iter(range(1000))
    real = getattr(module, function)

    def dies(*given, **more):
        if next(count) == call:
            raise KeyboardInterrupt
        return real(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(module, function, dies)
        with pytest.raises(KeyboardInterrupt):
            erasure(w, name, str(key)).erase(w.spark)


def done(w, name, key) -> bool:
    """Whether a killed one was finished to its end but for its note."""
    try:
        erasure(w, name, str(key)).plan()
    except EraseRefused:
        return True
    return False


@pytest.mark.thorough
def test_another_one_waits_for_it(world, monkeypatch):
    w, name = world("debezium"), "waits"
    w.db.create(name, PEOPLE)
    w.db.run(f"INSERT INTO {name} VALUES (1, '{secret(1)}', 'm', NULL), (2, '{secret(2)}', 'n', NULL)")
    w.publish()
    w.catch_up()
    killed(w, name, 1, monkeypatch, proof, "look_through", 0)
    with pytest.raises(EraseRefused, match="erasure 1, of another key, was begun"):
        erasure(w, name, "2").erase(w.spark)
    assert 2 in rows(w, name)
    assert erasure(w, name, "1").plan()["unfinished"] == 1
    assert erasure(w, name, "1").erase(w.spark)["proof"]["left"] == 0
    assert holding(lake(w), secret(1)) == []
    assert holding(lake(w), secret(2)) != []
