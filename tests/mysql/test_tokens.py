"""Words, literals and marks of a DDL statement."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.mysql.tokens import says, tokens, without_lists

PARTS = [
    "'",
    '"',
    "`",
    "\\",
    "/*",
    "*/",
    "/*!50",
    "#",
    "-- ",
    "\n",
    "add",
    "(",
    ")",
    ",",
    " ",
    "0b1",
    "b'1'",
    "1.5e3",
    "é",
]


@given(st.lists(st.sampled_from(PARTS)).map("".join) | st.text())
def test_tokens_make_up_the_statement(sql):
    assert "".join(t.text for t in tokens(sql, gaps=True)) == sql


@pytest.mark.parametrize("part", ["'", "'\\", "`", "/*", '"\\"', "a'", "(", "1e", "0b", "- "])
def test_time_grows_with_the_length_alone(part):
    tokens(part * 100)
    start = time.process_time()
    tokens(part * 200_000)
    assert time.process_time() - start < 10


LISTS = {
    "alter table t add (a int, b decimal(9,2))": "alter table t ADD a int, ADD b decimal(9,2)",
    "alter table t add column ( a int , index (a), b int), drop c": "alter table t ADD COLUMN a int, ADD index (a), "
    "ADD COLUMN b int, drop c",
    "alter table t add if not exists (a int)": "alter table t ADD IF NOT EXISTS a int",
    "alter table t add index (a, b), add (`x)y` enum('a,(','b'))": "alter table t add index (a, b), "
    "ADD `x)y` enum('a,(','b')",
    "create table t (`add` int, b int)": "create table t (`add` int, b int)",
    "alter table t add /* ( */ a int": "alter table t add /* ( */ a int",
}


@pytest.mark.parametrize("sql", LISTS)
def test_a_list_of_columns_is_said_one_by_one(sql):
    assert [t.text.upper() for t in tokens(without_lists(sql))] == [t.text.upper() for t in tokens(LISTS[sql])]


def test_what_a_statement_says_is_neither_in_quotes_nor_in_comments():
    sql = "alter table `drop primary` comment 'drop primary', /* drop primary */ drop  primary key"
    assert (says(sql, "DROP", "PRIMARY"), says(sql, "PRIMARY"), says(sql, "DROP", "INDEX")) == (1, 1, 0)
