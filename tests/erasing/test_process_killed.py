"""`erase --yes` whose process is killed: the same command finishes it, and nothing is left."""

import json
import random
from typing import Any

import pytest

from cdc_platform.cli.app import run
from cdc_platform.lake import erasing, stores
from tests.erasing.bytes import holding
from tests.erasing.people import PEOPLE, lake, rows
from tests.killed import process

pytestmark = [
    *(pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.thorough),
    pytest.mark.timeout(1800),
]

MOMENTS = (
    ("decided cdc_platform.lake.erasing reached 0", True),
    ("between two tables cdc_platform.lake.erasing _apply 3", True),
    ("before files are looked through cdc_platform.erasing.proof look_through 0", True),
    ("while old files are removed cdc_platform.lake.erasing remove 2", True),
    (f"at any look at its leases cdc_platform.lake.lease check {random.randrange(5, 120)}", False),
)
"""What it is, and where: module, function, before which call of it; whether it must come to that."""


def secret(key: int) -> str:
    return f"Secret of Person {chr(65 + key)}{key}x"


def test_the_same_command_finishes_it(world: Any, capsys: pytest.CaptureFixture[str]):
    w, name = world("canal"), "killed_processes"
    w.db.create(name, PEOPLE)
    some = [f"({k}, '{secret(k)}', 'm', NULL), ({k + 100}, 'o{k}', 'n', NULL)" for k in range(len(MOMENTS))]
    w.db.run(f"INSERT INTO {name} VALUES {', '.join(some)}")
    w.publish()
    w.catch_up()
    w.db.run(f"UPDATE {name} SET mail = 'later' WHERE id < 100")
    w.publish()
    w.catch_up()
    expected = rows(w, name)
    for key, (moment, certain) in enumerate(MOMENTS):
        arguments = ["erase", w.source.name, f"oracle.{name}", str(key), "--yes", "--json", "--config", str(w.file)]
        was_killed = process(" ".join(moment.split()[-3:]), arguments)
        assert was_killed or not certain, moment
        if key % 2:
            w.catch_up()
        capsys.readouterr()
        code = run(arguments)
        told = json.loads(capsys.readouterr().out)
        gone_already = code == 1 and "it is gone already" in told.get("error", {}).get("message", json.dumps(told))
        assert gone_already or (code, told["proof"]["left"]) == (0, 0), (moment, told)
        assert not gone_already or not certain, moment
        expected.pop(key)
        assert rows(w, name) == expected, moment
        assert holding(lake(w), secret(key)) == [], moment
        assert erasing.pending(stores.lake(w.config), w.source.name) is None, moment
        assert [r["unaccounted"] for r in w.ledger()] == [0] * len(w.ledger()), moment
