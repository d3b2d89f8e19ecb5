"""The Kafka edge of a bridge: values go to one partition, in order, and count as written once Kafka says so."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]
from confluent_kafka.cimpl import NewTopic

from cdc_platform.bridge.errors import BridgeKafkaFailed
from cdc_platform.config import Config
from cdc_platform.config.bridges import Bridge
from cdc_platform.errors import ConfigError
from cdc_platform.kafka.client import librdkafka_properties

PARTITION = 0  # canal.mq.partition's default: all changes of a destination in one order
_LONGEST = 1_000_000_000  # librdkafka's highest message.max.bytes: the topic decides, not the client
_TOPIC = {"max.message.bytes": str(32 * 1024 * 1024)}  # one row may hold megabytes; Kafka's own limit is 1 MiB
_ADMIN_S = 15.0
_STOP_GRACE_S = 5.0
_POLL_S = 0.2
_T = TypeVar("_T")


class Publisher:
    """A producer of one bridge. After an error it starts afresh, so that nothing of a batch that is rolled back
    arrives behind that batch's repetition."""

    def __init__(self, config: Config, bridge: Bridge):
        self._bridge = bridge
        self._common: dict[str, str | int | float | bool] = {**librdkafka_properties(config, bridge), "log_level": 0}
        self._producer: Producer | None = None
        self._trouble = ""

    def ensure_topic(self) -> None:
        """Makes the topic, with one partition, where it doesn't exist. Raises BridgeKafkaFailed, ConfigError."""
        admin = self._checked(lambda: AdminClient(self._common))
        name = self._bridge.topic
        try:
            if name in admin.list_topics(timeout=_ADMIN_S).topics:
                return
            admin.create_topics([NewTopic(name, 1, config=_TOPIC)])[name].result(_ADMIN_S)
        except TimeoutError:
            raise self._failed(f"can't be made: no answer in {_ADMIN_S:.0f} s") from None
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failed(f"can't be looked up or made: {error.args[0].str()}") from None

    def is_empty(self) -> bool:
        """Whether nothing was ever written to the partition. Raises BridgeKafkaFailed, ConfigError."""
        admin = self._checked(lambda: AdminClient(self._common))
        at = TopicPartition(self._bridge.topic, PARTITION)
        try:
            asked = {at: OffsetSpec.latest()}
            return admin.list_offsets(asked)[at].result(_ADMIN_S).offset == 0  # pyright: ignore[reportArgumentType]
        except TimeoutError:
            raise self._failed(f"its end can't be looked up: no answer in {_ADMIN_S:.0f} s") from None
        except KafkaException as error:
            raise self._failed(f"its end can't be looked up: {error.args[0].str()}") from None

    def publish(self, values: Sequence[bytes], stopped: Callable[[], bool]) -> None:
        """Writes the values in order and returns when every one is acknowledged by all in-sync replicas.

        One by one: a value that fails never has a later one written before it. Raises BridgeKafkaFailed, after
        `kafka_timeout_s` and a few seconds after a stop at the latest; nothing is known of the value then.
        """
        if self._producer is None:
            self._producer = self._make()
        deadline = time.monotonic() + self._bridge.kafka_timeout_s
        try:
            for value in values:
                self._publish_one(self._producer, value, deadline, stopped)
        except BridgeKafkaFailed:
            self.close()
            raise

    def close(self) -> None:
        """Drops the producer and whatever it hasn't sent."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.poll(0)
            self._producer = None

    def _publish_one(self, producer: Producer, value: bytes, deadline: float, stopped: Callable[[], bool]) -> None:
        reports: list[KafkaError | None] = []

        def report(error: KafkaError | None, _: Message) -> None:
            reports.append(error)

        try:
            producer.produce(self._bridge.topic, value=value, partition=PARTITION, on_delivery=report)
        except (KafkaException, BufferError) as error:
            raise self._failed(str(error)) from None
        while not reports:
            if stopped():
                deadline = min(deadline, time.monotonic() + _STOP_GRACE_S)
                stopped = _no
            if time.monotonic() > deadline:
                raise self._failed(f"no acknowledgement in time{self._trouble}")
            producer.poll(_POLL_S)
        if reports[0] is not None:
            raise self._refused(reports[0], len(value))

    def _make(self) -> Producer:
        own = {
            "compression.type": "lz4",
            **self._common,
            "enable.idempotence": True,  # the client's own retries neither double nor reorder; implies acks=all
            "acks": "all",
            "linger.ms": 0,
            "message.max.bytes": _LONGEST,
            "message.timeout.ms": int(self._bridge.kafka_timeout_s * 1000),
            "error_cb": self._remember,
        }
        self._trouble = ""
        return self._checked(lambda: Producer(own))

    def _checked(self, make: Callable[[], _T]) -> _T:
        try:
            return make()
        except KafkaException as error:
            raise ConfigError(f"kafka (of bridge {self._bridge.name})", error.args[0].str()) from None

    def _remember(self, error: KafkaError) -> None:
        self._trouble = f" ({error.str()})"

    def _refused(self, error: KafkaError, size: int) -> BridgeKafkaFailed:
        hint = ""
        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE):
            hint = f". The record has {size} bytes: raise the topic's max.message.bytes, or lower max_record_bytes"
        trouble = self._trouble if error.code() == KafkaError._MSG_TIMED_OUT else ""
        return self._failed(f"Kafka did not take it: {error.str()}{trouble}{hint}")

    def _failed(self, problem: str) -> BridgeKafkaFailed:
        return BridgeKafkaFailed(self._bridge.name, self._bridge.topic, problem)


def _no() -> bool:
    return False
