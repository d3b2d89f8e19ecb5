"""Debezium and dtle messages → EVENT rows."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_platform.formats.contract import KINDS, OPS
from cdc_platform.formats.debezium import FORMAT, DebeziumOptions, decode
from cdc_platform.formats.exact_json import read_json
from tests.formats.contexts import statement
from tests.formats.json_fixtures import load, messages, readable, scenarios
from tests.properties import examples


def test_a_row_whose_key_is_null_is_refused():
    told = {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}
    key = text({"schema": told, "payload": {"id": 1}})
    assert reason_of(text(row(after={"id": None, "n": 1})), key) == "key column 'id' has no value"


def test_a_schema_change_without_columns_is_refused():
    change = {"type": "CREATE", "id": '"d"."t"', "table": {"primaryKeyColumnNames": [], "columns": []}}
    value = text({"source": row()["source"], "ddl": None, "tableChanges": [change]})
    assert "column names []" in reason_of(value)


@pytest.mark.parametrize(
    "source",
    [
        {"connector": "oracle", "schema": "HR"},
        {"connector": "db2"},
        {"connector": "vitess", "db": "k"},
        {"connector": "Custom", "schema": "s"},
        {"schema": "public", "lsn": 7},  # PostgreSQL's connector before 0.9
    ],
)
def test_rows_of_other_databases_are_not_taken_for_mysqls(source):
    value = text({**row(after={"id": 1}), "source": {"db": "d", "table": "t", **source}})
    assert "isn't read: only MySQL's, MariaDB's, PostgreSQL's and SQL Server's are" in reason_of(value)


def test_a_connectors_name_has_no_case():
    source = {"connector": "PostgreSQL", "db": "d", "schema": "s", "table": "t"}
    [_, stated] = readable(decode(messages([text({**row(after={"id": 1}), "source": source})]), DebeziumOptions()))
    assert (stated["schema"], stated["table"]) == ("s", "t")


def test_a_payload_may_stand_in_a_wrapper_without_schema():
    """TiCDC's protocol debezium with debezium-disable-schema."""
    source = {"connector": "TiCDC", "db": "d", "table": "t", "file": "", "pos": 0, "server_id": 0, "commit_ts": 441}
    wrapped = {"payload": {**row(after={"id": 1}), "source": source}}
    [event, _] = readable(decode(messages([("t", b'{"payload":{"id":1}}', text(wrapped))]), DebeziumOptions()))
    assert (event["kind"], event["key"], "binlog_pos" in event) == ("row", {"id": "1"}, False)


def test_rows_of_ticdc_do_not_keep_the_logs_order():
    """Its sorters send each table by itself, in any order among each other."""
    rows = [row(after={"id": 1}), row(after={"id": 2})]
    rows[0]["source"] = {**rows[0]["source"], "connector": "TiCDC"}
    [one, _, two] = readable(decode(messages([("t", b'{"id":1}', text(r)) for r in rows]), DebeziumOptions()))
    assert (one["info"], two.get("info")) == ({"unordered": ""}, None)


def row(op: Any = "c", after=None, before=None, **payload):
    source = {
        "connector": "mysql",
        "db": "d",
        "table": "t",
        "server_id": 1,
        "file": "b.000001",
        "pos": 4,
        "row": 0,
    }
    return {"op": op, "before": before, "after": after, "source": source, **payload}


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


GOOD = ("d.t", b'{"id":1}', text(row(after={"id": 1})))


def reason_of(value, key=None):
    """Decodes `value` between two good messages, which must come through; its own event must be one error."""
    events = readable(decode(messages([GOOD, ("d.t", key, value), GOOD]), DebeziumOptions()))
    rows = [e for e in events if e["kind"] == "row"]
    assert [(e["offset"], e["after"]) for e in rows] == [(0, {"id": "1"}), (2, {"id": "1"})]
    (error,) = [e for e in events if e["offset"] == 1]
    assert error["kind"] == "error"
    return error["reason"]


