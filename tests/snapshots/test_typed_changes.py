"""Typed changes: each change of the changelog once, in the columns of now; what it does not tell is named."""

import json
import random
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from cdc_platform import tables
from cdc_platform.cli.app import run
from cdc_platform.lake import beside as noted
from cdc_platform.lake import delta_table, stores
from cdc_platform.maintenance import run as maintenance
from cdc_platform.snapshots import beside
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.schema.history import History
from cdc_platform.spark import delta_sql
from cdc_platform.tables import MADE_FOR, TYPED_CHANGES_PATH, as_name
from tests.changelog.feed import Feed, Image, SourceTable, read
from tests.snapshots.test_ddl import STORIES, ddl, live_after, versions
from tests.snapshots.test_row_history import KEYLESS, NOON, T, Workload, place, typed

pytestmark = pytest.mark.spark

Row = dict[str, Any]
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def feed(spark: Any, make_config: Callable[..., Any]) -> Feed:
    return Feed(spark, make_config([source(["shop.*"])]), "s")


def source(asked: list[str]) -> dict[str, Any]:
    return {"name": "s", "format": "canal", "topics": ["t"], "tables": {"typed_changes": asked}}


def path(feed: Feed, *name: str) -> str:
    of = as_name(*(name if len(name) > 1 else ("shop", *name)))
    return TYPED_CHANGES_PATH.of(stores.lake(feed.config), "s", of).uri()


def changes(feed: Feed, *name: str) -> list[Row]:
    """In order."""
    return sorted(read(path(feed, *name)).to_pylist(), key=where)


def where(change: Row) -> tuple[Any, ...]:
    address = change["_cdc_address"]
    return place(change["_cdc_order"]), address["partition"], address["entry_index"] or 0, address["row_index"] or 0


def said(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    capsys.readouterr()
    run([*command, "--json"])
    return json.loads(capsys.readouterr().out)


def commits(feed: Feed, *name: str) -> list[str]:
    told = reversed(DeltaTable(path(feed, *name)).history())
    return [f"{c['operation']} {c['operationParameters'].get('mode', '')}".strip() for c in told]


def folded(found: list[Row], keys: tuple[str, ...]) -> list[str]:
    """The rows that typed changes come to."""
    rows: list[Row] = []

    def of(image: Row) -> Row | None:
        return next((r for r in rows if all(r[k] == image[k] for k in (keys or image))), None)

    for c in found:
        before, after = c["before"], c["after"]
        if c["_cdc_op"] == "truncate":
            rows.clear()
            continue
        old = of(before) if before is not None else of(after) if keys else None
        if old is not None:
            rows.remove(old)
        if after is not None:
            kept = {n: (old or {}).get(n) for n in c["_cdc_missing_after"]} if c["_cdc_op"] == "update" else {}
            rows.append({**after, **kept})
    return sorted(map(repr, rows))


class NoTruncate(random.Random):
    """Chances of a workload without TRUNCATE."""

    def random(self) -> float:
        return 0.05 + 0.95 * super().random()


class Typed(Workload):
    """Random changes, also such as `binlog_row_image=MINIMAL` tells; and what each is, typed: position → change."""

    def __init__(self, table: SourceTable, seed: int, partitions: int = 1):
        super().__init__(table, seed)
        self.told: dict[int, tuple[Any, ...]] = {}
        self.partitions = partitions
        if partitions > 1:  # a TRUNCATE that comes by another partition than rows stops a table
            self.chance = NoTruncate(seed)

    def change(self) -> dict[str, Any]:
        event = super().change() | {"partition": self.chance.randrange(self.partitions)}
        op, key = event["op"], event["key"] if self.table.keys else {}
        if self.table.keys and op in ("update", "delete") and self.chance.random() < 0.3:
            event["before"] = key if op == "update" else None
        before, after = event["before"], event["after"]
        if op in ("update", "delete"):
            before = {**key, **(before or {})}
        if op == "update":
            after = {**(before or {}), **after}
        self.told[self.pos] = (op, *self.as_typed(before), *self.as_typed(after))
        return event

    def as_typed(self, image: Image | None) -> tuple[Row | None, list[str]]:
        if image is None:
            return None, []
        missing = [n for n, _ in self.table.columns if n not in image]
        row: Image = {**dict.fromkeys(missing), **image}
        return typed(row), missing


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "partitions"), [(1, 1), (2, 2), (3, 1), (4, 2)])
def test_every_change_is_there_once(feed: Feed, seed: int, partitions: int) -> None:
    works = [Typed(table, seed, partitions) for table in (T, KEYLESS)]
    told: list[dict[str, Any]] = [w.table.stated() | {"lineage": "1"} for w in works]
    for size in (30, 1, 12):
        told += [w.change() for _ in range(size) for w in works]
        feed.say(*told)
        told.clear()
        feed.catch_up()
    changelog = feed.rows(tables.CHANGELOG)
    for work in works:
        name = work.table.name
        found = changes(feed, name)
        assert [c["_cdc_binlog_pos"] for c in found] == list(work.told)
        for c in found:
            what = (c["_cdc_op"], c["before"], c["_cdc_missing_before"], c["after"], c["_cdc_missing_after"])
            assert what == work.told[int(c["_cdc_binlog_pos"])]
            assert (c["_cdc_source_time"] - NOON).seconds == 60 * int(c["_cdc_binlog_pos"])
        assert folded(found, tuple(work.table.keys)) == work.then[work.pos]
        assert {"insert", "update", "delete"} <= {c["_cdc_op"] for c in found}
        addresses = {tuple(r[n] for n in tables.ROW_ADDRESS.names) for r in changelog if r["table"] == name}
        assert {tuple(c["_cdc_address"].values()) for c in found} == addresses
        assert set(commits(feed, name)) == {"CREATE TABLE", "WRITE Overwrite", "SET TBLPROPERTIES", "WRITE Append"}
        assert commits(feed, name).count("WRITE Overwrite") == 1


