"""A lake without Spark: Delta tables by delta-rs, rooms that only say what they were asked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import write_deltalake

from cdc_platform import chain, tables
from cdc_platform.broker import BrokerInfo
from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, parse_config
from cdc_platform.definitions import build
from cdc_platform.errors import CdcError

UNREACHABLE = "127.0.0.1:1"


def make_config(folder: Path, servers: str = UNREACHABLE, **source: Any) -> Config:
    """Two sources, one of each format; Spark by an address that nobody answers, so that a use of it fails."""
    raw = {
        "lake": "./lake",
        "spark": {"remote": "sc://127.0.0.1:1"},
        "kafka": {"bootstrap.servers": servers},
        "sources": [
            {"name": "shop-dts", "format": "tencent_dts", "topics": ["dts-shop"], **source},
            {"name": "shop_debezium", "format": "debezium", "topic_pattern": r"shopdb\..*", **source},
        ],
    }
    return parse_config(raw, folder / "cdc.yaml")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as found:
        yield found


@dataclass
class Rooms:
    """What was called, and what each (room, source) gives or raises. meanwhile: what happens, in this order, while
    these rooms are called."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    give: dict[tuple[str, str], RoomResult | CdcError] = field(default_factory=dict)
    meanwhile: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def __call__(self, room: str) -> chain.Room:
        def run(spark: Any, config: Config, source: Any, *, cut: bool = True) -> RoomResult:
            self.calls.append((room if cut else f"{room} without a cut", source.name))
            if self.meanwhile and self.meanwhile[0][0] == room:
                self.meanwhile.pop(0)[1]()
            found = self.give.get((room, source.name), RoomResult(room, source.name, 10, 1, 2.0, {"lag": 0}))
            if isinstance(found, CdcError):
                raise found
            return found

        return run


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """The chain's rooms replaced: Dagster's part is tested here, the rooms have tests of their own."""
    fake = Rooms()
    for name in chain.ROOMS:
        monkeypatch.setitem(chain.ROOMS, name, fake(name))
    return fake


class NoSpark(dg.ConfigurableResource):
    """Stands where the session would be."""

    @property
    def spark_session(self) -> None:
        return None


@pytest.fixture
def run_job(
    config: Config, instance: dg.DagsterInstance, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dg.ExecuteInProcessResult]:
    """Runs `catch_up`, or a selection of its assets."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())

    def run(*selection: dg.AssetKey, **more: Any) -> dg.ExecuteInProcessResult:
        job = build(config).resolve_job_def("catch_up")
        return job.execute_in_process(
            instance=instance,
            raise_on_error=False,
            asset_selection=list(selection) or None,
            **more,
        )

    return run


def ledger(config: Config, *rows: tuple[str, str, int, int, int, str, int]) -> None:
    """Rows of offset_ledger: source, topic, partition, from, to, outcome, records."""
    names = ["source", "topic", "partition", "from_offset", "to_offset", "outcome", "records"]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    data = pa.table({**columns, "partition": pa.array(columns["partition"], pa.int32()), "batch": [0] * len(rows)})
    write_deltalake(tables.OFFSET_LEDGER.at(config.lake), data, mode="append", partition_by=["source"])


def landing(config: Config, source: str, records: int) -> None:
    """That many records in landing/<source>."""
    data = pa.table({"topic": ["t"] * records, "offset": pa.array(range(records), pa.int64())})
    write_deltalake(tables.LANDING.at(config.lake, source=source), data, mode="append")


def schema_history(config: Config, *rows: tuple[str, str, str]) -> None:
    """Column lists of (source, db, table)."""
    data = pa.table(
        {
            "source": [r[0] for r in rows],
            "kind": ["message"] * len(rows),
            "db": [r[1] for r in rows],
            "table": [r[2] for r in rows],
        }
    )
    write_deltalake(tables.SCHEMA_HISTORY.at(config.lake), data, mode="append", partition_by=["source"])


def changelog(config: Config, source: str, at: datetime) -> None:
    """One row change of a source, committed at a time."""
    data = pa.table({"source": [source], "source_time": pa.array([at.astimezone(UTC)], pa.timestamp("us", "UTC"))})
    write_deltalake(tables.CHANGELOG.at(config.lake), data, mode="append", partition_by=["source"])


@pytest.fixture(scope="session")
def servers(broker: BrokerInfo) -> str:
    """bootstrap.servers of the session's broker."""
    return str(broker.bootstrap_servers)


def new_topic(servers: str) -> str:
    """A topic of one partition."""
    name = f"dts-{uuid4().hex}"
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    return name


def send(servers: str, topic: str, at: datetime | None = None) -> None:
    """One record, stamped with a time (default: now)."""
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"x", timestamp=int(at.timestamp() * 1000) if at else 0)
    assert producer.flush(10) == 0
