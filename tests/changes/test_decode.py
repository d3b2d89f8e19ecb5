"""Decoders on Spark say exactly what they say on Arrow batches; a decoder that fails costs one message."""

import json
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform.changes.decode import _undecodable, decode
from cdc_platform.formats import FORMATS
from cdc_platform.formats.batches import as_message_batch, isolated
from cdc_platform.formats.contract import EVENT, MESSAGE
from cdc_platform.formats.events import event_batch
from cdc_platform.spark.arrow_tasks import spark_schema
from tests.formats import dts_fixtures

SCENARIOS = dts_fixtures.scenarios()


def debezium(after: dict[str, Any]) -> bytes:
    source = {
        "version": "3.0",
        "connector": "mysql",
        "db": "shop",
        "table": "t",
        "ts_ms": 1,
        "server_id": 1,
        "file": "b.000001",
        "pos": 4,
        "row": 0,
    }
    return json.dumps({"op": "c", "before": None, "after": after, "source": source}).encode()


def messages(values: list[bytes | None]) -> pa.RecordBatch:
    rows = [
        {"topic": "t", "partition": 0, "offset": i, "key": b'{"id": 1}', "value": v, "headers": []}
        for i, v in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def on_spark(spark: Any, batch: pa.RecordBatch, name: str, options: dict[str, Any]) -> pa.Table:
    frame = spark.createDataFrame(pa.Table.from_batches([batch]), spark_schema(MESSAGE)).coalesce(1)
    return decode(frame, name, options).toArrow()


def plain(table: Any) -> list[dict[str, Any]]:
    return [{k: dict(v) if isinstance(v, list) else v for k, v in row.items()} for row in table.to_pylist()]


@pytest.fixture
def three_at_a_time(spark: Any) -> Any:
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    spark.conf.set(key, "3")
    yield
    spark.conf.set(key, before)


@pytest.mark.spark
def test_events_are_the_decoders_own(spark: Any, three_at_a_time: None) -> None:
    values = [v for s in SCENARIOS for v in dts_fixtures.load(s)[0].column("value").to_pylist()]
    batch = messages([*values, b"garbage", None])
    format_ = FORMATS["tencent_dts"]
    direct = [format_.decode(batch.slice(i, 3), format_.options()) for i in range(0, batch.num_rows, 3)]
    expected = plain(pa.Table.from_batches(direct))
    found = on_spark(spark, batch, "tencent_dts", {})
    assert {e["kind"] for e in expected} >= {
        "row",
        "schema",
        "ddl",
        "error",
        "skip",
        "begin",
        "commit",
        "checkpoint",
    }
    assert plain(found) == expected


@pytest.mark.spark
def test_options_reach_the_decoder(spark: Any) -> None:
    batch = messages([debezium({"id": 1, "v": "~gone~"}), debezium({"id": 1, "v": "there"})])
    default = on_spark(spark, batch, "debezium", {})
    told = on_spark(spark, batch, "debezium", {"unavailable_value": "~gone~"})
    images = [[e["after"] for e in plain(t) if e["kind"] == "row"] for t in (default, told)]
    assert images == [
        [{"id": "1", "v": "~gone~"}, {"id": "1", "v": "there"}],
        [{"id": "1"}, {"id": "1", "v": "there"}],
    ]


@pytest.mark.spark
def test_sparks_schema_of_events_keeps_every_type(spark: Any) -> None:
    shown = {f.name: f.dataType.simpleString() for f in spark_schema(EVENT).fields}
    assert shown["binlog_pos"] == "decimal(20,0)"
    assert shown["source_time"] == "timestamp"
    assert shown["after"] == "map<string,string>"
    assert list(shown) == EVENT.names


def test_large_types_of_spark_are_brought_to_the_contracts() -> None:
    batch = messages([b"x", None])
    large = pa.RecordBatch.from_arrays(
        [
            c.cast({pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(c.type, c.type))
            for c in batch.columns
        ],
        names=MESSAGE.names,
    )
    assert as_message_batch(large).equals(batch)


@pytest.mark.parametrize("bad", [set(), {0}, {3}, {6}, {0, 1, 5}, set(range(7))])
def test_a_decoder_that_fails_costs_one_message_and_no_neighbour(bad: set[int]) -> None:
    def work(batch: pa.RecordBatch) -> pa.RecordBatch:
        offsets = batch.column("offset").to_pylist()
        if bad & set(offsets):
            raise KeyError("a fault")
        return event_batch(
            [{"topic": "t", "partition": 0, "offset": o, "entry_index": 0, "kind": "heartbeat"} for o in offsets]
        )

    found = [e for b in isolated(messages([b"x"] * 7), work, _undecodable) for e in b.to_pylist()]
    assert [(e["offset"], e["kind"]) for e in found] == [(i, "error" if i in bad else "heartbeat") for i in range(7)]
    assert all("KeyError" in e["reason"] for e in found if e["kind"] == "error")
