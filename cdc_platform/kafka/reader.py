"""Ranges of Kafka offsets as Arrow batches of LANDING rows, read by executors with librdkafka.

Spark's own Kafka source needs half as much CPU again (1,000,000 records of 642 bytes: 4.4 to 4.9 CPU-s instead of
2.8), and in a new process five seconds more until Java has compiled it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from cdc_platform.tables import LANDING

if TYPE_CHECKING:
    from confluent_kafka import Message

RECORD = LANDING.arrow()
"""Rows of LANDING."""

_USUAL: dict[str, str | int | bool] = {
    "isolation.level": "read_committed",
    # What is to be read is there already: nothing is to be waited for.
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 2,
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 16 << 10,
}
_NEEDED: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # offsets that are gone are told, never passed over
    "log_level": 0,  # what matters comes as an error
}
_SILENCE_S = 60.0
_PATIENCE_S = 0.05
_AT_ONCE = 2_000
_BATCH_BYTES = 8 << 20


class KafkaFailed(Exception):
    """Kafka gave an error, or nothing, before a range was read."""


class Range(NamedTuple):
    """Offsets of a partition from `start` up to (not including) `end`; base: what is added to Kafka's offsets
    (kafka.offsets.numbered)."""

    topic: str
    partition: int
    start: int
    end: int
    base: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads ranges. properties: librdkafka's; landed_at: µs."""

    properties: dict[str, str]
    landed_at: int

    def __call__(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        """Its records. Offsets without one (markers of transactions, what was aborted or compacted) are passed over.
        Raises KafkaFailed."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({**_USUAL, **self.properties, **_NEEDED})
        try:
            consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start - wanted.base)])
            yield from self._batches(consumer, wanted)
        except KafkaException as error:
            raise KafkaFailed(f"{wanted}: {error.args[0].str()}") from None
        finally:
            consumer.close()

    def _batches(self, consumer: Any, wanted: Range) -> Iterator[pa.RecordBatch]:
        at, ask, heard = wanted.start, 100, time.monotonic()
        while at < wanted.end:
            got = consumer.consume(ask, timeout=_PATIENCE_S)
            reached, records = _sorted_out(wanted, got, at)
            if records:
                batch = self._batch(wanted, records)
                ask = max(1, min(_AT_ONCE, _BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
                yield batch
            if reached > at:
                at, heard = reached, time.monotonic()
            elif time.monotonic() - heard > _SILENCE_S:
                raise KafkaFailed(f"{wanted}: nothing came after offset {at} for {_SILENCE_S:.0f} s")

    def _batch(self, wanted: Range, records: list["Message"]) -> pa.RecordBatch:
        n = len(records)
        times = [m.timestamp() for m in records]
        columns = [
            pa.repeat(wanted.topic, n),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), n),
            pa.array([wanted.base + (m.offset() or 0) for m in records], pa.int64()),
            pa.array([ms * 1000 for _, ms in times], pa.int64()).cast(RECORD.field("timestamp").type),
            pa.array([kind - 1 for kind, _ in times], pa.int32()),  # librdkafka counts from "not available"
            pa.array([m.key() for m in records], pa.binary()),
            pa.array([m.value() for m in records], pa.binary()),
            pa.array([_headers(m) for m in records], RECORD.field("headers").type),
            pa.repeat(pa.scalar(self.landed_at, RECORD.field("landed_at").type), n),
            pa.nulls(n, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD)


def _sorted_out(wanted: Range, got: list["Message"], at: int) -> tuple[int, list["Message"]]:
    """How far the range has been read, and its records among what came. Raises KafkaException."""
    from confluent_kafka import KafkaError, KafkaException

    records = []
    for message in got:
        told = message.offset()
        offset = -1 if told is None else told + wanted.base
        if (error := message.error()) is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            at = max(at, min(offset, wanted.end))
        elif offset >= wanted.end:
            return wanted.end, records
        else:
            records.append(message)
            at = offset + 1
    return at, records


def _headers(message: "Message") -> list[dict[str, Any]] | None:
    told = message.headers()
    return [{"key": k, "value": v} for k, v in told] if told else None
