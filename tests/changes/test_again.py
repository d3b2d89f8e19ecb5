"""`quarantine retry`: what an option lets in takes its place, from the raw bytes, and only once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_platform import tables
from cdc_platform.changelog import run as changelog
from cdc_platform.changes import retry
from cdc_platform.changes import run as changes
from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.formats.contract import EVENT, MESSAGE
from cdc_platform.formats.events import event_batch
from cdc_platform.lake import queries, stores
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.target import Target
from cdc_platform.spark.arrow_tasks import spark_schema
from tests.changelog.feed import as_event
from tests.changes.test_retry import LANDED
from tests.rows import add

pytestmark = pytest.mark.spark


class Topic:
    """A topic that is landed without Kafka; by default Debezium's, without schemas."""

    def __init__(self, spark: Any, folder: Path, format: str = "debezium"):
        self.spark, self.file, self.format = spark, folder / "cdc.yaml", format
        self.rules: dict[str, Any] = {}
        self.with_options()
        self.offset = 0

    def with_options(self, **options: Any) -> None:
        source = {"name": "s", "format": self.format, "topics": ["t"], "options": options, "tables": self.rules}
        raw = {"lake": "./lake", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "sources": [source]}
        self.file.write_text(json.dumps(raw))
        self.config = load_config(self.file)
        self.source = self.config.source("s")

    def land(self, *values: dict[str, Any], at: datetime = LANDED) -> None:
        self.land_under(b'{"id": 1}', *values, at=at)

    def land_under(self, key: bytes, *values: dict[str, Any] | None, at: datetime = LANDED) -> None:
        """Records of one Kafka key; None: a tombstone."""
        rows = []
        for value in values:
            where = {"topic": "t", "partition": 0, "offset": self.offset, "timestamp": at, "landed_at": at}
            rows.append({**where, "key": key, "value": None if value is None else json.dumps(value).encode()})
            self.offset += 1
        table = pa.Table.from_pylist(rows, MESSAGE)
        path = tables.LANDING.at(self.config.lake, source="s")
        write_deltalake(path, table, mode="append", schema_mode="merge")  # an erasure adds a column

    def catch_up(self) -> None:
        for stage in (changes, changelog, snapshots):
            stage.run(self.spark, self.config, self.source)

    def rows(self) -> list[tuple[Any, ...]]:
        found = DeltaTable(Target.of(self.config, "s", "d", "t").snapshot.uri()).to_pyarrow_table().to_pylist()
        return sorted(tuple(v for k, v in r.items() if not k.startswith("_cdc_")) for r in found)

    def outcomes(self) -> dict[str, int]:
        [row] = queries.ledger(self.config, [self.source])
        return {o: row[o] for o in queries.OUTCOMES if row[o]}


def created() -> dict[str, Any]:
    columns = [
        {"name": "id", "typeName": "INT", "typeExpression": "INT", "position": 1},
        {"name": "n", "typeName": "DECIMAL", "typeExpression": "DECIMAL", "length": 20, "scale": 0, "position": 2},
    ]
    table = {"primaryKeyColumnNames": ["id"], "columns": columns}
    change = {"type": "CREATE", "id": '"d"."t"', "table": table}
    source = {"file": "f.1", "pos": 1, "db": "d", "server_id": 1, "ts_ms": 1_700_000_000_000}
    ddl = "CREATE TABLE t (id int primary key, n decimal(20,0))"
    return {"source": source, "databaseName": "d", "ddl": ddl, "tableChanges": [change]}


def row(pos: int, id_: int, n: str, op: str = "c") -> dict[str, Any]:
    source = {"db": "d", "table": "t", "file": "f.1", "pos": pos, "row": 0, "server_id": 1, "ts_ms": 1_700_000_000_000}
    return {"before": None, "after": {"id": id_, "n": n}, "source": source, "op": op}


RETRIED = ("changelog", "1 message once more", "changelog", "snapshots")
"""The last steps of a retry, as they are told while it goes on."""


@pytest.fixture
def topic(spark: Any, tmp_path: Path) -> Topic:
    return Topic(spark, tmp_path)


