import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic

from cdc_platform.kafka.broker import BrokerError, BrokerInfo, default_home, start, status, stop
from cdc_platform.kafka.broker.settings import MAX_MESSAGE
from cdc_platform.setup.ports import free_port

pytestmark = pytest.mark.broker


def create(admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic)])[topic].result(10)


def publish(info: BrokerInfo, topic: str, values: list[bytes]) -> None:
    failed = []
    settings = {"bootstrap.servers": info.bootstrap_servers, "message.max.bytes": MAX_MESSAGE, "acks": "all"}
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failed == []


def read(info: BrokerInfo, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": info.bootstrap_servers,
            "group.id": "test",
            "fetch.message.max.bytes": MAX_MESSAGE,
            "receive.message.max.bytes": MAX_MESSAGE + 1000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values, deadline = [], time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            values.append(message.value())
    consumer.close()
    return values


def topics(admin) -> set[str]:
    return set(admin.list_topics(timeout=10).topics)


def test_serves_as_soon_as_start_returns(broker, admin):
    create(admin, "first")
    publish(broker, "first", [b"a", b"", b"\x00\xff"])
    assert read(broker, "first", 3) == [b"a", b"", b"\x00\xff"]


def test_takes_a_message_of_twenty_megabytes(broker, admin):
    create(admin, "large")
    value = os.urandom(20_000_000)
    publish(broker, "large", [value])
    assert read(broker, "large", 1) == [value]


def test_topics_are_not_made_by_accident(broker, admin):
    admin.list_topics("mistyped", timeout=10)
    assert "mistyped" not in topics(admin)


def test_a_deleted_topic_is_gone(broker, admin):
    create(admin, "doomed")
    admin.delete_topics(["doomed"])["doomed"].result(10)
    deadline = time.monotonic() + 10
    while "doomed" in topics(admin) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "doomed" not in topics(admin)


def test_drops_nothing_by_age(broker, admin):
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    settings = admin.describe_configs([resource])[resource].result(10)
    assert settings["log.retention.ms"].value == "-1"
    assert settings["log.retention.bytes"].value == "-1"


def test_listens_on_loopback_only(broker):
    listening = [
        link.laddr.ip.removeprefix("::ffff:")
        for link in psutil.Process(broker.pid).net_connections("tcp")
        if link.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) == {"127.0.0.1"}


def test_a_second_start_says_it_runs(broker):
    again = start(broker.home, broker.port)
    assert (again.pid, again.already_running, again.answers) == (broker.pid, True, True)
    assert start(broker.home, None).port == broker.port


def test_a_second_start_on_another_port_is_refused(broker):
    with pytest.raises(BrokerError, match=f"already runs on port {broker.port}"):
        start(broker.home, free_port())


def test_status_of_a_running_broker(broker):
    now = status(broker.home)
    assert (now.running, now.answers, now.pid, now.port) == (True, True, broker.pid, broker.port)


def test_a_port_in_use_is_named_with_its_owner(own_home):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} is in use by process {os.getpid()}"):
            start(own_home, port)
    assert not status(own_home).running


def test_stop_and_status_where_nothing_ever_ran(own_home):
    info, was_running = stop(own_home)
    assert (info.running, was_running) == (False, False)
    assert status(own_home).port is None
    assert not own_home.exists()


def test_a_recycled_process_number_is_not_our_broker(own_home):
    own_home.mkdir()
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (own_home / "broker.json").write_text(json.dumps({"pid": stranger.pid, "port": 9092}))
        assert not status(own_home).running
        assert stop(own_home)[1] is False
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.thorough
def test_keeps_its_data_over_a_kill_a_stop_and_another_port(own_home, admin_of):
    info = start(own_home, free_port())
    create(admin_of(info), "kept")
    publish(info, "kept", [b"%d" % i for i in range(1000)])

    os.kill(info.pid, signal.SIGKILL)
    psutil.Process(info.pid).wait(10)
    assert not status(own_home).running
    info = start(own_home, None)
    publish(info, "kept", [b"after the kill"])

    stopped, was_running = stop(own_home)
    assert (was_running, stopped.running, psutil.pid_exists(info.pid)) == (True, False, False)
    assert "shut down completed" in info.log.read_text()

    info = start(own_home, free_port())
    assert read(info, "kept", 1001) == [*(b"%d" % i for i in range(1000)), b"after the kill"]


@pytest.mark.thorough
def test_two_starts_at_once_give_one_broker(own_home):
    port = free_port()
    code = "import sys; from pathlib import Path; from cdc_platform.kafka.broker import start; "
    code += "i = start(Path(sys.argv[1]), int(sys.argv[2])); print(i.pid, i.already_running)"
    command = [sys.executable, "-c", code, str(own_home), str(port)]

    def run(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(run, range(2)))
    assert [r.returncode for r in runs] == [0, 0], [r.stderr for r in runs]
    (pid_a, late_a), (pid_b, late_b) = (r.stdout.split() for r in runs)
    assert pid_a == pid_b
    assert {late_a, late_b} == {"True", "False"}


def test_a_broker_that_can_not_start_says_why(own_home):
    own_home.mkdir()
    (own_home / "data").write_text("not a folder")
    with pytest.raises(BrokerError, match=r"data.*Not a directory|Not a directory.*data") as caught:
        start(own_home, free_port(), timeout_s=30)
    assert caught.value.home == str(own_home)
    assert not status(own_home).running


def test_the_default_home_lies_beside_the_configuration(tmp_path: Path):
    assert default_home(tmp_path / "cdc.yaml") == tmp_path / ".cdc" / "broker"
