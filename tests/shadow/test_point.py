"""Where in each feed's order the point is at which two are compared, from the lake's own tables."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product

import duckdb
import pytest

from cdc_platform.shadow import point
from cdc_platform.shadow.point import Bound
from cdc_platform.tables import CHANGELOG, LOADED, ORDER, SCHEMA_CHANGES, SCHEMA_HISTORY, WATERMARKS
from tests.rows import add

T = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def config(make_config):
    sources = [{"name": n, "format": "canal_json", "topics": [n]} for n in ("a", "b")]
    return make_config(sources, shadow={"of": "a", "by": "b", "settle_s": 60})


def order(pos: int) -> dict[str, object]:
    return {"epoch": 0, "file": 1, "pos": Decimal(pos), "event": 0, "row": 0, "landed": 0}


def change(config, source: str, pos: int, seconds: float | None, table: str = "t", op: str = "insert", **more) -> None:
    at = None if seconds is None else T + timedelta(seconds=seconds)
    row = {"source": source, "db": "d", "table": table, "op": op, "order_key": order(pos), "source_time": at, **more}
    add(config.lake, CHANGELOG, {"topic": source, **row})


def complete(config, source: str, seconds: float | None, reason: str | None = None) -> None:
    at = None if seconds is None else T + timedelta(seconds=seconds)
    row = {"source": source, "scope": "source", "batch": 0, "source_time": at, "proven": True, "reason": reason}
    add(config.lake, WATERMARKS, {**row, "behind": [], "at": T})


def found(config) -> point.Point:
    pair = config.shadow_of("a")
    return point.point(config, pair, point.common(config, pair))


def pos(bound: Bound) -> int | None:
    return bound.place[2] if bound.place else None


def test_by_time_all_that_stands_before_the_first_late_change_counts(config):
    complete(config, "a", 300)
    complete(config, "b", 100)
    for p, seconds in ((1, 0), (2, 39), (3, 41), (4, 20)):
        change(config, "a", p, seconds, f"t{p}")
    change(config, "b", 7, 0)
    at = found(config)
    assert (at.gtid, at.source_time) == (None, T + timedelta(seconds=40))
    assert (pos(at.of.bound), pos(at.by.bound)) == (3, None)
    assert at.of.moved == {("d", "t3"), ("d", "t4")}
    assert (at.of.unsettled, at.by.moved) == (set(), set())


def test_statements_truncates_and_loads_from_behind_it_make_their_table_wait(config):
    complete(config, "a", 100)
    complete(config, "b", 100)
    change(config, "a", 1, 0)
    change(config, "a", 5, 50, "emptied", "truncate")
    change(config, "a", 6, 50, "loaded", "read")
    change(config, "a", 7, 50, "busy")
    ddl = {
        "source": "b",
        "kind": "ddl",
        "db": "d",
        "table": "t",
        "order_key": order(9),
        "source_time": T + timedelta(seconds=45),
    }
    add(config.lake, SCHEMA_HISTORY, ddl)
    noted = {"source": "b", "db_before": "d", "table_before": "old", "db_after": "d", "table_after": "new"}
    add(config.lake, SCHEMA_CHANGES, {**noted, "order_key": order(9), "decision": "applied"})
    at = found(config)
    assert at.of.unsettled == {("d", "emptied"), ("d", "loaded")}
    assert at.of.moved == {("d", "emptied"), ("d", "loaded"), ("d", "busy")}
    assert (pos(at.by.bound), at.by.unsettled) == (9, {("d", "old"), ("d", "new")})


def test_a_change_without_a_time_is_late_unless_an_early_one_stands_behind_it(config):
    complete(config, "a", 100)
    complete(config, "b", 100)
    change(config, "a", 1, None)
    change(config, "a", 2, 0)
    change(config, "a", 3, None)
    change(config, "b", 1, None)
    at = found(config)
    assert (pos(at.of.bound), pos(at.by.bound)) == (3, 1)


def test_without_a_time_or_a_common_transaction_nothing_is_compared(config):
    complete(config, "a", 100)
    complete(config, "b", None, "no event of b/0 tells when its log had it")
    common = point.common(config, config.shadow_of("a"))
    assert common.source_time is None
    assert common.reason == "up to when b is complete isn't told: no event of b/0 tells when its log had it"


@pytest.mark.parametrize("last", [True, False])
def test_beyond_compares_orders_field_by_field(last):
    places = list(product(range(2), repeat=len(ORDER.names)))
    bound = places[21]
    rows = ", ".join(
        "({" + ", ".join(f"'{n}': {v}" for n, v in zip(ORDER.names, p, strict=True)) + "})" for p in places
    )
    sql = f"SELECT {Bound(bound, last).beyond('o')} AS late FROM (VALUES {rows}) AS t(o)"
    late = [row[0] for row in duckdb.connect().execute(sql).fetchall()]
    assert late == [p > bound if last else p >= bound for p in places]
    assert Bound(None).beyond("o") == "false"


@pytest.fixture
def in_snapshots(config, monkeypatch):
    """Both come by one partition each, and all that has come is in snapshots."""
    monkeypatch.setattr(point, "_unfinished", lambda config, source: False)
    for source in ("a", "b"):
        complete(config, source, 100)
        row = {"source": source, "scope": "partition", "batch": 0, "topic": source, "partition": 0, "offset": 9}
        add(config.lake, WATERMARKS, {**row, "source_time": T, "behind": [], "at": T})


@pytest.mark.usefixtures("in_snapshots")
def test_a_common_transaction_is_one_behind_which_another_has_come_by_both(config, monkeypatch):
    """Sets of GTIDs as canal tells them; rows that were loaded say nothing of the feed."""
    for p, number in ((1, 1), (2, 1), (3, 2), (4, 3)):
        change(config, "a", p, p, gtid=f"UUID:{number}")
    change(config, "a", 5, 5, "loaded", "read", gtid="uuid:4")
    for p, number in ((10, 1), (20, 2), (30, 4), (40, 5)):
        change(config, "b", p, p, gtid=f"uuid:1-{number}")
    at = found(config)
    assert (at.gtid, at.source_time) == ("uuid:1", None)
    assert (at.of.bound, at.by.bound) == (
        Bound((0, 1, 2, 0, 0, 0), last=True),
        Bound((0, 1, 10, 0, 0, 0), last=True),
    )
    assert at.of.unsettled == {("d", "loaded")}
    monkeypatch.setattr(point, "_unfinished", lambda config, source: True)
    assert found(config).gtid is None, "the snapshots may not have it yet"


def up_to(config, offset: int) -> point.Point:
    pair = config.shadow_of("a")
    return point.point(config, pair, point.up_to(config, pair, "uuid:4", ("b", 0), offset))


def came(config, offset: int, pos: int, table: str = "t", **more) -> None:
    """A change by `b`'s partition."""
    change(config, "b", pos, 0, table, partition=0, offset=offset, **more)