@pytest.mark.thorough
def test_a_killed_batch_is_added_once(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), {"id": "1", "a": "1", "b": "x"}))
    feed.catch_up()
    feed.forget_last_commit("typed_changes")  # of the batch that was taken from the whole changelog
    feed.say(T.update((1, 20), {"id": "1", "a": "1", "b": "x"}, {"id": "1", "a": "2", "b": "x"}))
    feed.unify()
    own = delta_sql.append

    def killed(*args: Any) -> None:
        own(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(delta_sql, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        feed.snapshot()
    monkeypatch.setattr(delta_sql, "append", own)
    [[one]] = noted.of_source(feed.config, feed.source).values()
    assert (one.state, str(one.reason).partition(":")[0]) == ("behind", "a run was ended before its end")
    for _ in range(2):
        feed.snapshot()
        assert [(c["_cdc_op"], c["after"]["a"]) for c in changes(feed, "t")] == [("insert", 1), ("update", 2)]
        assert [b.state for [b] in noted.of_source(feed.config, feed.source).values()] == ["kept"]
    assert commits(feed, "t").count("WRITE Overwrite") == 1


@pytest.mark.thorough
def test_late_ones_and_such_as_name_no_columns_are_added(feed: Feed) -> None:
    """Images of a part of the row and TRUNCATE name no list of columns."""
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 50), {"id": "1", "a": "1", "b": "x"}))
    feed.catch_up()
    before = commits(feed, "t")
    feed.say(T.update((1, 60), {"id": "1"}, {"a": "2"}, schema_version=None))
    feed.catch_up()
    feed.say(T.change("truncate", (1, 70), schema_version=None))
    feed.catch_up()
    looked_after = maintenance.run(feed.spark, feed.config, feed.source).tables["typed_changes/s/shop/t"]
    assert (looked_after["files_before"], looked_after["files"]) == (3, 1)
    feed.say(T.insert((1, 40), {"id": "7", "a": "7", "b": "late"}, partition=1))
    feed.catch_up()
    done = [c for c in commits(feed, "t")[len(before) :] if not c.startswith("VACUUM")]
    assert done == ["WRITE Append", "WRITE Append", "OPTIMIZE", "WRITE Append"]
    told = [(c["_cdc_op"], c["after"], c["_cdc_missing_before"], c["_cdc_missing_after"]) for c in changes(feed, "t")]
    assert told == [
        ("insert", {"id": 7, "a": 7, "b": "late"}, [], []),
        ("insert", {"id": 1, "a": 1, "b": "x"}, [], []),
        ("update", {"id": 1, "a": 2, "b": None}, ["a", "b"], ["b"]),
        ("truncate", None, [], []),
    ]


