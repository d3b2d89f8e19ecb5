"""A table that the configuration begins to follow gets its past from what was decoded already: once, however often a
run is killed, and every offset stays accounted for."""

from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.changelog import backfill
from cdc_platform.changelog.table_rules import RulesInEffect
from cdc_platform.changes import files as changes_files
from cdc_platform.erasing import rewrite
from cdc_platform.erasing.rewrite import Events
from cdc_platform.lake import commits, delta_table, erasing, handles, stores
from cdc_platform.lake.data_files import Sink
from cdc_platform.lake.erasing import IN_PLACE, Rewritten
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.snapshots import state
from cdc_platform.snapshots.run import rebuild
from tests.changelog.feed import LANDED, Feed, SourceTable, position
from tests.changelog.test_retold import retell

pytestmark = pytest.mark.spark

KEPT, LATER = (SourceTable("shop", n, [("id", "int"), ("a", "int")]) for n in ("kept", "later"))


def row(i: int, a: int) -> dict[str, str | None]:
    return {"id": str(i), "a": str(a)}


def error(offset: int, table: str, entry: int = 0) -> dict[str, Any]:
    told = {"kind": "error", "reason": f"half a row of {table}", "db": "shop", "table": table, "lineage": "1"}
    return {"offset": offset, "entry_index": entry, **told}


PAST = [
    {"offset": 0, **KEPT.stated(), "lineage": "1"},
    {"offset": 0, "entry_index": 1, **KEPT.insert((1, 10), row(1, 1))},
    {"offset": 1, **LATER.stated(), "lineage": "1"},
    {"offset": 1, "entry_index": 1, **LATER.insert((1, 11), row(1, 1))},
    {"offset": 2, **LATER.insert((1, 12), row(2, 2))},
    {"offset": 3, **KEPT.insert((1, 13), row(2, 2))},  # one message, rows of both
    {"offset": 3, "entry_index": 1, **LATER.insert((1, 14), row(3, 3))},
    {"offset": 4, **LATER.insert((1, 12), row(2, 2))},  # as offset 2
    error(5, "later"),
    {"offset": 6, "kind": "heartbeat", **position(1, 15)},
    {"offset": 7, **SourceTable("shop", "never", LATER.columns).insert((1, 16), row(1, 1))},
]
MORE = [{"offset": 8, **LATER.update((1, 20), row(1, 1), row(1, 9))}, {"offset": 9, **KEPT.insert((1, 21), row(3, 3))}]


