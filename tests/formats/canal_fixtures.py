"""Builds canal's Kafka values from the readable scenario files in tests/fixtures/canal.

A scenario is {"options": {…}, "messages": [null | {"hex": "…"} | {"entry": entry} | {"entries": [entry, …], "packet":
{…}, "batch_id": n, "cut": n}]}: null is a null value, `entry` a bare Entry, `entries` a Packet of them (without
`packet` as canal writes a raw batch, `packet` adds fields in protobuf's JSON), `cut` drops bytes at the end.
An entry is null (no content), {"hex": …}, or {"header": {…} (over HEADER; null: none), "type": "ROWDATA" (null:
absent)} with one of "change", "begin", "end", "pair" (protobuf's JSON), "store" (hex), or "columns" and "rows":
columns are {"name": "type [key]"}, rows [{"before": {name: text}, "after": {…}}] with null for NULL, "event" their
event type (null: absent), "sql_types" {"name": number}, "places" false leaves the columns' places out.
"""

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from google.protobuf.json_format import ParseDict

from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net

FIXTURES = Path(__file__).parents[1] / "fixtures" / "canal"
HEADER = {
    "version": 1, "logfileName": "mysql-bin.000123", "logfileOffset": 400, "serverId": 42, "serverenCode": "UTF-8",
    "executeTime": 1700000000000, "sourceType": "MYSQL", "schemaName": "shop", "tableName": "t", "eventLength": 80,
}  # fmt: skip
_OF_NO_TABLE = {"schemaName": "", "tableName": ""}
_BODIES = {"change": pb.RowChange, "begin": pb.TransactionBegin, "end": pb.TransactionEnd, "pair": pb.Pair}
_TYPES = {"begin": "TRANSACTIONBEGIN", "end": "TRANSACTIONEND", "pair": "GTIDLOG"}
_SQL_TYPES = {"blob": 2004, "binary": 2004, "varbinary": 2004, "text": 2005, "int": 4, "bigint": -5, "point": 2004}


def scenarios() -> list[str]:
    return sorted(p.name.removesuffix(".expected.json") for p in FIXTURES.glob("*.expected.json"))


def load(scenario: str) -> tuple[list[bytes | None], dict[str, Any], list[dict]]:
    """Kafka values, options and the expected events (null fields left out) of a scenario."""
    wire = json.loads((FIXTURES / f"{scenario}.json").read_text())
    expected = json.loads((FIXTURES / f"{scenario}.expected.json").read_text())
    return [value(m) for m in wire["messages"]], wire.get("options", {}), expected


def message_batch(values: list[bytes | None]) -> pa.RecordBatch:
    rows = [{"topic": "c", "partition": 0, "offset": i, "value": v, "headers": []} for i, v in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def readable(batch: pa.RecordBatch) -> list[dict]:
    """EVENT batch → dicts as they stand in the expected files: nulls left out, maps as objects."""
    out = []
    for event in batch.to_pylist(maps_as_pydicts="strict"):
        told = {k: v for k, v in event.items() if v is not None and k not in ("topic", "partition")}
        if "source_time" in told:
            told["source_time"] = told["source_time"].isoformat()
        if "binlog_pos" in told:
            told["binlog_pos"] = str(told["binlog_pos"])
        if "columns" in told:
            told["columns"] = {c["name"]: c["type"] + (" KEY" if c["key"] else "") for c in json.loads(told["columns"])}
        out.append(told)
    return out


def value(message: dict | None) -> bytes | None:
    if message is None:
        return None
    if "hex" in message:
        return bytes.fromhex(message["hex"])
    if "entry" in message:
        return entry(message["entry"])
    body = net.Messages(batch_id=message.get("batch_id", 0), messages=map(entry, message["entries"]))
    told = ParseDict(message.get("packet", {}), net.Packet(type=net.MESSAGES))
    if not told.body:
        told.body = body.SerializeToString()
    whole = told.SerializeToString()
    return whole[: len(whole) - message.get("cut", 0)]


def entry(spec: dict | None) -> bytes:
    if spec is None or "hex" in spec:
        return bytes.fromhex(spec["hex"]) if spec else b""
    body = next((name for name in _BODIES if name in spec), None)
    out = pb.Entry()
    kind = spec.get("type", _TYPES.get(body or "", "ROWDATA"))
    if kind is not None:
        out.entryType = cast(pb.EntryType, pb.EntryType.Value(kind) if isinstance(kind, str) else kind)
    header = spec.get("header", {})
    if header is not None:
        ParseDict(HEADER | (_OF_NO_TABLE if body in _TYPES else {}) | header, out.header, ignore_unknown_fields=False)
    if body:
        out.storeValue = ParseDict(spec[body], _BODIES[body]()).SerializeToString()
    elif "rows" in spec:
        out.storeValue = _rows(spec).SerializeToString()
    elif "store" in spec:
        out.storeValue = bytes.fromhex(spec["store"])
    return out.SerializeToString()


def _rows(spec: dict) -> pb.RowChange:
    out = pb.RowChange(tableId=7, isDdl=False)
    event = spec.get("event", "UPDATE")
    if event is not None:
        out.eventType = cast(pb.EventType, pb.EventType.Value(event) if isinstance(event, str) else event)
    for row in spec["rows"]:
        data = out.rowDatas.add()
        for image, columns in (("before", data.beforeColumns), ("after", data.afterColumns)):
            for name, text in row.get(image, {}).items():
                columns.append(_column(spec, name, text))
    return out


def _column(spec: dict, name: str, text: str | None) -> pb.Column:
    place = list(spec["columns"]).index(name)
    told = spec["columns"][name]
    type_ = told.removesuffix("key").strip()
    base = type_.partition("(")[0].split(" ")[0]
    out = pb.Column(name=name, mysqlType=type_, isKey=told.endswith("key"), updated=True, value=text or "")
    out.sqlType = spec.get("sql_types", {}).get(name, _SQL_TYPES.get(base, 12))
    if spec.get("places", True):
        out.index = place
    if text is None:
        out.isNull = True
    return out
