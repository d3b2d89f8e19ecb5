"""Kafka → landing on a real broker: byte for byte, exactly once, and no loss unsaid."""

import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as F

from cdc_platform.automation.observe import kafka_ends, lag
from cdc_platform.errors import ConfigError, KafkaUnreachable, OffsetsLost, TopicCompacted
from cdc_platform.kafka import offsets
from cdc_platform.kafka.client import group_id
from cdc_platform.kafka.offsets import kafka_state
from cdc_platform.lake import delta_table, queries
from cdc_platform.landing import run as landing
from cdc_platform.tables import CHECKPOINT, LANDING, OFFSET_LEDGER

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BASE = 10**9
"""What is added to the offsets of a topic that was made again."""


class Feed:
    """One source of a test's own lake."""

    def __init__(self, spark, make_config, servers, **source):
        self.spark, self._make, self._servers = spark, make_config, servers
        self.set(**source)

    def set(self, **source):
        """Configure the source anew, over the same lake."""
        first = {"name": "feed", "format": "debezium", **source}
        kafka = {"bootstrap.servers": self._servers}
        self.config = self._make([first], kafka=kafka)
        self.source = self.config.sources[0]
        self.path = LANDING.at(self.config.lake, source="feed")
        self.ledger_path = OFFSET_LEDGER.at(self.config.lake)

    def land(self):
        return landing.run(self.spark, self.config, self.source)

    def rows(self, *columns):
        frame = self.spark.read.format("delta").load(self.path)
        return [tuple(r) for r in frame.orderBy("topic", "partition", "landed_at", "offset").select(*columns).collect()]

    def values(self):
        return [bytes(v).decode() for (v,) in self.rows("value")]

    def ledger(self, outcome):
        """(topic, partition, from_offset, to_offset, records) of rows that account for records."""
        frame = self.spark.read.format("delta").load(self.ledger_path).where(F.col("outcome") == outcome)
        columns = ("topic", "partition", "from_offset", "to_offset", "records")
        return [tuple(r) for r in frame.where("records > 0").orderBy("batch", *columns).select(*columns).collect()]

    def committed(self, topic):
        """The next offset that lag tools are told."""
        asked = Consumer({"bootstrap.servers": self._servers, "group.id": group_id(self.source)})
        [told] = asked.committed([TopicPartition(topic, 0)], timeout=10)
        asked.close()
        return told.offset

    def forget_ledger_commit(self, batch):
        commits = Path(CHECKPOINT.at(self.config.lake, room="ledger", source="feed")) / "commits"
        (commits / f"{batch}").unlink()

    def versions(self):
        """Delta versions of landing, ledger and topics."""
        return [self.spark.sql(f"DESCRIBE HISTORY delta.`{path}`").count() for path in (self.path, self.ledger_path)]


@pytest.fixture
def feed(spark, make_config, broker):
    return lambda **source: Feed(spark, make_config, broker.bootstrap_servers, **source)


RECORDS = {
    "plain": {"key": b"k", "value": b"v", "headers": [("a", b"1")]},
    "tombstone": {"key": b"k", "value": None},
    "empty value": {"key": b"k", "value": b""},
    "null key": {"key": None, "value": b"v"},
    "empty key": {"key": b"", "value": b"v"},
    "all null": {"key": None, "value": None},
    "zero and high bytes": {"key": b"\x00\xff", "value": bytes(range(256)), "headers": [("b", b"\x00\xfe")]},
    "repeated header keys in order": {
        "value": b"v",
        "headers": [("x", b"2"), ("y", b""), ("x", b"1"), ("x", None)],
    },
    "header key that is no ASCII": {"value": b"v", "headers": [("ключ", "值".encode())]},
    "a megabyte": {"value": bytes(i * 7 % 256 for i in range(1_000_000))},
}


