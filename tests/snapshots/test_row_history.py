"""Versions of rows: at each place of the log the history has the rows that the table had there, however they came."""

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.lake import stores
from cdc_platform.launch import log_followed
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.as_of import make
from cdc_platform.tables import HISTORY_PATH
from tests.changelog.feed import Feed, SourceTable, read
from tests.docs.pages import ROOT
from tests.snapshots.test_ddl import STORIES, live_after, versions

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
T = versions("id bigint", "a int", "b varchar(9)")
KEYLESS = SourceTable("shop", "log", [("id", "bigint"), ("a", "int"), ("b", "varchar(9)")], ())
Table = dict[str, dict[str, str | None]]


@pytest.fixture
def feed(spark: Any, make_config: Callable[..., Any]) -> Feed:
    return Feed(spark, make_config([source(["shop.*"])]), "s")


def source(history: list[str]) -> dict[str, Any]:
    return {"name": "s", "format": "canal", "topics": ["t"], "tables": {"history": history}}


def path(feed: Feed, table: str) -> str:
    return HISTORY_PATH.of(stores.lake(feed.config), "s", ("shop", table)).uri()


def history(feed: Feed, table: str) -> list[dict[str, Any]]:
    return read(path(feed, table)).to_pylist()


def commits(feed: Feed, table: str) -> list[str]:
    return [c["operation"] for c in reversed(DeltaTable(path(feed, table)).history())]


def place(order: dict[str, Any] | None) -> tuple[int, ...] | None:
    return None if order is None else tuple(int(v) for v in order.values())


def at(rows: list[dict[str, Any]], order: tuple[int, ...]) -> list[str]:
    """The table's rows behind a change."""

    def is_there(row: dict[str, Any]) -> bool:
        begun, ended = place(row["_cdc_order"]), place(row["_cdc_order_to"])
        return begun is not None and begun <= order and (ended is None or ended > order)

    there = filter(is_there, rows)
    return sorted(repr({k: v for k, v in r.items() if not k.startswith("_cdc_")}) for r in there)


def typed(row: dict[str, str | None]) -> dict[str, Any]:
    return {"id": int(row["id"] or 0), "a": None if row["a"] is None else int(row["a"]), "b": row["b"]}


class Workload:
    """Random changes of a table, and what it has behind each of them: position → rows."""

    def __init__(self, table: SourceTable, seed: int):
        self.table, self.chance, self.rows, self.pos = table, random.Random(seed), list[dict[str, str | None]](), 0
        self.then: dict[int, list[str]] = {}

    def row(self, **more: str) -> dict[str, str | None]:
        return {"id": str(self.chance.randrange(8)), "a": self.chance.choice(["1", "2", None]), "b": "x", **more}

    def change(self) -> dict[str, Any]:
        self.pos += 1
        event = self._change() | {"source_time": NOON + timedelta(minutes=self.pos)}
        self.then[self.pos] = sorted(repr(typed(r)) for r in self.rows)
        return event

    def _change(self) -> dict[str, Any]:
        where, what = (1, self.pos), self.chance.random()
        if what < 0.04:
            self.rows.clear()
            return self.table.change("truncate", where)
        if what < 0.45 or not self.rows:
            new = self.row()
            if self.table.keys and any(r["id"] == new["id"] for r in self.rows):
                return self._update(where, next(r for r in self.rows if r["id"] == new["id"]), new)
            self.rows.append(new)
            return self.table.insert(where, dict(new))
        old = self.chance.choice(self.rows)
        if what < 0.65:
            self.rows.remove(old)
            return self.table.delete(where, dict(old))
        new = self.row()
        if self.table.keys and any(r["id"] == new["id"] and r is not old for r in self.rows):
            new["id"] = old["id"]
        return self._update(where, old, new)

    def _update(self, where: tuple[int, int], old: dict[str, str | None], new: dict[str, str | None]) -> dict[str, Any]:
        before = dict(old)
        told = dict(new)
        if self.table.keys and new["id"] == before["id"] and self.chance.random() < 0.4:  # a part of the row
            told = {k: v for k, v in new.items() if k == "id" or v != before[k]}
        old.update(new)
        return self.table.update(where, before, told)


