"""Which column lists what is known of a table speaks against, and from which places on."""

import json

import pytest

from cdc_platform.formats.debezium import FORMAT, DebeziumOptions
from cdc_platform.formats.table_schemas.doubts import Doubts, alike
from tests.formats.contexts import statement

CREATE = "CREATE TABLE t (id int PRIMARY KEY, d date, v varchar(9))"


def doubts(*statements, **options):
    told = [
        statement("d", sql, i, file_no=1, binlog_pos=100 * i, lineage="1", source_time=i)
        for i, sql in enumerate(statements, 1)
    ]
    return Doubts(json.loads(json.dumps(FORMAT.context.build(DebeziumOptions(**options), told))))


def listed(**types):
    return [{"name": n, "type": t, "key": n == "id"} for n, t in types.items()]


def test_nothing_speaks_against_types_that_are_the_same():
    known = doubts(CREATE)
    assert known.of("d", "t", listed(id="int(11)", d="date", v="longtext")) is None
    assert known.of("d", "other", listed(id="longtext")) is None


def test_every_row_of_a_poorer_list_is_in_doubt():
    found = doubts(CREATE).of("d", "t", listed(id="longtext", d="longtext", v="longtext"))
    assert found and found.since == ()


def test_an_alter_concerns_rows_that_may_stand_behind_it():
    known = doubts(CREATE, "ALTER TABLE t MODIFY d datetime(3)")
    old, new = (known.of("d", "t", listed(id="int", d=d, v="varchar(9)")) for d in ("date", "datetime(3)"))
    assert old and [p.number for p in old.since] == [(1, 200)]
    assert new and new.since == ()  # what was before the ALTER can't be of its types


def test_what_more_is_known_of_other_columns_asks_for_no_other_comparison():
    mine = listed(id="longtext", d="longtext")
    before, after = doubts(CREATE), doubts(CREATE, "ALTER TABLE t ADD COLUMN w int")
    assert before.of("d", "t", mine).digest == after.of("d", "t", mine).digest
    retyped = doubts(CREATE, "ALTER TABLE t MODIFY d datetime")
    assert before.of("d", "t", mine).digest != retyped.of("d", "t", mine).digest


def test_option_columns_wins():
    mine = listed(id="int", d="longtext")
    assert doubts(CREATE, columns={"d.t": {"D": "text"}}).of("d", "t", mine) is None
    assert doubts(columns={"d.t": {"d": "date"}}).of("d", "t", mine)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("int(11)", "int", True),
        ("smallint", "tinyint", False),
        ("bigint", "bigint unsigned", False),
        ("varchar(3)", "longtext", True),
        ("decimal(65,30)", "decimal(6,2)", False),
        ("time(3)", "time", False),
        ("enum('a')", "enum('a','b')", False),
        ("binary(4)", "varbinary(4)", False),
        ("blob", "longblob", True),
        ("tinyint(1)", "boolean", False),
        ("no type", "int", False),
    ],
)
def test_types_with_the_same_texts_and_columns(a, b, same):
    assert alike(a, b) is alike(b, a) is same