def test_up_to_an_offset_counts_what_came_before_it_and_all_of_the_other_feed(config):
    """Whatever was loaded, or came by another topic, before or behind it."""
    change(config, "a", 99, 0)
    for number in (1, 2, 3, 4, 6):
        came(config, number + 3, 10 * number, f"t{number}")
    came(config, 9, 20, "again")  # sent once more
    came(config, 0, 70, "loaded", op="read", topic=LOADED)
    came(config, 5, 50, "elsewhere", topic="old")
    at = up_to(config, 8)
    assert (at.gtid, at.of.bound, at.of.moved) == ("uuid:4", Bound(None), set())
    assert at.by.bound == Bound((0, 1, 40, 0, 0, 0), last=True)
    assert (at.by.moved, at.by.unsettled) == ({("d", "t6"), ("d", "loaded"), ("d", "elsewhere")}, {("d", "loaded")})


def test_up_to_an_offset_before_which_nothing_of_the_tables_came(config):
    change(config, "a", 99, 0)
    came(config, 9, 30)
    assert up_to(config, 8).by.bound == Bound((0, 1, 30, 0, 0, 0))
    assert up_to(config, 8).by.moved == {("d", "t")}


@pytest.mark.usefixtures("in_snapshots")
@pytest.mark.parametrize("op", ["delete", "read"])
def test_what_a_repair_did_says_nothing_of_the_feed(config, op):
    """At places ahead of the feed, with the GTIDs of their views."""
    for source, last in (("a", 2), ("b", 6)):
        for number in range(1, last + 1):
            change(config, source, number, number, gtid=f"uuid:{number}")
    for number in (4, 5):
        change(config, "a", number, number, op=op, gtid=f"uuid:{number}", topic=LOADED)
    at = found(config)
    assert (at.gtid, pos(at.of.bound), pos(at.by.bound)) == ("uuid:1", 1, 1)
