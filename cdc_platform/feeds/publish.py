"""Records → Kafka: fast, in order per partition, and loud when a broker refuses one."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc_platform.errors import CdcError, KafkaUnreachable

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_Report = Callable[[KafkaError | None, Message], None]
_PROGRESS_EVERY = 5_000


class Record(NamedTuple):
    """One Kafka record to produce. `partition` None: by the key's murmur2 hash, as Kafka Connect places it.
    `timestamp_ms` since epoch; a `value` of None is a tombstone."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


class PublishFailed(CdcError):
    """A record or topic was refused. Fields: `topic`, `problem`."""

    def __init__(self, topic: str, problem: str):
        self.topic, self.problem = topic, problem
        super().__init__(f"topic {topic!r}: Kafka refused: {problem}")


@dataclass(slots=True)
class Published:
    """What the broker acknowledged: records in all and per topic, key+value bytes; seconds taken."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    topics: dict[str, int] = field(default_factory=dict)


def publish(
    records: Iterable[Record],
    bootstrap: str,
    progress: Callable[[int], None] | None = None,
    *,
    partitions: Mapping[str, int] | None = None,
    default_partitions: int = 4,
    config: Mapping[str, str] | None = None,
) -> Published:
    """Produces all records and waits until the broker has them.

    progress: called now and then with the number of records handed over so far.
    partitions: topic → partition count for topics that don't exist yet (others get `default_partitions`).
        These topics are made at once, a topic met only in the records when it is first met.
    config: further librdkafka properties (security.protocol, sasl.*, …).
    Raises KafkaUnreachable, PublishFailed. Records before the refused one may have been written.
    """
    common: dict[str, str | int | float | bool] = {
        "log_level": 0,  # what matters comes as an error; librdkafka would write each retry to stderr
        **(config or {}),
        "bootstrap.servers": bootstrap,
    }
    wanted = dict(partitions or {})
    topics = _Topics(AdminClient(common), bootstrap)
    topics.ensure(wanted)
    failures: list[tuple[str, KafkaError]] = []
    producer = Producer({**common, **_PRODUCER})
    producer_callback = _collect_into(failures)
    done, started = Published(), time.monotonic()
    for record in records:
        if record.topic not in topics.known:
            topics.ensure({record.topic: wanted.get(record.topic, default_partitions)})
        _produce(producer, record, producer_callback)
        done.records += 1
        done.bytes += len(record.key or b"") + len(record.value or b"")
        done.topics[record.topic] = done.topics.get(record.topic, 0) + 1
        if done.records % _PROGRESS_EVERY == 0:
            producer.poll(0)
            _raise_first(failures)
            if progress:
                progress(done.records)
    left = producer.flush(120)
    _raise_first(failures)
    if left:
        raise KafkaUnreachable("demo", bootstrap, f"{left} records unacknowledged after 120 s")
    done.seconds = time.monotonic() - started
    if progress:
        progress(done.records)
    return done


_PRODUCER: dict[str, str | int | float | bool] = {
    "enable.idempotence": True,  # no duplicates and no reordering when the client retries
    # Of several batches under way to a partition that was just made, Kafka 4.1 may refuse the first (not leader yet)
    # and take the second, whose numbers it has nothing to compare with. The first, sent again, is then a duplicate to
    # it, which librdkafka counts as written: records lost without an error. Seen at a load of 10 on two cores.
    "max.in.flight": 1,
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512 * 1024,
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "delivery.report.only.error": True,
    "partitioner": "murmur2_random",  # the Java client's, so that keys land where Connect puts them
    "message.timeout.ms": 60_000,
}


def _collect_into(failures: list[tuple[str, KafkaError]]) -> _Report:
    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append((message.topic() or "", error))

    return report


def _produce(producer: Producer, record: Record, report: _Report) -> None:
    partition = -1 if record.partition is None else record.partition  # -1: the partitioner decides
    while True:
        try:
            producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers) or None,
                timestamp=record.timestamp_ms,
                on_delivery=report,
                partition=partition,
            )
            return
        except BufferError:  # the queue is full: let it drain
            producer.poll(0.05)
        except KafkaException as e:
            raise PublishFailed(record.topic, str(e)) from e


def _raise_first(failures: list[tuple[str, KafkaError]]) -> None:
    if failures:
        topic, error = failures[0]
        raise PublishFailed(topic, f"{error.str()} ({len(failures)} records so far)")


class _Topics:
    """Topics known to exist; makes the others."""

    def __init__(self, admin: AdminClient, bootstrap: str):
        self._admin = admin
        try:
            self.known = set(admin.list_topics(timeout=15).topics)
        except KafkaException as e:
            raise KafkaUnreachable("demo", bootstrap, str(e)) from e

    def ensure(self, partitions: Mapping[str, int]) -> None:
        new = [
            # The demo's 2 MB row is one record in JSON formats; a topic's default limit is 1 MiB.
            NewTopic(name, count, 1, config={"max.message.bytes": str(MAX_MESSAGE_BYTES)})
            for name, count in partitions.items()
            if name not in self.known
        ]
        if not new:
            return
        for name, future in self._admin.create_topics(new).items():
            try:
                future.result()
            except KafkaException as e:
                if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise PublishFailed(name, str(e)) from e
            self.known.add(name)
