"""How often the store is asked by a round of continuous catch-up: requests cost money, and each takes some 20 ms."""

import json
import sys
from statistics import mean, median

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.e2e_shop import FAST

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e, pytest.mark.s3, pytest.mark.thorough]

MOST_S, MOST_NOTHING_NEW_S = 4.0, 1.5
"""Seconds that a round may take where each request takes 20 ms: with 500 changes of a table, and without any."""
NOTHING_NEW, INCREMENT, WITH_CHECKPOINTS = 40, 150, 200
"""Requests that a round may take; on average with what it costs to put small files together and to make checkpoints,
for which delta-rs reads each commit four times."""
TYPES = {"id": "bigint", "v": "varchar(20)"}


class Table:
    """A table whose changes canal sends as JSON."""

    def __init__(self, servers):
        client = AdminClient({"bootstrap.servers": servers})
        client.create_topics([NewTopic("budget", 1, 1)])["budget"].result(60)
        self.producer, self.sent = Producer({"bootstrap.servers": servers}), 0

    def say(self, kind, ids):
        self.sent += 1
        rows = [{"id": str(n), "v": f"{kind} {self.sent}"} for n in ids]
        at = 1_790_000_000_000 + self.sent * 1000
        old = [{"v": "x"}] * len(rows) if kind == "UPDATE" else None
        said = {"data": rows, "database": "shop", "table": "items", "type": kind, "isDdl": False, "old": old}
        said |= {"mysqlType": TYPES, "pkNames": ["id"], "es": at, "ts": at, "id": self.sent, "sql": ""}
        self.producer.produce("budget", json.dumps({**said, "sqlType": {"id": -5, "v": 12}}))
        assert self.producer.flush(60) == 0


@pytest.fixture
def rounds(broker, s3, in_a_bucket, rounds_of, tmp_path):
    """`rounds()`: does one, returns its requests and seconds."""
    file = tmp_path / "cdc.yaml"
    told = {**in_a_bucket, "spark": {"conf": FAST}, "kafka": {"bootstrap.servers": broker.bootstrap_servers}}
    file.write_text(yaml.safe_dump({**told, "sources": [{"name": "s", "format": "canal_json", "topics": ["budget"]}]}))
    do = rounds_of(file)

    def one():
        s3.reset()
        took = do()
        return s3.reset(), took

    return one


def test_a_round_asks_the_store_no_more_than_it_needs(broker, rounds, s3):
    table = Table(broker.bootstrap_servers)
    table.say("INSERT", range(500))
    rounds()
    counts = []
    for n in range(10):  # nor does it ask for more the longer it goes on
        for kind, ids in (("INSERT", range(500)), ("UPDATE", range(500)), ("DELETE", range(250))):
            table.say(kind, [n * 1000 + i for i in ids])
            counts.append(len(rounds()[0]))
    assert (median(counts) <= INCREMENT, mean(counts) <= WITH_CHECKPOINTS) == (True, True), counts
    asked, _ = rounds()
    assert len(asked) <= NOTHING_NEW, "\n".join(asked)
    s3.fault("delay", times=10_000, seconds=0.02)
    table.say("INSERT", range(90_000, 90_500))
    took = rounds()[1], rounds()[1]
    sys.stdout.write(f"{counts}: {median(counts)}, on average {mean(counts):.0f}; nothing new {len(asked)}\n")
    sys.stdout.write(f"with 20 ms each: {took[0]} s, nothing new {took[1]} s\n")
    assert (took[0] <= MOST_S, took[1] <= MOST_NOTHING_NEW_S) == (True, True), took