def test_records_are_landed_byte_for_byte(feed, kafka):
    topic = kafka.topic(**{"max.message.bytes": "4000000"})
    stamps = [1_600_000_000_000 + 1001 * i for i in range(len(RECORDS))]
    kafka.produce(topic, [{**r, "timestamp": t} for r, t in zip(RECORDS.values(), stamps, strict=True)])
    own = feed(topics=[topic])
    assert own.land().metrics["records"] == len(RECORDS)
    millis = F.unix_millis("timestamp")
    rows = own.rows("topic", "partition", "offset", millis, "timestamp_type", "key", "value", "headers")
    for i, (row, (name, sent), stamp) in enumerate(zip(rows, RECORDS.items(), stamps, strict=True)):
        headers = [(h["key"], h["value"]) for h in row[7] or []]
        assert row[:5] == (topic, 0, i, stamp, 0), name
        assert (row[5], row[6]) == (sent.get("key"), sent["value"]), name
        assert headers == sent.get("headers", []), name


def test_broker_timestamps_are_told_apart(feed, kafka):
    topic = kafka.topic(**{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    kafka.produce(topic, [{"value": b"v", "timestamp": 1000}])
    own = feed(topics=[topic])
    own.land()
    [(stamp, kind)] = own.rows(F.unix_millis("timestamp"), "timestamp_type")
    assert kind == 1
    assert before - 1000 <= stamp <= time.time() * 1000 + 1000


def test_a_backlog_then_an_increment_lands_once_and_a_run_without_news_writes_nothing(feed, kafka):
    topic = kafka.topic(partitions=2)
    kafka.fill(topic, 30)
    kafka.fill(topic, 12, partition=1)
    own = feed(topics=[topic], max_records_per_batch=10)
    first = own.land()
    assert (first.metrics["records"], first.metrics["lag"], first.metrics["partitions"]) == (42, 0, 2)
    assert first.batches >= 4
    largest = own.spark.read.format("delta").load(own.path).groupBy("landed_at").count().agg(F.max("count")).first()[0]
    assert largest <= 11  # Spark rounds each partition's share up
    kafka.fill(topic, 3, "w")
    assert own.land().metrics["records"] == 3
    written, looked = own.versions(), landing.looked_at(own.config, own.source)
    assert own.land().metrics["records"] == 0
    assert own.versions() == written
    assert landing.looked_at(own.config, own.source) > looked, "by it a partition to which nothing comes is complete"
    assert own.rows("partition", "offset") == [(0, i) for i in range(33)] + [(1, i) for i in range(12)]
    assert sum(r[4] for r in own.ledger("landed")) == 45
    spans = [(r[1], o) for r in own.ledger("landed") for o in range(r[2], r[3] + 1)]
    assert sorted(spans) == own.rows("partition", "offset")


def test_what_killed_runs_landed_is_accounted_for_once(feed, kafka, monkeypatch):
    topic = kafka.topic()
    kafka.fill(topic, 5)
    own = feed(topics=[topic])
    own.land()
    own.forget_ledger_commit(0)  # killed between the ledger's commit and the checkpoint's
    assert own.land().metrics["records"] == 0
    kafka.fill(topic, 3, "w")
    with monkeypatch.context() as patch:
        patch.setattr(delta_table, "append_rows", lambda *_, **__: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            own.land()  # killed before the ledger's commit
    assert sum(r[4] for r in own.ledger("landed")) == 5
    assert own.land().metrics["records"] == 0
    assert [r[2:] for r in own.ledger("landed") if r[4]] == [(0, 4, 5), (5, 7, 3)]


@pytest.mark.thorough
def test_a_loss_accepted_after_a_kill_counts_nothing_twice(feed, kafka):
    topic = kafka.topic()
    kafka.fill(topic, 5)
    own = feed(topics=[topic], on_lost_offsets="accept")
    own.land()
    own.forget_ledger_commit(0)
    kafka.again(topic, 2)
    assert own.land().metrics["records"] == 2
    assert sorted(r[2:] for r in own.ledger("landed")) == [(0, 4, 5), (BASE, BASE + 1, 2)]


def test_offsets_are_committed_for_lag_tools_after_landing(feed, kafka, broker):
    topic = kafka.topic(partitions=2)
    kafka.fill(topic, 7)
    own = feed(topics=[topic], name=f"lag-{uuid.uuid4().hex[:6]}")
    own.source = own.config.sources[0]
    own.land()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id(own.source)})
    committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=20)
    consumer.close()
    assert [c.offset for c in committed] == [7, 0]


