"""`topic create|list|send` and `init` against a real broker."""

import json
import re
from uuid import uuid4

import pytest
import yaml

from cdc_platform.cli.app import run
from cdc_platform.config import load_config, parse_config
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.publish import publish
from cdc_platform.feeds.workload import Workload

pytestmark = pytest.mark.broker


@pytest.fixture
def servers(broker) -> str:
    return str(broker.bootstrap_servers)


def said(capsys, *args: str, code: int = 0):
    assert run([*args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def records(capsys, servers: str, topic: str) -> dict:
    return next(r for r in said(capsys, "topic", "list", "--bootstrap", servers) if r["topic"] == topic)


def test_a_topic_is_made_listed_and_filled(servers, tmp_path, capsys):
    topic = f"t-{uuid4().hex}"
    own = ["--bootstrap", servers]
    made = said(capsys, "topic", "create", topic, "--partitions", "3", "--setting", "retention.ms=-1", *own)
    assert (made["partitions"], made["settings"]) == (3, {"retention.ms": "-1"})
    file = tmp_path / "records"
    file.write_bytes(b'{"a": 1}\n\n{"a": 2}\r\n{"a": 3}')
    assert said(capsys, "topic", "send", topic, str(file), "--key", "k", *own)["records"] == 3
    assert said(capsys, "topic", "send", topic, str(file), "--binary", "--partition", "2", *own)["records"] == 1
    assert records(capsys, servers, topic) == {"topic": topic, "partitions": 3, "records": 4}


def test_what_is_wrong_is_told_with_what_would_be_right(servers, tmp_path, capsys):
    topic = f"t-{uuid4().hex}"
    said(capsys, "topic", "create", topic, "--bootstrap", servers)
    file = tmp_path / "records"
    file.write_text("x\n")
    error = said(capsys, "topic", "send", f"{topic}x", str(file), "--bootstrap", servers, code=2)["error"]
    assert (error["key"], error["valid"][0]) == ("TOPIC", topic)
    error = said(capsys, "topic", "send", topic, str(file), "--partition", "1", "--bootstrap", servers, code=2)["error"]
    assert (error["key"], error["valid"]) == ("--partition", ["0"])
    assert said(capsys, "topic", "send", topic, "none", "--bootstrap", servers, code=2)["error"]["key"] == "FILE"
    assert said(capsys, "topic", "create", topic, "--bootstrap", servers, code=2)["error"]["key"] == "TOPIC"
    assert said(capsys, "topic", "create", "a b", "--bootstrap", servers, code=2)["error"]["key"] == "TOPIC"
    bad = said(capsys, "topic", "create", f"{topic}y", "--setting", "no.such=1", "--bootstrap", servers, code=1)
    assert "no.such" in bad["error"]["message"]
    assert records(capsys, servers, topic)["records"] == 0


def test_a_file_for_a_topic_is_written_with_its_format(servers, tmp_path, capsys):
    topic = f"t-{uuid4().hex}"
    publish(CanalJsonEncoder(topic).encode(Workload(5, 10).transactions), servers, default_partitions=1)
    file = tmp_path / "cdc.yaml"
    args = ["init", "--bootstrap", servers, "--topic", topic, "--config", str(file), "--property", "client.id=me"]
    told = said(capsys, *args)
    assert [(s["format"], s["topics"]) for s in told["sources"]] == [("canal_json", [topic])]
    config = load_config(file)
    assert (config.sources[0].format, config.sources[0].topics) == ("canal_json", [topic])
    assert config.kafka == {"bootstrap.servers": servers, "client.id": "me"}
    lines = [line.replace("# ", "", 1) for line in file.read_text().splitlines() if line.startswith("    # ")]
    options = yaml.safe_load("\n".join(lines).partition("    options:")[2].partition("\n")[2])
    assert options["time_zone"] == "UTC"
    said_of_lakes = next(line for line in file.read_text().splitlines() if line.startswith("lake:"))
    schemes = re.findall(r"\b(\w+)://", said_of_lakes)
    assert schemes
    for scheme in schemes:  # raises ConfigError where such a lake is refused
        parse_config({**yaml.safe_load(file.read_text()), "lake": f"{scheme}://bucket/lake"}, file)
    assert said(capsys, "validate", "--config", str(file))["warnings"] == []

    before = file.read_text()
    assert said(capsys, *args, code=2)["error"]["valid"][0] == "--force, to overwrite it"
    assert file.read_text() == before
    assert said(capsys, *args, "--name", "shop", "--force")["sources"][0]["source"] == "shop"
    assert load_config(file).sources[0].name == "shop"


def test_a_format_that_isn_t_recognized_has_to_be_given(servers, tmp_path, capsys):
    topic = f"t-{uuid4().hex}"
    file = tmp_path / "cdc.yaml"
    args = ["init", "--bootstrap", servers, "--topic", topic, "--config", str(file)]
    error = said(capsys, *args, code=2)["error"]
    assert (error["key"], "no topic" in error["problem"]) == ("--topic", True)
    said(capsys, "topic", "create", topic, "--bootstrap", servers)
    error = said(capsys, *args, code=2)["error"]
    assert (error["key"], "debezium" in error["valid"]) == ("--format", True)
    assert said(capsys, *args, "--format", "nope", code=2)["error"]["key"] == "--format"
    assert not file.exists()
    assert said(capsys, *args, "--format", "debezium")["sources"][0]["format"] == "debezium"


def test_nobody_is_asked_where_nobody_answers(servers, tmp_path, capsys):
    file = ["--config", str(tmp_path / "cdc.yaml")]
    assert said(capsys, "init", *file, code=2)["error"]["key"] == "--bootstrap"
    assert said(capsys, "init", "--bootstrap", servers, *file, code=2)["error"]["key"] == "--topic"


def test_a_secret_written_out_is_not_written_down(servers, tmp_path, capsys):
    file = tmp_path / "cdc.yaml"
    args = [
        "init",
        "--bootstrap",
        servers,
        "--topic",
        "t",
        "--config",
        str(file),
        "--property",
        "sasl.password=hunter2",
    ]
    assert run([*args, "--json"]) == 2
    out = capsys.readouterr().out
    assert json.loads(out)["error"]["key"] == "kafka.sasl.password"
    assert "hunter2" not in out
    assert not file.exists()