@pytest.mark.parametrize(
    "table", [T, pytest.param(KEYLESS, marks=pytest.mark.thorough)], ids=["with a key", "without one"]
)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 3))])
@pytest.mark.parametrize("sizes", [(25, 12), pytest.param((25, 6, 1, 12), marks=pytest.mark.thorough)], ids=len)
def test_the_rows_of_every_moment(feed: Feed, table: SourceTable, seed: int, sizes: tuple[int, ...]) -> None:
    work = Workload(table, seed)
    told: list[dict[str, Any]] = [table.stated() | {"lineage": "1"}]
    for size in sizes:
        told += [work.change() for _ in range(size)]
        feed.say(*told)
        told.clear()
        feed.catch_up()
        rows = history(feed, table.name)
        changes = {c["binlog_pos"]: place(c["order_key"]) for c in feed.rows(tables.CHANGELOG)}
        assert len(changes) == work.pos
        for pos, order in changes.items():
            assert order is not None
            assert at(rows, order) == work.then[int(pos)], (pos, size)
    assert {r["_cdc_valid_from"] - NOON for r in rows} <= {timedelta(minutes=m) for m in work.then}
    ended = [r for r in rows if r["_cdc_order_to"]]
    assert ended
    assert all(r["_cdc_valid_to"] > r["_cdc_valid_from"] for r in ended)


@pytest.mark.thorough
def test_a_batch_adds_to_it_and_an_older_change_makes_it_anew(feed: Feed) -> None:
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), {"id": "1", "a": "1", "b": "x"}))
    feed.catch_up()
    feed.say(T.update((1, 20), {"id": "1", "a": "1", "b": "x"}, {"id": "1", "a": "2", "b": "x"}))
    feed.catch_up()
    assert commits(feed, "t")[-1] == "MERGE"
    rows = sorted(history(feed, "t"), key=lambda r: r["a"])
    assert [(r["a"], r["_cdc_op"], r["_cdc_order_to"] is None) for r in rows] == [
        (1, "insert", False),
        (2, "update", True),
    ]
    before = commits(feed, "t")
    feed.catch_up()
    assert commits(feed, "t") == before  # nothing new, nothing written


def row(id: int) -> dict[str, str | None]:
    return {"id": str(id), "a": "1", "b": "x"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gone", "late"),
    [
        ([T.delete((1, 50), row(7)), T.update((1, 51), row(8), row(9))], (7, 8)),
        ([T.change("truncate", (1, 50)), T.insert((1, 60), row(2))], (7,)),
        ([T.insert((1, 45), row(7)), T.delete((1, 50), row(7))], (7,)),
    ],
    ids=["deleted and moved", "truncated", "deleted after another insert"],
)
def test_what_comes_late_behind_its_delete_is_no_row_of_now(
    feed: Feed, gone: list[dict[str, Any]], late: tuple[int, ...]
) -> None:
    """A delete of a row that was never seen leaves no version that would tell."""
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), row(1)), T.insert((1, 11), row(5)))
    feed.catch_up()
    feed.say(*gone)
    feed.catch_up()
    feed.say(*(T.insert((1, 40 + i), row(id), partition=1) for i, id in enumerate(late)))
    feed.catch_up()
    now = sorted(r["id"] for r in history(feed, "t") if r["_cdc_order_to"] is None)
    assert now == sorted(r["id"] for r in feed.live("shop", "t"))
    ended = {r["id"] for r in history(feed, "t") if r["_cdc_order_to"] is not None}
    assert set(late) <= ended, "the row that came late was there until then"


@pytest.mark.thorough
def test_a_run_of_several_batches_in_which_a_row_goes_makes_it_anew(spark: Any, make_config: Any) -> None:
    """When the first batch is added, the snapshot's tombstone of the second is there."""
    feed = Feed(spark, make_config([{**source(["shop.*"]), "max_bytes_per_batch": "1"}]), "s")
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), row(1)))
    feed.catch_up()
    feed.say(T.update((1, 20), row(1), {**row(1), "a": "2"}))
    feed.unify()
    feed.say(T.delete((1, 30), {**row(1), "a": "2"}), T.insert((1, 31), row(2)))
    feed.unify()
    lines: list[str] = []
    with log_followed(lines.append):
        feed.snapshot()
    assert [line for line in lines if line.endswith("history of s/shop.t: it is made from the changelog")]
    told = sorted((r["id"], r["a"], r["_cdc_order_to"] is None) for r in history(feed, "t"))
    assert told == [(1, 1, False), (1, 2, False), (2, 1, True)]


@pytest.mark.thorough
def test_of_one_that_is_made_anew_a_line_is_told(feed: Feed) -> None:
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), {"id": "1", "a": "1", "b": "x"}))
    lines: list[str] = []
    with log_followed(lines.append):
        feed.catch_up()
        feed.catch_up()
    begun, ended = (line for line in lines if line.startswith("history of s/shop.t: "))
    assert begun.endswith(": it is made from the changelog")
    assert re.search(r": made in \d+\.\d s$", ended)