def test_new_topics_of_a_pattern_and_new_partitions_are_picked_up(feed, kafka):
    prefix = f"p-{uuid.uuid4().hex[:6]}"
    own = feed(topic_pattern=f"{prefix}-.*", start="latest")
    assert own.land().metrics == {"records": 0, "lag": 0, "partitions": 0, "lost": 0}
    one = kafka.topic(f"{prefix}-one")
    kafka.fill(one, 2, "before")
    own.set(topic_pattern=f"{prefix}-.*")
    assert own.land().metrics["records"] == 2
    two = kafka.topic(f"{prefix}-two")
    kafka.topic(f"x-{prefix}-two")
    kafka.fill(two, 3)
    kafka.widen(one, 2)
    kafka.fill(one, 4, partition=1)
    assert own.land().metrics["records"] == 7
    assert own.rows("topic", "partition", "offset") == [
        (one, 0, 0),
        (one, 0, 1),
        *((one, 1, i) for i in range(4)),
        *((two, 0, i) for i in range(3)),
    ]


def test_start_latest_leaves_out_what_was_there_but_nothing_after(feed, kafka):
    topic = kafka.topic()
    kafka.fill(topic, 5)
    own = feed(topics=[topic], start="latest")
    assert own.land().metrics["records"] == 0
    kafka.fill(topic, 2, "new")
    own.land()
    assert own.values() == ["new0", "new1"]


def test_a_topic_that_is_added_begins_where_kafka_does_and_loses_nothing_unseen_then(feed, kafka):
    one, more = kafka.topic(), kafka.topic()
    kafka.fill(one, 1)
    kafka.fill(more, 5)
    kafka.trim(more, 5)  # nothing is left of it
    own = feed(topics=[one])
    own.land()
    own.set(topics=[one, more])
    for _ in range(2):
        assert own.land().metrics["lost"] == 0
    kafka.fill(more, 3)
    kafka.trim(more, 7)
    with pytest.raises(OffsetsLost, match=rf"{more}\[0\] offsets 5\.\.6"):
        own.land()


def test_a_topic_that_kafka_compacts_fails_the_run_until_it_is_accepted(feed, kafka):
    topic = kafka.topic(**{"cleanup.policy": "compact,delete"})
    own = feed(topics=[topic])
    assert own.land().metrics["records"] == 0  # nothing can be missing yet
    kafka.produce(topic, [{"key": b"%d" % n, "value": b"v"} for n in range(3)])
    with pytest.raises(TopicCompacted, match=f"Kafka compacts {topic} "):
        own.land()
    assert own.rows("offset") == []
    own.set(topics=[topic], on_lost_offsets="accept")
    assert own.land().metrics["records"] == 3


def test_whether_kafka_compacts_a_topic_stops_only_who_does_not_accept_it(feed, kafka, monkeypatch):
    """Kafka doesn't answer that question, and all others."""

    def times_out(_config, source, _topics):
        raise KafkaUnreachable(source.name, "kafka:9092", "DescribeConfigs timed out")

    topic = kafka.topic()
    own = feed(topics=[topic])
    own.land()
    kafka.fill(topic, 3)
    monkeypatch.setattr(offsets, "compacted", times_out)
    with pytest.raises(KafkaUnreachable):
        own.land()
    assert own.rows("offset") == []
    own.set(topics=[topic], on_lost_offsets="accept")
    assert own.land().metrics["records"] == 3


def test_records_removed_by_retention_fail_the_run_by_name_until_the_gap_is_accepted(feed, kafka):
    topic = kafka.topic(partitions=2)
    kafka.fill(topic, 5)
    kafka.fill(topic, 2, partition=1)
    own = feed(topics=[topic])
    own.land()
    kafka.fill(topic, 10, "w")
    kafka.fill(topic, 2, "x", partition=1)
    kafka.trim(topic, 9)
    for _ in range(2):  # it stays so
        with pytest.raises(OffsetsLost) as caught:
            own.land()
        assert f"{topic}[0] offsets 5..8" in str(caught.value)
        assert [(x["partition"], x["from_offset"], x["to_offset"]) for x in caught.value.losses] == [(0, 5, 9)]
    assert len(own.rows("offset")) == 7  # nothing was landed
    own.set(topics=[topic], on_lost_offsets="accept")
    result = own.land()
    assert (result.metrics["records"], result.metrics["lost"]) == (8, 4)
    assert own.rows("partition", "offset") == [
        *((0, o) for o in (*range(5), *range(9, 15))),
        *((1, o) for o in range(4)),
    ]
    assert own.ledger("lost") == [(topic, 0, 5, 8, 4)]
    own.set(topics=[topic])
    kafka.fill(topic, 1, "y")
    assert own.land().metrics["records"] == 1  # and goes on without the setting
    assert sum(r[4] for r in own.ledger("landed")) == 16


