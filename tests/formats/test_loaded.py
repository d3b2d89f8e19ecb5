"""Records of rows that the platform loaded: what they decode to."""

import base64
import json

import msgspec
import pytest

from cdc_platform.formats import loaded
from cdc_platform.formats.contract import EVENT, MESSAGE
from cdc_platform.formats.loaded import Column, LogPosition, Record
from cdc_platform.tables import LOADED
from tests.formats.canal_fixtures import message_batch

COLUMNS = [
    Column("id", "int(11) unsigned", True),
    Column("price", "decimal(8,2)", False),
    Column("at", "timestamp(3)", False),
    Column("raw", "varbinary(8)", False),
    Column("f", "float", False),
]
RECORD = Record(
    **{
        "load": "2.0",
        "kind": "whole",
        "server": {"id": "7"},
        "at": LogPosition("b.000003", 99, "0-7-4"),
        "time_us": 5_000_000,
    },
    **{"db": "shop", "table": "t", "columns": COLUMNS, "after": "t/0/5/0", "begin": "b.000003:99"},
    rows=[["7", "1.50", "2026-01-02 03:04:05.600", "AAE=", "0.10000000149011612"], ["8", None, None, None, None]],
)


def decoded(*records: Record | bytes) -> list[dict]:
    values = [r if isinstance(r, bytes) else loaded.encoded(r) for r in records]
    batch = message_batch(values)
    topics = [LOADED] * len(values)
    messages = [{**m, "topic": t, "partition": 2} for m, t in zip(batch.to_pylist(), topics, strict=True)]
    found = loaded.decode(type(batch).from_pylist(messages, MESSAGE))
    assert found.schema == EVENT
    return found.to_pylist()


def test_rows_and_where_they_stand() -> None:
    stated, first, second = decoded(RECORD)
    assert (stated["kind"], dict(stated["info"])) == (
        "schema",
        {"load": "b.000003:99 (load 2.0)", "load_whole": "true"},
    )
    assert (first["op"], dict(first["key"])) == ("read", {"id": "7"})
    image = {"id": "7", "price": "1.50", "at": "2026-01-02 03:04:05.6Z", "raw": base64.b64encode(b"\0\1").decode()}
    assert dict(first["after"]) == {**image, "f": "0.1"}
    assert dict(second["after"]) == {"id": "8", "price": None, "at": None, "raw": None, "f": None}
    for event in (stated, first, second):
        place = (event["binlog_file"], event["file_no"], int(event["binlog_pos"]), event["gtid"], event["lineage"])
        assert place == ("b.000003", 3, 99, "0-7-4", "t/0/5/0")
        assert event["schema_version"] == stated["schema_version"]
    assert [(e["entry_index"], e["row_index"]) for e in (stated, first, second)] == [(0, 0), (2, 0), (2, 1)]


def test_the_last_record_of_a_load_says_so() -> None:
    [stated] = decoded(msgspec.structs.replace(RECORD, rows=[], last=True))
    assert dict(stated["info"])["load_end"] == "table"
    assert stated["schema_version"] != decoded(RECORD)[0]["schema_version"]


def test_what_the_feed_cant_tell_of_a_column_is_stated_again() -> None:
    limited = [*COLUMNS[:-1], msgspec.structs.replace(COLUMNS[-1], limits=("null as default",))]
    [stated] = decoded(msgspec.structs.replace(RECORD, rows=[], columns=limited))
    assert [c.get("limits") for c in json.loads(stated["columns"])] == [None] * 4 + [["null as default"]]
    earlier = loaded.encoded(RECORD)
    assert b"limits" not in earlier, "as records were before they had it"
    assert loaded.record_of(earlier).columns == COLUMNS


def test_keys_that_the_server_lacks() -> None:
    stated, gone = decoded(msgspec.structs.replace(RECORD, kind="keys", rows=[], gone=[["9"]]))
    assert stated["info"] is None
    assert (gone["op"], dict(gone["key"]), dict(gone["before"]), gone["after"]) == (
        "delete",
        {"id": "9"},
        {"id": "9"},
        None,
    )


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"no json", "JSON"),
        (b'{"format": "x"}', "required"),
        (msgspec.structs.replace(RECORD, version=2), "version 2"),
        (msgspec.structs.replace(RECORD, rows=[["x", None, None, None, None]]), "column 'id'"),
        (msgspec.structs.replace(RECORD, rows=[["1", "1.505", None, None, None]]), "column 'price'"),
        (msgspec.structs.replace(RECORD, rows=[["1"]]), "as many values"),
        (msgspec.structs.replace(RECORD, columns=[Column("id", "odd", True)]), "odd"),
    ],
)
def test_what_is_none_is_told(record, reason) -> None:
    good, *rest = decoded(RECORD, record)
    assert good["kind"] == "schema"
    [error] = [e for e in rest if e["kind"] == "error"]
    assert reason in error["reason"]
