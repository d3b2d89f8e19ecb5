"""DDL that a capture sends once more after a restart, in feeds without positions."""

import json

import pytest

from cdc_platform.changelog.schema_steps import schema_history

ORDERS, OTHER = ("shop", "orders"), ("shop", "b")
MADE = "CREATE TABLE orders (id int NOT NULL, v varchar(20), PRIMARY KEY (id))"
MADE_OTHER = "CREATE TABLE b (id int NOT NULL, v varchar(20), PRIMARY KEY (id))"
SWAP = "RENAME TABLE orders TO tmp, b TO orders, tmp TO b"


def ddl(offset, sql, time, gtid=None):
    where = {"order": (0, -1, 0, 0, 0, offset), "address": ("t", 0, offset, 0), "source_time": time, "gtid": gtid}
    return {"kind": "ddl", "db": "shop", "table": None, "columns": None, "ddl": sql, **where}


def unknown(history, name):
    return [c.unknown for c in history.upcasts(name) if c.unknown]


CHANGES = {
    "a column renamed": "ALTER TABLE orders CHANGE v memo varchar(20)",
    "a column renamed by RENAME COLUMN": "ALTER TABLE orders RENAME COLUMN v TO memo",
    "a column added": "ALTER TABLE orders ADD memo varchar(20) DEFAULT 'd'",
    "a column dropped": "ALTER TABLE orders DROP v",
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_sent_again_before_a_statement_sent_again_are_carried_as_the_first_time(change):
    told = [ddl(0, MADE, 1), *(ddl(n, CHANGES[change], 5) for n in (3, 7)), ddl(9, "ALTER TABLE orders ADD z int", 9)]
    history = schema_history(told)
    assert unknown(history, ORDERS) == []
    first, again = (next(c for c in history.upcasts(ORDERS) if c.until and c.until[-1] == n) for n in (3, 7))
    assert (again.names, list(again.added)) == (first.names, list(first.added))
    assert [c["name"] for c in json.loads(history.columns(ORDERS))][-1] == "z"


def test_a_topic_sent_again_from_its_beginning_makes_its_tables_anew():
    change = CHANGES["a column renamed"]
    history = schema_history([ddl(0, MADE, 1), ddl(3, change, 5), ddl(7, MADE, 1), ddl(9, change, 5)])
    assert unknown(history, ORDERS) == []
    assert [(c.until and c.until[-1], c.today and c.names) for c in history.upcasts(ORDERS)] == [
        (0, None),
        (3, None),
        (7, None),
        (9, {"v": "memo"}),
        (None, {}),
    ]


def test_a_swap_sent_again_says_that_it_cannot_be_followed():
    history = schema_history([ddl(0, MADE, 1), ddl(1, MADE_OTHER, 2), ddl(3, SWAP, 5), ddl(7, SWAP, 5)])
    for name in (ORDERS, OTHER):
        assert any("came a second time" in why for why in unknown(history, name))
        assert history.upcasts(name)[-1].today == name


def test_a_swap_sent_again_with_its_tables_is_followed():
    made = [ddl(0, MADE, 1), ddl(1, MADE_OTHER, 2), ddl(3, SWAP, 5)]
    history = schema_history([*made, *({**ddl(n, r["ddl"], r["source_time"])} for n, r in enumerate(made, 10))])
    assert unknown(history, ORDERS) == unknown(history, OTHER) == []
    assert [c.today for c in history.upcasts(ORDERS)][-2:] == [OTHER, ORDERS]


@pytest.mark.parametrize(
    ("one", "other"), [((5, None), (6, None)), ((5, "u:1"), (5, "u:2")), ((None, None), (None, None))]
)
def test_the_same_text_at_another_time_or_without_one_is_another_statement(one, other):
    rows = [ddl(0, MADE, 1), ddl(1, MADE_OTHER, 2), ddl(3, SWAP, *one), ddl(7, SWAP, *other)]
    history = schema_history(rows)
    assert unknown(history, ORDERS) == []
    assert [c.today for c in history.upcasts(ORDERS)] == [ORDERS, ORDERS, OTHER, ORDERS]


def test_a_statement_with_a_position_is_told_apart_by_that():
    rows = [ddl(0, MADE, 1), ddl(1, MADE_OTHER, 2), ddl(3, SWAP, 5), ddl(7, SWAP, 5)]
    placed = [{**r, "order": (0, 3, r["order"][-1], 0, 0, r["order"][-1])} for r in rows]
    assert unknown(schema_history(placed), ORDERS) == []
