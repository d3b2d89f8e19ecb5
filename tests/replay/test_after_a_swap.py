"""What comes after a replay was put in place: its rows count from the beginning, the logs of the tables don't."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.cli.app import run as command
from cdc_platform.snapshots.target import Target
from tests.changelog.feed import read
from tests.changes.test_again import Topic

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
A, B, C = "abc"


def created(table: str, pos: int) -> dict[str, Any]:
    columns = [{"name": n, "typeName": "INT", "typeExpression": "INT", "position": i} for i, n in ((1, "id"), (2, "n"))]
    change = {"type": "CREATE", "id": f'"d"."{table}"', "table": {"primaryKeyColumnNames": ["id"], "columns": columns}}
    source = {"file": "f.1", "pos": pos, "db": "d", "server_id": 1, "ts_ms": 1_700_000_000_000}
    ddl = f"CREATE TABLE {table} (id int primary key, n int)"
    return {"source": source, "databaseName": "d", "ddl": ddl, "tableChanges": [change]}


def inserted(table: str, pos: int, id_: int) -> dict[str, Any]:
    told = {"db": "d", "table": table, "file": "f.1", "pos": pos, "row": 0, "server_id": 1, "ts_ms": 1_700_000_000_000}
    return {"before": None, "after": {"id": id_, "n": 1}, "source": told, "op": "c"}


def followed(topic: Topic, *names: str) -> None:
    topic.rules = {"include": [f"d.{name}" for name in names]}
    topic.with_options()


def swapped(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    code = command(["replay", "s", "--swap", "--config", str(file), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["swapped"]) == (0, True)


def rows(topic: Topic, table: str) -> list[int]:
    return sorted(r["id"] for r in read(Target.of(topic.config, "s", "d", table).snapshot).to_pylist())


def test_a_table_that_is_followed_after_a_swap_gets_its_past(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = Topic(spark, tmp_path)
    followed(topic, A)
    topic.land(*(created(t, i) for i, t in enumerate((A, B, C), 1)), *(inserted(t, 10, 1) for t in (A, B, C)))
    topic.catch_up()
    followed(topic, A, B)
    topic.catch_up()
    swapped(topic.file, capsys)
    followed(topic, A, B, C)
    topic.catch_up()
    assert [rows(topic, t) for t in (A, B, C)] == [[1]] * 3
    assert topic.outcomes() == {"applied": 6}
    rules = read(tables.TABLE_RULES.at(topic.config.lake)).to_pylist()
    numbers = sorted((r["number"], r["stage"]) for r in rules if r["room"] == "changelog")
    assert numbers == [(0, "done"), (2, "begun"), (2, "done")], "1 is in the log of the changelog"
