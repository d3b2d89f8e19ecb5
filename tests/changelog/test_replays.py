"""What a capture sends again, and what it sends from another log, as the changelog and the snapshots have it."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.changes import files
from cdc_platform.formats.events import event_batch
from cdc_platform.lake import delta_table, stores
from cdc_platform.spark.arrow_tasks import spark_schema
from tests.changelog.feed import LANDED, Feed, SourceTable, as_event, position

pytestmark = pytest.mark.spark

ORDERS = SourceTable("shop", "orders", [("id", "int"), ("v", "text")])
AUDIT = SourceTable("shop", "audit", [("v", "text")], ())


def row(i: int, v: str) -> dict[str, str | None]:
    return {"id": str(i), "v": v}


def insert(pos: tuple, i: int, v: str, **rest: Any) -> dict[str, Any]:
    return ORDERS.insert(pos, row(i, v), **rest)


def audit(pos: tuple, v: str, **rest: Any) -> dict[str, Any]:
    return AUDIT.insert(pos, {"v": v}, **rest)


@pytest.fixture
def feed(spark: Any, make_config: Any) -> Feed:
    found = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")
    found.say(ORDERS.stated(), AUDIT.stated())
    return found


def ledger(feed: Feed) -> dict[str, int]:
    found: dict[str, int] = {}
    for r in feed.rows(tables.OFFSET_LEDGER):
        found[r["outcome"]] = found.get(r["outcome"], 0) + r["records"]
    return found


def epochs(feed: Feed) -> list[int]:
    return [r["order_key"]["epoch"] for r in feed.rows(tables.CHANGELOG)]


def live(feed: Feed, table: str = "orders") -> list[tuple]:
    return sorted(tuple(r.values()) for r in feed.live("shop", table))


in_one_run_or_two = pytest.mark.parametrize(
    "whole", [pytest.param(True, marks=pytest.mark.thorough), False], ids=["one run", "two runs"]
)


@in_one_run_or_two
def test_a_restart_from_earlier_changes_nothing(feed: Feed, whole: bool) -> None:
    sent = [insert((1, 10), 1, "a"), audit((1, 20), "x"), audit((1, 30), "x"), insert((1, 40), 2, "b")]
    feed.say(*sent)
    if not whole:
        feed.catch_up()
    feed.say(*sent[1:], audit((1, 50), "x"))
    feed.catch_up()
    assert ledger(feed) == {"applied": 5, "duplicate": 3, "control": 2}
    assert live(feed) == [(1, "a"), (2, "b")]
    assert live(feed, "audit") == [("x",)] * 3
    assert set(epochs(feed)) == {0}


@pytest.mark.thorough
@in_one_run_or_two
def test_a_restart_from_before_a_failover_changes_nothing(feed: Feed, whole: bool) -> None:
    """The older log's places are ahead of the newer one's; equal rows of one transaction are there in each."""

    def at(second: int) -> dict[str, Any]:
        return {"source_time": LANDED + timedelta(seconds=second)}

    sent = [insert((3, 200), 1, "a", **at(1)), audit((3, 300), "x", **at(2)), audit((3, 300), "x", **at(2))]
    sent += [ORDERS.update((3, 400), row(1, "a"), row(1, "b"), **at(3))]
    sent += [ORDERS.update((1, 600), row(1, "b"), row(1, "c"), **at(20)), audit((1, 700), "x", **at(21))]
    feed.say(*sent)
    if not whole:
        feed.catch_up()
    feed.say(*sent, insert((1, 800), 2, "d", **at(22)))
    feed.catch_up()
    assert live(feed) == [(1, "c"), (2, "d")]
    assert live(feed, "audit") == [("x",)] * 3
    assert ledger(feed) == {"applied": 7, "duplicate": 6, "control": 2}


@pytest.mark.thorough
def test_a_crash_within_a_compressed_transaction_is_completed_by_the_replay(feed: Feed) -> None:
    begun = [insert((1, 10), 9, "z"), insert((1, 20), 1, "a"), ORDERS.delete((1, 20), row(1, "a"))]
    feed.say(*begun, audit((1, 20), "x"))
    feed.catch_up()
    feed.say(*begun, audit((1, 20), "x"), audit((1, 20), "x"), insert((1, 20), 1, "a"))
    feed.catch_up()
    assert live(feed) == [(1, "a"), (9, "z")]
    assert live(feed, "audit") == [("x",), ("x",)]


def test_equal_rows_of_one_compressed_transaction_are_all_kept(feed: Feed) -> None:
    feed.say(audit((1, 20), "x"), audit((1, 20), "x"))
    feed.catch_up()
    assert live(feed, "audit") == [("x",), ("x",)]


@pytest.mark.thorough
def test_a_log_that_begins_anew_is_newer_also_where_its_places_were_stored(feed: Feed) -> None:
    """RESET MASTER: the same server, file and position, other content."""
    feed.say(insert((7, 10), 1, "a"), insert((7, 20), 2, "b"))
    feed.catch_up()
    again = ORDERS.update((7, 10), row(2, "b"), row(2, "c"))
    feed.say(again)
    feed.catch_up()
    feed.say(again, ORDERS.delete((7, 20), row(1, "a")))
    feed.catch_up()
    assert live(feed) == [(2, "c")]
    assert epochs(feed) == [0, 0, 1, 1, 1]


@pytest.mark.thorough
def test_a_message_completed_late_stands_where_it_began(feed: Feed) -> None:
    """A message in parts whose last part comes after other messages: its place is behind theirs, not a newer log."""
    feed.say({**ORDERS.update((1, 30), row(1, "b"), row(1, "c")), "offset": 103})
    feed.catch_up()
    feed.say({**insert((1, 20), 1, "b"), "offset": 101}, {**insert((1, 40), 2, "d"), "offset": 104})
    feed.catch_up()
    assert live(feed) == [(1, "c"), (2, "d")]
    assert set(epochs(feed)) == {0}


def test_files_whose_arrivals_reach_into_each_other_are_one_sequence(feed: Feed) -> None:
    feed.say({**insert((1, 10), 1, "a"), "offset": 101}, {**insert((1, 30), 3, "c"), "offset": 103})
    feed.say({**insert((1, 20), 2, "b"), "offset": 102}, {**insert((1, 40), 4, "d"), "offset": 104})
    feed.catch_up()
    assert set(epochs(feed)) == {0}
    assert ledger(feed)["applied"] == 4


def test_a_batch_that_is_done_again_decides_the_same(feed: Feed) -> None:
    feed.say(insert((5, 10), 1, "a"))
    feed.catch_up()
    feed.say(ORDERS.update((2, 10), row(1, "a"), row(1, "b")))
    feed.unify()
    before = feed.rows(tables.CHANGELOG), feed.rows(tables.LOG_EPOCHS)
    feed.forget_last_commit("changelog")
    feed.catch_up()
    assert (feed.rows(tables.CHANGELOG), feed.rows(tables.LOG_EPOCHS)) == before
    assert live(feed) == [(1, "b")]


@pytest.mark.thorough
def test_statements_of_a_quiet_topic_are_of_their_servers_log(feed: Feed) -> None:
    """After a failover a statement comes by a topic whose old places were lower: it stands among the new log's rows."""
    history = {"topic": "history", "kind": "ddl", "db": "shop", "table": "orders"}
    feed.say(
        {**history, "offset": 0, "ddl": "ALTER TABLE orders COMMENT 'x'", **position(1, 5)},
        insert((120, 10), 1, "a"),
        ORDERS.update((2, 10), row(1, "a"), row(1, "b"), **position(2, 10, "9")),
        ORDERS.update((2, 90), row(1, "b"), row(1, "c"), **position(2, 90, "9")),
    )
    feed.say({**history, "offset": 1, "ddl": "TRUNCATE TABLE orders", **position(2, 50, "9")})
    feed.catch_up()
    [_, statement] = [r["order_key"] for r in feed.rows(tables.SCHEMA_HISTORY) if r["kind"] == "ddl"]
    first, middle, last = (r["order_key"] for r in feed.rows(tables.CHANGELOG))
    places = [tuple(o.values())[:3] for o in (first, middle, statement, last)]
    assert places == sorted(places)


