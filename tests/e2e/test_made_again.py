"""A topic that is deleted and made again: its offsets begin anew, and what comes is newer all the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.chain import STAGES
from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.lake import delta_table, sequences, stores
from cdc_platform.snapshots.target import Target
from tests.kafka_topics import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]

BASE = 10**9
KEY = {"id": 1}


class Feed:
    """One source of a topic that may be made again, run by what commands run."""

    def __init__(self, spark: Any, kafka: Kafka, folder: Path, format: str):
        self.spark, self.kafka, self.format, self.file = spark, kafka, format, folder / "cdc.yaml"
        self.topic = kafka.topic()
        self.set()

    def set(self, **more: Any) -> None:
        source = {"name": "s", "format": self.format, "topics": [self.topic], **more}
        kafka = {"bootstrap.servers": self.kafka.servers}
        self.file.write_text(json.dumps({"lake": "./lake", "kafka": kafka, "sources": [source]}))
        self.config = load_config(self.file)
        self.source = self.config.source("s")

    def send(self, *values: dict[str, Any]) -> None:
        records = [{"key": json.dumps(KEY).encode(), "value": json.dumps(v).encode()} for v in values]
        self.kafka.produce(self.topic, records)

    def again(self, *values: dict[str, Any]) -> None:
        self.kafka.delete(self.topic)
        self.kafka.topic(self.topic)
        self.send(*values)

    def run(self) -> None:
        for stage in STAGES.values():
            stage(self.spark, self.config, self.source)

    def rows(self) -> list[tuple[Any, ...]]:
        found = DeltaTable(Target.of(self.config, "s", "d", "a").snapshot.uri()).to_pyarrow_table().to_pylist()
        return sorted((r["id"], r["n"]) for r in found)

    def tell(self, capsys: Any, *args: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = command([*args, "--config", str(self.file), "--json"])
        return code, json.loads(capsys.readouterr().out)


def table_of_debezium() -> dict[str, Any]:
    columns = [
        {"name": "id", "typeName": "INT", "typeExpression": "INT", "position": 1},
        {"name": "n", "typeName": "DECIMAL", "typeExpression": "DECIMAL", "length": 20, "scale": 0, "position": 2},
    ]
    table = {"primaryKeyColumnNames": ["id"], "columns": columns}
    ddl = "CREATE TABLE a (id int primary key, n decimal(20,0))"
    change = {"type": "CREATE", "id": '"d"."a"', "table": table}
    return {"source": log(1), "databaseName": "d", "ddl": ddl, "tableChanges": [change]}


def log(pos: int) -> dict[str, Any]:
    return {"db": "d", "table": "a", "file": "f.1", "pos": pos, "row": 0, "server_id": 1, "ts_ms": 1_700_000_000_000}


def row(pos: int, id: int, n: str, op: str = "c") -> dict[str, Any]:
    return {"before": None, "after": {"id": id, "n": n}, "source": log(pos), "op": op}


def flat(kind: str, id: int, n: int) -> dict[str, Any]:
    types = {"id": "int", "n": "int"}
    said = {"type": kind, "database": "d", "table": "a", "pkNames": ["id"], "mysqlType": types, "sql": "", "ts": 1}
    return {**said, "data": [{"id": str(id), "n": str(n)}], "old": None}


@pytest.mark.thorough
def test_what_comes_after_is_newer_in_a_later_log_too(spark, kafka, tmp_path, capsys):
    """RESET MASTER, then a new topic: its offsets are those of the log before, and so were its changes taken for."""
    feed = Feed(spark, kafka, tmp_path, "debezium")
    held = row(40, 3, "1234")  # text where the option promises bytes
    feed.send(table_of_debezium(), row(100, 1, "AQ=="), row(110, 2, "AQ=="), row(5, 1, "Ag==", "u"), held)
    feed.run()
    assert feed.rows() == [(1, 2), (2, 1)]
    feed.again(row(50, 1, "Aw==", "u"), row(60, 4, "BA=="))
    code, told = feed.tell(capsys, "run", "--source", "s")
    assert code != 0 and "made again" in json.dumps(told)
    feed.set(on_lost_offsets="accept")
    feed.run()
    feed.set()
    assert feed.rows() == [(1, 3), (2, 1), (4, 4)]
    asked = 'SELECT "offset", order_key.epoch AS epoch FROM {t} WHERE op <> \'ddl\' ORDER BY "offset"'
    told = delta_table.ask(asked, t=tables.CHANGELOG.at(stores.lake(feed.config)))
    assert [(r["offset"], r["epoch"]) for r in told] == [(1, 0), (2, 0), (3, 1), (BASE, 1), (BASE + 1, 1)]

    code, told = feed.tell(capsys, "show", f"{feed.topic}/0/{BASE}")
    assert (code, told["kafka_offset"], told["outcome"]) == (0, 0, "applied")
    code, told = feed.tell(capsys, "show", f"{feed.topic}/0/0")
    assert (code, told.get("kafka_offset"), told["outcome"]) == (0, None, "applied")
    code, told = feed.tell(capsys, "show", f"{feed.topic}/0/{BASE + 7}")
    assert told["outcome"] == "not landed" and f"Kafka's next offset there is {BASE + 2}" in told["why"]
    lost = sequences.lost_of_tables(feed.config, feed.source, [("d", "a")])["d", "a"]
    assert lost.text.endswith(f"{feed.topic}/0 from 5 on")

    # Two records have Kafka's offset 4, and neither stands in the other's way.
    feed.send(row(70, 5, "BQ=="), row(80, 6, "Bg=="), row(90, 7, "Bw=="))
    feed.run()
    code, told = feed.tell(capsys, "erase", "s", "d.a", "1", "--yes")
    assert code == 0, told
    assert feed.rows() == [(2, 1), (4, 4), (5, 5), (6, 6), (7, 7)]
    feed.set(options={"decimal_handling_mode": "string"})
    code, told = feed.tell(capsys, "quarantine", "retry")
    assert code == 0, told
    feed.run()
    assert feed.rows() == [(2, 1), (3, 1234), (4, 4), (5, 5), (6, 6), (7, 7)]


def test_what_comes_after_is_newer_where_offsets_alone_order(spark, kafka, tmp_path):
    feed = Feed(spark, kafka, tmp_path, "canal_json")
    feed.send(flat("INSERT", 1, 1), flat("INSERT", 2, 1), flat("UPDATE", 1, 2))
    feed.run()
    feed.set(on_lost_offsets="accept")
    feed.again(flat("UPDATE", 1, 3))
    feed.run()
    assert feed.rows() == [(1, 3), (2, 1)]
    feed.again(flat("UPDATE", 1, 4), flat("DELETE", 2, 1), flat("INSERT", 3, 1))
    feed.run()
    feed.run()
    assert feed.rows() == [(1, 4), (3, 1)]
