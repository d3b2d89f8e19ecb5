"""Workload → encoder → the platform's decoder → replay: the canonical text must be the truth's."""

import base64
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from cdc_platform.feeds import dataworks
from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.compare import time_text
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.shop import TABLES
from cdc_platform.feeds.tdsql import TdsqlEncoder
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import Workload
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from tests.formats.contexts import decode_with_context

LANDED = datetime(2026, 11, 20, tzinfo=UTC)


def moment(value):
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    text = text.rstrip("0") if "." in text else text
    return text + ("Z" if value.tzinfo else "")


TEXT = {
    "decimal": lambda v: f"{v:f}", "datetime": moment, "timestamp": moment, "date": str, "time": time_text,
    "blob": lambda v: base64.b64encode(v).decode(), "double": repr, "bit": lambda v: str(int(v)),
    "float": lambda v: repr(float(str(np.float32(v)))),
}  # fmt: skip


def canonical(table, row):
    return {
        c.name: None if row[c.name] is None else TEXT.get(c.type.split("(")[0], str)(row[c.name]) for c in table.columns
    }


def whole(records):
    """Records as MESSAGE rows, split envelopes put together."""
    parts = []
    for offset, r in enumerate(records):
        value = r.value
        if r.topic == "dts":
            envelope = pb.Envelope.FromString(value)
            parts.append(envelope.data)
            if envelope.index + 1 < envelope.total:
                continue
            value, parts = b"".join(parts), []
        headers = [{"key": k, "value": v} for k, v in r.headers]
        yield {
            "topic": r.topic, "partition": 0, "offset": offset, "timestamp": LANDED, "key": r.key,
            "value": value, "headers": headers, "landed_at": LANDED,
        }  # fmt: skip


def replay(events):
    tables = {name: {} for name in TABLES}
    for e in events:
        if e["kind"] != "row":
            continue
        table = TABLES[f"{e['db']}.{e['table']}"]
        live, before, after = tables[table.full_name], e["before"] and dict(e["before"]), e["after"]
        if before:
            assert live.pop(tuple(before[k] for k in table.key)) == before
            assert dict(e["key"]) == {k: before[k] for k in table.key}
        if after:
            row = dict(after)
            live[tuple(row[k] for k in table.key)] = row
    return tables


ENCODERS = {
    "tencent_dts": lambda: DtsEncoder("dts"),
    "debezium": lambda: DebeziumEncoder("p"),
    "canal_json": lambda: CanalJsonEncoder("c"),
    "canal": lambda: CanalEncoder("c"),
    "dataworks": lambda: dataworks.DataworksEncoder("d"),
    "tdsql": lambda: TdsqlEncoder("t"),
}
OPTIONS = {"dataworks": {"columns": dataworks.COLUMNS}}
SENT = {"dataworks": dataworks.as_sent}


@pytest.mark.parametrize(("format", "encoder"), [("canal_json", CanalJsonEncoder), ("canal", CanalEncoder)])
def test_timestamps_of_another_zone_lead_to_the_truth(format, encoder):
    shop = Workload(seed=29, transactions=20)
    messages = list(whole(encoder("c", zone="Asia/Shanghai").encode(shop.transactions)))
    options = FORMATS[format].options(time_zone="Asia/Shanghai")
    batch = pa.RecordBatch.from_pylist(messages, schema=MESSAGE)
    decoded = replay(FORMATS[format].decode(batch, options).to_pylist())["shop.customers"]
    assert [r["joined"] for r in decoded.values()] == [
        moment(r["joined"]) for r in shop.truth["shop.customers"].values()
    ]


@pytest.mark.parametrize("format", ENCODERS)
def test_decoded_changes_lead_to_the_truth(format):
    shop = Workload(seed=23, transactions=120)
    messages = list(whole(ENCODERS[format]().encode(shop.transactions)))
    batch = pa.RecordBatch.from_pylist(messages, schema=MESSAGE)
    options = FORMATS[format].options(**OPTIONS.get(format, {}))
    events = decode_with_context(FORMATS[format], batch, options).to_pylist()
    assert [e["reason"] for e in events if e["kind"] == "error"] == []
    decoded = replay(events)
    truth = SENT.get(format, dict)(shop.truth)
    for name, table in TABLES.items():
        want = [canonical(table, row) for row in truth[name].values()]
        got = decoded[name]
        assert len(got) == len(want)
        for row in want:
            assert got[tuple(row[k] for k in table.key)] == row
    kinds = {e["kind"] for e in events}
    assert {"row", "schema", "ddl", "heartbeat"} <= kinds