BROKEN = {
    "trailing garbage": (text(row(after={"id": 1})) + b" x", "trailing"),
    "second object": (text(row(after={"id": 1})) * 2, "trailing"),
    "cut short": (text(row(after={"id": 1}))[:-3], "truncated"),
    "empty": (b"", "the value is empty"),
    "no JSON": (b"Struct{id=1}", "malformed"),
    "bad UTF-8": (text(row(after={"id": "x"})).replace(b'"x"', b'"\xff"'), "utf-8"),
    "lone high surrogate": (text(row(after={"id": "\ud800 no pair"})), "surrogate"),
    "lone low surrogate": (text(row(after={"id": "\udc00 no pair"})), "surrogate"),
    "deep nesting": (
        text(row(after={"id": 1})).replace(b'"id":1', b'"id":' + b"[" * 5000 + b"]" * 5000),
        "recursion",
    ),
    "NaN": (b'{"op":"c","after":{"id":NaN}}', "malformed"),
    "integer of 5000 digits": (
        text(row(after={"id": 1})).replace(b'"id":1', b'"id":' + b"9" * 5000),
        "out of range",
    ),
    "twice the same column": (text(row(after={"id": 1})).replace(b'"id":1', b'"id":1,"id":2'), "twice"),
    "twice op": (b'{"op":"d",' + text(row(after={"id": 1}))[1:], "twice"),
    "twice, escaped": (text(row(after={"id": 1})).replace(b'"id":1', b'"id":1,"\\u0069d":2'), "twice"),
    "twice, spaced": (text(row(after={"id": 1})).replace(b'"id":1', b'"id" :1,"id":2'), "twice"),
    "twice, hidden by text": (
        text(row(after={"id": 1})).replace(b'"id":1', b'"id" :1,"id":2,"x":"\\":"'),
        "twice",
    ),
    "twice payload": (
        b'{"schema":null,"payload":null,"payload":' + text(row(after={"id": 1})) + b"}",
        "twice",
    ),
    "twice in a struct": (text(row(after={"id": 1})).replace(b'"id":1', b'"id":{"a":1,"a":2}'), "twice"),
    "array": (b"[1]", "no object"),
    "number": (b"1.5", "no object"),
    "unknown op": (text(row("x", after={"id": 1})), "unknown op"),
    "op of another type": (text(row(["c"], after={"id": 1})), "unknown op"),
    "CloudEvents": (b'{"specversion":"1.0","data":{}}', "CloudEvents aren't read"),
    "flattened": (b'{"id":1,"name":"a","__deleted":"false"}', "ExtractNewRecordState"),
    "no source": (
        b'{"op":"c","before":null,"after":{"id":1}}',
        "options database and table",
    ),
    "no table": (b'{"op":"c","after":{"id":1},"source":{"db":"d"}}', "names no table"),
    "empty db": (b'{"op":"c","after":{"id":1},"source":{"db":"","table":"t"}}', "names no table"),
    "insert without after": (text(row("c")), "without after"),
    "update without after": (text(row("u", before={"id": 1})), "without after"),
    "delete without before and key": (text(row("d")), "no telling which row"),
    "after is text": (text(row("c", after="x")), "is no object"),
    "pos is text": (text(row(after={"id": 1})).replace(b'"pos":4', b'"pos":"x"'), "source.pos"),
    "pos too large": (text(row(after={"id": 1})).replace(b'"pos":4', b'"pos":99999999999999999999'), "too "),
    "file is a number": (text(row(after={"id": 1})).replace(b'"b.000001"', b"7"), "belongs"),
    "transaction is text": (text(row(after={"id": 1}, transaction="x")), "transaction"),
    "heartbeat time too large": (b'{"ts_ms":99999999999999999999}', "years 1 to 9999"),
    "heartbeat in year -290000": (b'{"ts_ms":-9223372036854775}', "years 1 to 9999"),
    "schema is text": (b'{"schema":"x","payload":{}}', "is no object"),
    "schema fields are text": (b'{"schema":{"fields":"x"},"payload":{}}', "attribute"),
    "ddl is a number": (b'{"source":{},"ddl":1}', "schema change"),
    "tableChanges without id": (b'{"source":{},"ddl":null,"tableChanges":[1]}', "without id"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bad_message_is_one_error_and_leaves_its_neighbours_alone(name):
    value, reason = BROKEN[name]
    assert reason in reason_of(value)


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"null",
        b"junk",
        b"{}",
        b'{"schema":null,"payload":{}}',
        b'"1"',
        b"[1]",
        b'{"other":1}',
        b"\xff",
        b'{"schema":{"fields":3},"payload":{"id":1}}',
    ],
)
def test_without_a_readable_key_the_row_still_counts(key):
    (found, shape) = readable(decode(messages([("d.t", key, text(row(after={"id": 1})))]), DebeziumOptions()))
    assert (found["kind"], found["op"], found["after"], found.get("key")) == (
        "row",
        "insert",
        {"id": "1"},
        None,
    )
    assert shape["columns"] == {"id": "longtext"}


