"""A lake without Spark: Delta tables by delta-rs, stages that only say what they were asked."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable, write_deltalake
from filelock import FileLock

from cdc_platform import chain, tables
from cdc_platform.automation.naming import Naming
from cdc_platform.changes import in_force
from cdc_platform.config import Config, Source, parse_config
from cdc_platform.definitions import build
from cdc_platform.errors import CdcError
from cdc_platform.kafka.broker import BrokerInfo
from cdc_platform.results import StageResult
from tests.rows import add

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
def _impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a broker, too: it answers at once."""
    patience = 0.3 if "broker" in request.fixturenames else 0.05
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", patience)
    if "broker" not in request.fixturenames:
        monkeypatch.setattr("cdc_platform.kafka.offsets.TIMEOUT_S", patience)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path)


@pytest.fixture
def naming(config: Config) -> Naming:
    return Naming(config)


_EVENTS_IN_MEMORY = {
    "event_log_storage": {"module": "dagster._core.storage.event_log", "class": "InMemoryEventLogStorage", "config": {}}
}
"""As files, a run without Spark spends half of its time in them: SQLite opens two per event."""


@pytest.fixture(scope="session")
def dagster_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new instance's folder, to be copied: to make its databases takes four times as long."""
    folder = tmp_path_factory.mktemp("home")
    with dg.instance_for_test(_EVENTS_IN_MEMORY, temp_dir=str(folder)) as made:
        assert made.get_runs() == []
        assert made.schedule_storage is not None
    return folder


@pytest.fixture
def instance(dagster_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    folder = tmp_path_factory.mktemp("home") / "copy"
    shutil.copytree(dagster_home, folder)
    with dg.instance_for_test(_EVENTS_IN_MEMORY, temp_dir=str(folder)) as found:
        yield found


@dataclass
class Stages:
    """What was called, and what each (stage, source) gives or raises. meanwhile: what happens, in this order, while
    these stages are called."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    give: dict[tuple[str, str], StageResult | CdcError] = field(default_factory=dict)
    meanwhile: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def __call__(self, stage: str) -> chain.Stage:
        def run(spark: Any, config: Config, source: Any, *, cut: bool = True) -> StageResult:
            self.calls.append((stage if cut else f"{stage} without a cut", source.name))
            if self.meanwhile and self.meanwhile[0][0] == stage:
                self.meanwhile.pop(0)[1]()
            found = self.give.get((stage, source.name), StageResult(stage, source.name, 10, 1, 2.0, {"lag": 0}))
            if isinstance(found, CdcError):
                raise found
            return found

        return run


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    """The chain's stages replaced: Dagster's part is tested here, the stages have tests of their own."""
    fake = Stages()
    for name in chain.STAGES:
        monkeypatch.setitem(chain.STAGES, name, fake(name))
    return fake


def another_process_has(config: Config, source: Source) -> FileLock:
    """The lock file that a run of another process would hold."""
    (config.state_dir / "locks").mkdir(parents=True, exist_ok=True)
    return FileLock(config.state_dir / "locks" / f"{source.slug}.lock")


class NoSpark(dg.ConfigurableResource):
    """Stands where the session would be."""

    @property
    def spark_session(self) -> Any:
        return Mock()


@pytest.fixture
def run_job(
    config: Config, instance: dg.DagsterInstance, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dg.ExecuteInProcessResult]:
    """Runs a selection of assets as Dagster's pages do; without one, `catch_up`."""
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())

    def run(*selection: dg.AssetKey, **more: Any) -> dg.ExecuteInProcessResult:
        defs = build(config)
        whole = defs.resolve_job_def("catch_up")
        job = defs.resolve_implicit_global_asset_job_def() if selection else whole
        return job.execute_in_process(
            instance=instance,
            raise_on_error=False,
            asset_selection=list(selection) or None,
            **more,
        )

    return run


def ledger(config: Config, *rows: tuple[str, str, int, int, int, str, int]) -> None:
    """Rows of offset_ledger: source, topic, partition, from, to, outcome, records."""
    names = ("source", "topic", "partition", "from_offset", "to_offset", "outcome", "records")
    add(config.lake, tables.OFFSET_LEDGER, *({**dict(zip(names, r, strict=True)), "batch": 0} for r in rows))


def landing(config: Config, source: str, records: int) -> None:
    """That many records in landing/<source>."""
    add(config.lake, tables.LANDING, *({"topic": "t", "offset": o} for o in range(records)), source=source)


