"""Names of tables in statements that are spelled otherwise than in rows, and names of columns in any case."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.changelog.schema_steps import schema_history

COLUMNS = json.dumps(
    [{"name": "id", "type": "int(11)", "key": True}, {"name": "note", "type": "varchar(20)", "key": False}]
)


def message(offset, db="shop", table="orders", columns=COLUMNS):
    return {"kind": "message", "db": db, "table": table, "columns": columns, "ddl": None, **at(offset)}


def ddl(offset, sql, db="shop"):
    return {"kind": "ddl", "db": db, "table": None, "columns": None, "ddl": sql, **at(offset)}


def at(offset):
    return {"order": (0, -1, 0, 0, 0, offset), "address": ("t", 0, offset, 0)}


ORDERS = ("shop", "orders")


@pytest.mark.parametrize("fold", [None, True])
def test_a_rename_of_a_column_reaches_the_table_that_rows_spell_otherwise(fold):
    history = schema_history([message(0), ddl(1, "ALTER TABLE ORDERS CHANGE NOTE memo VARCHAR(20)")], fold=fold)
    before, after = history.upcasts(ORDERS)
    assert (before.today, before.names) == (ORDERS, {"note": "memo"})
    assert after.nothing
    assert [c["name"] for c in json.loads(history.columns(ORDERS))] == ["id", "memo"]
    assert history.names == [ORDERS]


@pytest.mark.parametrize("fold", [None, True])
def test_a_truncate_is_carried_to_the_table_that_rows_spell_otherwise(fold):
    history = schema_history([message(0), ddl(1, "TRUNCATE TABLE Orders")], fold=fold)
    [carry] = history.upcasts(("shop", "Orders"))
    assert (carry.until, carry.today, carry.nothing) == (None, ORDERS, True)
    assert sorted(history.names_of(ORDERS)) == [("shop", "Orders"), ORDERS]


@pytest.mark.parametrize("fold", [None, False])
def test_two_tables_that_differ_by_case_are_two(fold):
    rows = [
        message(0),
        message(1, table="Orders"),
        ddl(2, "ALTER TABLE Orders DROP note"),
        ddl(3, "TRUNCATE TABLE ORDERS"),
    ]
    history = schema_history(rows, fold=fold)
    assert [c["name"] for c in json.loads(history.columns(ORDERS))] == ["id", "note"]
    assert [c["name"] for c in json.loads(history.columns(("shop", "Orders")))] == ["id"]
    assert ("shop", "ORDERS") not in history.names


def test_names_that_rows_store_in_capitals_stay_so():
    rows = [
        message(0, "Shop", "Orders"),
        ddl(1, "ALTER TABLE shop.orders ADD x int", None),
        ddl(2, "RENAME TABLE shop.orders TO shop.Old", None),
    ]
    history = schema_history(rows, fold=True)
    carry = history.upcasts(("Shop", "Orders"))[0]
    assert carry.today == ("shop", "old")
    assert list(carry.added) == ["x"]


def test_a_database_dropped_in_another_case_takes_its_tables():
    history = schema_history([message(0), ddl(1, "DROP DATABASE SHOP")], fold=True)
    assert not history.exists(ORDERS)


@pytest.mark.parametrize("fold", [None, False])
def test_statements_that_spell_a_table_as_no_row_does_are_told_until_the_option_is_set(fold):
    statements = [ddl(0, "CREATE TABLE Orders (id int, note varchar(20))"), ddl(2, "ALTER TABLE Orders DROP note")]
    history = schema_history([statements[0], message(1), statements[1]], fold=fold)
    told = "option lower_case_table_names: 1" in " ".join(history.untold_rows(ORDERS))
    assert (told, history.upcasts(ORDERS)[0].nothing) == (fold is None, True)


def test_statements_in_one_text_are_done_one_after_the_other():
    text = "ALTER TABLE orders ADD n INT DEFAULT 5; ALTER TABLE bills ADD n INT DEFAULT 6;\n-- done"
    history = schema_history([message(0), message(0, table="bills"), ddl(1, text)])
    fills = [history.upcasts(("shop", t))[0].added["n"].fill for t in ("orders", "bills")]
    assert fills == ["5", "6"]


def test_a_table_made_again_in_one_text_is_another_one():
    history = schema_history([message(0), ddl(1, "DROP TABLE orders; CREATE TABLE orders (z INT PRIMARY KEY)")])
    before, after = history.upcasts(ORDERS)
    assert (before.today, after.today) == (None, ORDERS)
    assert [c["name"] for c in json.loads(history.columns(ORDERS))] == ["z"]


def test_tables_that_swap_names_one_text_after_the_other():
    text = "RENAME TABLE orders TO x; RENAME TABLE bills TO orders; RENAME TABLE x TO bills"
    history = schema_history([message(0), message(0, table="bills"), ddl(1, text)])
    bills = ("shop", "bills")
    assert (history.upcasts(ORDERS)[0].today, history.upcasts(bills)[0].today) == (bills, ORDERS)


def test_a_body_of_statements_is_no_text_of_several():
    body = "CREATE PROCEDURE p() BEGIN DROP TABLE orders; CREATE TABLE orders (z INT PRIMARY KEY); END"
    assert schema_history([message(0), ddl(1, body)]).upcasts(ORDERS)[-1].today == ORDERS


NAMES = ("a", "b", "c", "D")
STATEMENTS = st.one_of(
    st.builds("RENAME TABLE {} TO {}".format, st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.builds("DROP TABLE {}".format, st.sampled_from(NAMES)),
    st.builds("CREATE TABLE {} (id INT PRIMARY KEY)".format, st.sampled_from(NAMES)),
    st.builds("ALTER TABLE {} ADD n INT".format, st.sampled_from((*NAMES, "d"))),
)


@given(st.lists(st.sampled_from(NAMES), unique=True), st.lists(STATEMENTS, max_size=8))
def test_names_of_a_table_are_those_whose_rows_became_its_own(told, statements):
    """Asked of hundreds of tables, each in turn: they are put together once."""
    history = schema_history(
        [*(message(0, table=t) for t in told), *(ddl(i, sql) for i, sql in enumerate(statements, 1))], fold=True
    )
    known = {*history.names, *(("shop", t) for t in (*NAMES, "d", "other"))}
    for today in known:
        its = {name for name in known if any(c.today == today for c in history.upcasts(name))}
        assert sorted(history.names_of(today)) == sorted(its & {*history.names, today})


RENAMED = [message(0), ddl(5, "RENAME TABLE orders TO old_orders")]
COPIED = [
    message(0),
    ddl(3, "CREATE TABLE _orders_gho LIKE orders"),
    message(4, table="_orders_gho"),
    ddl(5, "RENAME TABLE orders TO _orders_del, _orders_gho TO orders"),
    ddl(6, "DROP TABLE _orders_del"),
]
SWAPPED = [message(0), message(1, table="b"), ddl(5, "RENAME TABLE orders TO c, b TO orders, c TO b")]
MADE_AGAIN = [message(0), ddl(3, "DROP TABLE orders"), ddl(5, "CREATE TABLE orders (id int)"), message(6)]


@pytest.mark.parametrize(
    ("rows", "asked", "named"),
    [
        (RENAMED, "old_orders", {2: "orders", 5: "old_orders", 9: "old_orders"}),
        (COPIED, "orders", {2: "orders", 4: "orders", 5: "orders", 9: "orders"}),
        (SWAPPED, "orders", {2: "orders", 9: "orders"}),
        (SWAPPED, "b", {2: "b", 9: "b"}),
        (SWAPPED, "b", {0: "orders"}),
        (MADE_AGAIN, "orders", {2: "orders", 9: "orders"}),
    ],
)
def test_the_name_that_a_table_had_is_its_own_where_one_of_that_name_was_there(rows, asked, named):
    """As before an online schema change: the copy that took its name later is another table."""
    history = schema_history(rows)
    for offset, name in named.items():
        assert history.named_at(("shop", asked), at(offset)["order"]) == ("shop", name), offset


def test_a_table_was_there_from_what_tells_it_to_its_end():
    history = schema_history(COPIED)
    there = {
        (n, p): history.was_there(("shop", n), at(p)["order"]) for n in ("orders", "_orders_gho") for p in range(7)
    }
    assert [p for (n, p), is_there in there.items() if n == "orders" and is_there] == [*range(7)]
    assert [p for (n, p), is_there in there.items() if n != "orders" and is_there] == [3, 4]
    again = schema_history(MADE_AGAIN)
    assert [p for p in range(7) if again.was_there(ORDERS, at(p)["order"])] == [0, 1, 2, 5, 6]
