"""Topics of one test: made, filled, trimmed and deleted on the session's broker."""

import time
import uuid

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic


class Kafka:
    """The few things tests do to a broker; every call returns when the broker has done it."""

    def __init__(self, servers):
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def topic(self, name=None, partitions=1, **config):
        name = name or f"t-{uuid.uuid4().hex[:8]}"
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result()
        self._until(lambda: len(self._partitions(name)) == partitions)
        return name

    def widen(self, topic, partitions):
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self._until(lambda: len(self._partitions(topic)) == partitions)

    def delete(self, topic):
        self.admin.delete_topics([topic])[topic].result()
        self._until(lambda: topic not in self.admin.list_topics(timeout=10).topics)

    def again(self, topic, records):
        """Delete the topic and make it anew with that many records."""
        self.delete(topic)
        self.topic(topic)
        self.fill(topic, records, "again")

    def trim(self, topic, before, partition=0):
        """What retention does: records before that offset are gone."""
        at = TopicPartition(topic, partition, before)
        self.admin.delete_records([at])[at].result()

    def fill(self, topic, count, prefix="v", partition=0):
        self.produce(topic, [{"value": f"{prefix}{i}".encode(), "partition": partition} for i in range(count)])

    def produce(self, topic, records):
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0, "message.max.bytes": 4_000_000})
        for record in records:
            producer.produce(topic, **{"partition": 0, **record})
        assert producer.flush(30) == 0

    def _partitions(self, topic):
        return self.admin.list_topics(topic, timeout=10).topics[topic].partitions

    @staticmethod
    def _until(done, timeout_s=20):
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.05)
