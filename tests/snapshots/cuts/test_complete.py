"""Up to when the snapshots of a source are complete, whatever a run finds at its end."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.config import parse_config
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.lake.watermarks import Complete, complete
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, SourceTable, position

pytestmark = pytest.mark.spark

START = datetime(2026, 11, 20, tzinfo=UTC)
ONE = SourceTable("bank", "one", [("id", "int"), ("amount", "int")])
TWO = SourceTable("bank", "two", [("id", "int"), ("amount", "int")])
ODD = SourceTable("bank", "odd", [("id", "int"), ("p", "tsvector")])
UNO, GHOST = (SourceTable("bank", name, ONE.columns) for name in ("uno", "_one_gho"))


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@pytest.fixture
def feed(spark: Any, tmp_path: Path) -> Feed:
    source = {"name": "bank", "format": "canal", "topics": ["t"], "tables": {"exclude": ["bank.out"]}}
    return Feed(spark, parse_config({"lake": str(tmp_path), "sources": [source]}, tmp_path / "cdc.yaml"), "bank")


def now(feed: Feed) -> Complete:
    found = complete(tables.WATERMARKS.at(stores.lake(feed.config)), feed.name)
    assert found is not None
    return found


def change(table: SourceTable, pos: int, second: float, **rest: Any) -> dict[str, Any]:
    return table.insert((1, pos), {"id": f"{pos}", "amount": "1"}, source_time=at(second), **rest)


def held(pos: int, second: float, table: str | None) -> dict[str, Any]:
    named = {"db": "bank", "table": table} if table else {}
    return {"kind": "error", "reason": "bad", "source_time": at(second), **named, **position(1, pos)}


def ddl(sql: str, pos: int, second: float) -> dict[str, Any]:
    return {"kind": "ddl", "db": "bank", "ddl": sql, "source_time": at(second), **position(1, pos)}


def mark(kind: str, pos: int, second: float, **info: str) -> dict[str, Any]:
    return {"kind": kind, "source_time": at(second), "info": list(info.items()), **position(1, pos)}


def test_it_follows_the_events_of_the_log_and_never_goes_back(feed: Feed):
    feed.say(ONE.stated(), change(ONE, 1, 10))
    feed.catch_up()
    assert (now(feed).source_time, now(feed).proven, now(feed).reason) == (at(10), True, None)
    feed.say(mark("heartbeat", 2, 99))  # by canal's own clock
    feed.catch_up()
    assert now(feed).source_time == at(10)
    feed.say(change(ONE, 3, 7), mark("commit", 4, 12))
    feed.catch_up()
    assert now(feed).source_time == at(12)
    number = now(feed).number
    feed.catch_up()
    assert now(feed).number == number  # nothing new is nothing to tell


@pytest.mark.thorough
def test_its_gtids_stand_before_what_no_table_has(feed: Feed):
    feed.say(ONE.stated(), change(ONE, 1, 10), mark("commit", 5, 11, gtid_set="a:1-7"))
    feed.catch_up()
    feed.say(held(6, 12, None), change(ONE, 7, 20), mark("commit", 8, 21, gtid_set="a:1-9"))
    feed.catch_up()
    assert (now(feed).source_time, now(feed).binlog_pos, now(feed).gtid) == (at(11), 5, "a:1-7")
    resolve(feed)
    feed.catch_up()
    assert (now(feed).source_time, now(feed).gtid) == (at(21), "a:1-9")
    feed.say(held(9, 22, "one"), mark("commit", 10, 23, gtid_set="a:1-11"))
    feed.catch_up()
    found = now(feed)
    assert (found.gtid, found.gtids(("bank", "one")), found.gtids(("bank", "two"))) == ("a:1-11", None, "a:1-11")
    assert (found.position, found.position_of(("bank", "one"))) == ("mysql-bin.000001:10", None)
    feed.say(mark("begin", 11, 24, gtid_set="a:1-12"))  # its rows are still to come
    feed.catch_up()
    assert (now(feed).position, now(feed).gtid) == ("mysql-bin.000001:11", "a:1-11")


@pytest.mark.thorough
def test_what_kafka_had_removed_keeps_tables_back_until_they_are_compared(feed: Feed):
    feed.say(ONE.stated(), TWO.stated(), change(ONE, 1, 10), change(TWO, 2, 10))
    feed.catch_up()
    lost = {"room": "landing", "batch": 9, "source": "bank", "topic": "t", "partition": 0, "outcome": "lost"}
    delta_table.append_rows(
        tables.OFFSET_LEDGER.at(stores.lake(feed.config)), [{**lost, "from_offset": 4, "to_offset": 6, "records": 3}]
    )
    feed.say(change(ONE, 3, 20))
    feed.catch_up()
    assert (now(feed).of(("bank", "one")), now(feed).of(("bank", "two"))) == (at(10), at(10))
    why = "offsets of the source were lost before they were landed: t/0 4 to 6"
    assert now(feed).behind["bank", "one"].reason == why
    row = {"source": "bank", "db": "bank", "against": "server", "version": 0, "rows": 2, "differing": 0, "lost": 3}
    path = tables.RECONCILIATIONS.at(stores.lake(feed.config))
    rows = [{**row, "table": "one", "equal": True, "at": at(30)}, {**row, "table": "two", "equal": False, "at": at(30)}]
    delta_table.append_rows(delta_sql.ensure(tables.RECONCILIATIONS, path), rows)
    feed.say(change(ONE, 4, 31))
    feed.catch_up()
    assert (now(feed).of(("bank", "one")), now(feed).of(("bank", "two"))) == (at(31), at(10))


def test_what_quarantine_holds_keeps_its_table_back_alone(feed: Feed):
    feed.say(ONE.stated(), TWO.stated(), change(ONE, 1, 10), change(TWO, 2, 11))
    feed.catch_up()
    feed.say(held(3, 12, "two"), change(ONE, 4, 20))
    feed.catch_up()
    found = now(feed)
    assert (found.of(("bank", "one")), found.of(("bank", "two"))) == (at(20), at(11))
    assert "quarantine holds t/0/4: bad" in found.behind["bank", "two"].reason
    feed.say(change(ONE, 5, 30))
    feed.catch_up()
    assert now(feed).of(("bank", "two")) == at(11)
    resolve(feed)
    feed.catch_up()
    assert now(feed).of(("bank", "two")) == at(30)


def resolve(feed: Feed) -> None:
    path = tables.QUARANTINE.at(stores.lake(feed.config))
    delta_table.retried(path, lambda t: t.update({"resolved_at": "now()"}, predicate="resolved_at IS NULL"))


@pytest.mark.thorough
def test_what_is_held_under_an_earlier_name_keeps_all_tables_back_that_it_may_be_of(feed: Feed):
    feed.say(ONE.stated(), TWO.stated(), change(ONE, 1, 10), change(TWO, 1, 10))
    feed.catch_up()
    feed.say(held(2, 12, "one"), change(ONE, 3, 13))
    feed.catch_up()
    feed.say(ddl("RENAME TABLE one TO uno", 4, 20), UNO.stated(), change(UNO, 5, 30))
    feed.catch_up()
    uno = ("bank", "uno")
    assert (now(feed).of(("bank", "two")), now(feed).of(uno)) == (at(30), at(10))
    assert (now(feed).behind.keys(), now(feed).position_of(uno)) == ({uno}, None)
    assert now(feed).behind[uno].reason == "quarantine holds t/0/4 under the name bank.one: bad"
    made = "CREATE TABLE one (id int PRIMARY KEY, amount int)"
    feed.say(ddl(made, 6, 31), ONE.stated(), change(ONE, 7, 40))
    feed.catch_up()
    assert {n: now(feed).of(n) for n in now(feed).behind} == {uno: at(10), ("bank", "one"): at(10)}
    resolve(feed)
    feed.catch_up()
    assert (now(feed).of(uno), now(feed).behind) == (at(40), {})


@pytest.mark.thorough
def test_a_table_that_ended_before_its_first_snapshot_is_not_waited_for(feed: Feed):
    def known() -> list[str]:
        return [name[-1] for _, name in queries.known_tables(feed.config)]

    feed.say(ONE.stated(), change(ONE, 1, 10))
    feed.catch_up()
    swap = ddl("RENAME TABLE one TO _one_del, _one_gho TO one", 4, 20)
    feed.say(GHOST.stated(), change(GHOST, 2, 10), swap, change(ONE, 5, 30), ddl("DROP TABLE _one_del", 6, 31))
    feed.catch_up()
    assert known() == ["one"]
    feed.say(TWO.stated(), change(TWO, 7, 40), ddl("DROP TABLE two", 8, 41))
    feed.catch_up()
    assert known() == ["one"]
    feed.say(TWO.stated(), change(TWO, 9, 50), ddl("RENAME TABLE two TO uno", 10, 51), UNO.stated())
    feed.catch_up()
    feed.say(change(UNO, 11, 60))
    feed.catch_up()
    assert known() == ["one", "uno"]
    feed.say(ddl("CREATE TABLE two (id int PRIMARY KEY, amount int)", 12, 61), change(UNO, 13, 62))
    feed.catch_up()
    assert known() == ["one", "two", "uno"], "made again"


def test_what_names_no_table_holds_all_back(feed: Feed):
    feed.say(ONE.stated(), change(ONE, 1, 10))
    feed.catch_up()
    feed.say(held(2, 12, None))
    feed.say(change(ONE, 3, 20))
    feed.catch_up()
    assert now(feed).source_time == at(10)
    assert "names no table: bad" in str(now(feed).reason)
    resolve(feed)
    feed.catch_up()
    assert (now(feed).source_time, now(feed).reason) == (at(20), None)


def test_what_is_newly_held_and_is_older_than_what_was_complete_takes_that_back(feed: Feed):
    """As a replay by other options may do, or a decoder that is stricter."""
    feed.say(ONE.stated(), TWO.stated(), change(ONE, 1, 10), change(TWO, 2, 11))
    feed.catch_up()
    feed.say(change(ONE, 3, 20))
    feed.catch_up()
    assert now(feed).source_time == at(20)
    newly = {"source": "bank", "room": "changes", "topic": "t", "partition": 0, "offset": 4, "reason": "bad"}
    newly["quarantined_at"] = datetime.now(UTC)
    path = tables.QUARANTINE.at(stores.lake(feed.config))
    delta_table.append_rows(path, [{**newly, "db": "bank", "table": "two"}])
    feed.say(change(ONE, 5, 30))
    feed.catch_up()
    assert (now(feed).source_time, now(feed).of(("bank", "two"))) == (at(30), at(11))
    delta_table.append_rows(path, [newly])
    feed.catch_up()
    assert (now(feed).source_time, now(feed).of(("bank", "two")), now(feed).proven) == (at(11), at(11), True)
    assert str(now(feed).reason).startswith("quarantine holds t/0/4, which names no table")
    feed.say(change(ONE, 6, 40))
    feed.catch_up()
    assert now(feed).source_time == at(11)
    resolve(feed)
    feed.catch_up()
    assert (now(feed).source_time, now(feed).behind) == (at(40), {})
    delta_table.append_rows(path, [{**newly, "offset": 2}])
    feed.catch_up()
    assert now(feed).source_time is None, "nothing was told before it had come"


def test_a_table_that_never_was_complete_says_so(feed: Feed):
    feed.say(ONE.stated(), change(ONE, 1, 10), held(2, 11, "two"))
    feed.catch_up()
    assert (now(feed).source_time, now(feed).of(("bank", "two"))) == (at(10), None)


def test_a_stopped_table_stays_where_it_was(feed: Feed):
    feed.say(ONE.stated(), change(ONE, 1, 10))
    feed.catch_up()
    row = {"id": "1", "p": "x"}
    feed.say(ODD.stated(), ODD.insert((1, 2), row, source_time=at(11)), change(ONE, 3, 20))
    feed.catch_up()
    found = now(feed)
    assert feed.state("bank", "odd")[0] == "stopped"
    assert (found.of(("bank", "one")), found.of(("bank", "odd"))) == (at(20), None), "it never was up to date"
    assert found.behind["bank", "odd"].reason.startswith("stopped: ")


def test_the_slowest_partition_counts(feed: Feed):
    feed.say(ONE.stated(), change(ONE, 1, 10, partition=0, offset=1), change(ONE, 2, 4, partition=1, offset=1))
    feed.catch_up()
    assert now(feed).source_time == at(4)


def test_a_batch_that_is_done_again_changes_nothing(feed: Feed):
    feed.say(ONE.stated(), change(ONE, 1, 10))
    feed.catch_up()
    before = feed.rows(tables.WATERMARKS)
    for room in ("changelog", "snapshots"):
        feed.forget_last_commit(room)
    feed.catch_up()
    assert feed.rows(tables.WATERMARKS) == before
