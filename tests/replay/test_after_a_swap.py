"""What comes after a replay was put in place: its rows count from the beginning, the logs of the tables don't."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.changes import files
from cdc_platform.cli.app import run as command
from cdc_platform.lake import exchange, held_rows, stores
from cdc_platform.lake.exchange import Exchanged
from cdc_platform.replay import swap
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import arrow_tasks, delta_sql
from tests.changelog.feed import SourceTable, read
from tests.changelog.test_backfill import KEPT, Changing, error
from tests.changelog.test_backfill import row as values
from tests.changelog.test_retold import retell
from tests.changes.test_again import Topic

pytestmark = pytest.mark.spark
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


@pytest.mark.thorough
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


COUNTED = SourceTable("shop", "later", [("v", "int")], keys=())


def message(offset: int) -> list[dict[str, Any]]:
    """Rows of a table that is followed, and of one that isn't and has no key."""
    pos = 10 * offset
    return [
        {"offset": offset, "entry_index": 0, **KEPT.stated()},
        {"offset": offset, "entry_index": 1, **COUNTED.stated()},
        {"offset": offset, "entry_index": 2, **KEPT.insert((1, 10 + pos), values(offset, 1))},
        {"offset": offset, "entry_index": 3, **COUNTED.insert((1, 11 + pos), {"v": "7"})},
        {"offset": offset, "entry_index": 4, **COUNTED.insert((1, 12 + pos), {"v": "7"})},
    ]


def exchanged(feed: Changing, side: Path) -> None:
    """`changes` as a swap leaves it."""
    shutil.copytree(feed.config.lake, side)
    beside = feed.config.model_copy(update={"lake": str(side)})
    of = swap._written(swap._Table(feed.spark, feed.config, beside, feed.source, tables.CHANGES))
    assert of is not None
    put_in_place(feed, of)


def put_in_place(feed: Changing, of: Exchanged) -> None:
    lake = stores.lake(feed.config)
    exchange.decide(lake, feed.name, [of], {})
    assert exchange.finish(lake, feed.name)


def exchanged_before(feed: Changing, _side: Path) -> None:
    """As one of an earlier version left it: both tellings, in the same files."""
    changes = tables.CHANGES.at(stores.lake(feed.config), format=feed.source.format, source=feed.name)
    sink, both = files.events_sink(changes, files.CHANGE), delta_sql.read(feed.spark, changes).coalesce(1)
    rows = partial(arrow_tasks.conformed_to, files.CHANGE)
    done = arrow_tasks.partitions(both, rows, arrow_tasks.write, {"rows": sink})
    under = changes.uri().removeprefix(f"{stores.lake(feed.config).uri()}/")
    put_in_place(feed, Exchanged(under, {}, done.written["rows"]))


@pytest.mark.thorough
@pytest.mark.parametrize("leaves", [exchanged, exchanged_before])
def test_what_was_decoded_again_before_a_swap_counts_once(
    spark: Any, make_config: Any, tmp_path: Path, leaves: Any
) -> None:
    feed = Changing(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    feed.follow(include=["shop.kept"])
    for offset in (0, 1):
        feed.say(*(error(offset, "later", 4) if e["entry_index"] == 4 else e for e in message(offset)))
    feed.catch_up()
    for offset in (0, 1):
        retell(feed, *message(offset))
        feed.catch_up()
    leaves(feed, tmp_path / "side")
    feed.follow(include=["*"])
    feed.catch_up()
    assert feed.changelog("later") == [0, 0, 1, 1] and feed.live("shop", "later") == [{"v": 7}] * 4
    assert held_rows.by_table(feed.config) == [] and feed.sums() == {"applied": 2}
