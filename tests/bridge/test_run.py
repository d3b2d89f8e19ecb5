"""The whole bridge: the double on one side, the embedded Kafka on the other."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from cdc_platform.bridge.errors import BridgeKafkaFailed, BridgeRunning, CanalLoginRefused, CanalUnsupported
from cdc_platform.bridge.publisher import Publisher
from cdc_platform.bridge.run import Totals, run
from cdc_platform.config import Config
from cdc_platform.formats.pb import canal_protocol_pb2 as pb
from cdc_platform.kafka.broker import BrokerInfo
from cdc_platform.kafka.broker.node import free_port
from tests.bridge.conftest import SOURCES, Setup
from tests.bridge.double import HEADER, CanalDouble, ack, before, cut, instead, late, packet, silence, twice


def carry(config: Config, said: list[str] | None = None) -> Totals:
    """Runs the bridge until nothing comes any more."""
    lines: list[str] = [] if said is None else said
    return run(config, config.bridges[0], lambda: False, lines.append, until_idle_s=1.0)


def values(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes]]:
    """All records of a topic: partition, key, value."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": False})
    found = []
    try:
        for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            consumer.assign([TopicPartition(topic, partition, 0)])
            for _ in range(end):
                message = consumer.poll(10)
                assert message is not None and message.error() is None
                found.append((partition, message.key(), message.value()))
    finally:
        consumer.close()
    return found


def entries(bootstrap: str, topic: str) -> list[bytes]:
    """All entries in a topic, in order."""
    packets = [pb.Packet.FromString(value) for _, _, value in values(bootstrap, topic)]
    return [e for p in packets for e in pb.Messages.FromString(p.body).messages]


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Waits until the condition holds; fails otherwise."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


def first_seen(items: list[bytes]) -> list[bytes]:
    """Without repetitions."""
    return list(dict.fromkeys(items))


