"""Every outcome of a message by what really happened to it, on a broker."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc_platform import chain
from cdc_platform.cli.app import run
from cdc_platform.config import Config, load_config
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import Workload
from cdc_platform.formats.pb.tencent_dts_pb2 import Envelope  # pyright: ignore[reportAttributeAccessIssue]
from tests.e2e.e2e_shop import FAST

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TOPIC = "explain-dts"
LOST = 2
"""Records that Kafka removed before they were landed."""


@dataclass
class Lake:
    """A lake of one DTS topic; split: offsets of the records of a message that is whole; waiting: of one that isn't;
    repeated: of a part that came twice; bad: of a record that is no message; end: the next to be landed."""

    config: Config
    split: list[int]
    waiting: list[int]
    repeated: int
    bad: int
    end: int


@pytest.fixture(scope="module")
def lake(broker: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    servers = broker.bootstrap_servers
    values = [r.value or b"" for r in DtsEncoder(TOPIC, partitions=1).encode(Workload(1, 3).transactions)]
    first = next(i for i, v in enumerate(values) if Envelope.FromString(v).total > 1)
    total = Envelope.FromString(values[first]).total
    whole, rest = values[: first + total], values[first + total :]
    begun = next(i for i, v in enumerate(rest) if Envelope.FromString(v).total > 1)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": servers})

    def send(*some: bytes) -> None:
        for value in some:
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(30) == 0

    folder = tmp_path_factory.mktemp("explain-dts")
    source = {"name": "dts", "format": "tencent_dts", "topics": [TOPIC], "on_lost_offsets": "accept"}
    source["tables"] = {"exclude": ["shop.orders"]}
    settings = {"lake": "./lake", "kafka": {"bootstrap.servers": servers}, "sources": [source]}
    settings["spark"] = {"master": "local[2]", "conf": FAST}
    (folder / "cdc.yaml").write_text(yaml.safe_dump(settings))
    config = load_config(folder / "cdc.yaml")

    def land() -> None:
        chain.STAGES["landing"](spark, config, config.sources[0])

    send(*whole, whole[-1], b"no envelope")
    land()
    at = len(whole) + 2
    send(*[b"gone"] * LOST, b"also gone")
    admin.delete_records([TopicPartition(TOPIC, 0, at + LOST)])[TopicPartition(TOPIC, 0)].result()
    land()
    after = at + LOST + 1
    send(*rest[: begun + 1])
    for stage in ("landing", "envelopes", "changes", "changelog"):
        chain.STAGES[stage](spark, config, config.sources[0])
    send(b"later")
    split = list(range(first, first + total))
    return Lake(config, split, [after + begun], len(whole), at - 1, after + begun + 1)


@pytest.fixture
def show(lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("CDC_CONFIG", str(lake.config.file))

    def told(offset: int, *args: str) -> Any:
        assert run(["show", f"{TOPIC}/0/{offset}", *args]) == 0
        shown = capsys.readouterr().out
        assert run(["show", f"{TOPIC}[0]@{offset}", *args, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["outcome"] in shown
        return data

    return told


@pytest.mark.thorough
@pytest.mark.parametrize("which", [slice(None, None, 15), slice(None)])
def test_a_part_shows_the_whole_and_its_parts(lake: Lake, show: Any, which: slice) -> None:
    for offset in {*lake.split[which], lake.split[-1]}:
        told = show(offset)
        assert (told["outcome"], told["message"]["address"]) == ("joined", f"{TOPIC}/0/{lake.split[0]}")
        assert told["message"]["parts"] == [f"{TOPIC}/0/{o}" for o in lake.split]
        assert told["message"]["value"]["kind"] == "protobuf"
        assert told["events"]


def test_each_outcome(lake: Lake, show: Any) -> None:
    found = {
        "waiting": show(lake.waiting[0]),
        "duplicate": show(lake.repeated),
        "quarantined": show(lake.bad),
        "lost": show(lake.bad + 1),
        "not landed": show(lake.end),
    }
    assert {expected: told["outcome"] for expected, told in found.items()} == {e: e for e in found}
    assert found["waiting"]["waiting"]["there"] == [f"{TOPIC}/0/{lake.waiting[0]}"]
    assert found["quarantined"]["quarantine"][0]["reason"] == found["quarantined"]["why"]
    assert found["lost"]["lost"] == {"from_offset": lake.bad + 1, "to_offset": lake.bad + LOST}
    assert "Kafka has it" in found["not landed"]["why"]
    assert "no such record has been written" in show(lake.end + 50)["why"]


def test_events_of_a_table_that_the_rules_leave_out_are_filtered(lake: Lake, show: Any) -> None:
    every = [e for offset in range(lake.split[0] + 1) for e in show(offset, "--sql")["events"]]
    orders = [e for e in every if e["kind"] == "row" and e["table"] == "orders"]
    others = [e for e in every if e["kind"] == "row" and e["table"] != "orders"]
    assert {e["outcome"] for e in orders} == {"filtered"}
    assert all("tables.exclude: 'shop.orders'" in e["why"] for e in orders)
    assert {e["outcome"] for e in others} == {"applied"}
    assert all(e["sql"].endswith(";") for e in [*orders, *others])


def test_what_can_not_be_meant(lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_CONFIG", str(lake.config.file))
    for args, key in (
        (("nowhere/0/1",), "--source"),
        (("7",), "ADDRESS"),
        ((f"{TOPIC}/0/1", "--source", "x"), "source"),
    ):
        assert run(["show", *args, "--json"]) == 2
        assert key in json.loads(capsys.readouterr().out)["error"]["key"]


def test_a_lake_without_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cdc.yaml"
    source = {"name": "s", "format": "canal", "topics": ["t"]}
    file.write_text(yaml.safe_dump({"lake": str(tmp_path / "lake"), "sources": [source]}))
    assert run(["show", "t/0/1", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "not landed"
    assert run(["explain", "s", "shop.t", "1", "--config", str(file), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["valid"] == ["none yet"]