def schema_history(config: Config, *rows: tuple[str, str, str]) -> None:
    """Column lists of (source, db, table)."""
    said = {
        "kind": "message",
        "columns": '[{"name": "id", "type": "bigint", "key": true}]',
        "topic": "t",
        "partition": 0,
    }
    said["landed_at"] = datetime.now(UTC)
    named = (dict(zip(("source", "db", "table"), r, strict=True)) for r in rows)
    add(config.lake, tables.SCHEMA_HISTORY, *({**said, **r, "offset": o} for o, r in enumerate(named)))


def table_state(
    config: Config, source: str, table: str, state: str = "live", reason: str | None = None, rebuild: int = 0
) -> None:
    """A row of table_state of "db.table"."""
    db, _, name = table.partition(".")
    row = {"source": source, "db": db, "table": name, "batch": 0, "state": state, "reason": reason}
    row |= {"invalid_dates": 0, "rebuild": rebuild, "at": datetime.now(UTC)}
    add(config.lake, tables.TABLE_STATE, row)


def snapshot(config: Config, source: str, table: str, rows: int, **columns: pa.DataType) -> None:
    """A snapshot of "db.table" with an id, further columns and bookkeeping; the table's state is live."""
    db, _, name = table.partition(".")
    named = {"id": pa.int64(), **columns, "_cdc_source_time": pa.timestamp("us", "UTC")}
    data = pa.Table.from_pylist([{"id": i} for i in range(rows)], pa.schema(list(named.items())))
    path = tables.SNAPSHOT_PATH.at(config.lake, source=source, db=db, table=name)
    write_deltalake(path, data, mode="overwrite", schema_mode="overwrite")
    table_state(config, source, table)


def held(config: Config, source: str, table: str | None, reason: str = "bad decimal") -> None:
    """A row of quarantine that names "db.table", or none."""
    db, _, name = (table or "").partition(".")
    row = {"source": source, "db": db or None, "table": name or None, "reason": reason}
    add(config.lake, tables.QUARANTINE, {**row, "quarantined_at": datetime.now(UTC)})


def decoded_with(config: Config, source: Source, number: int = 0, **options: Any) -> None:
    """The source's options as they were noted, these of them with other values."""
    values = {**in_force.values(source), **options}
    kinds = {
        "source": pa.string(),
        "number": pa.int64(),
        "options": pa.string(),
        "digest": pa.string(),
        "offsets": pa.map_(pa.string(), pa.int64()),
        "at": pa.timestamp("us", "UTC"),
    }
    row = {"source": source.name, "number": number, "options": json.dumps(values), "digest": in_force.digest(values)}
    row |= {"offsets": [("t/0", number)], "at": datetime.now(UTC)}
    write_deltalake(
        tables.DECODED_WITH.at(config.lake),
        pa.Table.from_pylist([row], pa.schema(list(kinds.items()))),
        mode="append",
        partition_by=["source"],
    )


def resolve(config: Config, source: str) -> None:
    """Every row of quarantine of a source is resolved."""
    DeltaTable(tables.QUARANTINE.at(config.lake)).update(
        predicate=f"source = '{source}'", updates={"resolved_at": "quarantined_at"}
    )


def cut(config: Config, source: str, number: int, at: datetime) -> None:
    """A cut whose newest change was committed at a time."""
    row = {"source": source, "cut": number, "kind": "transaction", "source_time": at, "binlog_file": "binlog.000007"}
    row |= {"binlog_pos": Decimal(1234), "gtid": None, "at": at}
    add(config.lake, tables.CUTS, row)


def complete(
    config: Config, source: str, number: int, at: datetime | None, place: dict[str, Any] | None = None, **behind: str
) -> None:
    """A publication: a source's snapshots are complete up to a time, these tables of the database shop not. place:
    position and GTIDs."""
    row = {"source": source, "scope": "source", "batch": number, "source_time": at, "proven": True, **(place or {})}
    tables_ = [{"db": "shop", "table": t, "source_time": None, "reason": why} for t, why in behind.items()]
    add(config.lake, tables.WATERMARKS, {**row, "behind": tables_, "at": datetime.now(UTC)})


def changelog(config: Config, source: str, at: datetime, landed: datetime | None = None) -> None:
    """One row change of a source, committed at a time; landed (default: just then)."""
    add(config.lake, tables.CHANGELOG, {"source": source, "source_time": at, "landed_at": landed or at})


def control(
    config: Config, source: str, kind: str, times: list[datetime], landed: datetime | None = None, **info: str
) -> None:
    """Control events of a source at these times of its clock, landed together (default: with the last)."""
    said = {"source": source, "kind": kind, "landed_at": landed or times[-1], "info": list(info.items())}
    add(config.lake, tables.CONTROL_EVENTS, *({**said, "source_time": at} for at in times))


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