def test_a_schema_version_stands_once_per_batch_at_its_first_row():
    batch = messages(
        [
            ("d.t", b'{"id":1}', text(row("t"))),
            GOOD,
            GOOD,
            ("d.t", b'{"id":1}', text(row(after={"id": 1, "n": 2}))),
        ]
    )
    events = readable(decode(batch, DebeziumOptions()))
    schemas = [(e["offset"], e["columns"]) for e in events if e["kind"] == "schema"]
    assert schemas == [(1, {"id": "longtext KEY"}), (3, {"id": "longtext KEY", "n": "longtext"})]
    versions = {e["offset"]: e["schema_version"] for e in events if e["kind"] == "schema"}
    assert [e.get("schema_version") for e in events if e["kind"] == "row"] == [
        None,
        versions[1],
        versions[1],
        versions[3],
    ]


def test_many_tables_share_a_topic():
    def wrapped(i, kind):
        fields = [{"type": kind, "field": f"c{i}"}]
        schema = {
            "type": "struct",
            "fields": [
                {"type": "struct", "field": "after", "fields": fields},
                {"type": "string", "field": "op"},
            ],
        }
        return text({"schema": schema, "payload": row(after={f"c{i}": i})})

    records = [("all", None, wrapped(i % 40, "int32")) for i in range(120)]
    events = readable(decode(messages(records), DebeziumOptions()))
    assert [e["after"] for e in events if e["kind"] == "row"] == [{f"c{i % 40}": str(i % 40)} for i in range(120)]
    assert sum(e["kind"] == "schema" for e in events) == 40


def test_empty_batch():
    assert decode(messages([]), DebeziumOptions()).num_rows == 0
    assert FORMAT.name == "debezium"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dtle_time_zone": "Mars/Base"}, "unknown time zone"),
        ({"columns": {"d.t": {"id": "quux"}}}, "unknown MySQL type 'quux'"),
        ({"time_precision_mode": "exact"}, "adaptive_time_microseconds"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_bad_options_say_what_is_wrong(options, told):
    with pytest.raises(ValidationError, match=told):
        DebeziumOptions(**options)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_json_is_read_as_written(value, indent, ascii_only):
    for separators in ((",", ":"), (", ", ": "), (" , ", " : ")):
        data = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=separators).encode()
        assert read_json(data) == value


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=6), min_size=1, max_size=4), st.data())
def test_a_repeated_key_is_always_seen(pairs, data):
    twice = data.draw(st.sampled_from(sorted(pairs)))
    items = [*pairs.items(), (twice, data.draw(st.text(max_size=6)))]
    colons = [data.draw(st.sampled_from([":", " :", ": ", "\n:"])) for _ in items]
    told = "{" + ",".join(f"{json.dumps(k)}{c}{json.dumps(v)}" for (k, v), c in zip(items, colons, strict=True)) + "}"
    for document in (told, f'{{"after":{told}}}', f'[{{"after":{{"x":{told}}}}}]'):
        with pytest.raises(ValueError, match="twice"):
            read_json(document.encode())


MATERIAL = [
    tuple(record[field] for field in ("topic", "key", "value"))
    for scenario in scenarios("debezium")
    for record in load("debezium", scenario)[0].to_pylist()
]


