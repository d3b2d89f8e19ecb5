"""Messages of TDSQL → EVENT rows."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_platform.errors import ConfigError
from cdc_platform.formats.tdsql import FORMAT, TdsqlOptions, decode
from tests.formats.contexts import statement
from tests.formats.json_fixtures import messages, readable
from tests.properties import examples

TYPES = "id int primary key, i int, u int unsigned, d decimal(30,6), t varchar(99), b varbinary(99), e enum('a','b')"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda v: v != "##isnull##")


def signed(v):
    return str(v) if v >= 0 else f"{v} ({v + 2**64})"


VALUES = {  # column → strategy of (TDSQL's literal, canonical text)
    "i": st.integers(-(2**31), 2**31 - 1).map(lambda v: (signed(v), str(v))),
    "u": st.integers(0, 2**32 - 1).map(lambda v: (signed(v if v < 2**31 else v - 2**32), str(v))),
    "d": st.decimals(-(10**20), 10**20, places=6).map(lambda v: (f"{v:f}", f"{v:f}")),
    "t": TEXT.map(lambda v: (f"'{v}'", v)),
    "b": st.binary(max_size=20).map(lambda v: (f"x'{v.hex()}'", base64.b64encode(v).decode())),
    "e": st.sampled_from([("1", "a"), ("2", "b"), ("'b'", "b"), ("0", "")]),
}
NULL = st.sampled_from([("'##isnull##'", None), ("NULL", None)])
ROWS = st.fixed_dictionaries({name: NULL | values for name, values in VALUES.items()})


def change(op, where, field):
    told = {"logtype": "mysqlbinlog", "eventtypestr": op, "db": "d", "table": "t", "begintime": 5}
    return json.dumps({**told, "where": where, "field": field}, ensure_ascii=False).encode()


def image(key, row, which):
    return [str(key), *(row[name][which] for name in VALUES)]


@pytest.fixture(scope="module")
def told():
    return FORMAT.context.build(TdsqlOptions(), [statement("d", f"create table t ({TYPES})")])


@examples(150)
@given(changes=st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=4))
def test_both_images_come_back(told, changes):
    values = [change("update", image(k, a, 0), image(k, b, 0)) for k, (a, b) in enumerate(changes)]
    rows = [e for e in readable(decode(messages(values), TdsqlOptions(), told)) if e["kind"] != "schema"]
    names = ["id", *VALUES]
    assert [list(r["before"].items()) for r in rows] == [
        list(zip(names, image(k, a, 1), strict=True)) for k, (a, _) in enumerate(changes)
    ]
    assert [list(r["after"].items()) for r in rows] == [
        list(zip(names, image(k, b, 1), strict=True)) for k, (_, b) in enumerate(changes)
    ]
    assert [r["key"] for r in rows] == [{"id": str(k)} for k in range(len(changes))]


@examples(50)
@given(rows=st.lists(ROWS, min_size=1, max_size=5), bad=st.integers(0, 4))
def test_a_bad_row_takes_no_other_with_it(told, rows, bad):
    literals = [image(key, row, 0) for key, row in enumerate(rows)]
    literals[bad % len(rows)][-1] = "99"
    events = readable(decode(messages([change("insert", [], x) for x in literals]), TdsqlOptions(), told))
    assert [e["offset"] for e in events if e["kind"] == "error"] == [bad % len(rows)]
    assert sum(e["kind"] == "row" for e in events) == len(rows) - 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"time_zone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
        ({"escapes": "both"}, "backslash"),
        ({"order": "clock"}, "gtid"),
    ],
)
def test_bad_options_say_what_would_do(options, reason):
    with pytest.raises(ValidationError, match=reason):
        FORMAT.options(**options)


def test_a_schema_file_that_is_missing_is_told():
    with pytest.raises(ConfigError, match=r"'/no/such\.sql' can't be read"):
        FORMAT.context.build(TdsqlOptions(schema_file="/no/such.sql"), [])


def rows_after(*ddl: str, fields: list[list[str]]) -> list[dict]:
    sql = ["create table t (id int primary key, v varchar(9))", *ddl]
    states = FORMAT.context.build(TdsqlOptions(), [statement("d", s, at - len(sql)) for at, s in enumerate(sql)])
    return readable(decode(messages([change("insert", [], f) for f in fields]), TdsqlOptions(), states))


def test_a_shorter_row_is_read_only_where_columns_came_at_the_end():
    old = ["1", "'a'"]
    [row] = [e for e in rows_after("alter table t add w int, add x int", fields=[old]) if e["kind"] == "row"]
    assert row["after"] == {"id": "1", "v": "a"}
    for change_ in ("add w varchar(9) after id", "add w int first, add x int", "drop v, add w varchar(9), add x int"):
        events = rows_after(f"alter table t {change_}", fields=[old])
        assert [e["kind"] for e in events if e["kind"] != "schema"] == ["error"], change_
        assert "of another set" in events[-1]["reason"]
    [row] = [e for e in rows_after("alter table t rename column v to w", "alter table t add x int", fields=[old])
             if e["kind"] == "row"]  # fmt: skip
    assert row["after"] == {"id": "1", "w": "a"}


def test_statements_in_one_text_are_of_a_table_each():
    both = "create table u (id int primary key); alter table t add column if not exists w int; alter table u add w int"
    [row] = [e for e in rows_after(both, fields=[["1", "'a'", "5"]]) if e["kind"] == "row"]
    assert row["after"] == {"id": "1", "v": "a", "w": "5"}
    again = "drop table t; create table t (w int primary key)"
    [row] = [e for e in rows_after(again, fields=[["5"]]) if e["kind"] == "row"]
    assert (row["key"], row["after"]) == ({"w": "5"}, {"w": "5"})