@pytest.mark.thorough
def test_a_truncate_by_a_quiet_topic_stands_after_the_log_began_again(feed: Feed) -> None:
    """RESET MASTER: the same server begins its files anew. The statements' topic only ascends; times tell its log."""

    def when(change: dict[str, Any], second: int, **rest: Any) -> dict[str, Any]:
        return {**change, "source_time": LANDED + timedelta(seconds=second), **rest}

    history = {"topic": "history", "partition": 0}
    early = {"kind": "ddl", "db": "shop", "table": "orders", "ddl": "ALTER TABLE orders COMMENT 'x'", **position(1, 5)}
    truncate = {**ORDERS.change("truncate", (1, 50)), "schema_version": None}
    feed.say(
        when(early, 0, **history, offset=0),
        when(insert((9, 4), 1, "a"), 1),
        when(insert((1, 10), 2, "b"), 5),
        when(insert((1, 60), 3, "c"), 9),
        when(truncate, 7, **history, offset=1),
    )
    feed.catch_up()
    assert live(feed) == [(3, "c")]


@pytest.mark.thorough
def test_what_could_not_be_read_within_a_replay_is_no_part_of_it(feed: Feed) -> None:
    first = [insert((1, 10), 1, "a"), insert((1, 20), 2, "b")]
    feed.say(*first)
    feed.catch_up()
    feed.say(*first, {"kind": "error", "reason": "unreadable", "offset": 50}, {**insert((1, 40), 4, "d"), "offset": 51})
    feed.catch_up()
    again = event_batch([as_event({**insert((1, 30), 3, "c"), "offset": 50, "landed_at": LANDED})])
    again = pa.Table.from_batches([again.append_column("retold", pa.array([True]))])
    changes = tables.CHANGES.at(stores.lake(feed.config), format="debezium", source="s")
    files.append(feed.spark.createDataFrame(again, spark_schema(files.CHANGE)), changes)
    feed.catch_up()
    assert live(feed) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


