"""What an erasure meets in topics that were landed without Kafka."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.cli import attention
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.run import Erasure
from cdc_platform.lake import erasing, stores
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.replay.run import replay
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import LANDING
from tests.changelog.feed import read
from tests.changes.test_again import Topic
from tests.lake.test_erasing import dying

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

SECRET = "Zebulon Quartermain"


@pytest.fixture
def topic(spark: Any, tmp_path: Path) -> Topic:
    return Topic(spark, tmp_path)


def source(table: str, pos: int) -> dict[str, Any]:
    told = {"db": "d", "file": "f.1", "pos": pos, "row": 0, "server_id": 1, "ts_ms": 1_700_000_000_000}
    return {**told, "table": table}


def ddl(pos: int, sql: str, table: str, *keys: str, type_: str = "CREATE") -> dict[str, Any]:
    """A statement that leaves a table with the columns id and n."""
    columns = [
        {"name": name, "typeName": kind, "typeExpression": kind, "position": i}
        for i, (name, kind) in enumerate((("id", "INT"), ("n", "VARCHAR(60)")), 1)
    ]
    told = {"primaryKeyColumnNames": list(keys), "columns": columns}
    change = {"type": type_, "id": f'"d"."{table}"', "table": told}
    return {"source": source(table, pos), "databaseName": "d", "ddl": sql, "tableChanges": [change]}


def created(table: str = "a") -> dict[str, Any]:
    return ddl(1, f"CREATE TABLE {table} (id INT PRIMARY KEY, n VARCHAR(60))", table, "id")


def row(pos: int, id_: int, n: str, op: str = "c", table: str = "a") -> dict[str, Any]:
    image = {"id": id_, "n": n}
    before, after = (image, None) if op == "d" else (None, image)
    return {"before": before, "after": after, "source": source(table, pos), "op": op}


def erasure(topic: Topic, table: str, key: str) -> Erasure:
    return Erasure.of(topic.config, topic.source, f"d.{table}", key, follow=False, told=lambda _: None)


def erase(topic: Topic, table: str, key: str) -> dict[str, Any]:
    return erasure(topic, table, key).erase(topic.spark)


def rows(topic: Topic, table: str) -> list[tuple[Any, ...]]:
    found = read(Target.of(topic.config, "s", "d", table).snapshot).to_pylist()
    return sorted((r["id"], r["n"]) for r in found)


def landed(topic: Topic) -> dict[int, tuple[Any, Any]]:
    """Key and value of each record."""
    found = read(LANDING.at(topic.config.lake, source="s")).to_pylist()
    return {r["offset"]: (r["key"], r["value"]) for r in found}


def test_a_rename_that_was_landed_and_not_run(topic: Topic):
    """The table is found anew when it was brought in: its old name names nothing any more."""
    topic.land(created(), row(10, 7, SECRET), row(11, 8, "other"))
    topic.catch_up()
    topic.land(ddl(20, "RENAME TABLE a TO b", "b", "id", type_="ALTER"), row(30, 7, f"{SECRET} too", "c", "b"))
    with pytest.raises(EraseRefused, match=r"d\.a is called d\.b since"):
        erase(topic, "a", "7")
    assert rows(topic, "b") == [(7, f"{SECRET} too"), (8, "other")]
    with pytest.raises(EraseRefused, match=r"d\.a is called d\.b since"):
        erase(topic, "a", "7")
    assert erase(topic, "b", "7")["proof"]["left"] == 0
    assert rows(topic, "b") == [(8, "other")]
    assert not any(SECRET.encode() in json.dumps(str(told)).encode() for told in landed(topic).values())


def test_another_key_that_was_landed_and_not_run(topic: Topic):
    topic.land(created(), row(10, 7, SECRET))
    topic.catch_up()
    sql = "ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)"
    topic.land(ddl(20, sql, "a", "id", "n", type_="ALTER"), row(30, 7, "another seven"))
    with pytest.raises(EraseRefused, match=r"the key of d\.a has become id, n"):
        erase(topic, "a", "7")


def test_tombstones_behind_a_delete(topic: Topic):
    """Their key goes as those of the messages do; the ledger adds up, and a replay tells the same."""
    mine, other = b'{"id": 7}', b'{"id": 8}'
    topic.land(created())
    topic.land_under(mine, row(10, 7, SECRET))
    topic.land_under(other, row(11, 8, "other"))
    topic.land_under(mine, row(12, 7, SECRET, "d"))
    topic.land_under(mine, None)
    topic.land_under(other, row(13, 8, "other", "d"))
    topic.land_under(other, None)
    topic.catch_up()
    before = topic.outcomes()
    done = erase(topic, "a", "7")
    assert (done["records"], done["proof"]["left"]) == (3, 0)
    keys = {offset: key for offset, (key, _) in landed(topic).items()}
    assert keys == {0: b'{"id": 1}', 1: None, 2: other, 3: None, 4: None, 5: other, 6: other}
    assert sum(before.values()) == sum(topic.outcomes().values()) == 7
    assert topic.outcomes()["erased"] == 3
    assert replay(topic.spark, topic.config, topic.source)["equal"]


def test_one_that_was_decided_too_late(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    """Its process was stopped, and its note comes when another one has taken the source over and changed other rows."""
    topic.land(created(), row(10, 7, SECRET), row(11, 8, "old"), row(12, 9, "deleted later"))
    topic.catch_up()
    lake, name, end = stores.lake(topic.config), "_erasures/s.json", erasing.finish
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(erasing, "finish", dying(end, 1))  # the first call is that of who takes the lock
        erase(topic, "a", "7")
    note = lake.read(name)
    assert note is not None
    erasing.done(lake, "s")
    topic.land(row(20, 8, "old", "d"), row(21, 8, "new"), row(22, 9, "deleted later", "d"))
    topic.catch_up()
    lake.put(name, note)
    with source_lock(topic.config, topic.source):
        pass
    assert rows(topic, "a") == [(7, SECRET), (8, "new")]
    [told] = [f.text for f in attention.of_lake(topic.config, [topic.source]) if f.kind == "erasure"]
    assert told.startswith("erasure 1 of a row of d.a was begun and isn't done")
    monkeypatch.setattr(Erasure, "in_kafka", lambda *_: None)
    planned = erasure(topic, "a", "7").plan()
    assert planned["unfinished"] is None and planned["messages"] and planned["tables"], "what --yes does is shown"
    with pytest.raises(EraseRefused, match="of another key, was begun"):
        erasure(topic, "a", "8").plan()
    assert erase(topic, "a", "7")["proof"]["left"] == 0
    assert rows(topic, "a") == [(8, "new")]
    lake.put(name, note)  # sent twice; the one that is done has its number
    with source_lock(topic.config, topic.source):
        pass
    assert "erasure" in [f.kind for f in attention.of_lake(topic.config, [topic.source])]
    with pytest.raises(EraseRefused, match="it is gone already: erasure 1 did it"):
        erase(topic, "a", "7")
    assert erasing.noted(lake) == []
    topic.land(row(30, 10, "later"))
    topic.catch_up()
    assert rows(topic, "a") == [(8, "new"), (10, "later")]
