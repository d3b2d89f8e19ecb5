"""Rows that came into tables without a key, brought up to date by the one job of many tables: each table gets what it
would get by itself, and equal rows are counted."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform.config import Config
from cdc_platform.errors import StorageError
from cdc_platform.lake import commits, queries
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots import together as ways
from cdc_platform.snapshots.apply import prepare
from tests.changelog.feed import LANDED, Feed, Image, SourceTable, position
from tests.snapshots.test_together import both_ways, truncate

pytestmark = pytest.mark.spark

COLUMNS = [("a", "int"), ("b", "varchar(9)"), ("d", "double"), ("e", "datetime(6)")]
NAMES = ["log0", "log1", "log2"]
TABLES = {n: SourceTable("shop", n, COLUMNS, ()) for n in NAMES}
WIDE = SourceTable("shop", "wide", [*COLUMNS, *((f"x{i}", "int") for i in range(40))], ())
Config_ = Callable[..., Config]


def row(n: int) -> Image:
    """One of few contents, so that rows are often equal."""
    return {"a": str(n % 3), "b": None if n % 2 else "b", "d": "0.5", "e": "2026-11-20 00:00:00.5"}


def content(image: dict[str, Any]) -> str:
    return f"{image['a']} {image['b']}"


class Source:
    """Changes of the tables, and the rows there are by then. only_rows: how often a table gets nothing but rows."""

    def __init__(self, seed: int, only_rows: float):
        self.dice, self.only_rows = random.Random(seed), only_rows
        self.rows: dict[str, list[Image]] = {n: [] for n in NAMES}

    def inserted(self, table: str, at: tuple) -> dict[str, Any]:
        self.rows[table].append(row(self.dice.randrange(12)))
        return TABLES[table].insert(at, self.rows[table][-1])

    def other(self, table: str, at: tuple) -> dict[str, Any]:
        """An update, a delete or, seldom, a TRUNCATE."""
        there = self.rows[table]
        if not there or self.dice.random() < 0.1:
            there.clear()
            return truncate(TABLES[table], at)
        old = there.pop(self.dice.randrange(len(there)))
        if self.dice.random() < 0.5:
            return TABLES[table].delete(at, old)
        there.append(row(self.dice.randrange(12)))
        return TABLES[table].update(at, old, there[-1])

    def batches(self, number: int) -> Iterator[tuple[list[dict[str, Any]], set[str]]]:
        """With the tables that only get rows. The first and the last are of inserts alone."""
        for batch in range(1, number + 1):
            more = {n for n in NAMES if batch in (1, number) or self.dice.random() < self.only_rows}
            events = [TABLES[n].stated() for n in NAMES]
            for at in range(45):
                name, place = self.dice.choice(NAMES), (batch, at)
                comes = name in more or self.dice.random() < 0.6
                events.append(self.inserted(name, place) if comes else self.other(name, place))
            yield events, more

    def told(self, name: str) -> Counter[str]:
        return Counter(map(content, self.rows[name]))


def found(feed: Feed, name: str) -> Counter[str]:
    return Counter(map(content, feed.live("shop", name)))


def pair(spark: Any, make_config: Config_, format_: str) -> tuple[Config, Feed, Feed]:
    sources = [{"name": n, "format": format_, "topics": [n]} for n in ("ours", "alone")]
    config = make_config(sources)
    return config, Feed(spark, config, "ours"), Feed(spark, config, "alone")


def same(config: Config, ours: Feed, alone: Feed) -> None:
    """What is noted of the tables, and how they are made."""
    keys = ("db", "table", "state", "reason", "rows", "invalid_dates")
    noted = [(t["source"], tuple(t[k] for k in keys)) for t in queries.table_states(config)]
    assert sorted(t for s, t in noted if s == "ours") == sorted(t for s, t in noted if s == "alone")
    states = [
        [{k: v for k, v in r.items() if k not in ("source", "at")} for r in f.rows(snapshots.TABLE_STATE)]
        for f in (ours, alone)
    ]
    assert sorted(map(repr, states[0])) == sorted(map(repr, states[1]))
    for name in NAMES:
        made = [DeltaTable(f.target("shop", name).snapshot.uri()) for f in (ours, alone)]
        assert made[0].schema().to_json() == made[1].schema().to_json()
        assert made[0].metadata().configuration == made[1].metadata().configuration


@pytest.mark.thorough
def test_tables_get_together_what_each_gets_alone(
    spark: Any, make_config: Config_, monkeypatch: pytest.MonkeyPatch, together: list[set[str]]
) -> None:
    config, ours, alone = pair(spark, make_config, "debezium")
    monkeypatch.setattr(prepare, "MANY_FILES", 3)
    source = Source(1, only_rows=0.6)
    for events, more in source.batches(5):
        both_ways(events, ours, alone, monkeypatch, NAMES)
        assert (together[-2], together[-1]) == (more, set()), "deletes of before make no difference to newer rows"
        same(config, ours, alone)
        assert all(found(ours, n) == source.told(n) for n in NAMES)


@pytest.mark.thorough
def test_changes_in_any_order_make_the_same_of_tables_together_and_alone(
    spark: Any, make_config: Config_, monkeypatch: pytest.MonkeyPatch, together: list[set[str]]
) -> None:
    """Rows that came are late here: they may stand before a delete of their content."""
    config, ours, alone = pair(spark, make_config, "dataworks")
    source = Source(2, only_rows=0)
    told = [e for events, _ in source.batches(4) for e in events if e["kind"] == "row" and e["op"] != "truncate"]
    came = [e for e in told if e["op"] == "insert"]
    others = [e for e in told if e["op"] != "insert"]
    source.dice.shuffle(came)
    stated = [t.stated() for t in TABLES.values()]
    for some in (came[::3], others[::2], came[1::3], others[1::2], came[2::3]):
        both_ways([*stated, *some], ours, alone, monkeypatch, NAMES)
        same(config, ours, alone)
    assert {e["table"] for e in others} == set(NAMES)
    assert together == [set(NAMES), *[set()] * 9], "nothing says that no delete is newer"


@pytest.mark.thorough
def test_rows_by_several_partitions_get_together_what_each_gets_alone(
    spark: Any, make_config: Config_, monkeypatch: pytest.MonkeyPatch, together: list[set[str]]
) -> None:
    """Without positions, and offsets of each partition of their own: those of a batch lie among those of before."""
    config, ours, alone = pair(spark, make_config, "canal_json")
    source, offsets = Source(5, only_rows=1), [0, 40, 1000]
    for batch in range(4):
        events = [TABLES[n].stated() for n in NAMES]
        for i in range(30):
            partition = source.dice.randrange(3)
            offsets[partition] += 1
            name = source.dice.choice(NAMES)
            gone = batch == 2 and name == "log1" and source.dice.random() < 0.5
            change = source.other(name, (None, None)) if gone else source.inserted(name, (None, None))
            if change["op"] == "truncate":
                continue
            time = LANDED + timedelta(seconds=100 * batch + i)
            place = {"partition": partition, "offset": offsets[partition], "source_time": time}
            events.append({**change, **position(None, None, None), **place})
        both_ways(events, ours, alone, monkeypatch, NAMES)
        same(config, ours, alone)
    assert together[::2] == [set(NAMES), set(NAMES), {"log0", "log2"}, {"log0", "log2"}]
    assert all(ours.state("shop", n)[0] == "live" for n in NAMES)


@pytest.fixture
def feed(spark: Any, make_config: Config_) -> Feed:
    return Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")


def some(n: int, each: int = 3) -> list[dict[str, Any]]:
    """Equal rows for each table."""
    new = (e for t in TABLES.values() for e in (t.insert((n, i), row(0)) for i in range(each)))
    return [*(t.stated() for t in TABLES.values()), *new]


@pytest.mark.thorough
def test_a_run_killed_between_two_tables_adds_no_row_twice(
    feed: Feed, together: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.say(*some(1))
    feed.catch_up()
    feed.say(*some(2))
    feed.unify()
    kept, made = commits.commit, []

    def commit(*a: Any) -> bool:
        if len(made) == 2:
            raise StorageError("lake", "killed", retriable=True)
        made.append(a)
        return kept(*a)

    with monkeypatch.context() as killed, pytest.raises(StorageError):
        killed.setattr(commits, "commit", commit)
        feed.snapshot()
    assert sorted(len(feed.live("shop", n)) for n in NAMES) == [3, 6, 6]
    feed.snapshot()
    assert [len(feed.live("shop", n)) for n in NAMES] == [6, 6, 6]
    feed.forget_last_commit("snapshots")
    feed.snapshot()
    assert [len(feed.live("shop", n)) for n in NAMES] == [6, 6, 6]
    assert together == [set(NAMES)] * 3
    assert {t["rows"] for t in queries.table_states(feed.config)} == {6}


@pytest.mark.thorough
def test_rows_of_a_batch_that_a_rebuild_took_before_are_known(feed: Feed, together: list[set[str]]) -> None:
    feed.say(*some(1))
    feed.catch_up()
    feed.say(*some(2, each=1))
    feed.unify()
    snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", "log0")
    assert len(feed.live("shop", "log0")) == 4
    feed.snapshot()
    assert together[-1] == set(NAMES)
    assert [len(feed.live("shop", n)) for n in NAMES] == [4, 4, 4]


@pytest.mark.thorough
def test_files_that_cannot_hold_a_batchs_rows_are_not_read(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """However wide the table is; Delta tells of 32 columns only where no others are asked for."""
    asked, kept = [], ways._piece

    def piece(*a: Any) -> Any:
        asked.append(kept(*a))
        return asked[-1]

    monkeypatch.setattr(ways, "_piece", piece)
    for n in range(1, 3):
        feed.say(*some(n), WIDE.stated(), WIDE.insert((n, 9), {c: row(0).get(c, "7") for c, _ in WIDE.columns}))
        feed.catch_up()
    assert [p.files for p in asked] == [()] * 8
    live = commits.live(feed.target("shop", "wide").snapshot)
    told = [json.loads(add["stats"])["minValues"]["_cdc_address"]["offset"] for add in live.adds] if live else []
    assert len(set(told)) == 2


@pytest.mark.thorough
def test_a_table_that_lacks_deleted_rows_says_so_until_they_are_told(feed: Feed, together: list[set[str]]) -> None:
    feed.say(*some(1))
    feed.catch_up()
    feed.say(TABLES["log0"].stated(), TABLES["log0"].delete((2, 0), row(1)))
    feed.catch_up()
    feed.say(*some(3))
    feed.catch_up()
    assert together == [set(NAMES), set(), {"log1", "log2"}]
    assert str(feed.state("shop", "log0")[1]).startswith("1 rows were deleted that have never come")
    assert len(feed.live("shop", "log0")) == 6