@examples(150)
@given(st.data())
def test_mutated_bytes_never_raise_and_never_touch_their_neighbours(data):
    topic, key, value = data.draw(st.sampled_from(MATERIAL))
    broken = {}
    for part, original in (("key", key), ("value", value)):
        changed = bytearray(original or b"")
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(changed)))
            changed[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        broken[part] = bytes(changed)
    found = decode(messages([GOOD, (topic, broken["key"], broken["value"]), GOOD]), DebeziumOptions())
    found.validate(full=True)
    events = readable(found)
    assert {e["offset"] for e in events} == {0, 1, 2}
    assert all(e["kind"] in KINDS and (e["kind"] != "row" or e["op"] in OPS) for e in events)
    assert all(e["kind"] != "error" or e["reason"] for e in events)
    neighbours = [e for e in events if e["offset"] != 1 and e["kind"] == "row"]
    assert [(e["op"], e["after"], e["key"]) for e in neighbours] == [("insert", {"id": "1"}, {"id": "1"})] * 2


def places(node, path=()):
    """Paths to all values inside a JSON tree."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, inner in items:
        yield (*path, step)
        yield from places(inner, (*path, step))


ODD = st.sampled_from(
    [None, True, -1, 0, 10**30, 1.5, "", "x", "AA==", [], [None], {}, {"a": 1}, "1e999999999", -(2**63)]
)
TREES = [json.loads(v) for _, _, v in MATERIAL if v and v[:1] == b"{"]


@pytest.mark.parametrize("changes", [{"a": 1}, [{"type": "DROP", "id": '"shop"."orders"', "table": None}]])
def test_a_schema_change_that_states_nothing_is_held(changes):
    source = {"ts_ms": 1, "db": "shop", "table": "orders", "connector": "mysql", "file": "f.3", "pos": 154}
    told = {"databaseName": "shop", "ddl": None, "source": source, "tableChanges": changes}
    [event] = readable(decode(messages([("any", None, text(told))]), DebeziumOptions()))
    assert (event["kind"], event["db"], event["table"]) == ("error", "shop", "orders")
    assert "state no columns" in event["reason"]


@examples(300)
@given(st.data())
def test_odd_values_in_any_place_never_raise(data):
    tree = json.loads(json.dumps(data.draw(st.sampled_from(TREES))))
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(list(places(tree)) or [("op",)]))
        node = tree
        for step in way:
            node = node[step]
        node[last] = copy.deepcopy(data.draw(ODD))  # never share a list with ODD itself
    found = decode(messages([GOOD, ("any", b'{"id":1}', text(tree)), GOOD]), DebeziumOptions())
    found.validate(full=True)
    events = readable(found)
    assert {e["offset"] for e in events} == {0, 1, 2}
    assert sum(e["kind"] == "row" and e["offset"] != 1 for e in events) == 2
    assert all(e["reason"] for e in events if e["kind"] == "error")


@pytest.mark.parametrize("changes", [True, False])
def test_without_schemas_the_schema_history_tells_which_null_may_be_a_default(changes):
    """JsonConverter replaces NULL by the default without schemas, too."""
    told = [
        {"name": "id", "typeName": "INT", "optional": False},
        {"name": "v", "typeName": "VARCHAR", "length": 9, "optional": True, "defaultValueExpression": "new"},
        {"name": "w", "typeName": "VARCHAR", "length": 9, "optional": True, "hasDefaultValue": True},
    ]
    table = {"type": "CREATE", "id": '"d"."t"', "table": {"primaryKeyColumnNames": ["id"], "columns": told}}
    sql = "CREATE TABLE t (id int NOT NULL PRIMARY KEY, v varchar(9) DEFAULT 'new', w varchar(9))"
    info = {"table_changes": json.dumps([table])} if changes else {}
    source = {"db": "d", "table": "t", "file": "b.000001", "pos": 9, "server_id": 1}
    value = {"op": "c", "before": None, "after": {"id": 1, "v": "new", "w": None}, "source": source}
    for replaced, wanted in ((True, {"v": ["null as default"]}), (False, {})):
        options = DebeziumOptions(replace_null_with_default=replaced)
        known = FORMAT.context.build(options, [statement("d", sql, binlog_pos=1, file_no=1, info=info)])
        events = decode(messages([json.dumps(value).encode()]), options, json.loads(json.dumps(known)))
        [schema] = [e for e in events.to_pylist() if e["kind"] == "schema"]
        limits = {c["name"]: c["limits"] for c in json.loads(schema["columns"]) if c.get("limits")}
        assert limits == wanted