@pytest.mark.thorough
@pytest.mark.parametrize("records", [2, 5, 9], ids=["fewer", "as many", "more"])
def test_a_topic_made_again_fails_the_run_and_accepted_all_its_records_are_landed(feed, kafka, records):
    topic = kafka.topic()
    kafka.fill(topic, 5, "old")
    own = feed(topics=[topic])
    own.land()
    kafka.again(topic, records)
    with pytest.raises(OffsetsLost, match=rf"{topic}\[0\] .*made again"):
        own.land()
    assert len(own.values()) == 5
    if records < 5:  # else the offsets alone look like those of before
        assert lag(kafka_ends(own.config, own.source), queries.landed(own.config, own.source)) == records
    own.set(topics=[topic], on_lost_offsets="accept")
    assert own.land().metrics["records"] == records
    assert own.values() == [f"old{i}" for i in range(5)] + [f"again{i}" for i in range(records)]
    assert own.rows("offset") == [*((i,) for i in range(5)), *((BASE + i,) for i in range(records))]
    assert own.land().metrics == {"records": 0, "lag": 0, "partitions": 1, "lost": 0}
    kafka.fill(topic, 2, "more")
    assert own.land().metrics["records"] == 2
    assert own.rows("offset")[-1] == (BASE + records + 1,)
    assert queries.landed(own.config, own.source) == {(topic, 0): BASE + records + 2}
    assert kafka_ends(own.config, own.source) == {(topic, 0): (BASE, BASE + records + 2)}
    assert own.committed(topic) == records + 2  # as Kafka has it
    assert [row[2:4] for row in own.ledger("lost")] == [(5, BASE - 1)]


def test_a_topic_that_held_nothing_unread_is_still_known_when_it_is_made_again(feed, kafka):
    """No record was ever landed of it: only its noted position tells that reading would begin too late."""
    topic = kafka.topic()
    kafka.fill(topic, 5, "old")
    kafka.trim(topic, 5)
    own = feed(topics=[topic])
    assert own.land().metrics["records"] == 0
    kafka.again(topic, 8)
    with pytest.raises(OffsetsLost, match="made again"):
        own.land()
    own.set(topics=[topic], on_lost_offsets="accept")
    own.land()
    assert own.values() == [f"again{i}" for i in range(8)]


def test_records_that_came_and_went_in_a_partition_empty_until_then_are_a_loss(feed, kafka):
    topic = kafka.topic(partitions=2)
    kafka.fill(topic, 1)
    own = feed(topics=[topic])
    own.land()
    kafka.fill(topic, 4, partition=1)
    kafka.trim(topic, 3, partition=1)
    with pytest.raises(OffsetsLost, match=rf"{topic}\[1\] offsets 0\.\.2"):
        own.land()
    own.set(topics=[topic], on_lost_offsets="accept")
    own.land()
    assert own.rows("partition", "offset") == [(0, 0), (1, 3)]


@pytest.mark.thorough
def test_a_deleted_topic_is_told_and_the_others_go_on_when_that_is_accepted(feed, kafka):
    prefix = f"d-{uuid.uuid4().hex[:6]}"
    gone, stays = kafka.topic(f"{prefix}-gone"), kafka.topic(f"{prefix}-stays")
    kafka.fill(gone, 2)
    kafka.fill(stays, 2)
    own = feed(topic_pattern=f"{prefix}-.*")
    own.land()
    kafka.delete(gone)
    kafka.fill(stays, 1)
    with pytest.raises(OffsetsLost, match=rf"{gone}\[0\] .*no longer in Kafka"):
        own.land()
    own.set(topic_pattern=f"{prefix}-.*", on_lost_offsets="accept")
    assert own.land().metrics["records"] == 1
    kafka.topic(gone)
    kafka.fill(gone, 1, "again")
    own.set(topic_pattern=f"{prefix}-.*")
    assert own.land().metrics["records"] == 1  # the loss was accepted once, it isn't told again
    assert sorted(own.rows("topic", "offset")) == [(gone, 0), (gone, 1), (gone, BASE), *((stays, i) for i in range(3))]
    kafka.fill(gone, 1, "again")
    assert own.land().metrics["records"] == 1
    assert (gone, BASE + 1) in own.rows("topic", "offset")