@pytest.mark.thorough
def test_nothing_told_of_the_row_before_is_said_to_be_missing(feed: Feed) -> None:
    """PostgreSQL's messages have NULL in columns outside the replica identity."""
    row: Image = {"id": "1", "a": "1", "b": "x"}
    at = {"schema": "public"}
    feed.say(
        T.stated() | {"lineage": "1", **at},
        T.insert((1, 10), row, **at),
        T.update((1, 20), row, {**row, "a": "2"}, **at) | {"before": None, "key": None},
        T.update((1, 30), {**row, "b": None}, {**row, "b": None, "a": None}, **at),
        T.delete((1, 40), {"id": "1", "a": None, "b": None}, **at),
    )
    feed.catch_up()
    found = changes(feed, "shop", "public", "t")
    assert [(c["before"], c["_cdc_missing_before"]) for c in found] == [
        (None, []),
        (None, ["id", "a", "b"]),
        ({"id": 1, "a": 1, "b": None}, []),
        ({"id": 1, "a": None, "b": None}, ["a", "b"]),
    ]
    assert all(c["_cdc_missing_after"] == [] for c in found)


@pytest.mark.thorough
def test_what_cannot_be_typed_is_left_out_and_made_when_it_can(
    feed: Feed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value of a row before, which the snapshot never had."""
    other = SourceTable("shop", "u", T.columns)
    row: Image = {"id": "1", "a": "1", "b": "x"}
    feed.say(*(e for t in (T, other) for e in (t.stated() | {"lineage": "1"}, t.insert((1, 10), row))))
    feed.catch_up()
    feed.say(T.update((1, 20), {**row, "a": "none"}, {**row, "a": "2"}), other.update((1, 21), row, {**row, "a": "3"}))
    feed.catch_up()
    assert "typed_changes of shop.t: a value doesn't fit its column" in caplog.text
    assert "none" in caplog.text
    file = Path(feed.config.lake).parent / "cdc.yaml"
    file.write_text(json.dumps({"lake": "./lake", "kafka": NOWHERE, "sources": [source(["shop.*"])]}))
    monkeypatch.setenv("CDC_CONFIG", str(file))
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.1)
    found = {command: said(capsys, *command.split()) for command in ("status", "certify s")}
    assert [(b["table"], b["state"]) for b in found["status"]["beside"]] == [("shop.t", "lacking"), ("shop.u", "kept")]
    [problem] = [p for p in found["status"]["problems"] if "typed_changes" in p]
    assert problem.startswith("s: typed_changes of shop.t lacks changes: a value doesn't fit its column")
    [of_t, of_u] = [t["beside"] for t in found["certify s"]["tables"]]
    assert ([b["state"] for b in of_t], [b["state"] for b in of_u]) == (["lacking"], ["kept"])
    run(["certify", "s"])
    assert re.search("shop.t +typed_changes +lacking +a value doesn't fit", capsys.readouterr().out)
    assert [c["after"]["a"] for c in changes(feed, "u")] == [1, 3]
    assert feed.live("shop", "t") == [{"id": 1, "a": 2, "b": "x"}]
    text = F.col("before")
    mended = F.when(F.try_element_at(text, F.lit("a")) == "none", F.lit(None)).otherwise(text)
    every = beside.every_change
    monkeypatch.setattr(
        beside,
        "every_change",
        lambda *args, **more: (found := every(*args, **more))._replace(rows=found.rows.withColumn("before", mended)),
    )
    feed.snapshot()
    assert [c["after"]["a"] for c in changes(feed, "t")] == [1, 2]
    assert {b["state"] for b in said(capsys, "status")["beside"]} == {"kept"}


@pytest.mark.thorough
def test_what_cannot_be_written_is_told_in_the_words_of_the_store(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    folder = Path(feed.config.lake) / "typed_changes" / "s" / "shop"
    folder.mkdir(parents=True)
    (folder / "t").write_text("a file in its place")
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), {"id": "1", "a": "1", "b": "x"}))
    feed.catch_up()
    assert re.search(r"typed_changes of shop\.t: .*typed_changes/s/shop/t", caplog.text)
    assert "An error occurred while calling" not in caplog.text
    assert feed.live("shop", "t") == [{"id": 1, "a": 1, "b": "x"}]


@pytest.mark.thorough
def test_what_ddl_made_of_a_row_that_was_gone_is_not_told(feed: Feed) -> None:
    """A text that is no label of a column's new type: the server never had to make one of it."""
    t, log = versions("id bigint", "s varchar(9)"), versions("a int", "s varchar(9)", name="log", keys=())
    feed.say(
        *(table.stated() | {"lineage": "1"} for table in (t, log)),
        t.insert((1, 10), {"id": "1", "s": "b,a"}),
        t.update((1, 11), {"id": "2", "s": "none"}, {"id": "2", "s": "b,a"}),
        t.delete((1, 12), {"id": "1", "s": "b,a"}),
        t.delete((1, 13), {"id": "3", "s": "none"}),
        log.insert((1, 14), {"a": "1", "s": "b,a"}),
        log.update((1, 15), {"a": "2", "s": "none"}, {"a": "2", "s": "b,a"}),
        log.delete((1, 16), {"a": "1", "s": "b,a"}),
        *(ddl(f"ALTER TABLE {table} MODIFY s SET('a','b')", 20 + i) for i, table in enumerate(("t", "log"))),
    )
    feed.catch_up()
    told = [[(c["before"], c["after"], c["_cdc_missing_before"]) for c in changes(feed, n)] for n in ("t", "log")]
    assert told == [
        [
            (None, {"id": 1, "s": "a,b"}, []),
            ({"id": 2, "s": None}, {"id": 2, "s": "a,b"}, ["s"]),
            ({"id": 1, "s": "a,b"}, None, []),
            ({"id": 3, "s": None}, None, ["s"]),
        ],
        [
            (None, {"a": 1, "s": "a,b"}, []),
            ({"a": 2, "s": None}, {"a": 2, "s": "a,b"}, ["s"]),
            ({"a": 1, "s": "a,b"}, None, []),
        ],
    ]
    assert [feed.live("shop", n) for n in ("t", "log")] == [[{"id": 2, "s": "a,b"}], [{"a": 2, "s": "a,b"}]]


@pytest.mark.thorough
def test_a_text_that_is_sparks_to_read_is_read_as_the_snapshots(feed: Feed) -> None:
    """A date that doesn't exist, among others; changes of it are added to what has others."""
    t = versions("id bigint", "d date", "at datetime(3)", "n decimal(9,2)")
    row: Image = {"id": "1", "d": "2026-02-28", "at": "2026-01-02 03:04:05.5", "n": "1.50"}
    other: Image = {**row, "id": "2", "d": "2026-02-30"}
    feed.say(t.stated() | {"lineage": "1"}, t.insert((1, 10), row))
    feed.catch_up()
    feed.say(t.insert((1, 20), other), t.update((1, 21), other, {**other, "d": "2026-03-01"}), t.delete((1, 22), row))
    feed.catch_up()
    assert commits(feed, "t").count("WRITE Overwrite") == 1
    times = {"at": datetime(2026, 1, 2, 3, 4, 5, 500_000), "n": Decimal("1.50")}
    [one, none, mended] = [
        {"id": n, "d": d, **times} for n, d in ((1, date(2026, 2, 28)), (2, None), (2, date(2026, 3, 1)))
    ]
    found = [(c["before"], c["after"]) for c in changes(feed, "t")]
    assert found == [(None, one), (None, none), (none, mended), (one, None)]
    assert feed.live("shop", "t") == [mended]


@pytest.mark.thorough
def test_a_column_that_vanished_without_ddl_makes_them_anew_once(feed: Feed) -> None:
    """As PostgreSQL's do. The snapshot keeps it; changes from then on don't tell it."""
    at, columns = {"schema": "public"}, [("id", "bigint"), ("a", "int"), ("b", "varchar(9)")]
    whole, less, more = (
        SourceTable("shop", "t", c) for c in (columns, columns[:2], [("id", "bigint"), ("c", "int"), ("a", "int")])
    )
    row = {"id": "1", "a": "1"}
    feed.say(whole.stated() | {"lineage": "1", **at}, whole.insert((1, 10), {**row, "b": "x"}, **at))
    feed.catch_up()
    anew = []
    for n, table in enumerate((less, less, less, more, more)):
        with_c = {"c": "7"} if table is more else {}
        change = table.update((1, 20 + n), {**row, **with_c}, {**row, **with_c, "a": str(n)}, **at)
        feed.say(table.stated() | at, change)
        feed.catch_up()
        anew.append(commits(feed, "shop", "public", "t").count("WRITE Overwrite"))
    feed.say(whole.insert((1, 15), {"id": "2", "a": "5", "b": "y"}, partition=1, **at))
    feed.say(less.update((1, 30), row, {**row, "a": "9"}, partition=1, **at))
    feed.catch_up()
    anew.append(commits(feed, "shop", "public", "t").count("WRITE Overwrite"))
    assert anew == [1, 1, 1, 2, 2, 2]
    found = [(c["after"], c["_cdc_missing_after"]) for c in changes(feed, "shop", "public", "t")]
    assert found[:3] == [
        ({"id": 1, "c": None, "a": 1, "b": "x"}, ["c"]),
        ({"id": 2, "c": None, "a": 5, "b": "y"}, ["c"]),
        ({"id": 1, "c": None, "a": 0, "b": None}, ["c", "b"]),
    ]
    assert found[-2:] == [
        ({"id": 1, "c": 7, "a": 4, "b": None}, ["b"]),
        ({"id": 1, "c": None, "a": 9, "b": None}, ["c", "b"]),
    ]


@pytest.mark.thorough
def test_a_table_made_anew_has_them_anew(feed: Feed) -> None:
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), {"id": "1", "a": "1", "b": "x"}))
    feed.catch_up()
    once = changes(feed, "t")
    snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", "t")
    feed.snapshot()
    assert (commits(feed, "t").count("WRITE Overwrite"), changes(feed, "t")) == (2, once)


