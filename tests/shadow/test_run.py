"""Two real feeds of one MariaDB: what one lacks is told, what one only has later isn't."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc_platform.cli.app import run as command
from cdc_platform.cli.attention import of_lake
from cdc_platform.feeds.workload import Transaction
from tests.shadow.world import BY, OF, Pair

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle]
ITEMS = "(id int NOT NULL PRIMARY KEY, name varchar(40), price decimal(10,2), at datetime(3))"


def without(table: str, *ids: int):
    """Transactions of other rows."""

    def kept(tx: Transaction) -> Transaction | None:
        of = [c for c in tx.events if c.table.name == table and (c.after or c.before or {}).get("id") in ids]
        return None if of else tx

    return kept


def named(table: str, id_: int, name: str):
    """As it was, but for a row's name."""

    def changed(tx: Transaction) -> Transaction:
        events = tuple(
            replace(c, after={**c.after, "name": name})
            if c.table.name == table and c.after and c.after["id"] == id_
            else c
            for c in tx.events
        )
        return replace(tx, events=events)

    return changed


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]):
    """`asked(w, …)`: exit code and data of `cdc-platform shadow …`."""

    def ask(w: Pair, *args: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = command(["shadow", *args, "--config", str(w.file), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return ask


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("of", "by", "at"), [("tencent_dts", "canal", "gtid"), ("debezium", "canal_json", "source_time")]
)
def test_who_lacks_what(feeds, asked, of, by, at):
    w = feeds(of, by)
    w.create(t := f"items_{of}", ITEMS)
    w.create(other := f"other_{of}", ITEMS)
    w.run(*(f"INSERT INTO {t} VALUES ({i}, 'n{i}', {i}.50, '2026-01-01 00:00:00.5')" for i in range(20)))
    w.pass_on(other)
    found = w.compare()
    row = found[f"oracle.{t}"]
    assert [row[k] for k in ("state", "reason", "rows_of", "rows_by")] == ["equal", None, 20, 20]
    assert [k for k in ("gtid", "source_time") if row[k]] == [at]
    assert w.compare()["*"]["compared"] == 0, "nothing has moved"

    # one is behind: no difference
    w.run(
        f"UPDATE {t} SET name = 'x' WHERE id = 3", f"DELETE FROM {t} WHERE id = 4", f"INSERT INTO {t} (id) VALUES (90)"
    )
    w.run(f"UPDATE {t} SET name = 'y' WHERE id = 3")
    w.send(OF)
    w.catch_up(OF)
    row = w.compare()[f"oracle.{t}"]
    assert [row[k] for k in ("state", "unsettled")] == ["behind", 3]
    assert w.open() == []

    # it has come on, without the delete, an insert, and the value of an update
    w.send(BY, without(t, 4))
    w.run(f"INSERT INTO {t} VALUES (91, 'lost', 1, NULL)", f"UPDATE {t} SET name = 'one' WHERE id = 5")
    w.send(OF, without(t, 91))
    w.send(BY, named(t, 5, "two"))
    w.pass_on(other)
    row = w.compare()[f"oracle.{t}"]
    assert [row[k] for k in ("state", "only_of", "only_by", "differing", "unsettled")] == ["different", 0, 2, 1, 0]
    lacking = {k: (of_row, by_row["name"]) for _, k, _, of_row, by_row in w.open() if of_row is None}
    assert lacking == {"4": (None, "n4"), "91": (None, "lost")}
    assert (t, "5", "differs", {"name": "one"}, {"name": "two"}) in w.open()
    code, [told] = asked(w, "status", OF)
    assert (code, told["different"], len(told["differences"]), told["differences"][0]["key"]) == (1, 1, 3, {"id": "4"})
    [finding] = of_lake(w.config, w.config.sources)
    assert finding.text.startswith(f"unlike {BY}: oracle.{t}: 2 rows lacking in {OF}, 1 row with other values; ")

    # what changes again stays open until it is judged, and what is mended is closed
    w.run(f"UPDATE {t} SET name = 'three' WHERE id = 5", f"DELETE FROM {t} WHERE id IN (4, 91)")
    w.run(f"REPLACE INTO {t} VALUES (4, 'again', 1, NULL)")
    w.send(OF)
    w.catch_up(OF)
    row = w.compare()[f"oracle.{t}"]
    assert [row[k] for k in ("state", "only_by", "differing", "unsettled")] == ["different", 2, 1, 3]
    w.pass_on(other)
    code, [told] = asked(w, "compare", OF)
    assert (code, told["equal"], told["compared"], told["differences"]) == (0, True, 2, [])
    assert of_lake(w.config, w.config.sources) == []
