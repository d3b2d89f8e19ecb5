"""Whose session a RENAME is of, where the message names the database of the new name. No Spark."""

import pytest

from cdc_platform.changelog.sessions import in_sessions
from cdc_platform.mysql.ddl import Statement

ROWS = [("shop", "orders"), ("shop", "lines"), ("arch", "old"), ("crm", "lines"), ("shop", "select t")]


def session(sql: str, db: str = "arch", before: tuple[Statement, ...] = ()) -> str | None:
    statements = [*before, Statement(db, sql)]
    places = [(at,) for at in range(1, len(statements) + 1)]
    return in_sessions(statements, places, [((0,), name) for name in ROWS]).statements[-1].db


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders RENAME TO arch.old_orders",
        "alter table `Orders` rename arch.`old_orders`",
        "ALTER TABLE orders ADD x INT, RENAME AS `arch`.orders",
        "RENAME TABLE orders TO arch.old_orders",
        "RENAME TABLE orders TO arch.o, `select t` TO ARCH.t",
    ],
)
def test_a_table_that_only_one_database_has_was_taken_from_there(sql: str) -> None:
    assert session(sql) == "shop"


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE shop.orders RENAME TO arch.old_orders",
        "ALTER TABLE old RENAME TO arch.older",
        "ALTER TABLE lines RENAME TO arch.l",
        "ALTER TABLE unknown RENAME TO arch.l",
        "ALTER TABLE orders RENAME TO old_orders",
        "ALTER TABLE orders RENAME COLUMN a TO b",
        "ALTER TABLE orders RENAME INDEX arch TO b, COMMENT 'RENAME TO arch.x'",
        "RENAME TABLE orders TO arch.o, lines TO arch.l, old TO arch.p",
        "CREATE TABLE orders (id INT)",
        "RENAME TABLE orders TO crm.o",
    ],
)
def test_else_the_message_is_believed(sql: str) -> None:
    assert session(sql) == "arch"


def test_tables_that_statements_made_are_known() -> None:
    made = Statement("arch", "CREATE TABLE orders (id INT)")
    assert session("RENAME TABLE orders TO arch.o", before=(made,)) == "arch"
    moved = Statement("shop", "RENAME TABLE orders TO shop.bills")
    assert session("RENAME TABLE bills TO arch.o", before=(moved,)) == "shop"


def test_the_database_is_spelled_as_its_rows_and_statements_spell_it() -> None:
    moved = Statement("arch", "RENAME TABLE orders TO arch.bills")
    assert in_sessions([moved], [(1,)], [((0,), ("Shop", "orders"))]).statements[0].db == "Shop"
    made = Statement("CRM", "CREATE TABLE orders (id INT)")
    assert in_sessions([made, moved], [(0,), (1,)], []).statements[1].db == "CRM"


def test_rows_that_come_under_the_new_name_say_nothing_of_before() -> None:
    moved = Statement("arch", "RENAME TABLE orders TO arch.bills")
    rows = [((0,), ("shop", "orders")), ((2,), ("arch", "orders")), ((2,), ("arch", "bills"))]
    assert in_sessions([moved], [(1,)], rows).statements[0].db == "shop"


def test_a_table_that_takes_its_name_along_month_by_month() -> None:
    month = [
        Statement("arch", "ALTER TABLE orders RENAME TO arch.orders"),
        Statement("shop", "CREATE TABLE orders (id INT)"),
        Statement("arch", "DROP TABLE orders"),
    ]
    found = in_sessions([*month, *month], [(at,) for at in range(1, 7)], [((0,), ("shop", "orders"))]).statements
    assert [s.db for s in found] == ["shop", "shop", "arch"] * 2
    unsaid = in_sessions([month[0], month[1], month[0]], [(1,), (2,), (3,)], [((0,), ("shop", "orders"))]).statements
    assert unsaid[-1].db == "shop"


LINES = "ALTER TABLE lines RENAME TO arch.lines_2026"


@pytest.mark.parametrize(
    ("later", "moved"),
    [
        ([], None),
        ([("shop", "CREATE TABLE lines (id INT)")], "shop"),
        ([("crm", "CREATE TABLE lines LIKE arch.lines_2026")], "crm"),
        ([("shop", "CREATE TABLE IF NOT EXISTS lines (id INT)")], None),
        ([("shop", "ALTER TABLE lines ADD x INT")], "crm"),
        ([("x", "DROP TABLE crm.lines")], "shop"),
        ([("shop", "DROP TABLE IF EXISTS lines"), ("shop", "CREATE TABLE lines (id INT)")], "shop"),
        ([("shop", "RENAME TABLE lines_new TO lines")], "shop"),
        ([("shop", "RENAME TABLE lines_new TO shop.lines")], "shop"),
        ([("x", "RENAME TABLE shop.lines TO x.l")], "crm"),
        ([("shop", "DROP DATABASE shop"), ("shop", "CREATE TABLE lines (id INT)")], None),
        ([("shop", "CREATE TABLE l LIKE lines")], "crm"),
        ([("shop", "ALTER TABLE orders ADD x INT"), ("x", "ALTER TABLE shop.lines ADD x INT")], "crm"),
    ],
)
def test_of_several_tables_of_a_name_what_comes_later_tells_which_went(
    later: list[tuple[str, str]], moved: str | None
) -> None:
    statements = [Statement("arch", LINES), *(Statement(db, sql) for db, sql in later)]
    found = in_sessions(statements, [(at,) for at in range(1, 9)][: len(statements)], [((0,), n) for n in ROWS])
    assert found.statements[0].db == (moved or "arch")
    assert found.doubts == ({} if moved else {0: [("crm", "lines"), ("shop", "lines"), ("arch", "lines_2026")]})
