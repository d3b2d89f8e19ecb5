"""Scenarios of the JSON formats: `tests/fixtures/<format>/<scenario>.json` holds options and messages, the file
`<scenario>.expected.json` beside it the events, without null columns.

A message is the part that is its value, or {"topic": …, "key": part, "value": part}. A part is null, {"json": any},
{"text": …}, {"base64": …} or {"hex": …}.
"""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pyarrow as pa

from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.json_scanner import JsonScanner
from tests.formats.contexts import context_of

NAMES = ("canal_json", "dataworks", "debezium", "tdsql")
TOPIC = "c"  # of messages that name none
LANDED = datetime(2026, 11, 20, tzinfo=UTC)

FIXTURES = Path(__file__).parents[1] / "fixtures"
_PARTS = {
    "json": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(),
    "text": str.encode,
    "base64": base64.b64decode,
    "hex": bytes.fromhex,
}


def scenarios(name):
    """Scenarios of a format, in order."""
    return sorted(p.name.removesuffix(".expected.json") for p in (FIXTURES / name).glob("*.expected.json"))


def part(told):
    """Bytes of a Kafka key or value."""
    if told is None:
        return None
    [(way, value)] = told.items()
    return _PARTS[way](value)


def records(path):
    """Options of a scenario's file, and its records: (topic, key, value)."""
    told = json.loads(path.read_text())
    whole = [m if m is not None and "value" in m else {"value": m} for m in told["messages"]]
    found = [(m.get("topic") or TOPIC, part(m.get("key")), part(m["value"])) for m in whole]
    return told.get("options", {}), found


def load(name, scenario):
    """MESSAGE batch of a scenario and the format's options."""
    options, found = records(FIXTURES / name / f"{scenario}.json")
    return messages(found), FORMATS[name].options(**options)


def expected(name, scenario):
    """Events of a scenario, as `readable` gives them."""
    return json.loads((FIXTURES / name / f"{scenario}.expected.json").read_text())


def messages(values):
    """Kafka values, or (topic, key, value) → MESSAGE batch, offsets from 0."""
    whole = [v if type(v) is tuple else (TOPIC, None, v) for v in values]
    rows = [
        {"topic": t, "partition": 0, "offset": i, "timestamp": LANDED, "key": k, "value": v, "landed_at": LANDED}
        for i, (t, k, v) in enumerate(whole)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def readable(batch):
    """EVENT batch → dicts without nulls and landed_at, and without a topic that no one named; all as JSON has it."""
    events = []
    for row in batch.to_pylist(maps_as_pydicts="strict"):
        assert row.pop("landed_at") == LANDED
        if row["topic"] == TOPIC:
            assert (row.pop("topic"), row.pop("partition")) == (TOPIC, 0)
        event = {k: v for k, v in row.items() if v is not None}
        if "source_time" in event:
            event["source_time"] = event["source_time"].isoformat()
        if "binlog_pos" in event:
            event["binlog_pos"] = int(event["binlog_pos"])
        if "columns" in event:
            columns = json.loads(event["columns"])
            event["columns"] = {c["name"]: c["type"] + (" KEY" if c["key"] else "") for c in columns}
        events.append(event)
    return events


def decoder(name, batch, options):
    """A format's decoder with its options, which knows all DDL of a batch where it needs that."""
    format_, context = FORMATS[name], ()
    if format_.context is not None:
        context = (context_of(format_, options, format_.decode(batch, options)),)
    return lambda messages: format_.decode(messages, options, *context)


def exact(decode, *args):
    """What a decoder gives when its scanner leaves all messages to exact reading."""
    with mock.patch.object(JsonScanner, "__call__", lambda _, values: list(range(len(values)))):
        return decode(*args)
