"""DataWorks messages → EVENT rows. A fixture `<scenario>.json` holds options and messages, the file
`<scenario>.expected.json` beside it the events, without null columns."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_platform.formats.contract import EVENT, MESSAGE
from cdc_platform.formats.dataworks import DataworksOptions, decode

FIXTURES = Path(__file__).parents[2] / "fixtures" / "dataworks"
SCENARIOS = sorted(p.name.removesuffix(".expected.json") for p in FIXTURES.glob("*.expected.json"))
LANDED = datetime(2026, 11, 20, tzinfo=UTC)


def raw(part):
    """null, {"json": any}, {"text": str} or {"base64": str} → bytes of a Kafka value."""
    if part is None:
        return None
    if "json" in part:
        return json.dumps(part["json"], ensure_ascii=False, separators=(",", ":")).encode()
    return part["text"].encode() if "text" in part else base64.b64decode(part["base64"])


def messages(values):
    """Kafka values → MESSAGE batch, offsets from 0."""
    rows = [
        {"topic": "d", "partition": 0, "offset": i, "timestamp": LANDED, "value": v, "landed_at": LANDED}
        for i, v in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def plain(batch):
    """EVENT batch → dicts without nulls, topic, partition and landed_at; all as JSON can say it."""
    events = []
    for row in batch.to_pylist(maps_as_pydicts="strict"):
        assert (row.pop("landed_at"), row.pop("topic"), row.pop("partition")) == (LANDED, "d", 0)
        event = {k: v for k, v in row.items() if v is not None}
        if "source_time" in event:
            event["source_time"] = event["source_time"].isoformat()
        if "binlog_pos" in event:
            event["binlog_pos"] = int(event["binlog_pos"])
        if "columns" in event:
            event["columns"] = {
                c["name"]: c["type"] + (" KEY" if c["key"] else "") for c in json.loads(event["columns"])
            }
        events.append(event)
    return events


def load(name):
    told = json.loads((FIXTURES / f"{name}.json").read_text())
    return messages([raw(m) for m in told["messages"]]), DataworksOptions(**told.get("options", {}))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    batch, options = load(name)
    found = decode(batch, options)
    found.validate(full=True)
    assert found.schema == EVENT
    assert plain(found) == json.loads((FIXTURES / f"{name}.expected.json").read_text())


@pytest.mark.parametrize("name", SCENARIOS)
def test_message_by_message_gives_the_same_events(name):
    batch, options = load(name)
    alone = [e for i in range(len(batch)) for e in plain(decode(batch.slice(i, 1), options)) if e["kind"] != "schema"]
    assert alone == [e for e in plain(decode(batch, options)) if e["kind"] != "schema"]
