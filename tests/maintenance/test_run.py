"""Upkeep changes files and forgets deletes; tables hold the same, also when a change comes that is older."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.chain import maintain
from cdc_platform.config import parse_config
from cdc_platform.lake import delta_table
from cdc_platform.maintenance import run as upkeep
from cdc_platform.snapshots import together
from tests import calls
from tests.automation.conftest import table_state
from tests.changelog.feed import Feed, SourceTable, read

pytestmark = pytest.mark.spark

ITEMS = SourceTable("m", "items", [("id", "int"), ("v", "varchar(9)")])


class InTwoDays(datetime):
    """A clock that is ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz or UTC) + timedelta(days=2)


def row(id_: int, v: str) -> dict[str, str | None]:
    return {"id": str(id_), "v": v}


def files(path: str) -> int:
    return len(DeltaTable(path).file_uris())


@pytest.mark.thorough
def test_files_are_put_together_and_deletes_forgotten_without_harm(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_FEW", 0)  # which would leave one file
    source = {"name": "m", "format": "canal", "topics": ["t"]}
    settings = {"lake": str(tmp_path / "lake"), "sources": [source], "maintenance": {"tombstone_days": 1}}
    feed = Feed(spark, parse_config(settings, tmp_path / "cdc.yaml"), "m")
    feed.say(ITEMS.stated(), *(ITEMS.insert((1, i), row(i, "first")) for i in (1, 2, 3)))
    feed.catch_up()
    feed.say(
        ITEMS.delete((1, 50), row(2, "first")),
        ITEMS.insert((1, 51), row(4, "second")),
        ITEMS.update((1, 60), row(1, "first"), row(1, "third")),
    )
    feed.catch_up()
    target = feed.target("m", "items")
    staged = tables.CHANGELOG.at(feed.config.lake)
    killed = Path(target.snapshot.uri(), "rebuild-0")
    shutil.copytree(target.snapshot.uri(), killed)
    left_behind = Path(target.snapshot.uri(), "part-of-a-killed-write.parquet")
    left_behind.write_bytes(b"x")
    os.utime(left_behind, (0, 0))
    before = sorted(map(tuple, (r.values() for r in feed.live("m", "items"))))
    files_before, staged_before = files(target.snapshot.uri()), files(staged)
    assert files_before > 1

    monkeypatch.setattr(upkeep, "datetime", InTwoDays)
    result = maintain(feed.spark, feed.config, feed.source)

    assert sorted(map(tuple, (r.values() for r in feed.live("m", "items")))) == before
    assert files(target.snapshot.uri()) == 1
    assert not left_behind.exists()
    assert not list(killed.rglob("*.json")), "a rebuild that was killed"
    assert files(staged) == staged_before, "what is read as a stream of commits stays as it was written"
    assert result.tables["snapshots/m/m/items"]["files_before"] == files_before
    assert result.tables["snapshots/m/m/items"]["files"] == 1
    assert repr(result.metrics["expired"]) == "1", "what is counted has no decimal point"
    graves = read(target.tombstones.uri()).to_pylist()
    assert [g["scope"] for g in graves] == ["expired"]

    feed.say(  # late: by another partition
        ITEMS.update((1, 40), row(2, "first"), row(2, "late"), partition=1),
        ITEMS.update((1, 41), row(3, "first"), row(3, "x"), partition=1),
    )
    feed.catch_up()
    assert sorted((r["id"], r["v"]) for r in feed.live("m", "items")) == [(1, "third"), (3, "x"), (4, "second")]
    assert feed.state("m", "items") == ("live", None)


@pytest.mark.thorough
def test_versions_are_readable_as_long_as_asked(spark: Any, tmp_path: Path) -> None:
    """Delta's checkpoints forget after a week that a file was removed, and VACUUM goes by the file's own age then."""
    source = {"name": "m", "format": "canal", "topics": ["t"]}
    settings = {"lake": str(tmp_path / "lake"), "sources": [source], "maintenance": {"keep_hours": 1000}}
    feed = Feed(spark, parse_config(settings, tmp_path / "cdc.yaml"), "m")
    feed.say(ITEMS.stated(), ITEMS.insert((1, 1), row(1, "first")))
    feed.catch_up()
    maintain(feed.spark, feed.config, feed.source)
    snapshot = feed.target("m", "items").snapshot.uri()
    before = DeltaTable(snapshot)
    [file] = map(Path, before.file_uris())
    feed.say(ITEMS.update((1, 2), row(1, "first"), row(1, "second")))
    feed.catch_up()
    spark.sql(f"OPTIMIZE delta.`{snapshot}`").collect()  # whoever took it out
    _nine_days_ago(Path(snapshot, "_delta_log"), file.name)
    os.utime(file, (0, 0))
    DeltaTable(snapshot).create_checkpoint()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    maintain(feed.spark, feed.config, feed.source)

    assert file.exists()
    assert DeltaTable(snapshot, version=before.version()).to_pyarrow_table()["v"].to_pylist() == ["first"]
    said = DeltaTable(snapshot).metadata().configuration
    assert said["delta.deletedFileRetentionDuration"] == said["delta.logRetentionDuration"] == "interval 1000 hours"
    maintain(feed.spark, parse_config({**settings, "maintenance": {}}, tmp_path / "cdc.yaml"), feed.source)
    assert not {"delta.deletedFileRetentionDuration", "delta.logRetentionDuration"} & {
        *DeltaTable(snapshot).metadata().configuration
    }


def _nine_days_ago(log: Path, removed: str) -> None:
    """Rewrites the commits as if they had removed a file then."""
    for commit in log.glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if removed in action.get("remove", {}).get("path", ""):
                action["remove"]["deletionTimestamp"] -= 9 * 86_400_000
        commit.write_text("\n".join(map(json.dumps, actions)) + "\n")


def test_which_tables_there_are_is_asked_of_several_at_once(
    spark: Any, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config([{"name": "m", "format": "canal", "topics": ["t"]}])
    for n in range(4):
        table_state(config, "m", f"m.t{n}", "waiting")
    asked = calls.meet(monkeypatch, delta_table, "exists", 4, lambda path: "/m/m/t" in path.uri())
    result = maintain(spark, config, config.source("m"))
    assert len(asked) == 16, "snapshot, tombstones, history and typed changes of each"
    assert list(result.tables) == ["table_state"]
