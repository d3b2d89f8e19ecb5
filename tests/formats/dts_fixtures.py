"""Builds DTS messages from the readable scenario files in tests/fixtures/tencent_dts.

A scenario is {"messages": [{"entries": [...]} | {"hex": "…"} | {"value": null}]}. An entry is {"header": {…},
"event": {…}} in protobuf's JSON, or {"header": …, "dml": {"type": …, "columns": ["name type [key]"],
"rows": [{"old": […], "new": […]}]}}. A cell is null (SQL NULL), "NA", or {"<DataType>": "text", "charset":
…}; {"BYTES_HEX": "00ff"} and {"STRING_HEX": …} give bytes.
"""

import json
from pathlib import Path

import pyarrow as pa
from google.protobuf.json_format import ParseDict

from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.pb import tencent_dts_pb2 as pb

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tencent_dts"
HEADER = {
    "version": 1, "sourceType": "MYSQL", "timestamp": 1700000000, "serverId": 42,
    "fileName": "mysql-bin.000123", "position": 4, "gtid": "u:1", "schemaName": "shop", "tableName": "t",
}  # fmt: skip
CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb4_general_ci": "utf-8",
    "utf8": "utf-8",
    "latin1": "cp1252",
    "utf16": "utf_16_be",
    "sjis": "shift_jis",
    "": "utf-8",
}


def scenarios() -> list[str]:
    return sorted(p.name.removesuffix(".expected.json") for p in FIXTURES.glob("*.expected.json"))


def load(scenario: str) -> tuple[pa.RecordBatch, list[dict]]:
    """MESSAGE batch and the expected events (null fields left out) of a scenario."""
    wire = json.loads((FIXTURES / f"{scenario}.json").read_text())
    expected = json.loads((FIXTURES / f"{scenario}.expected.json").read_text())
    return message_batch([_value(m) for m in wire["messages"]]), expected


def message_batch(values: list[bytes | None], headers: list[list[tuple[str, bytes]]] | None = None) -> pa.RecordBatch:
    n = len(values)
    columns = {
        "topic": ["dts"] * n,
        "partition": [0] * n,
        "offset": list(range(n)),
        "value": values,
        "headers": [[{"key": k, "value": v} for k, v in h] for h in headers] if headers else [[]] * n,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(f.name, [None] * n), f.type) for f in MESSAGE], schema=MESSAGE
    )


def readable(batch: pa.RecordBatch) -> list[dict]:
    """EVENT batch → dicts as they stand in the expected files: nulls left out, maps as objects."""
    out = []
    for event in batch.to_pylist():
        told = {k: v for k, v in event.items() if v is not None and k not in ("topic", "partition")}
        for name in ("key", "before", "after", "info"):
            if name in told:
                assert len(dict(told[name])) == len(told[name]), "a map key stands twice"
                told[name] = dict(told[name])
        if "source_time" in told:
            told["source_time"] = told["source_time"].isoformat()
        if "binlog_pos" in told:
            told["binlog_pos"] = str(told["binlog_pos"])
        if "columns" in told:
            told["columns"] = json.loads(told["columns"])
        out.append(told)
    return out


def _value(message: dict) -> bytes | None:
    if "hex" in message:
        return bytes.fromhex(message["hex"])
    if "entries" not in message:
        return None
    whole = pb.Entries(items=[entry(e) for e in message["entries"]]).SerializeToString()
    return whole[: len(whole) - message.get("cut", 0)]


def entry(spec: dict) -> pb.Entry:
    out = pb.Entry()
    if spec.get("header", {}) is not None:
        ParseDict(HEADER | spec.get("header", {}), out.header)
    if "dml" in spec:
        if "messageType" not in spec.get("header", {}):
            out.header.messageType = pb.DML
        _fill_dml(out.event.dmlEvent, spec["dml"])
    if "event" in spec:
        ParseDict(spec["event"], out.event)
    return out


def _fill_dml(dml: pb.DMLEvent, spec: dict) -> None:
    dml.dmlEventType = pb.DMLType.Value(spec["type"]) if isinstance(spec["type"], str) else spec["type"]
    for text in spec["columns"]:
        name, _, rest = text.partition(" ")
        dml.columns.add(name=name, originalType=rest.removesuffix("key").strip(), isKey=rest.endswith("key"))
    for row in spec["rows"]:
        change = dml.rows.add()
        change.oldColumns.extend(cell(c) for c in row.get("old", ()))
        change.newColumns.extend(cell(c) for c in row.get("new", ()))


def cell(spec: dict | str | None) -> pb.Data:
    if spec is None:
        return pb.Data()
    if spec == "NA":
        return pb.Data(dataType=pb.NA)
    assert isinstance(spec, dict)
    (kind, value), charset = next(iter(spec.items())), spec.get("charset", "")
    name = kind.removesuffix("_HEX")
    data_type = pb.DataType.Value(name) if not name.isdigit() else int(name)
    if kind.endswith("_HEX"):
        return pb.Data(dataType=data_type, charset=charset, bv=bytes.fromhex(value))
    if name in ("STRING", "BYTES"):
        return pb.Data(dataType=data_type, charset=charset, bv=value.encode(CODECS.get(charset, charset)))
    return pb.Data(dataType=data_type, sv=value)
