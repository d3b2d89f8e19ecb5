"""Cuts: all tables of a source at one cut hold no transaction by half, whatever a run finds at its end."""

import json
import re
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from cdc_platform import tables
from cdc_platform.cli.app import run as command
from cdc_platform.config import parse_config
from cdc_platform.lake import batches, delta_table, stores
from cdc_platform.snapshots.cuts import boundary, publish
from tests.changelog.feed import Feed, Image, SourceTable, position

pytestmark = pytest.mark.spark

ONE = SourceTable("bank", "one", [("id", "int"), ("amount", "int")])
TWO = SourceTable("bank", "two", [("id", "int"), ("amount", "int")])
UNKNOWN = SourceTable("bank", "unknown", [("id", "int"), ("p", "tsvector")])
TOTAL = 100
DOCS = Path(__file__).parents[3] / "docs" / "reading.md"


def mark(kind: str, pos: int, txn: str | None = None, **rest: Any) -> dict[str, Any]:
    return {"kind": kind, "txn_id": txn, **position(1, pos), **rest}


def pay(pos: int, of_one: tuple[int, int], txn: str | None = None) -> list[dict[str, Any]]:
    """A transaction that moves money from one table to the other: its four events."""
    (old, new), rest = of_one, {"txn_id": txn}
    images: list[Image] = [{"id": "1", "amount": str(v)} for v in (old, new, TOTAL - old, TOTAL - new)]
    return [
        mark("begin", pos, txn),
        ONE.update((1, pos + 1), images[0], images[1], **rest),
        TWO.update((1, pos + 2), images[2], images[3], **rest),
        mark("commit", pos + 3, txn),
    ]


def opened(pos: int = 1, **rest: Any) -> list[dict[str, Any]]:
    """The first transaction: both accounts."""
    return [
        ONE.stated(),
        TWO.stated(),
        mark("begin", pos),
        ONE.insert((1, pos + 1), {"id": "1", "amount": "60"}, **rest),
        TWO.insert((1, pos + 2), {"id": "1", "amount": "40"}, **rest),
        mark("commit", pos + 3),
    ]


def published(feed: Feed) -> list[dict[str, Any]]:
    return sorted(feed.rows(tables.CUTS), key=lambda r: r["cut"])


def amounts(feed: Feed, cut: dict[str, Any]) -> list[tuple[str, int]]:
    """What a reader sees who opens all tables at one cut."""
    found = []
    for s in cut["snapshots"]:
        table = DeltaTable(f"{feed.config.lake}/{s['path']}", version=s["version"])
        rows = cast(Any, QueryBuilder().register("t", table).execute("SELECT amount FROM t").read_all())
        found += [(s["table"], r["amount"]) for r in pa.table(rows).to_pylist()]
    return found


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Feed]:
    folder = tmp_path_factory.mktemp("cuts")
    formats = {"bank": "canal", "counted": "debezium", "plain": "canal_json"}
    sources = [
        {"name": n, "format": f, "topics": ["t"], "max_bytes_per_batch": "1", "tables": {"exclude": ["bank.left_out"]}}
        for n, f in formats.items()
    ]
    (folder / "cdc.yaml").write_text(json.dumps({"lake": str(folder / "lake"), "sources": sources}))
    config = parse_config({"lake": str(folder / "lake"), "sources": sources}, folder / "cdc.yaml")
    return {name: Feed(spark, config, name) for name in formats}


@pytest.fixture(scope="module")
def bank(world: dict[str, Feed]) -> tuple[Feed, list[tuple[float, float]]]:
    """Runs that end between and within transactions; of each: the cut published, whether one was held back."""
    feed = world["bank"]
    results = []

    def caught_up() -> None:
        metrics = feed.catch_up().metrics
        results.append((metrics["cut"], metrics["cut_held_back"]))

    first, half = pay(10, (60, 70)), pay(20, (70, 5))
    feed.say(*opened(), *first[:2])  # a batch that ends within the transaction, in a run that doesn't
    feed.say(*first[2:])
    caught_up()
    feed.say(*half[:2])
    caught_up()
    feed.say(*half[2:])
    caught_up()
    feed.say({"kind": "heartbeat"}, mark("begin", 28), mark("commit", 29))
    caught_up()
    feed.say(*pay(30, (5, 55)), *pay(40, (55, 56))[:1])  # the next one's begin
    feed.unify()
    feed.forget_last_commit("changelog")  # killed: some of that batch might not be written
    merged = feed.snapshot().metrics
    results.append((merged["cut"], merged["cut_held_back"]))
    caught_up()  # has no rows to merge
    return feed, results


def test_cuts_stand_between_transactions_only(bank: Any) -> None:
    feed, results = bank
    assert results == [(1, 0), (0, 1), (2, 0), (0, 0), (0, 1), (3, 0)]
    found = published(feed)
    assert [(c["cut"], c["kind"], c["reason"]) for c in found] == [(n, "transaction", None) for n in (1, 2, 3)]
    assert [amounts(feed, c) for c in found] == [
        [("one", 70), ("two", 30)],
        [("one", 5), ("two", 95)],
        [("one", 55), ("two", 45)],
    ]
    assert [(c["binlog_file"], int(c["binlog_pos"])) for c in found] == [("mysql-bin.000001", p) for p in (12, 22, 32)]
    assert [int(c["order_key"]["pos"]) for c in found] == [12, 22, 32]


