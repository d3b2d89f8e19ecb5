"""Whether statements show that a server takes names that differ by case for one."""

import pytest

from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.table_names import folds, spelled_otherwise

ROWS = {("shop", "orders"), ("shop", "items")}


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE TABLE Orders",
        "TRUNCATE SHOP.orders",
        "ALTER TABLE ORDERS CHANGE note memo VARCHAR(20)",
        "alter table `Orders` add x int",
        "RENAME TABLE Orders TO old_orders",
        "DROP TABLE Orders",
        "CREATE TABLE copy LIKE Orders",
    ],
)
def test_a_statement_that_needs_a_table_no_row_spells_so_shows_it(sql):
    assert folds([Statement("shop", sql)], ROWS)


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE TABLE orders",
        "ALTER TABLE orders ADD x int",
        "ALTER TABLE Other ADD x int",
        "DROP TABLE IF EXISTS Orders",  # logged, too, where there is no such table
        "CREATE TABLE IF NOT EXISTS Orders (id int)",
        "CREATE TABLE Orders (id int)",
        "GRANT ALL ON Orders TO ann",
        "TRUNCATE",
    ],
)
def test_other_statements_show_nothing(sql):
    assert not folds([Statement("shop", sql)], ROWS)


def test_rows_of_two_tables_that_differ_by_case_show_the_contrary():
    rows = {*ROWS, ("shop", "Items")}
    assert not folds([Statement("shop", "TRUNCATE TABLE Orders")], rows)


def test_two_tables_made_that_differ_by_case_show_the_contrary():
    made = [Statement("shop", f"CREATE TABLE {name} (id int)") for name in ("a", "A")]
    assert not folds([*made, Statement("shop", "TRUNCATE TABLE Orders")], ROWS)


def test_a_table_that_was_made_so_needs_no_other():
    made = Statement("shop", "CREATE TABLE Orders (id int)")
    assert not folds([made, Statement("shop", "ALTER TABLE Orders ADD x int")], ROWS)


def test_a_table_made_again_in_another_case_after_its_drop_shows_nothing():
    sql = ["CREATE TABLE a (id int)", "DROP TABLE a", "CREATE TABLE A (id int)", "ALTER TABLE A ADD x int"]
    assert not folds([Statement("shop", s) for s in sql], ROWS)


def test_statements_alone_show_it():
    sql = ["CREATE TABLE Stock (id int)", "ALTER TABLE STOCK ADD x int"]
    assert folds([Statement("shop", s) for s in sql], ())


def test_a_third_spelling_shows_it_where_rows_have_one_and_a_create_another():
    made = Statement("shop", "CREATE TABLE Orders (id int)")
    assert folds([made, Statement("shop", "ALTER TABLE ORDERS ADD x int")], ROWS)


def test_what_may_be_the_same_table_is_told():
    made = [Statement("shop", "CREATE TABLE Orders (id int)"), Statement("shop", "ALTER TABLE items ADD x int")]
    assert spelled_otherwise([*made, Statement("shop", "DROP TABLE IF EXISTS Items")], ROWS) == {
        ("shop", "orders"): ("shop", "Orders")
    }
