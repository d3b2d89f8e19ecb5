"""`quarantine retry` that is killed at any of its commits: the next one does what it would have done, and nothing
twice."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.cli.app import run as command
from cdc_platform.lake import held_rows
from tests.changes.test_again import Topic
from tests.killed import dies

pytestmark = pytest.mark.spark


def message(op: str, *rows: tuple[int, str], **more: Any) -> dict[str, Any]:
    """A FlatMessage of canal; a text beyond Latin-1 is no bytes unless option `binary` says what it is."""
    told = {"database": "d", "table": "t", "type": op, "isDdl": False, "es": 1_700_000_000_000, "pkNames": ["id"]}
    types = {"mysqlType": {"id": "int", "b": "varbinary(20)"}, "sqlType": {"id": 4, "b": 2004}}
    return {**told, **types, "data": [{"id": str(i), "b": b} for i, b in rows], "old": None, **more}


MESSAGES = (
    message("INSERT", (1, "a"), (2, "字")),  # the first of them can be used
    message("INSERT", (3, "語")),
    message("UPDATE", (1, "b"), old=[{"b": "a"}]),
    message("INSERT", (4, "d")),
    message("DELETE", (3, "c")),
)
ROWS = [(1, b"b"), (2, "字".encode()), (4, b"d")]


@pytest.fixture(scope="module")
def landed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that holds two of the messages in quarantine."""
    topic = Topic(spark, tmp_path_factory.mktemp("landed"), "canal_json")
    topic.land(*MESSAGES)
    topic.catch_up()
    assert (topic.rows(), topic.outcomes()) == ([(1, b"b"), (4, b"d")], {"applied": 3, "quarantined": 2})
    return topic.file.parent


@pytest.fixture
def topic(spark: Any, tmp_path: Path, landed: Path) -> Topic:
    """One with a copy of it, and an option that lets all in."""
    shutil.copytree(landed / "lake", tmp_path / "lake")
    made = Topic(spark, tmp_path, "canal_json")
    made.offset = len(MESSAGES)
    made.with_options(binary="utf-8")
    return made


def retried(topic: Topic) -> None:
    assert command(["quarantine", "retry", "--config", str(topic.file), "--json"]) == 0


def whole(topic: Topic) -> None:
    """All is there, and nothing twice."""
    assert topic.rows() == ROWS
    assert topic.outcomes() == {"applied": len(MESSAGES)}
    assert held_rows.by_table(topic.config) == []
    quarantine = DeltaTable(tables.QUARANTINE.at(topic.config.lake)).to_pyarrow_table().to_pylist()
    assert sorted(r["offset"] for r in quarantine if r["resolved_at"]) == [0, 1] and len(quarantine) == 2
    changelog = DeltaTable(tables.CHANGELOG.at(topic.config.lake)).to_pyarrow_table().to_pylist()
    told = [(0, 0, "insert"), (0, 1, "insert"), (1, 0, "insert"), (2, 0, "update"), (3, 0, "insert"), (4, 0, "delete")]
    assert sorted((r["offset"], r["row_index"], r["op"]) for r in changelog) == told
    changes = tables.CHANGES.at(topic.config.lake, format="canal_json", source="s")
    again = [r for r in DeltaTable(changes).to_pyarrow_table().to_pylist() if r["retold"] and r["kind"] == "row"]
    assert sorted((r["offset"], r["row_index"]) for r in again) == [(0, 0), (0, 1), (1, 0)]


def killed(monkeypatch: pytest.MonkeyPatch, topic: Topic, where: str, *, done: bool) -> None:
    dies(monkeypatch, str(topic.config.lake), where, lambda: retried(topic), done=done)


CHANGES = "changes/canal_json/s"
WRITES = (
    *(CHANGES, "_checkpoints/changelog/s offsets", "log_epochs", "quarantine", "offset_ledger", "changelog"),
    *("watermarks", "_checkpoints/changelog/s commits", "_checkpoints/snapshots/s offsets", "table_state"),
    *("_checkpoints/snapshots/s commits", "cuts"),
)
"""Of a retry, in this order but for those of the changelog's batch, which are made at once."""


@pytest.mark.thorough
def test_a_retry_that_is_killed_again_and_again(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    killed(monkeypatch, topic, CHANGES, done=False)
    assert topic.outcomes() == {"applied": 3, "quarantined": 2}
    killed(monkeypatch, topic, CHANGES, done=True)
    killed(monkeypatch, topic, "changelog", done=False)
    retried(topic)
    whole(topic)


@pytest.mark.thorough
@pytest.mark.parametrize("done", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("where", WRITES)
def test_a_retry_that_is_killed_at_a_write(topic: Topic, monkeypatch: pytest.MonkeyPatch, where: str, done: bool):
    killed(monkeypatch, topic, where, done=done)
    retried(topic)
    whole(topic)


@pytest.mark.thorough
def test_what_a_killed_retry_left_is_done_by_any_run(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    killed(monkeypatch, topic, CHANGES, done=True)
    topic.catch_up()
    whole(topic)
