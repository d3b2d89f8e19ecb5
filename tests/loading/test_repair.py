"""`reconcile --repair` on a real MariaDB, whose feed lost rows, deletes and updates."""

import json

import pytest

from cdc_platform.cli.app import run
from cdc_platform.lake import held_rows
from tests.oracle.session import DB

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]

PAIRS = (
    "(a varchar(20) COLLATE utf8mb4_bin NOT NULL, b decimal(8,2) NOT NULL, c varbinary(4) NOT NULL, v int, t text, "
    "PRIMARY KEY (a, b, c))"
)


@pytest.mark.thorough
def test_lost_rows_and_lost_deletes(world, capsys):
    w = world("debezium")
    w.db.create("pairs", PAIRS)
    w.db.create("fine", "(id int PRIMARY KEY, v int)")
    w.db.run(
        *(f"INSERT INTO pairs VALUES ('k{i}', {i}.50, X'00{i:02x}', {i}, 'é')" for i in range(20)),
        "INSERT INTO fine VALUES (1, 1)",
    )
    w.publish()
    w.db.run(
        "DELETE FROM pairs WHERE v IN (3, 4)",
        "INSERT INTO pairs VALUES ('new', -1.25, '', 100, NULL)",
        "UPDATE pairs SET t = 'other' WHERE v = 7",
        "UPDATE pairs SET a = 'moved' WHERE v = 9",
    )
    w.skip()  # none of it came
    w.db.run("UPDATE pairs SET v = 50 WHERE a = 'k5'")
    w.publish()
    w.catch_up()
    assert len(w.problems("pairs")) > 4
    arguments = ["reconcile", w.source.name, f"{DB}.pairs", "--repair", "--config", str(w.file), "--json"]
    assert run(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    [one] = told["repaired"]
    assert (one["rows"], one["gone"], one["left"]) == (3, 3, [])
    assert (one["missing"], one["extra"], one["changed"]) == (2, 3, 1)
    [changed] = [d for d in one["differences"] if d["kind"] == "changed"]
    assert changed["columns"] == {"t": {"server": "other", "snapshot": "é"}}
    assert changed["last_change"]["op"] == "insert"
    assert told["equal"]
    assert w.problems("pairs") == []
    assert all(row["unaccounted"] == 0 for row in w.ledger())
    assert run(arguments) == 0  # once more changes nothing
    assert json.loads(capsys.readouterr().out)["repaired"] == []
    landed = [r["landed"] for r in w.ledger() if r["topic"] == ":load"]
    assert landed == [1]
    w.db.run("UPDATE pairs SET v = v + 1", "DELETE FROM pairs WHERE a = 'moved'")
    w.publish()
    w.catch_up()
    assert w.problems("pairs") == []
    assert not held_rows.by_table(w.config)


@pytest.mark.thorough
def test_what_it_says_of_a_loaded_row(world, capsys):
    """`explain` and `show` know the load's record."""
    w = world("tencent_dts")
    w.db.create("shown", "(id int PRIMARY KEY, v int)")
    w.db.run("INSERT INTO shown VALUES (1, 1)")
    w.publish()
    w.db.run("INSERT INTO shown VALUES (2, 2)")
    w.skip()
    assert run(["load", w.source.name, f"{DB}.shown", "--config", str(w.file), "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["tables"]
    assert (told["rows"], told["state"]) == (2, "live")
    assert run(["explain", w.source.name, f"{DB}.shown", "2", "--raw", "--config", str(w.file), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["agrees"]
    [change] = explained["changes"]
    assert (change["format"], change["op"], change["message"]["kind"]) == ("load", "read", "JSON")
    assert run(["show", change["address"], "--config", str(w.file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["outcome"] == "applied"
    assert run(["status", "--config", str(w.file), "--json"]) in (0, 1)
    assert run(["certify", w.source.name, "--config", str(w.file), "--json"]) in (0, 1)
