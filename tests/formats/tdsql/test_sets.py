"""Messages of several sets in one topic."""

import json
from typing import Any

import pytest

from cdc_platform.formats.tdsql import FORMAT, TdsqlOptions
from tests.formats.contexts import decode_with_context, statement
from tests.formats.json_fixtures import messages, readable

TABLE = "create table t (id int primary key, a varchar(99), b varchar(99))"


def message(kind: str, prefix: str, **more: Any) -> bytes:
    told = {"prefix": prefix, "filename": "/data/binlog.000001", "logtype": "mysqlbinlog", "eventtype": 1}
    told |= {"db": "d", "table": "t", "localip": "10.0.0.1", "localport": 4001, "begintime": 5, "gtid": ""}
    told |= dict.fromkeys(("serverid", "event_index", "gtid_commitid", "gtid_flag2", "sequence_num"), "1")
    return json.dumps({**told, "orgoffset": 1, "eventtypestr": kind, **more}).encode()


def query(prefix: str, sql: str) -> bytes:
    return message("query", prefix, sql=sql)


def row(prefix: str, *values: str) -> bytes:
    field = [values[0], *(f"'{v}'" for v in values[1:])]
    return message("insert", prefix, where=[], field=field, sub_event_index="1")


def decoded(*values: bytes, plain: bool = True, **options: Any) -> tuple[list[dict[str, str]], list[str]]:
    """Rows after them and reasons; `plain` False: the messages lack a field that the quick way wants."""
    if not plain:
        values = tuple(json.dumps({k: v for k, v in json.loads(m).items() if k != "serverid"}).encode() for m in values)
    events = readable(decode_with_context(FORMAT, messages(values), TdsqlOptions(**options)))
    return [e["after"] for e in events if e["kind"] == "row"], [e["reason"] for e in events if e["kind"] == "error"]


SWAPPED = [
    query("one", TABLE),
    query("two", TABLE),
    query("one", "alter table t modify b varchar(99) after id"),
    row("one", "1", "b", "a"),
    row("two", "2", "a", "b"),
    query("two", "alter table t modify b varchar(99) after id"),
    row("two", "3", "b", "a"),
]


@pytest.mark.parametrize("plain", [True, False])
def test_a_row_is_read_by_the_statements_of_its_own_set(plain: bool) -> None:
    rows, reasons = decoded(*SWAPPED, sets="prefix", plain=plain)
    assert [sorted(r.items()) for r in rows] == [[("a", "a"), ("b", "b"), ("id", str(i))] for i in (1, 2, 3)]
    assert reasons == []


@pytest.mark.parametrize("plain", [True, False])
def test_where_it_matters_and_is_not_told_a_row_is_not_guessed(plain: bool) -> None:
    rows, reasons = decoded(*SWAPPED, plain=plain)
    assert rows == [{"id": str(i), "b": "b", "a": "a"} for i in (1, 3)]
    assert len(reasons) == 1
    assert "'one', 'two'" in reasons[0]
    assert "option sets" in reasons[0]
    assert len(decoded(*SWAPPED, sets="one", plain=plain)[0]) == 3


@pytest.mark.parametrize("plain", [True, False])
def test_a_statement_of_the_first_set_is_not_the_others(plain: bool) -> None:
    """Nothing of the second one has come yet but rows."""
    told = [SWAPPED[0], SWAPPED[2], SWAPPED[3], SWAPPED[4]]
    rows, reasons = decoded(*told, plain=plain)
    assert rows == [{"id": "1", "b": "b", "a": "a"}]
    assert "statements came with prefix 'one', this row with 'two'" in reasons[0]


def test_one_set_whose_prefix_changed_goes_on() -> None:
    rows, reasons = decoded(query("one", TABLE), row("one", "1", "a", "b"), row("two", "2", "a", "b"))
    assert (len(rows), reasons) == (2, [])
    altered = [
        query("one", TABLE),
        query("one", "alter table t add c varchar(9)"),
        query("two", "alter table t add d int"),
    ]
    assert decoded(*altered, row("two", "1", "a", "b", "c", "d"))[1][0].startswith("the table's columns aren't known")
    rows, reasons = decoded(*altered[:2], row("two", "1", "a", "b", "7"), sets="one")
    assert reasons == []
    assert rows[0] == {"id": "1", "a": "a", "b": "b", "c": "7"}


def test_a_set_whose_statements_did_not_come_has_the_schema_files(tmp_path: Any) -> None:
    file = tmp_path / "schema.sql"
    file.write_text(f"use d;\n{TABLE};\n")
    told = [query("one", "alter table t modify b varchar(99) after id"), row("two", "2", "a", "b")]
    rows, reasons = decoded(*told, sets="prefix", schema_file=str(file))
    assert (rows, reasons) == ([{"id": "2", "a": "a", "b": "b"}], [])


TRUNCATED = [query("one", TABLE), row("one", "1", "a", "b"), query("one", "truncate table t")]


def emptied(*values: bytes, **options: Any) -> tuple[list[str | None], list[str]]:
    events = readable(decode_with_context(FORMAT, messages(values), TdsqlOptions(**options)))
    return [e["op"] for e in events if e["kind"] == "row"], [e["reason"] for e in events if e["kind"] == "error"]


@pytest.mark.parametrize(
    "other",
    [row("two", "2", "a", "b"), query("two", TABLE), row("two", "2", "a", "b").replace(b'"two"', b'"t\\u0077o"')],
)
def test_a_truncate_of_one_set_takes_no_other_sets_rows(other: bytes) -> None:
    assert emptied(*TRUNCATED) == (["insert", "truncate"], [])
    told = decode_with_context(FORMAT, messages([other, *TRUNCATED]), TdsqlOptions())
    [error] = [e for e in readable(told) if e["kind"] == "error"]
    assert (error["db"], error["table"]) == ("d", "t")
    assert "prefixes, 'one', 'two'" in error["reason"]
    assert "truncate" in emptied(other, *TRUNCATED, sets="one")[0]
    assert "by one of several sets" in emptied(*TRUNCATED, sets="prefix")[1][0]


def test_rows_that_another_set_sends_later_change_nothing() -> None:
    """So that it is the same whenever it is read."""
    later = [*TRUNCATED, row("two", "2", "a", "b")]
    assert emptied(*later) == (["insert", "truncate", "insert"], [])
    assert emptied(*later, query("one", "truncate table t"))[1] != []


def test_a_value_that_looks_like_a_prefix_is_none() -> None:
    assert emptied(*TRUNCATED, row("one", "2", '"prefix":"two"', "b")) == (["insert", "truncate", "insert"], [])


def test_what_is_told_the_decoder_is_the_same_in_every_process() -> None:
    """Another text would be taken for news, and all that waits decoded once more."""
    told = [statement("d", TABLE, i, info=[("prefix", p)]) for i, p in enumerate(("two", "one", "three", "four"))]
    context = FORMAT.context
    assert context is not None
    assert list(context.build(TdsqlOptions(), told)["sets"]) == ["", "four", "one", "three", "two"]
    assert context.build(TdsqlOptions(), told[:1])["sets"]["two"] is None
