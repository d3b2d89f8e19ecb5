"""`cdc-platform erase`: the example of docs/erase.md."""

import json
import re

import pytest

from cdc_platform.cli.app import run
from tests.erasing.bytes import holding
from tests.erasing.people import PEOPLE, lake, rows

pytestmark = [pytest.mark.thorough, pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]


def test_the_example(world, capsys):
    w = world("canal")
    w.db.create("people", PEOPLE)
    w.db.run(
        "INSERT INTO people VALUES (6, 'Ada Other', 'ada@example.org', NULL), "
        "(7, 'Zebulon Quartermain', 'zebulon@example.org', '1979-01-02')"
    )
    w.publish()
    w.catch_up()
    w.db.run("UPDATE people SET mail = 'zeb@quartermain.example' WHERE id = 7")
    w.publish()
    w.catch_up()

    def told(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run([*arguments, "--config", str(w.file)])
        return code, capsys.readouterr().out

    before = rows(w, "people")
    code, refused = told("erase", "oracle", "oracle.people", "abc", "--json")
    assert (code, json.loads(refused)["error"]["valid"]) == (2, ["id=7"])
    assert "which is int" in json.loads(refused)["error"]["problem"]
    code, plan = told("erase", "oracle", "oracle.people", "7")
    assert code == 0
    assert rows(w, "people") == before
    assert re.search(r"with rows of others +1\n", plan)
    assert re.search(r"not looked for in texts +2 values that may stand anywhere, 0 that others have\n", plan)
    assert "oracle.people id=6" in plan
    code, done = told("erase", "oracle", "oracle.people", "7", "--yes")
    assert code == 0
    assert re.search(r"left +0\n", done)
    assert re.search(r"not looked for in texts +2 values that may stand anywhere, 0 that others have\n", done)
    assert holding(lake(w), "Quartermain", "zebulon", "1979-01-02") == []
    assert rows(w, "people") == {6: before[6]}
    code, certified = told("certify", "oracle", "oracle.people")
    assert code == 0
    assert "erased" in certified
    code, again = told("erase", "oracle", "oracle.people", "7", "--yes", "--json")
    assert code == 1
    assert json.loads(again)["error"]["type"] == "EraseRefused"
    code, shown = told("explain", "oracle", "oracle.people", "7", "--json")
    assert not json.loads(shown)["here"]
    assert [why["kind"] for why in json.loads(shown)["why"]] == ["erased"]
    [record] = [r for r in w.ledger() if r["erased"]]
    outcomes = [json.loads(told("show", f"{record['topic']}/0/{i}", "--json")[1]) for i in range(record["landed"])]
    assert sum(o.get("erased", False) for o in outcomes) == 2
    assert [o["outcome"] for o in outcomes if o.get("erased")] == ["applied", "erased"]
    assert told("status")[1]
    erased = next(o["address"] for o in outcomes if o["outcome"] == "erased")
    assert re.search(r"bytes +erased at a subject's request", told("show", erased)[1])
