"""Landing by librdkafka on the executors: ranges of offsets, and batches on the checkpoint of Spark's own query."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from cdc_platform.errors import KafkaUnreachable
from cdc_platform.kafka import reader
from cdc_platform.kafka.offsets import PartitionState
from cdc_platform.kafka.reader import KafkaFailed, Range, Reading
from cdc_platform.lake import batches, stores
from cdc_platform.landing import direct
from cdc_platform.landing import run as landing
from cdc_platform.tables import CHECKPOINT
from tests.landing.test_run import Feed

pytestmark = pytest.mark.broker


def records(broker, wanted, **more):
    """Offsets and values of a range."""
    read = Reading({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **more}, 0)
    rows = pa.Table.from_batches(read(wanted), reader.RECORD)
    return list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


def test_a_range_is_read_to_its_end_and_not_beyond(kafka, broker):
    topic = kafka.topic()
    kafka.fill(topic, 10)
    assert [o for o, _ in records(broker, Range(topic, 0, 3, 7))] == [3, 4, 5, 6]
    assert records(broker, Range(topic, 0, 0, 10)) == [(i, f"v{i}".encode()) for i in range(10)]
    assert records(broker, Range(topic, 0, 9, 9)) == []


def test_a_range_may_end_in_offsets_that_hold_no_record(kafka, broker):
    """Markers of transactions and what was aborted."""
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions()
    for end, value in (("commit_transaction", b"kept"), ("abort_transaction", b"dropped")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        getattr(producer, end)()
    for last in (1, 2, 3, 4):
        assert records(broker, Range(topic, 0, 0, last)) == [(0, b"kept")]
    assert records(broker, Range(topic, 0, 1, 4)) == []
    everything = records(broker, Range(topic, 0, 0, 4), **{"isolation.level": "read_uncommitted"})
    assert everything == [(0, b"kept"), (2, b"dropped")]


def test_offsets_that_are_gone_are_told_and_not_passed_over(kafka, broker):
    topic = kafka.topic()
    kafka.fill(topic, 10)
    kafka.trim(topic, 5)
    with pytest.raises(KafkaFailed, match=f"(?s){topic}.*start=2"):
        records(broker, Range(topic, 0, 2, 10))


def test_a_partition_that_ends_too_early_is_told(kafka, broker, monkeypatch):
    monkeypatch.setattr(reader, "_SILENCE_S", 0.5)
    topic = kafka.topic()
    kafka.fill(topic, 3)
    with pytest.raises(KafkaFailed, match="nothing came after offset 3"):
        records(broker, Range(topic, 0, 0, 5))


def test_large_records_come_few_at_a_time(kafka, broker, monkeypatch):
    monkeypatch.setattr(reader, "_BATCH_BYTES", 1 << 12)
    topic = kafka.topic()
    kafka.produce(topic, [{"value": bytes(2_000)}] * 300)
    read = Reading({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}, 0)
    sizes = [b.num_rows for b in read(Range(topic, 0, 0, 300))]
    assert sum(sizes) == 300
    assert max(sizes) <= 100
    assert max(sizes[1:]) <= 2


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (100, {("a", 0): 10, ("a", 1): 4, ("b", 0): 7}),
        (13, {("a", 0): 10, ("a", 1): 4, ("b", 0): 7}),
        (6, {("a", 0): 8, ("a", 1): 2, ("b", 0): 7}),
        (1, {("a", 0): 6, ("a", 1): 1, ("b", 0): 7}),
    ],
)
def test_a_batch_takes_of_each_partition_its_share(most, expected):
    state = [PartitionState(t, p, "", 0, end) for t, p, end in (("a", 0, 10), ("a", 1, 4), ("b", 0, 7))]
    before = {("a", 0): 5, ("a", 1): 0, ("b", 0): 7}
    assert direct._planned(before, state, most) == expected


@pytest.fixture
def feed(spark, make_config, broker):
    return lambda **source: Feed(spark, make_config, broker.bootstrap_servers, **source)


@pytest.mark.spark
@pytest.mark.parametrize("written", [True, False])
def test_a_batch_that_was_begun_is_landed_once(feed, kafka, monkeypatch, written):
    """Killed before it was written, or between that and the checkpoint's commit; records that came since wait."""
    topic = kafka.topic()
    kafka.fill(topic, 5)
    own = feed(topics=[topic])
    own.land()
    kafka.fill(topic, 4, "w")
    with monkeypatch.context() as patch:
        note = direct.checkpoints.note
        patch.setattr(direct.checkpoints, "note", lambda f, log, *a: note(f, log, *a) if log == "offsets" else 1 / 0)
        if not written:
            patch.setattr(direct.commits, "append_files", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            own.land()
    kafka.fill(topic, 2, "x")
    checkpoint = CHECKPOINT.at(stores.lake(own.config), room="landing", source="feed.0")
    assert batches.unfinished(checkpoint)
    own.land()
    assert own.values() == [*(f"v{i}" for i in range(5)), *(f"w{i}" for i in range(4)), "x0", "x1"]
    assert sum(r[-1] for r in own.ledger("landed")) == 11
    assert not batches.unfinished(checkpoint)
    last = max(Path(checkpoint.uri(), "offsets").glob("[0-9]*"), key=lambda f: int(f.name))
    assert json.loads(last.read_text().splitlines()[-1]) == {topic: {"0": 11}}


@pytest.mark.spark
def test_a_kafka_that_fails_while_it_is_read_is_told_and_nothing_is_landed(feed, kafka, monkeypatch):
    topic = kafka.topic()
    kafka.fill(topic, 5)
    own = feed(topics=[topic])
    state = landing.offsets.stable_state

    def look_then_trim(*args):
        found = state(*args)
        kafka.trim(topic, 3)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(landing.offsets, "stable_state", look_then_trim)
        with pytest.raises(KafkaUnreachable, match=f"{topic}.*start=0") as told:
            own.land()
    assert told.value.retriable
    assert own.values() == []