@pytest.mark.thorough
def test_two_partitions_that_send_the_same_again_keep_what_is_new(feed: Feed) -> None:
    """Rows without a Kafka key go to any partition: each of two new copies would pass for the other's."""
    feed.say(audit((1, 10), "x", offset=1), audit((1, 20), "y", offset=2), audit((1, 15), "z", offset=1, partition=1))
    feed.catch_up()
    feed.say(*(audit(at, v, offset=o, partition=p) for p in (0, 1) for o, (at, v) in enumerate(AGAIN, 10)))
    feed.catch_up()
    assert {v for (v,) in live(feed, "audit")} == {"x", "y", "z", "new"}


AGAIN = (((1, 10), "x"), ((1, 30), "new"))


@pytest.mark.thorough
def test_crashes_within_one_batch_are_told_one_by_one(feed: Feed) -> None:
    place = [insert((1, 20), 1, "a"), ORDERS.delete((1, 20), row(1, "a"))]
    feed.say(insert((1, 10), 9, "z"), *place, insert((1, 10), 9, "z"), *place)
    feed.say(insert((1, 10), 9, "z"), *place, insert((1, 20), 1, "a"))
    feed.catch_up()
    assert live(feed) == [(1, "a"), (9, "z")]


def test_a_lake_of_before_goes_on_behind_what_it_had(feed: Feed) -> None:
    """It has an epoch per server: a server that comes back is of none of them."""
    lineages = tables.LINEAGES.at(stores.lake(feed.config))
    old = [("1", 0, 9, 500), ("2", 1, 3, 700)]
    keys = ("lineage", "epoch", "high_file", "high_pos")
    delta_table.append_rows(lineages, [{"source": "s", "batch": 0, **dict(zip(keys, r, strict=True))} for r in old])
    feed.say(insert((9, 600), 1, "a"), insert((3, 100), 2, "b", lineage="2"))
    feed.catch_up()
    assert epochs(feed) == [1, 2]


@pytest.mark.thorough
def test_an_unknown_row_of_an_entry_ends_a_replay_before_its_entry(feed: Feed) -> None:
    """A row that was erased, say: those before it in its entry have come."""

    def entry(offset: int, *values: str) -> list[dict[str, Any]]:
        return [audit((1, 30), v, offset=offset, row_index=n) for n, v in enumerate(values)]

    begun = [insert((1, 10), 1, "a"), audit((1, 20), "x")]
    feed.say(*begun, *entry(50, "y"), audit((1, 40), "z", offset=51))
    feed.catch_up()
    feed.say(*({**e, "offset": 60 + n} for n, e in enumerate(begun)), *entry(70, "y", "unknown"))
    feed.catch_up()
    found = [v for (v,) in live(feed, "audit")]
    assert (found.count("x"), found.count("unknown")) == (1, 1)
    assert live(feed) == [(1, "a")]
