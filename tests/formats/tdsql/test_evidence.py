"""What messages show of option `escapes`, and labels that have escapes."""

import json

import pytest

from cdc_platform.formats import FORMATS
from cdc_platform.formats.tdsql.evidence import shown_options
from tests.formats.contexts import statement
from tests.formats.json_fixtures import messages, readable

TDSQL = FORMATS["tdsql"]


def row(*literals):
    told = {"logtype": "mysqlbinlog", "eventtypestr": "insert", "db": "d", "table": "t", "begintime": 5}
    return json.dumps({**told, "where": [], "field": list(literals)}).encode()


@pytest.mark.parametrize(
    ("literals", "shown"),
    [
        (["1", "'plain'", "NULL", "'##isnull##'", "x'5c'"], {}),
        (["1", r"'it\'s'"], {"escapes": "backslash"}),
        (["1", r"'a\\b'", r"'\x01'"], {"escapes": "backslash"}),
        (["1", "'it's'"], {"escapes": "raw"}),
        (["1", "'two\nlines'"], {"escapes": "raw"}),
        (["1", r"'C:\dir'"], {"escapes": "raw"}),
        (["1", r"'a\n'", r"'C:\dir'"], {"escapes": "raw"}),
    ],
)
def test_escapes_are_shown_by_the_texts_of_rows(literals, shown):
    assert shown_options(messages([row(*literals), None, b"no json", b"[]"])) == shown


@pytest.mark.parametrize(
    ("escapes", "literals", "wanted"),
    [
        ("backslash", [r"'e\'f'", r"'e\'f,a\\b'"], ("e'f", "e'f,a\\b")),
        ("raw", ["'e'f'", r"'e'f,a\b'"], ("e'f", "e'f,a\\b")),
        ("backslash", ["2", "b'11'"], ("e'f", "e'f,a\\b")),
    ],
)
def test_labels_are_unescaped_as_text_is(escapes, literals, wanted):
    create = r"CREATE TABLE t (id int PRIMARY KEY, e enum('x','e''f'), s set('e''f','a\\b'))"
    options = TDSQL.options(escapes=escapes)
    known = json.loads(json.dumps(TDSQL.context.build(options, [statement("d", create)])))
    events = readable(TDSQL.decode(messages([row("1", *literals)]), options, known))
    [event] = [e for e in events if e["kind"] != "schema"]
    assert (event["kind"], event.get("reason")) == ("row", None)
    assert (event["after"]["e"], event["after"]["s"]) == wanted


@pytest.mark.parametrize("literal", [r"'\q'", "'e\\'", r"'other'"])
def test_a_label_that_is_none_is_refused(literal):
    create = "CREATE TABLE t (id int PRIMARY KEY, e enum('x','q'))"
    options = TDSQL.options(escapes="backslash")
    known = json.loads(json.dumps(TDSQL.context.build(options, [statement("d", create)])))
    [event] = readable(TDSQL.decode(messages([row("1", literal)]), options, known))
    assert event["kind"] == "error"
    assert "see option escapes" in event["reason"]


HASHABLE = [
    ("id int PRIMARY KEY, n int", False),
    ("id int PRIMARY KEY, v varchar(191), UNIQUE (v)", False),
    ("id int PRIMARY KEY, v varchar(192), UNIQUE (v)", True),
    ("id int PRIMARY KEY, a varchar(100), b varchar(100), UNIQUE (a, b)", True),
    ("id int PRIMARY KEY, v blob", True),
]


@pytest.mark.parametrize(("columns", "so"), HASHABLE)
def test_a_longer_row_is_told_of_mariadbs_hidden_column_only_where_there_may_be_one(columns, so):
    options = TDSQL.options()
    known = json.loads(json.dumps(TDSQL.context.build(options, [statement("d", f"CREATE TABLE t ({columns})")])))
    longer = row("1", *["'a'" for _ in range(columns.count(" varchar") + columns.count(" blob"))], "7", "8", "9")
    [event] = [e for e in readable(TDSQL.decode(messages([longer]), options, known)) if e["kind"] != "schema"]
    assert "isn't in the topic before this row" in event["reason"]
    assert ("DB_ROW_HASH" in event["reason"]) is so


HASHED = "CREATE TABLE t (id int PRIMARY KEY, v text, UNIQUE (v))"


def of_hashed(value, **options):
    options = TDSQL.options(**options)
    known = json.loads(json.dumps(TDSQL.context.build(options, [statement("d", HASHED)])))
    [event] = [e for e in readable(TDSQL.decode(messages([value]), options, known)) if e["kind"] != "schema"]
    return event


def test_rows_with_mariadbs_hidden_column():
    longer = row("1", "'a'", "1234567890123456789")
    refused = of_hashed(longer)
    assert refused["kind"] == "error"
    assert "3 values, but the table has 2 columns here: the statement that added the others" in refused["reason"]
    assert "or they are MariaDB's own DB_ROW_HASH_1" in refused["reason"]
    assert "hidden_columns {'d.t': 1}" in refused["reason"]
    assert of_hashed(longer, hidden_columns={"d.t": 1})["after"] == {"id": "1", "v": "a"}
    assert of_hashed(row("1", "'a'"), hidden_columns={"d.t": 1})["after"] == {"id": "1", "v": "a"}
    named = {**json.loads(longer), "column": ["id", "DB_ROW_HASH_1", "v"], "field": ["1", "77", "'a'"]}
    assert of_hashed(json.dumps(named).encode())["after"] == {"id": "1", "v": "a"}
