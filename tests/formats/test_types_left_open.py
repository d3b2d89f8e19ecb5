"""Types that protobuf messages leave open, from the schema history: where the row stands, and only where the message
leaves something open."""

import json

import pytest

from cdc_platform.formats import FORMATS
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from tests.formats import canal_fixtures, dts_fixtures
from tests.formats.contexts import statement

STATEMENTS = ("CREATE TABLE t (id int PRIMARY KEY, e enum('x','y'))", "ALTER TABLE t MODIFY e enum('y','z')")
PLACES = {"before": 150, "after": 250}


def canal(pos, type_, value):
    change = {"event": "INSERT", "columns": {"id": "int key", "e": type_}, "rows": [{"after": {"id": "1", "e": value}}]}
    return canal_fixtures.entry({"header": {"schemaName": "d", "logfileOffset": pos}, **change})


def tencent_dts(pos, type_, value):
    header = {"schemaName": "d", "position": pos}
    rows = [{"new": [{"INT32": "1"}, {"STRING": value, "charset": "utf8mb4"}]}]
    dml = {"type": "INSERT", "columns": ["id int key", f"e {type_}".strip()], "rows": rows}
    return pb.Entries(items=[dts_fixtures.entry({"header": header, "dml": dml})]).SerializeToString()


WRITERS = {"canal": canal, "tencent_dts": tencent_dts}
LABELS = {
    "canal": {"y before": "2", "y after": "1", "z": "2"},
    "tencent_dts": {"y before": "y", "y after": "y", "z": "z"},
}


def decoded(name, *values, statements=STATEMENTS):
    format_ = FORMATS[name]
    told = [
        statement("d", sql, i, file_no=123, binlog_pos=100 * i, lineage="42", source_time=1_700_000_000_000_000)
        for i, sql in enumerate(statements, 1)
    ]
    known = json.loads(json.dumps(format_.context.build(format_.options(), told)))
    batch = dts_fixtures.message_batch(list(values))
    return canal_fixtures.readable(format_.decode(batch, format_.options(), known))


@pytest.mark.parametrize("name", WRITERS)
def test_labels_are_those_of_the_rows_place(name):
    write, labels = WRITERS[name], LABELS[name]
    events = decoded(name, write(150, "enum", labels["y before"]), write(250, "enum", labels["y after"]))
    rows = [e for e in events if e["kind"] == "row"]
    assert [e["after"]["e"] for e in rows] == ["y", "y"], events
    assert [e["columns"]["e"] for e in events if e["kind"] == "schema"] == ["enum('x','y')", "enum('y','z')"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_label_of_the_other_place_is_refused(name):
    write, labels = WRITERS[name], LABELS[name]
    value = "z" if name == "tencent_dts" else "3"
    [event] = [e for e in decoded(name, write(150, "enum", value)) if e["kind"] != "schema"]
    assert (event["kind"], event["info"]) == ("error", {"column": "e"})
    assert labels


@pytest.mark.parametrize("name", WRITERS)
def test_what_the_message_tells_stays(name):
    write = WRITERS[name]
    value = "1" if name == "canal" else "q"
    events = decoded(name, write(250, "enum('q')", value))
    assert [e["after"]["e"] for e in events if e["kind"] == "row"] == ["q"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_type_of_another_family_isnt_taken(name):
    write = WRITERS[name]
    events = decoded(name, write(250, "varchar", "anything"))
    assert [e["after"]["e"] for e in events if e["kind"] == "row"] == ["anything"]


def test_a_column_of_dts_without_any_type():
    events = decoded("tencent_dts", tencent_dts(150, "", "x"), tencent_dts(250, "", "z"))
    assert [e["columns"]["e"] for e in events if e["kind"] == "schema"] == ["enum('x','y')", "enum('y','z')"]
    assert [e["after"]["e"] for e in events if e["kind"] == "row"] == ["x", "z"]