@pytest.mark.thorough
def test_a_partition_that_a_topic_made_again_gets_later_is_a_new_one(feed, kafka):
    topic = kafka.topic(partitions=2)
    kafka.fill(topic, 2)
    kafka.fill(topic, 5, partition=1)
    own = feed(topics=[topic])
    own.land()
    kafka.again(topic, 1)
    own.set(topics=[topic], on_lost_offsets="accept")
    own.land()
    own.set(topics=[topic])
    kafka.widen(topic, 2)
    kafka.fill(topic, 6, "wide", partition=1)
    assert own.land().metrics == {"records": 6, "lag": 0, "partitions": 2, "lost": 0}
    assert [r for r in own.rows("partition", "offset") if r[0] == 1][5:] == [(1, BASE + i) for i in range(6)]


def test_a_topic_that_the_source_leaves_out_for_a_while_goes_on_where_landing_was(feed, kafka):
    """It is the same topic: nothing of it lands twice, and nothing is lost."""
    one, two = kafka.topic(), kafka.topic()
    kafka.fill(one, 3)
    kafka.fill(two, 1)
    own = feed(topics=[one, two])
    own.land()
    own.set(topics=[two], on_lost_offsets="accept")
    own.land()
    kafka.fill(one, 2, "later")
    own.set(topics=[one, two])
    assert own.land().metrics["records"] == 2
    assert own.rows("topic", "offset").count((one, 0)) == 1
    own.set(topics=[two], on_lost_offsets="accept")
    own.land()
    own.set(topics=[one, two])
    assert own.land().metrics == {"records": 0, "lag": 0, "partitions": 2, "lost": 0}
    ends = kafka_ends(own.config, own.source)  # as status, metrics and sensors ask
    assert lag(ends, queries.landed(own.config, own.source)) == 0
    assert not queries.has_news(own.config, own.source, ends)
    assert queries.landed(own.config, own.source)[one, 0] == 5


def test_a_topic_that_does_not_exist_is_a_wrong_configuration(feed, kafka):
    there = kafka.topic()
    with pytest.raises(ConfigError, match=f"{there}-typo") as caught:
        feed(topics=[there, f"{there}-typo"]).land()
    assert caught.value.valid[0] == there  # of all topics the most alike


def test_an_unreachable_broker_is_told_quickly(spark, make_config, monkeypatch):
    own = Feed(spark, make_config, "127.0.0.1:1", topics=["t"])
    assert offsets.TIMEOUT_S < 20
    monkeypatch.setattr(offsets, "TIMEOUT_S", 0.5)
    started = time.monotonic()
    with pytest.raises(KafkaUnreachable):
        kafka_state(own.config, own.source)
    assert time.monotonic() - started < 10
    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:1") as caught:
        own.land()
    assert caught.value.retriable


def test_aborted_records_are_not_landed_and_markers_are_no_loss(feed, kafka, broker):
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions()
    for end, value in (
        ("commit_transaction", b"kept"),
        ("abort_transaction", b"dropped"),
        ("commit_transaction", b"kept too"),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        getattr(producer, end)()
    own = feed(topics=[topic])
    result = own.land()
    assert own.rows("offset", "value") == [(0, b"kept"), (4, b"kept too")]
    assert (result.metrics["lag"], result.metrics["lost"]) == (0, 0)
    kafka.trim(topic, 6)  # retention takes all, the last marker too: nothing unread is gone
    assert own.land().metrics == {"records": 0, "lag": 0, "partitions": 1, "lost": 0}
    kafka.fill(topic, 1, "next")
    own.land()
    assert own.values() == ["kept", "kept too", "next0"]