@pytest.mark.broker
def test_batches_arrive_as_canals_own_producer_writes_them(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    config = setup(broker.bootstrap_servers)
    topic = config.bridges[0].topic
    totals = carry(config)
    assert values(broker.bootstrap_servers, topic) == [
        (0, None, pb.Packet(type=pb.MESSAGES, body=body.SerializeToString()).SerializeToString())
        for body in (
            pb.Messages(batch_id=1, messages=[b"entry-0", b"entry-1"]),
            pb.Messages(batch_id=2, messages=[b"entry-2", b"entry-3"]),
            pb.Messages(batch_id=3, messages=[b"entry-4"]),
        )
    ]
    assert canal.acked == [1, 2, 3]
    assert (totals.batches, totals.entries, totals.records, totals.failures) == (3, 5, 3, 0)


@pytest.mark.broker
def test_faults_lose_nothing_and_reorder_nothing(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed = expected = [b"entry-%03d" % i for i in range(40)]
    expected = list(expected)
    canal.plan = [
        (pb.GET, cut(9)),
        (pb.SUBSCRIPTION, instead(ack(400, "exception=not started"))),
        (pb.GET, instead(ack(400, "exception=store"))),
        (pb.GET, before(ack())),
        (pb.GET, twice),
        (pb.GET, silence),
        (pb.GET, before(packet(pb.HEARTBEAT, b""))),
        (pb.CLIENTAUTHENTICATION, cut(3)),
        (pb.HANDSHAKE, cut(0)),
    ]
    config = setup(broker.bootstrap_servers)
    said: list[str] = []
    totals = carry(config, said)
    arrived = entries(broker.bootstrap_servers, config.bridges[0].topic)
    assert first_seen(arrived) == expected
    assert canal.feed == [] and canal.plan == []
    assert totals.failures == sum("rolled back, again in" in line for line in said) >= 6


@pytest.mark.broker
def test_a_slow_connection_is_no_idle_time(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.plan = [(pb.SUBSCRIPTION, late(0.6))]
    config = setup(broker.bootstrap_servers, timeout_s=10)
    totals = run(config, config.bridges[0], lambda: False, lambda _: None, until_idle_s=0.3)
    assert canal.plan == [] and canal.feed == []
    assert (totals.entries, totals.failures) == (5, 0)


@pytest.mark.broker
def test_a_server_restart_is_got_over(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed = [b"entry-%03d" % i for i in range(200)]
    expected = list(canal.feed)
    config = setup(broker.bootstrap_servers)
    ended: list[Totals] = []
    thread = threading.Thread(target=lambda: ended.append(carry(config)))
    thread.start()
    canal.wait(lambda: len(canal.acked) >= 5)
    canal.stop()
    time.sleep(0.3)
    canal.start()
    thread.join(30)
    assert first_seen(entries(broker.bootstrap_servers, config.bridges[0].topic)) == expected
    assert ended[0].failures >= 1 and canal.feed == []


def test_a_kafka_that_is_down_is_named_and_worth_a_retry(setup: Setup):
    config = setup(f"127.0.0.1:{free_port()}", kafka_timeout_s=1)
    with pytest.raises(BridgeKafkaFailed, match=r"refused|timed out|in time") as caught:
        Publisher(config, config.bridges[0]).publish([b"x"], lambda: False)
    assert caught.value.retriable and caught.value.topic == config.bridges[0].topic


def test_a_stop_does_not_wait_for_kafka(canal: CanalDouble, setup: Setup):
    config = setup(f"127.0.0.1:{free_port()}", kafka_timeout_s=300)
    started = time.monotonic()
    with pytest.raises(BridgeKafkaFailed):
        Publisher(config, config.bridges[0]).publish([b"x"], lambda: True)
    assert time.monotonic() - started < 15


@pytest.mark.thorough
@pytest.mark.broker
def test_a_batch_that_kafka_refuses_is_rolled_back_and_heals(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed = [b"small", b"x" * 5000]
    expected = list(canal.feed)
    config = setup(broker.bootstrap_servers, max_record_bytes=1024)
    topic = config.bridges[0].topic
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 3, config={"max.message.bytes": "2000", "compression.type": "uncompressed"})])[
        topic
    ].result(10)
    said: list[str] = []
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(config, config.bridges[0], stop.is_set, said.append))
    # Incompressible, or lz4 makes it small enough.
    canal.feed[1] = expected[1] = os.urandom(5000)
    thread.start()
    try:
        canal.wait(lambda: any("raise the topic's max.message.bytes" in line for line in said))
        assert canal.acked == []
        _alter(admin, topic, "20000")
        canal.wait(lambda: canal.feed == [], 20)
    finally:
        stop.set()
        thread.join(10)
    assert first_seen(entries(broker.bootstrap_servers, topic)) == expected
    assert {partition for partition, _, _ in values(broker.bootstrap_servers, topic)} == {0}


def _alter(admin: AdminClient, topic: str, size: str) -> None:
    entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


@pytest.mark.broker
def test_what_no_retry_mends_ends_the_run(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    config = setup(broker.bootstrap_servers)
    for fault in (packet(pb.MESSAGES, b"zip", compression=pb.GZIP), HEADER.pack(2**31 - 1)):
        canal.plan = [(pb.GET, instead(fault))]
        with pytest.raises(CanalUnsupported):
            carry(config)
    canal.password = "changed"
    with pytest.raises(CanalLoginRefused):
        carry(config)
    assert canal.acked == []


@pytest.mark.broker
def test_pauses_double_up_to_the_longest(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    config = setup(broker.bootstrap_servers, max_backoff_s=1.5)
    canal.stop()
    said: list[str] = []
    run(config, config.bridges[0], lambda: len(said) >= 3, said.append)
    pauses = [float(re.findall(r"again in ([\d.]+) s", line)[0]) for line in said]
    assert all("can't be reached" in line for line in said)
    assert 0.5 <= pauses[0] <= 1.0 and all(0.7 <= p <= 1.5 for p in pauses[1:])


@pytest.mark.broker
def test_one_process_at_a_time(broker: BrokerInfo, setup: Setup):
    config = setup(broker.bootstrap_servers)
    stop = threading.Event()
    said: list[str] = []
    thread = threading.Thread(target=run, args=(config, config.bridges[0], stop.is_set, said.append))
    thread.start()
    try:
        wait_for(lambda: bool(said))
        with pytest.raises(BridgeRunning, match="another process"):
            carry(config)
    finally:
        stop.set()
        thread.join(10)


@pytest.mark.broker
def test_the_command_runs_a_process_per_bridge(
    broker: BrokerInfo, canal: CanalDouble, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with CanalDouble(destination="crm", feed=[b"crm-entry"]) as second:
        config = setup(broker.bootstrap_servers)
        bridges = [b.model_dump(mode="json") | {"password": "${CANAL_PASSWORD}"} for b in config.bridges]
        bridges.append({**bridges[0], "name": "crm", "servers": [second.address], "destination": "crm", "topic": "crm"})
        bridges.append({**bridges[1], "name": "typo", "username": "nobody", "topic": "typo"})
        text = {"lake": "lake", "sources": SOURCES, "kafka": dict(config.kafka), "bridges": bridges}
        file = tmp_path / "cdc.yaml"
        file.write_text(yaml.safe_dump(text))
        process = subprocess.Popen(
            [sys.executable, "-c", "from cdc_platform.cli.app import main; main()", "bridge", "canal", "--json"],
            env={**os.environ, "CDC_CONFIG": str(file)},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            canal.wait(lambda: canal.feed == [] and second.feed == [], 30)
        finally:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
    told = {b["bridge"]: b for b in yaml.safe_load(out)["bridges"]}
    assert process.returncode == 1  # of the one that could not log in
    assert "refused the login of user 'nobody'" in told["typo"]["error"]
    assert (told["shop"]["entries"], told["crm"]["entries"]) == (5, 1)
    assert b"subscribed to 'crm'" in err and canal.password.encode() not in out + err
