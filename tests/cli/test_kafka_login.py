"""A cluster that refuses us: told by its reason, at once, by every command and by what sensors see. The listener is a
real one, with SASL/PLAIN."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cdc_platform import chain
from cdc_platform.automation import observe
from cdc_platform.cli.app import run
from cdc_platform.config import load_config
from cdc_platform.kafka import offsets
from cdc_platform.kafka.broker import node
from cdc_platform.setup.ports import free_port
from tests.cli.test_run import NoSpark

pytestmark = pytest.mark.broker

SASL = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL://127.0.0.1:{sasl}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_cdc="right";
"""


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a listener that lets in cdc with the password `right`; a topic `t` is there."""
    home, port, sasl = tmp_path_factory.mktemp("sasl"), free_port(), free_port()
    with pytest.MonkeyPatch.context() as patch:
        own = node.write_properties

        def write(home: Path, port: int, controller: int) -> Path:
            path = own(home, port, controller)
            path.write_text(path.read_text() + SASL.format(port=port, controller=controller, sasl=sasl))
            return path

        patch.setattr(node, "write_properties", write)
        info = node.start(home, port)
    client = AdminClient({"bootstrap.servers": info.bootstrap_servers})
    client.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
    yield sasl
    node.stop(home)


@pytest.fixture
def configured(listener: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    (tmp_path / "cdc.yaml").write_text(
        f"lake: ./lake\nspark: {{remote: 'sc://127.0.0.1:1'}}\nkafka:\n  bootstrap.servers: 127.0.0.1:{listener}\n"
        "  security.protocol: SASL_PLAINTEXT\n  sasl.mechanism: PLAIN\n  sasl.username: cdc\n"
        "  sasl.password: ${CANARY}\nsources: [{name: crm, format: debezium, topics: [t]}]\n"
    )
    monkeypatch.setenv("CDC_CONFIG", str(tmp_path / "cdc.yaml"))
    monkeypatch.setenv("CANARY", "wrong-hunter2")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return monkeypatch


def test_the_right_password_opens(configured, capsys):
    configured.setenv("CANARY", "right")
    assert run(["inspect", "t", "--json"]) == 1  # there is no record to recognize
    assert json.loads(capsys.readouterr().out)["records"] == 0
    run(["status", "--json"])
    assert json.loads(capsys.readouterr().out)["sources"][0]["lag"] == 0


def test_a_wrong_password_is_told_at_once(configured, capsys):
    started = time.monotonic()
    assert run(["inspect", "t", "--source", "crm"]) == 2
    out, err = capsys.readouterr()
    assert time.monotonic() - started < 5
    assert out == ""
    [line] = err.splitlines()
    assert "authentication failed; check kafka.sasl.username, kafka.sasl.password" in line
    assert "Invalid username or password" in line
    assert "hunter2" not in line


def test_status_and_sensors_tell_it(configured, capsys):
    assert run(["status", "--json"]) == 1
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert "authentication failed" in problem
    config = load_config()
    seen = observe.heartbeat(config, config.sources[0])
    assert (seen.state, seen.passed) == ("refused", False)


def test_a_run_isnt_tried_again(configured, capsys):
    calls = []

    def landing(_spark, config, source):
        calls.append(source.name)
        offsets.kafka_state(config, source)

    configured.setitem(chain.STAGES, "landing", landing)
    configured.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    assert run(["run", "--json"]) == 1
    out, err = capsys.readouterr()
    [source] = json.loads(out)["sources"]
    assert source["error"].startswith("source crm: Kafka at 127.0.0.1:")
    assert "authentication failed" in source["error"]
    assert calls == ["crm"]
    assert "hunter2" not in out + err


def test_another_mechanism_is_told(configured, tmp_path, capsys):
    file = tmp_path / "cdc.yaml"
    file.write_text(file.read_text().replace("PLAIN\n", "SCRAM-SHA-256\n"))
    assert run(["inspect", "t", "--source", "crm"]) == 2
    assert "kafka.sasl.mechanism" in capsys.readouterr().err