@pytest.mark.thorough
def test_what_an_option_lets_in_takes_its_place(topic: Topic, capsys: pytest.CaptureFixture[str]):
    def asked(*args: str) -> tuple[int, Any]:
        code = command([*args, "--config", str(topic.file), "--json"])
        printed = capsys.readouterr()
        asked.progress = printed.err.splitlines()
        return code, json.loads(printed.out)

    topic.land(created(), row(10, 1, "1234"), row(20, 2, "-5"), row(30, 1, "77", "u"))
    topic.catch_up()
    held = topic.outcomes()["quarantined"]
    assert held, "1234 is four digits, or base64"
    before = topic.rows()
    assert asked("quarantine", "retry") == (1, [{"source": "s", "messages": 1, "used": 0, "held_rows": held}])
    assert topic.rows() == before

    topic.with_options(decimal_handling_mode="string")
    assert asked("quarantine", "retry", "--table", "d.other*")[0] == 2
    assert asked("quarantine", "retry", "--reason", "no such reason")[1][0]["messages"] == 0
    of = ("--source", "s", "--table", "d.*", "--reason", "decimal")
    assert asked("quarantine", "retry", *of) == (0, [{"source": "s", "messages": 1, "used": 1, "held_rows": 0}])
    assert asked.progress[-4:] == [f"retry of s: {doing}" for doing in RETRIED]
    assert [(i, int(n)) for i, n in topic.rows()] == [(1, 77), (2, -5)]
    assert "quarantined" not in topic.outcomes()
    assert len(DeltaTable(tables.CHANGELOG.at(topic.config.lake)).to_pyarrow_table()) == 3
    assert asked("quarantine", "retry")[1][0]["messages"] == 0
    assert asked("quarantine", "list") == (0, [])
    at = {"source": "s", "format": "debezium", "room": "envelopes", "topic": "t", "partition": 0, "offset": 0}
    add(topic.config.lake, tables.QUARANTINE, {**at, "reason": "no message", "quarantined_at": datetime.now(UTC)})
    assert asked("quarantine", "retry") == (1, [{"source": "s", "messages": 0, "used": 0, "held_rows": 1}])
    assert asked("quarantine", "retry", "--reason", "decimal")[0] == 0


@pytest.mark.thorough
def test_a_message_whose_address_another_one_has_stays_held(topic: Topic, capsys: pytest.CaptureFixture[str]):
    """The topic was made again: nothing but its address would tell what had been used of either."""
    topic.land(created(), row(10, 1, "5"), row(20, 2, "1234"))
    topic.catch_up()
    assert topic.outcomes()["quarantined"] == 1
    topic.offset = 0
    topic.land(*(row(100 + i, 10 + i, "5") for i in range(3)), at=LANDED + timedelta(hours=1))
    topic.catch_up()
    before = topic.rows()
    topic.with_options(decimal_handling_mode="string")
    code = command(["quarantine", "retry", "--config", str(topic.file), "--json"])
    [told] = json.loads(capsys.readouterr().out)
    assert (code, told["used"], told["held_rows"]) == (1, 0, 1)
    assert topic.rows() == before


def test_a_rollback_is_held_once_however_often_it_is_tried(spark: Any, tmp_path: Path):
    topic = Topic(spark, tmp_path, "canal_json")
    told = {"database": "d", "table": "t", "type": "INSERT", "isDdl": False, "ts": 1, "es": 1, "pkNames": ["id"]}
    inserted = {**told, "data": [{"id": "1", "n": "1"}], "mysqlType": {"id": "int", "n": "int"}, "old": None}
    topic.land(
        inserted, {"type": "XAROLLBACK", "es": 2, "ts": 2, "database": "", "table": "", "isDdl": False, "data": None}
    )
    topic.catch_up()
    for table in (tables.QUARANTINE, tables.CONTROL_EVENTS):
        assert len(DeltaTable(table.at(topic.config.lake)).to_pyarrow_table()) == 1
    assert command(["quarantine", "retry", "--config", str(topic.file), "--json"]) == 1
    for table in (tables.QUARANTINE, tables.CONTROL_EVENTS):
        assert len(DeltaTable(table.at(topic.config.lake)).to_pyarrow_table()) == 1


@pytest.mark.thorough
def test_one_of_two_rows_that_were_held_for_the_same_reason_is_told_again(topic: Topic):
    topic.land(created(), row(10, 1, "5"))
    changes.run(topic.spark, topic.config, topic.source)
    lake = stores.lake(topic.config)
    landing, stored = tables.LANDING.at(lake, source="s"), tables.CHANGES.at(lake, format="debezium", source="s")

    def tried(*left: int) -> int:
        """Rows of `changes` that come of a message, of which these entries can't be read."""
        bad = {"topic": "t", "partition": 0, "offset": 1, "landed_at": LANDED, "kind": "error", "reason": "half a row"}
        events = event_batch([as_event({**bad, "entry_index": entry}) for entry in (0, *left)])
        decoded = topic.spark.createDataFrame(pa.Table.from_batches([events]), spark_schema(EVENT))
        rows = [{"entry_index": entry, "row_index": None, "reason": "half a row"} for entry in (0, 1)]
        held = pa.Table.from_pylist([{"topic": "t", "partition": 0, "offset": 1, "held": rows}], retry.HELD)
        before = DeltaTable(stored.uri()).to_pyarrow_table().num_rows
        retry.again(
            topic.spark, topic.spark.createDataFrame(held), {"changes": stored, "messages": landing}, lambda _: decoded
        )
        return DeltaTable(stored.uri()).to_pyarrow_table().num_rows - before

    assert tried(1) == 0, "nothing is better"
    assert tried() == 1