@pytest.mark.thorough
def test_what_its_own_table_refuses_stops_no_run(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    feed.say(T.stated() | {"lineage": "1"}, T.insert((1, 10), {"id": "1", "a": "1", "b": "x"}))
    feed.catch_up()
    once, table = changes(feed, "t"), TYPED_CHANGES_PATH.of(stores.lake(feed.config), feed.source.name, ("shop", "t"))
    feed.spark.sql(f"ALTER TABLE {delta_sql.delta(table)} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", "t")
    feed.snapshot()
    assert "typed_changes of shop.t" in caplog.text
    assert (changes(feed, "t"), feed.state("shop", "t")) == (once, ("live", None))
    assert delta_table.protocol(table)[1].get(MADE_FOR) == "", "it is said to lack changes"
    feed.spark.sql(f"ALTER TABLE {delta_sql.delta(table)} UNSET TBLPROPERTIES ('delta.appendOnly')")
    feed.snapshot()
    assert delta_table.protocol(table)[1].get(MADE_FOR)


@pytest.mark.thorough
@pytest.mark.parametrize("story", STORIES)
def test_over_ddl_they_come_to_the_snapshot(feed: Feed, story: str) -> None:
    live = live_after(feed, story)
    for table in live:
        keys = tuple(c["name"] for c in json.loads(feed_columns(feed, table)) if c["key"])
        assert folded(changes(feed, table), keys) == sorted(map(repr, feed.live("shop", table))), table
    before = {t: commits(feed, t) for t in live}
    feed.snapshot()
    assert {t: commits(feed, t) for t in before} == before


def feed_columns(feed: Feed, table: str) -> str:
    """The column list of today."""
    return History(feed.spark, feed.config, feed.source).full.columns(("shop", table)) or "[]"