class Changing(Feed):
    """A feed whose configuration's tables can be another one."""

    def follow(self, **rules: Any) -> None:
        whole = self.source.model_dump() | {"tables": rules}
        self.config = self.config.model_copy(update={"sources": [type(self.source).model_validate(whole)]})

    def sums(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for r in self.rows(tables.OFFSET_LEDGER):
            found[r["outcome"]] += r["records"]
        return {k: n for k, n in sorted(found.items()) if n}

    def changelog(self, table: str) -> list[int]:
        return sorted(r["offset"] for r in self.rows(tables.CHANGELOG) if r["table"] == table)


@pytest.fixture
def feed(spark: Any, make_config: Any) -> Changing:
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    made = Changing(spark, config, "s")
    made.follow(include=["shop.kept"])
    return made


def killed(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """A run that dies at one of its writes."""

    def dies(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt(at)

    def dies_there(sink: Any, *_: Any) -> Any:
        if sink.table.uri().endswith(at):
            dies()
        return append(sink, *_)

    append = commits.append_files
    where: dict[str, tuple[Any, str]] = {"begun": (RulesInEffect, "note"), "ledger": (backfill, "note_outcomes")}
    owner, name = where.get(at, (commits, "append_files"))
    monkeypatch.setattr(owner, name, dies if at in where else dies_there)


@pytest.mark.thorough
def test_rows_left_out_come_once_over_kills_at_each_write(feed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.say(*PAST)
    feed.catch_up()
    assert feed.sums() == {"applied": 2, "control": 1, "filtered": 5}
    feed.follow(include=["shop.kept", "shop.later"])
    feed.say(*MORE)
    for at in ("begun", "changelog", "quarantine", "ledger"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            killed(patch, at)
            feed.unify()
    real = RulesInEffect.note

    def dies_when_done(self: RulesInEffect, rules: Any, stage: str) -> None:
        if stage == "done":
            raise KeyboardInterrupt
        real(self, rules, stage)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RulesInEffect, "note", dies_when_done)
        feed.unify()
    result = feed.unify()
    assert result.metrics["backfilled"] == 4
    assert feed.changelog("later") == [1, 2, 3, 8] and feed.changelog("kept") == [0, 3, 9]
    assert feed.changelog("never") == []
    assert [r["reason"] for r in feed.rows(tables.QUARANTINE)] == ["half a row of later"]
    assert feed.sums() == {"applied": 6, "control": 1, "duplicate": 1, "filtered": 1, "quarantined": 1}
    assert "backfilled" not in feed.unify().metrics
    feed.snapshot()
    assert sorted(list(r.values()) for r in feed.live("shop", "later")) == [[1, 9], [2, 2], [3, 3]]


@pytest.mark.thorough
def test_a_change_of_rules_that_was_begun_is_done_before_the_next(
    feed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.say(*PAST)
    feed.unify()
    feed.follow(include=["shop.*"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        killed(patch, "ledger")
        feed.unify()
    feed.follow(include=["shop.kept"])
    feed.say(*MORE)
    feed.unify()
    assert feed.changelog("later") == [1, 2, 3, 8] and feed.changelog("never") == [7]
    feed.say({"offset": 10, **LATER.delete((1, 30), row(1, 9))})
    feed.unify()
    assert feed.changelog("later") == [1, 2, 3, 8]
    assert feed.sums() == {"applied": 7, "control": 1, "duplicate": 1, "filtered": 1, "quarantined": 1}


@pytest.mark.thorough
def test_a_table_left_out_for_a_while_is_taken_up_where_it_was(feed: Changing) -> None:
    feed.follow(include=["*"])
    feed.say(*PAST)
    feed.catch_up()
    before = feed.sums()
    assert before == {"applied": 5, "control": 1, "duplicate": 1, "quarantined": 1}
    feed.follow(include=["*"], exclude=["shop.later"])
    feed.unify()
    feed.say(*MORE)
    feed.catch_up()
    assert feed.state("shop", "later")[0] == "left_out" and "exclude" in str(feed.state("shop", "later")[1])
    assert sorted(list(r.values()) for r in feed.live("shop", "later")) == [[1, 1], [2, 2], [3, 3]]
    assert feed.in_newest_cut() == ["kept"]
    feed.say({"kind": "ddl", "db": "shop", "ddl": "ALTER TABLE later DROP a", "offset": 10, **position(1, 30)})
    feed.unify()
    feed.follow(include=["*"])
    feed.catch_up()
    assert feed.changelog("later") == [1, 2, 3, 8]
    assert feed.sums() == {**before, "applied": 8}
    assert feed.state("shop", "later") == ("live", None)
    assert sorted(list(r.values()) for r in feed.live("shop", "later")) == [[1], [2], [3]]


@pytest.mark.thorough
def test_snapshots_under_other_rules_are_the_same_over_kills(feed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before what became of the tables is noted, and before the change of rules is noted as done."""

    def dies(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    def over_kills() -> None:
        feed.unify()
        for owner, name in ((state, "keep"), (RulesInEffect, "note")):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(owner, name, dies)
                feed.snapshot()
        feed.snapshot()

    feed.follow(include=["*"])
    feed.say(*PAST)
    feed.catch_up()
    feed.follow(include=["*"], exclude=["shop.later"])
    over_kills()
    assert feed.state("shop", "later")[0] == "left_out"
    feed.say(*MORE)
    feed.catch_up()
    feed.follow(include=["*"])
    over_kills()
    assert feed.state("shop", "later") == ("live", None)
    assert sorted(list(r.values()) for r in feed.live("shop", "later")) == [[1, 9], [2, 2], [3, 3]]
    assert sorted(list(r.values()) for r in feed.live("shop", "kept")) == [[1, 1], [2, 2], [3, 3]]
    assert feed.in_newest_cut() == ["kept", "later"]


@pytest.mark.thorough
def test_a_table_stopped_for_a_rename_of_one_left_out_is_healed_by_a_rebuild(feed: Changing) -> None:
    feed.follow(include=["shop.later"])
    old = SourceTable("shop", "old", LATER.columns)
    feed.say(old.stated() | {"lineage": "1"}, old.insert((1, 10), row(1, 1)))
    feed.say({"kind": "ddl", "db": "shop", "ddl": "RENAME TABLE old TO later", **position(1, 20)})
    feed.say(LATER.stated() | {"lineage": "1"}, LATER.insert((1, 30), row(2, 2)))
    feed.catch_up()
    feed.say(LATER.update((1, 40), row(1, 1), row(1, 5)))
    feed.follow(include=["shop.later", "shop.old"])
    feed.catch_up()
    rebuild(feed.spark, feed.config, feed.source, "shop", "later")
    assert feed.state("shop", "later") == ("live", None)
    assert sorted(list(r.values()) for r in feed.live("shop", "later")) == [[1, 5], [2, 2]]


@pytest.mark.thorough
def test_rows_of_a_load_keep_the_epoch_of_their_day(feed: Changing) -> None:
    load = LATER.change("read", (None, None), None, row(1, 1), **position(None, None, None))
    feed.say({"offset": 0, **LATER.stated(), "lineage": None}, {"offset": 0, "entry_index": 1, **load})
    feed.unify()
    feed.say({"offset": 1, **LATER.update((1, 10), row(1, 1), row(1, 2), lineage="a")})
    feed.unify()
    feed.say({"offset": 2, **LATER.change("read", (None, None), None, row(2, 2), **position(None, None, None))})
    feed.unify()
    feed.follow(include=["*"])
    feed.catch_up()
    assert sorted(list(r.values()) for r in feed.live("shop", "later")) == [[1, 2], [2, 2]]
    epochs = {r["offset"]: r["order_key"]["epoch"] for r in feed.rows(tables.CHANGELOG)}
    assert epochs == {0: 0, 1: 0, 2: 1}, "rows of another load are newer than all before"


@pytest.mark.thorough
def test_rows_without_a_position_get_the_order_that_they_would_have_had(spark: Any, make_config: Any) -> None:
    """Source times go back between files of one batch: what came later stays later."""

    def said(offset: int, second: int, a: int) -> dict[str, Any]:
        change = LATER.insert((None, None), row(1, a), lineage=None)
        return {**change, "offset": offset, "source_time": LANDED + timedelta(seconds=second)}

    orders = []
    for rules in ({"include": ["*"]}, {"include": ["shop.kept"]}):
        config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
        feed = Changing(spark, config.model_copy(update={"lake": f"{config.lake}/{len(orders)}"}), "s")
        feed.follow(**rules)
        feed.say({"offset": 0, **LATER.stated(), "lineage": None}, said(98, 10, 1), said(99, 20, 2))
        feed.say(said(100, 15, 3), said(101, 16, 4))
        feed.unify()
        feed.follow(include=["*"])
        feed.unify()
        orders.append([tuple(r["order_key"].values()) for r in feed.rows(tables.CHANGELOG)])
    assert orders[0] == orders[1] == sorted(orders[0])


BOTH = [
    {"offset": 0, **KEPT.stated(), "lineage": "1"},
    {"offset": 0, "entry_index": 1, **KEPT.insert((1, 10), row(1, 1))},
    {"offset": 0, "entry_index": 2, **LATER.insert((1, 11), row(1, 1))},
    {"offset": 0, "entry_index": 3, **KEPT.insert((1, 12), row(2, 2))},
    {"offset": 0, "entry_index": 4, **KEPT.insert((1, 13), row(3, 3))},
]
"""A message with rows of a table that is left out."""


def in_part(events: list[dict[str, Any]], *bad: int) -> list[dict[str, Any]]:
    """The same events, of which some can't be read."""
    return [error(0, "kept", e["entry_index"]) if e.get("entry_index") in bad else e for e in events]


@pytest.mark.thorough
def test_what_was_taken_up_before_it_was_decoded_again_stays_once(feed: Changing) -> None:
    feed.follow(include=["*"])
    feed.say(*in_part(BOTH, 3))
    feed.unify()
    assert feed.changelog("later") == [0]
    feed.follow(include=["shop.kept"])
    feed.unify()
    retell(feed, *BOTH)
    feed.unify()
    feed.follow(include=["*"])
    feed.unify()
    assert (feed.changelog("later"), feed.changelog("kept"), feed.sums()) == ([0], [0, 0, 0], {"applied": 1})


class _Each(Events):
    """Rewrites each file, and takes no row out."""

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        return np.ones(batch.num_rows, bool)

    def erased(self, batch: pa.RecordBatch, _mine: np.ndarray) -> pa.RecordBatch:
        return batch


def rewritten(feed: Feed) -> None:
    """As an erasure leaves `changes`: other files, also in the commits that brought the events."""
    lake, name = stores.lake(feed.config), feed.source.name
    changes = tables.CHANGES.at(lake, format=feed.source.format, source=name)
    handles.opened(changes).create_checkpoint()  # which has the old names, so that a commit more takes them away
    sink = Sink(changes, tables.CHANGES.arrow(), tables.CHANGES.stats, changes_files.WORDS)
    work = _Each(frozenset(), frozenset())
    found, _ = rewrite.files(sink, erasing.named(changes), work, write=True)
    new = {path: file for path, file in found.items() if file is not None}
    table = Rewritten(changes.uri().removeprefix(f"{lake.uri()}/"), {}, IN_PLACE, new, False)
    with source_lock(feed.config, feed.source):
        erasing.decide(lake, name, [table], number=1)
        before = delta_table.version(changes)
        erasing.finish(lake, name)
        assert delta_table.version(changes) == before + 1
        erasing.remove(changes, table)
        erasing.done(lake, name)


@pytest.mark.thorough
@pytest.mark.parametrize("erased", [False, True], ids=["as it came", "behind an erasure"])
def test_a_message_that_was_decoded_twice_again_counts_by_its_newest_telling(feed: Changing, erased: bool) -> None:
    feed.say(*in_part(BOTH, 3, 4))
    feed.unify()
    retell(feed, *in_part(BOTH, 4))
    feed.unify()
    retell(feed, *BOTH)
    feed.unify()
    assert (feed.changelog("kept"), feed.sums()) == ([0, 0, 0], {"applied": 1})
    if erased:
        rewritten(feed)
    feed.follow(include=["*"])
    assert feed.unify().metrics["backfilled"] == 1
    assert (feed.changelog("later"), feed.sums()) == ([0], {"applied": 1})


@pytest.mark.thorough
def test_an_erasure_leaves_what_was_taken_up_before(feed: Changing) -> None:
    feed.follow(include=["*"])
    feed.say(*PAST)
    feed.unify()
    there = feed.changelog("later")
    assert there
    feed.follow(include=["shop.kept"])
    feed.unify()
    rewritten(feed)
    feed.say(*MORE)
    feed.unify()
    feed.follow(include=["*"])
    feed.unify()
    assert feed.changelog("later") == sorted([*there, 8])
