"""Against a real broker: runs where the test session has a `broker` fixture."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from cdc_platform.feeds.publish import PublishFailed, Record, publish

pytestmark = pytest.mark.broker


@pytest.fixture
def servers(request):
    try:
        return request.getfixturevalue("broker").bootstrap_servers
    except pytest.FixtureLookupError:
        pytest.skip("no broker in this session")


def read(servers, topic, partitions, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found = []
    while len(found) < count:
        batch = consumer.consume(count - len(found), 20.0)
        assert batch, f"{len(found)} of {count} records after 20 s"
        found += batch
    consumer.close()
    return found


def test_records_arrive_whole_and_in_order_per_partition(servers):
    records = [
        Record("pub-order", i % 3, b"k%d" % i, None if i % 50 == 7 else b"v", (("ps", b"%d" % i),), 1000 + i)
        for i in range(2000)
    ] + [Record("pub-order", 0, None, b"x" * 5_000_000, (), 5000)]
    seen = []
    done = publish(records, servers, seen.append, partitions={"pub-order": 3})
    assert (done.records, done.topics, seen[-1]) == (2001, {"pub-order": 2001}, 2001)
    assert done.bytes == sum(len(r.key or b"") + len(r.value or b"") for r in records)
    found = read(servers, "pub-order", 3, 2001)
    for partition in range(3):
        have = [
            (m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1])
            for m in found
            if m.partition() == partition
        ]
        assert have == [r[2:] for r in records if r.partition == partition]


def test_keys_choose_the_partition(servers):
    records = [Record("pub-keys", None, b"k%d" % (i % 20), b"%d" % i) for i in range(200)]
    publish(records, servers, default_partitions=4)
    placed = {(m.key(), m.partition()) for m in read(servers, "pub-keys", 4, 200)}
    assert len(placed) == 20 and len({p for _, p in placed}) > 1


@pytest.mark.parametrize("record", [Record("pub-one", 99, None, b"x"), Record("no such name!", None, None, b"x")])
def test_a_refused_record_is_an_error(servers, record):
    with pytest.raises(PublishFailed) as e:
        publish([record], servers, partitions={"pub-one": 1})
    assert e.value.topic == record.topic
