"""Rows of tables that `tables.include` leaves out never reach quarantine, whatever is wrong with them: in every format
what can't be used keeps the database and table that its message names."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from cdc_platform.changelog.unify import outcome
from cdc_platform.config import Tables
from cdc_platform.formats.canal import FORMAT as CANAL
from cdc_platform.formats.pb import canal_entry_pb2 as entry_pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from cdc_platform.formats.pb import tencent_dts_pb2 as dts_pb
from cdc_platform.formats.tencent_dts import FORMAT as DTS
from tests.formats import canal_fixtures, dts_fixtures
from tests.formats.json_fixtures import NAMES, decoder, load, scenarios

NOBODY = Tables(include=["followed.*"])
Name = tuple[Any, Any] | None


def _part(of: Any, name: str) -> dict[str, Any]:
    found = of.get(name) if type(of) is dict else None
    return found if type(found) is dict else {}


def _canal_json(message: dict[str, Any]) -> Name:
    row = message.get("data") or (str(message.get("type")).upper() in ("INSERT", "UPDATE", "DELETE"))
    return (message.get("database"), message.get("table")) if row and not message.get("sql") else None


def _dataworks(message: dict[str, Any]) -> Name:
    row = _part(message, "payload").get("op") in ("INSERT", "UPDATE_BEFOR", "UPDATE_AFTER", "DELETE")
    source = _part(_part(message, "schema"), "source")
    return (source.get("dbName"), source.get("tableName")) if row else None


def _debezium(message: dict[str, Any]) -> Name:
    payload = message.get("payload", message)
    source = _part(payload, "source")
    return (source.get("db"), source.get("table")) if type(payload) is dict and "op" in payload else None


def _tdsql(message: dict[str, Any]) -> Name:
    row = message.get("eventtypestr") in ("insert", "update", "delete")
    return (message.get("db"), message.get("table")) if row else None


OF_A_ROW = {"canal_json": _canal_json, "dataworks": _dataworks, "debezium": _debezium, "tdsql": _tdsql}
"""What a row's message says by its fields, read with Python's own parser."""


def named(name: Name) -> bool:
    return name is not None and all(type(n) is str and n for n in name)


def of_json(format_: str, value: bytes | None) -> bool:
    """Whether a message is a row's and names its table."""
    try:
        message = json.loads(value or b"")
    except (ValueError, RecursionError):
        return False
    return type(message) is dict and named(OF_A_ROW[format_](message))


def quarantined(events: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Events that reach quarantine of a source that follows other tables."""
    found = outcome(events, NOBODY, {}).to_pylist()
    rows = events.select(["offset", "entry_index", "kind", "db", "table", "reason"]).to_pylist()
    return (r for r, o in zip(rows, found, strict=True) if o == "quarantined")


def errors(events: pa.RecordBatch) -> int:
    return events.column("kind").to_pylist().count("error")


@pytest.mark.parametrize("format_", NAMES)
def test_json_rows_of_other_tables(format_: str) -> None:
    count = 0
    for scenario in scenarios(format_):
        messages, options = load(format_, scenario)
        events = decoder(format_, messages, options)(messages)
        values = messages.column("value").to_pylist()
        held = [(e["reason"], values[e["offset"]]) for e in quarantined(events) if e["kind"] == "error"]
        assert [h for h in held if of_json(format_, h[1])] == [], scenario
        count += errors(events) - len(held)
    assert count > 10


def test_canal_rows_of_other_tables() -> None:
    count = 0
    for scenario in canal_fixtures.scenarios():
        values, options, _ = canal_fixtures.load(scenario)
        events = CANAL.decode(canal_fixtures.message_batch(values), CANAL.options(**options))
        held = [e for e in quarantined(events) if e["kind"] == "error"]
        for e in held:
            value = values[e["offset"]]
            # Of a header that is refused the rows aren't looked into: without an event type it may be a statement's.
            refused = e["reason"].startswith(("sourceType", "executeTime", "logfileOffset", "Header", "serverenCode"))
            assert value is None or refused or not _row_of_canal(value, e["entry_index"]), (scenario, e)
        count += errors(events) - len(held)
    assert count > 10


def _row_of_canal(value: bytes, index: int) -> bool:
    """Whether an entry holds rows and its header names their table; one without its own bytes is none."""
    try:
        packet = net.Packet.FromString(value)
        if (
            packet.compression not in (0, net.NONE)
            or packet.version not in (0, 1)
            or packet.magic_number not in (0, 17)
        ):
            return False
        entries = net.Messages.FromString(packet.body).messages if packet.type == net.MESSAGES else [value]
        entry = entry_pb.Entry.FromString(entries[index])
        change = entry_pb.RowChange.FromString(entry.storeValue)
    except (DecodeError, IndexError):
        return False
    ops = (entry_pb.EVENTTYPECOMPATIBLEPROTO2, entry_pb.INSERT, entry_pb.UPDATE, entry_pb.DELETE)
    of_rows = entry.entryType == entry_pb.ROWDATA and len(change.rowDatas) > 0 and change.eventType in ops
    return of_rows and named((entry.header.schemaName, entry.header.tableName))


def test_dts_rows_of_other_tables() -> None:
    count = 0
    for scenario in dts_fixtures.scenarios():
        messages, _ = dts_fixtures.load(scenario)
        events = DTS.decode(messages, DTS.options())
        held = [e for e in quarantined(events) if e["kind"] == "error"]
        values = messages.column("value").to_pylist()
        for e in held:
            assert not _row_of_dts(values[e["offset"]], e["entry_index"]), (scenario, e)
        count += errors(events) - len(held)
    assert count > 10


def _row_of_dts(value: bytes | None, index: int) -> bool:
    try:
        items = dts_pb.Entries.FromString(value or b"").items
    except DecodeError:
        return False
    if index >= len(items):
        return False
    header, dml = items[index].header, items[index].event.HasField("dmlEvent")
    return dml and named((header.schemaName, header.tableName))


@pytest.mark.parametrize("format_", NAMES)
def test_the_table_is_told_also_of_a_row_that_is_no_exact_json(format_: str) -> None:
    rows = [
        value
        for scenario in scenarios(format_)
        for value in load(format_, scenario)[0].column("value").to_pylist()
        if of_json(format_, value)
    ]
    broken = [v[:-1] + end for v in rows[:40] for end in (b',"":1,"":2}', b',"x":"\\ud800"}', b',"x":"\xff"}')]
    messages, options = load(format_, scenarios(format_)[0])
    column = messages.schema.names.index("value")
    some = messages.slice(0, 1)
    for value in broken:
        one = some.set_column(column, messages.schema.field(column), pa.array([value], pa.binary()))
        events = decoder(format_, one, options)(one)
        assert not [e["reason"] for e in quarantined(events) if e["kind"] == "error"], value
