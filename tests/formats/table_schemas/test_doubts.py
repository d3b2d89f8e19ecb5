"""Which column lists what is known of a table speaks against, and from which places on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats.debezium import FORMAT, DebeziumOptions
from cdc_platform.formats.table_schemas.doubts import Doubts, alike
from cdc_platform.formats.table_schemas.places import Place
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
    assert found and found.right == ()


def test_an_alter_concerns_rows_that_may_stand_behind_it():
    known = doubts(CREATE, "ALTER TABLE t MODIFY d datetime(3)")
    old, new = (known.of("d", "t", listed(id="int", d=d, v="varchar(9)")) for d in ("date", "datetime(3)"))
    assert [(s.behind, [p.number for p in s.before]) for s in old.right] == [(None, [(1, 200)])]
    [behind] = new.right  # what was before the ALTER can't be of its types
    assert behind.behind.number == (1, 200) and behind.before == ()


STATEMENTS = (
    *(f"ALTER TABLE t MODIFY d {type_}" for type_ in ("date", "datetime(3)", "longtext")),
    *(
        "ALTER TABLE t ADD w int",
        "ALTER TABLE t DROP COLUMN w",
        "ALTER TABLE t MODIFY w bigint",
        "DROP TABLE t",
        CREATE,
    ),
)


@given(
    st.lists(st.sampled_from(STATEMENTS), max_size=7),
    st.booleans(),
    st.sampled_from(["date", "datetime(3)", "longtext"]),
    st.sampled_from([None, "int", "bigint"]),
)
def test_where_rows_are_said_to_be_right_they_are_decoded_by_the_types_of_their_list(statements, created, d, w):
    told = [CREATE, *statements] if created else statements
    known = doubts(*told)
    mine = listed(id="int", d=d, **({"w": w} if w else {}))
    doubt = known.of("d", "t", mine)
    for n in range(50, 100 * len(told) + 100, 50):  # before, at and behind each statement
        place = Place("t", 0, n, number=(1, n), time=n // 100, lineage="1")
        right = doubt is None or any(
            (s.behind is None or s.behind.number < place.number) and all(place.number < p.number for p in s.before)
            for s in doubt.right
        )
        if not right or n % 100 == 0:
            continue
        try:
            columns = known._schemas.at("d", "t", place)
        except ValueError:  # nothing is told of it there: nothing speaks against the list
            continue
        for c in mine:
            type_ = columns.type_of(c["name"])
            assert type_ is None or alike(type_, c["type"]), (told, n, c)


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
