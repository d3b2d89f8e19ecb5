"""Two real feeds of one MariaDB: what one lacks is told, what one only has later isn't."""

from dataclasses import replace

import pytest

from cdc_platform.feeds.workload import Transaction
from tests.shadow.world import BY, OF

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]
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


@pytest.mark.parametrize(("of", "by"), [("tencent_dts", "canal"), ("debezium", "canal_json")])
def test_who_lacks_what(feeds, of, by):
    w = feeds(of, by)
    w.create(t := f"items_{of}", ITEMS)
    w.create(other := f"other_{of}", ITEMS)
    w.run(*(f"INSERT INTO {t} VALUES ({i}, 'n{i}', {i}.50, '2026-01-01 00:00:00.5')" for i in range(20)))
    w.run(f"INSERT INTO {other} VALUES (1, 'x', 1, NULL)")
    w.run(f"INSERT INTO {other} VALUES (2, 'y', 1, NULL)")
    w.send(OF)
    w.send(BY)
    w.catch_up()
    found = w.compare()
    print(found)
    assert found[f"oracle.{t}"]["state"] == "equal"
    assert found["*"]["compared"] == 2
    assert w.compare()["*"]["compared"] == 0, "nothing has moved"
    assert w.open() == []

    # one lags: no difference
    w.run(
        f"UPDATE {t} SET name = 'new' WHERE id = 3",
        f"DELETE FROM {t} WHERE id = 4",
        f"INSERT INTO {t} (id) VALUES (90)",
    )
    w.run(f"UPDATE {t} SET name = 'newer' WHERE id = 3")
    w.send(OF)
    w.catch_up(OF)
    row = w.compare()[f"oracle.{t}"]
    assert (row["state"], row["unsettled"], w.open()) == ("behind", 3, [])
    w.send(BY, without(t, 4))  # the delete never comes
    w.run(f"INSERT INTO {other} VALUES (3, 'y', 1, NULL)")
    w.run(f"INSERT INTO {other} VALUES (4, 'y', 1, NULL)")
    w.send(OF)
    w.send(BY)
    w.catch_up()
    row = w.compare()[f"oracle.{t}"]
    assert (row["state"], row["only_by"], row["unsettled"]) == ("different", 1, 0)
    [(table, key, kind, of_row, by_row)] = w.open()
    assert (table, key, kind, of_row) == (t, {"id": "4"}, "only_by", None)
    assert by_row["name"] == "n4"

    # the other loses an insert, and has another value
    w.run(f"INSERT INTO {t} VALUES (91, 'lost', 1, NULL)")
    w.run(f"UPDATE {t} SET name = 'one' WHERE id = 5")
    w.run(f"INSERT INTO {other} VALUES (5, 'y', 1, NULL)")
    w.run(f"INSERT INTO {other} VALUES (6, 'y', 1, NULL)")
    w.send(OF, without(t, 91))
    w.send(BY, named(t, 5, "two"))
    w.catch_up()
    row = w.compare()[f"oracle.{t}"]
    assert [row[k] for k in ("state", "only_of", "only_by", "differing")] == ["different", 0, 2, 1]
    assert (t, {"id": "5"}, "differs", {"name": "one"}, {"name": "two"}) in w.open()

    # what is mended is closed
    w.run(f"UPDATE {t} SET name = 'three' WHERE id = 5", f"DELETE FROM {t} WHERE id IN (4, 91)")
    w.run(f"REPLACE INTO {t} VALUES (4, 'again', 1, NULL)")
    w.run(f"INSERT INTO {other} VALUES (7, 'y', 1, NULL)")
    w.run(f"INSERT INTO {other} VALUES (8, 'y', 1, NULL)")
    w.send(OF)
    w.send(BY)
    w.catch_up()
    assert w.compare()[f"oracle.{t}"]["state"] == "equal"
    assert w.open() == []