@pytest.mark.thorough
def test_a_killed_batch_is_brought_once(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), {"id": "1", "a": "1", "b": "x"}))
    feed.catch_up()
    feed.say(T.update((1, 20), {"id": "1", "a": "1", "b": "x"}, {"id": "1", "a": "2", "b": "x"}))
    feed.unify()
    from cdc_platform.snapshots.apply import versions as written

    own = written.going_on

    def killed(*args: Any) -> None:
        own(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(written, "going_on", killed)
    with pytest.raises(KeyboardInterrupt):
        feed.snapshot()
    monkeypatch.setattr(written, "going_on", own)
    once = history(feed, "t")
    feed.snapshot()
    assert sorted(map(repr, history(feed, "t"))) == sorted(map(repr, once))
    assert len(once) == 2


@pytest.mark.thorough
def test_one_asked_for_later_and_one_that_was_left_out_meanwhile_lack_nothing(feed: Feed, make_config: Any) -> None:
    def changes(pos: int) -> list[dict[str, Any]]:
        old, new = ({"id": "1", "a": str(p), "b": "x"} for p in (pos - 1, pos))
        return [T.update((1, 10 * pos), old, new)]

    def values() -> list[int]:
        return sorted(r["a"] for r in history(feed, "t"))

    feed.config = make_config([source(["other.*"])])
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 1), {"id": "1", "a": "0", "b": "x"}))
    feed.catch_up()
    feed.say(*changes(1))
    feed.catch_up()
    assert not DeltaTable.is_deltatable(path(feed, "t"))
    feed.config = make_config([source(["shop.*"])])
    feed.catch_up()
    assert values() == [0, 1]
    feed.config = make_config([source(["other.*"])])
    feed.say(*changes(2))
    feed.catch_up()
    assert values() == [0, 1]
    feed.config = make_config([source(["shop.t"])])
    feed.say(*changes(3))
    feed.catch_up()
    assert values() == [0, 1, 2, 3]


@pytest.mark.thorough
@pytest.mark.parametrize("story", STORIES)
def test_over_ddl_it_ends_as_the_snapshot(feed: Feed, story: str) -> None:
    live = live_after(feed, story)
    for table in live:
        if not DeltaTable.is_deltatable(path(feed, table)):
            assert feed.live("shop", table) == []
            continue
        now = [r for r in history(feed, table) if r["_cdc_order_to"] is None]
        rows = sorted(repr({k: v for k, v in r.items() if not k.startswith("_cdc_")}) for r in now)
        assert rows == sorted(map(repr, feed.live("shop", table))), table
    before = {t: commits(feed, t) for t in live if DeltaTable.is_deltatable(path(feed, t))}
    snapshots.run(feed.spark, feed.config, feed.source)
    assert {t: commits(feed, t) for t in before} == before


@pytest.mark.thorough
def test_where_times_do_not_ascend_the_documented_query_finds_one_version_of_a_key(feed: Feed, spark: Any) -> None:
    """A statement that waited for another's lock stands behind it, and tells when it began."""

    def at(second: int) -> datetime:
        return NOON + timedelta(seconds=second)

    rows: list[dict[str, str | None]] = [{"id": "1", "a": a, "b": None} for a in "0123"]
    feed.say(
        T.stated() | {"lineage": "1"},
        T.insert((1, 10), rows[0], source_time=at(0)),
        T.update((1, 20), rows[0], rows[1], source_time=at(5)),
        T.update((1, 30), rows[1], rows[2], source_time=at(3)),
        T.update((1, 40), rows[2], rows[3], source_time=None),
        T.insert((1, 50), {"id": "2", "a": "0", "b": None}, source_time=at(9)),
    )
    feed.catch_up()
    [query] = re.findall(r"```sql\n(WITH history.*?)```", (ROOT / "docs/history.md").read_text(), re.DOTALL)
    query = query.replace("`<lake>/history/shop/shop/orders`", f"`{path(feed, T.name)}`").replace("amount", "a")
    for second, expected in ((-1, []), (0, ["0"]), (4, ["2"]), (6, ["2"]), (9, ["0", "3"])):
        then = spark.sql(query.replace("2026-11-20 12:00:00", f"{at(second):%F %T}"))
        assert sorted(str(r["a"]) for r in then.collect()) == expected, second
        if expected:
            to = stores.lake(feed.config).at(f"then/{second}")
            make(spark, feed.config, feed.source, ("shop", T.name), at(second), to)
            assert sorted(str(r["a"]) for r in read(to.uri()).to_pylist()) == expected, second