def test_every_version_between_two_cuts_shows_why_there_are_cuts(bank: Any) -> None:
    feed = bank[0]
    newest = published(feed)[-1]["snapshots"]
    each = [
        sum(v for _, v in amounts(feed, {"snapshots": [{**newest[0], "version": a}, {**newest[1], "version": b}]}))
        for a in range(1, newest[0]["version"] + 1)
        for b in range(1, newest[1]["version"] + 1)
    ]
    assert len(set(each)) > 1


@pytest.mark.thorough
def test_the_examples_of_the_docs_open_all_tables_at_one_cut(bank: Any, spark: Any) -> None:
    feed = bank[0]
    section = DOCS.read_text().split("## All tables of a source at one cut", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    seen = []
    for block in blocks:
        names: dict[str, Any] = {"spark": spark, "lake": feed.config.lake, "source": feed.name}
        exec(block, names)
        seen.append(names["total"])
    assert seen == [TOTAL] * 3


def test_cut_list(bank: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", str(bank[0].config.file)]
    assert command(["cut", "list", "bank", "--limit", "2", "--json", *config]) == 0
    newest, before = json.loads(capsys.readouterr().out)
    assert (newest["source"], newest["cut"], newest["kind"], before["cut"]) == ("bank", 3, "transaction", 2)
    assert [(s["db"], s["table"], s["path"]) for s in newest["snapshots"]] == [
        ("bank", n, f"snapshots/bank/bank/{n}") for n in ("one", "two")
    ]
    assert command(["cut", "list", "plain", "--json", *config]) == 0
    assert "bank" not in {c["source"] for c in json.loads(capsys.readouterr().out)}
    assert command(["cut", "list", "nobody", *config]) == 2
    assert "nobody" in capsys.readouterr().err
    assert command(["cut", "list", *config]) == 0
    assert "bank      3  transaction" in capsys.readouterr().out


def test_what_is_in_quarantine_is_missing_in_a_cut(bank: Any) -> None:
    """The bank's last run."""
    feed = bank[0]
    feed.say({"kind": "error", "reason": "torn"}, *pay(60, (1, 2))[:2])
    assert feed.catch_up().metrics["cut"] == 4
    last = published(feed)[-1]
    assert (last["kind"], last["reason"]) == ("position", "1 events are in quarantine")


@pytest.mark.thorough
def test_commits_that_count_their_rows(world: dict[str, Feed]) -> None:
    """Rows of one transaction lie in several topics, and come in any order with what ends it."""
    feed = world["counted"]

    def row(table: SourceTable, pos: int, value: int, txn: str) -> dict[str, Any]:
        event = table.update((1, pos), {"id": "1", "amount": "0"}, {"id": "1", "amount": str(value)})
        return {**event, "topic": table.name, "partition": pos % 2, "txn_id": txn, "txn_seq": 1}

    def end(txn: str, **counts: int) -> dict[str, Any]:
        told = json.dumps([{"data_collection": f"bank.{t}", "event_count": n} for t, n in counts.items()])
        info = {"event_count": str(sum(counts.values())), "data_collections": told}
        return {"kind": "commit", "topic": "txn", "txn_id": txn, "info": info}

    def cuts_after(*events: dict[str, Any]) -> list[str]:
        feed.say(*events)
        feed.catch_up()
        return [c["kind"] for c in published(feed)]

    load = [(t, t.change("read", (1, 1), None, {"id": "1", "amount": v})) for t, v in ((ONE, "60"), (TWO, "40"))]
    begun = [ONE.stated(), TWO.stated(), *({**e, "topic": t.name} for t, e in load)]
    assert cuts_after(*begun, row(ONE, 11, 70, "a"), end("a", one=1, two=1, left_out=3)) == []  # a row is on its way
    assert cuts_after(row(TWO, 12, 30, "a")) == ["transaction"]
    again = end("a", one=1, two=1)  # by a connector that started anew
    assert cuts_after(row(TWO, 22, 99, "b"), row(ONE, 21, 1, "b"), again, end("b", one=1, two=1)) == ["transaction"] * 2
    assert [amounts(feed, c) for c in published(feed)] == [[("one", 70), ("two", 30)], [("one", 1), ("two", 99)]]
    assert published(feed)[-1]["offsets"].keys() == {"one/0", "one/1", "two/0", "txn/0"}


def test_a_format_without_transactions_and_a_stopped_table(world: dict[str, Feed]) -> None:
    feed = world["plain"]
    feed.say(*opened(), UNKNOWN.stated(), UNKNOWN.insert((1, 5), {"id": "1", "p": "x"}))
    feed.unify()
    assert "cut" not in feed.snapshot(cut=False).metrics
    assert feed.snapshot().metrics["cut"] == 1, "left out above, so it is owed"
    found = published(feed)
    assert [(c["cut"], c["kind"], c["reason"]) for c in found] == [
        (1, "position", "canal_json doesn't tell transactions")
    ]
    assert [s["table"] for s in found[0]["snapshots"]] == ["one", "two"]
    assert found[0]["offsets"] == {"t/0": 7}
    feed.say({"kind": "error", "reason": "not readable"}, ONE.insert((1, 9), {"id": "2", "amount": "0"}))
    feed.unify()
    feed.snapshot()
    assert published(feed)[-1]["reason"] == f"canal_json doesn't tell transactions; 1 {tables.CUT_LACKS[0]}"


def event(kind: str, txn: str | None, *order: int, seq: int | None = None, **info: Any) -> dict[str, Any]:
    """order: epoch, file, pos."""
    told = {k: str(v) for k, v in info.items() if k != "partition"}
    place = {"topic": "t", "partition": info.get("partition", 0)}
    return {"kind": kind, "txn_id": txn, "txn_seq": seq, "order_key": (*order, 0, 0, 0), "info": told, **place}


BEGIN, COMMIT = event("begin", None, 1, 1, 1), event("commit", None, 1, 1, 3)
END = event("commit", "a", 1, -1, 1, event_count=1)
ROW_OF_A = event("row", "a", 1, 1, 5, seq=1)
STORIES: dict[str, tuple[str, list[dict[str, Any]], str | None]] = {
    "whole": ("brackets", [BEGIN, event("row", None, 1, 1, 2), COMMIT], "transaction"),
    "no commit": ("brackets", [BEGIN, event("row", None, 1, 1, 2)], None),
    "no marks at all": ("brackets", [event("row", None, 1, 1, 2)], "position"),
    "a feed that went back, and is still behind a half": (
        "brackets",
        [event("row", "b", 1, 1, 9), event("row", "a", 1, 1, 2), event("commit", "a", 1, 1, 3)],
        None,
    ),
    "the same where Kafka's order is the only one": (
        "brackets",
        [event("row", "b", 1, -1, 1), event("row", "a", 1, -1, 2), event("commit", "a", 1, -1, 3)],
        None,
    ),
    "two servers in one topic": (
        "brackets",
        [event("row", "a", 1, 1, 2), event("row", "b", 2, 1, 2), event("commit", "b", 2, 1, 3)],
        None,
    ),
    "another server took over and sent it again": (
        "brackets",
        [event("row", "a", 1, 1, 2), event("row", "a", 2, 1, 2), event("commit", "a", 2, 1, 3)],
        "transaction",
    ),
    "no end": ("counts", [ROW_OF_A], "position"),
    "an end without rows": ("counts", [END], None),
    "rows of two, an end of one": ("counts", [ROW_OF_A, END, event("row", "b", 1, 1, 4, seq=1)], None),
    "newest rows of no transaction": ("counts", [ROW_OF_A, END, event("row", "g", 1, 1, 9)], "position"),
    "ends in two partitions": ("counts", [ROW_OF_A, END, {**END, "partition": 1}], "position"),
}


@pytest.fixture
def told(spark: Any, make_config: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`told(how, events)`: what a first cut would be after them, and whether single places alone told that."""
    monkeypatch.setattr(batches, "unfinished", lambda *_: False)

    def verdict(how: str, events: list[dict[str, Any]]) -> tuple[boundary.Verdict, bool]:
        config = make_config([{"name": "s", "format": "debezium" if how == "counts" else "canal", "topics": ["t"]}])
        Feed(spark, config, "s")
        for offset, event_ in enumerate(events):
            table = tables.CHANGELOG if event_["kind"] == "row" else tables.CONTROL_EVENTS
            delta_table.append_rows(table.at(stores.lake(config)), [{**event_, "source": "s", "offset": offset}])
        offsets = {f"t/{e['partition']}": n for n, e in enumerate(events)}
        first = publish._Last(0, 0, {}, {}, None, None)
        nothing = dict.fromkeys(("quarantined", "lost", "never came", "waiting"), 0)
        looked: list[bool] = []
        monkeypatch.setattr(publish, "_since", lambda *a, kept=publish._since: (looked.append(True), kept(*a))[1])
        found = publish._verdict(spark, config, config.source("s"), nothing, first, offsets)
        later = publish._Last(1, 1, {}, {}, None, offsets)
        assert not publish._all_ended(config, config.source("s"), later)  # no row since then
        return found, not looked

    return verdict


LONG = (
    *("a feed that went back, and is still behind a half", "the same where Kafka's order is the only one"),
    "an end without rows",
)
"""Stories that only the long tests tell."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.thorough] if n in LONG else []) for n in STORIES])
def test_whether_the_changelog_ends_between_transactions(told: Any, name: str) -> None:
    how, events, kind = STORIES[name]
    found, at_once = told(how, events)
    assert found.kind == kind
    assert at_once is (name in ("whole", "no marks at all", "no end"))


def test_rows_in_several_partitions_have_no_begin_and_commit_around_them(told: Any) -> None:
    found = told("brackets", [BEGIN, event("row", None, 1, 1, 2), {**COMMIT, "partition": 1}])
    assert found == (("position", "its transactions are spread over 2 partitions"), True)
