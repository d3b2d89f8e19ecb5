"""A few of a topic's newest records, without Spark and without a trace in Kafka."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_platform.config import Config, Source
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.kafka.client import librdkafka_properties
from cdc_platform.kafka.offsets import PartitionState

if TYPE_CHECKING:
    from confluent_kafka import Message

_PATIENCE_S = 15.0


def newest(config: Config, source: Source, state: list[PartitionState], records: int) -> pa.RecordBatch:
    """MESSAGE batch of at most `records` of the newest records, spread over the partitions in `state`. Raises
    KafkaException. Ends early where a partition gives nothing (transaction markers only)."""
    from confluent_kafka import Consumer, TopicPartition

    held = [s for s in state if s.end > s.begin]
    each = max(1, records // max(1, len(held)))
    wanted = {(s.topic, s.partition): s.end for s in held}
    consumer = Consumer(
        {
            **librdkafka_properties(config, source),
            "group.id": "cdc-platform-inspect",  # needed by the client, never committed
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )
    rows: list[dict[str, Any]] = []
    try:
        consumer.assign([TopicPartition(s.topic, s.partition, max(s.begin, s.end - each)) for s in held])
        deadline = time.monotonic() + _PATIENCE_S
        while wanted and len(rows) < records and time.monotonic() < deadline:
            found = consumer.consume(records - len(rows), timeout=1.0)
            rows += [_row(message) for message in found if message.error() is None]
            at = {(p.topic, p.partition): p.offset for p in consumer.position(consumer.assignment())}
            wanted = {k: end for k, end in wanted.items() if at.get(k, -1) < end}
    finally:
        consumer.close()
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def _row(message: "Message") -> dict[str, Any]:
    _, millis = message.timestamp()
    now = datetime.now(UTC)
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": datetime.fromtimestamp(millis / 1000, UTC) if millis >= 0 else now,
        "key": message.key(),
        "value": message.value(),
        "headers": [{"key": k, "value": v} for k, v in message.headers() or []],
        "landed_at": now,
    }
