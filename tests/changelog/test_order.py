"""The numeric order of changes within a source, and which changes came twice."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform.changelog import order
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.order_key import order_key
from cdc_platform.changes.file_stats import Summary
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.events import event_batch
from cdc_platform.spark.arrow_tasks import spark_schema
from tests.changelog.feed import LANDED, SourceTable, as_event, position

ORDERS = SourceTable("shop", "orders", [("id", "int"), ("note", "text")])
BEYOND_LONG = 2**64 - 1


def frame(spark: Any, *events: dict[str, Any]) -> Any:
    rows = [
        as_event({"landed_at": LANDED, **({} if "offset" in e else {"offset": i}), **e}) for i, e in enumerate(events)
    ]
    return spark.createDataFrame(pa.Table.from_batches([event_batch(rows)]), spark_schema(EVENT))


def by_position(before: dict[str | None, int]) -> Arrivals:
    return Arrivals({}, {}, before, by_position=True)


def numbered(*rekeyed: str) -> Arrivals:
    return Arrivals({}, {}, {}, numbered=True, rekeyed=rekeyed)


def repeated(rows: Any) -> set[int]:
    """Offsets of the rows that repeat an earlier one."""
    found = order.repeated_here(rows)
    return set() if found is None else {r["offset"] for r in found.select(*order.ADDRESS).collect()}


@pytest.mark.spark
def test_order_is_numeric(spark: Any) -> None:
    """Each pair: the later change first in text, second in number."""
    insert = ORDERS.insert
    in_order = [
        insert((None, None), {"id": "1"}, lineage="a", offset=900),  # no position: before the binlog
        insert((999_999, 10), {"id": "2"}, offset=800, lineage="a"),
        insert((1_000_000, 4), {"id": "3"}, offset=7, lineage="a"),  # a seventh digit
        insert((1_000_000, 2**63 - 1), {"id": "4"}, offset=6, lineage="a"),
        insert((1_000_000, BEYOND_LONG), {"id": "5"}, offset=5, event_no=9, lineage="a"),
        insert((1_000_000, BEYOND_LONG, 2), {"id": "6"}, offset=4, event_no=10, lineage="a"),
        insert((1_000_000, BEYOND_LONG, 10), {"id": "7"}, offset=3, event_no=10, lineage="a"),
        insert((1, 4), {"id": "8"}, offset=2, lineage="b"),  # failover: another server
    ]
    keyed = frame(spark, *in_order[::-1]).withColumn("o", order.order_key(by_position({"a": 0, "b": 1, None: 0})))
    found = keyed.orderBy("o").select("after.id", "o").collect()
    assert [r["id"] for r in found] == [str(i) for i in range(1, 9)]
    assert found[4]["o"]["pos"] == Decimal(BEYOND_LONG)


@pytest.mark.spark
def test_without_positions_offsets_order_rows_and_events(spark: Any) -> None:
    rows = [
        ORDERS.insert(
            (None, None),
            {"id": f"{offset}.{entry}.{row}"},
            lineage=None,
            offset=offset,
            entry_index=entry,
            row_index=row,
            row_no=None,
        )
        for offset in (9, 10)
        for entry in (2, 10)
        for row in (2, 10)
    ]
    keyed = frame(spark, *rows[::-1]).withColumn("o", order.order_key(by_position({})))
    assert [r["id"] for r in keyed.orderBy("o").select("after.id").collect()] == [r["after"]["id"] for r in rows]


def half(op: str, partition: int, offset: int, pos: int, **told: Any) -> dict[str, Any]:
    """One of the records of an update that moves a row to another partition, both at one place."""
    row = (ORDERS.insert if op == "insert" else ORDERS.delete)((1, pos), {"id": "1", "note": f"{partition}.{offset}"})
    return {**row, "partition": partition, "offset": offset, **told}


MOVES = [
    half("insert", 0, 900, 10, event_no=1),
    half("delete", 0, 901, 20),
    half("insert", 1, 0, 20, event_no=1),
    half("delete", 1, 1, 30),
    half("insert", 0, 902, 30, event_no=1),
    half("delete", 0, 903, 30),  # what follows in the partition is newer
    half("delete", 0, 904, 50, txn_seq=1),
    half("insert", 1, 2, 50, txn_seq=2),
    half("delete", 1, 3, 50, txn_seq=3),
    half("insert", 0, 905, 50, txn_seq=4),
]
"""A row that a Kafka key moves from partition to partition, in the order of its source."""


@pytest.mark.spark
@pytest.mark.parametrize("arrivals", [numbered(), numbered("shop.orders")], ids=["by event_no", "by the configuration"])
def test_halves_of_a_change_in_two_partitions_are_in_order(spark: Any, arrivals: Arrivals) -> None:
    rows = [{**r, "event_no": 0} for r in MOVES] if arrivals.rekeyed else MOVES
    keyed = frame(spark, *rows[::-1]).withColumn("o", order.order_key(arrivals)).orderBy("o").collect()
    assert [(r["partition"], r["offset"]) for r in keyed] == [(r["partition"], r["offset"]) for r in rows]
    by_arrow = order_key(event_batch([as_event({"landed_at": LANDED, **r}) for r in rows]), arrivals).to_pylist()
    assert by_arrow == [r["o"].asDict() for r in keyed]


@pytest.mark.spark
def test_only_equal_changes_at_an_equal_place_are_repeats(spark: Any) -> None:
    no_key = {**ORDERS.insert((1, 50), {"id": "8"}), "op": "read", "key": None}
    once = [
        ORDERS.insert((1, 10), {"id": "1", "note": None}),
        ORDERS.insert((1, 10), {"id": "1"}),  # absent is not NULL
        ORDERS.insert((1, 10), {"id": "1", "note": ""}),  # nor is the empty text
        ORDERS.insert((1, 20, 0), {"id": "2"}),
        ORDERS.insert((1, 20, 1), {"id": "2"}),  # two rows of one event
        ORDERS.insert((1, 20), {"id": "2"}, event_no=1),  # another event at the position
        {**ORDERS.insert((1, 30), {"id": "3"}), "op": "read"},
        {**ORDERS.insert((1, 30), {"id": "4"}), "op": "read"},
        ORDERS.delete((1, 40), {"id": "5"}),
        ORDERS.insert((1, 40), {"id": "6"}),  # a key change in two events
        ORDERS.insert((None, None), {"id": "7"}),
        ORDERS.insert((None, None), {"id": "7"}),  # no position: no proof
        ORDERS.insert((1, 10), {"id": "1", "note": None}, lineage="2"),  # another server's binlog
        no_key,
        no_key,  # a table without a key may hold equal rows; a snapshot gives them one position
    ]
    assert repeated(frame(spark, *once)) == set()
    again = [
        once[0],
        once[3],
        once[8],
        once[12],
        {**once[0], "after": dict(reversed(once[0]["after"].items()))},
    ]
    assert repeated(frame(spark, *once, *again)) == {len(once) + i for i in range(len(again))}


@pytest.mark.spark
def test_a_replayed_range_is_found_in_the_changelog(spark: Any) -> None:
    stored = [ORDERS.insert((1, 10 * i), {"id": str(i)}) for i in range(1, 5)]
    arrivals = by_position({})
    changelog = frame(spark, *stored).withColumn("order_key", order.order_key(arrivals))
    come = frame(
        spark,
        *(dict(e, offset=100 + i) for i, e in enumerate(stored)),
        ORDERS.insert((1, 30), {"id": "30"}, offset=200),
        ORDERS.insert((2, 30), {"id": "3"}, offset=201),
        dict(stored[0], offset=0),
    )
    low, high = ({"file_no": 1, "binlog_pos": Decimal(p)} for p in (10, 40))
    found = order.repeated_before(come, changelog, arrivals, low, high)
    assert sorted(r["offset"] for r in found.collect()) == [100, 101, 102, 103], "offset 0 is the stored row itself"


def test_statistics_count_kinds_and_have_the_range_of_row_positions() -> None:
    events = [
        ORDERS.stated(),
        ORDERS.insert((9, 5), {"id": "1"}),
        ORDERS.insert((10, 4), {"id": "2"}),
        {"kind": "begin", **position(8, 1)},
        {"kind": "commit", **position(11, 1)},
        {"kind": "error", "reason": "bad"},
        {"kind": "ddl", "ddl": "x", **position(10, 2)},
        {"kind": "skip", "reason": "empty"},
    ]
    batch = event_batch([as_event({"landed_at": LANDED, "offset": i, **e}) for i, e in enumerate(events)])
    summary = Summary()
    summary.add(batch.append_column("retold", pa.array([True] * len(events))))
    found = order.figures_of([summary.told()])
    of = {f["lineage"]: f for f in found}
    figures = {k: of["1"][k] for k in ("rows", "schemas", "ddl", "control", "errors", "retold", "events")}
    assert figures == {"rows": 2, "schemas": 0, "ddl": 1, "control": 2, "errors": 0, "retold": 5, "events": 5}
    assert of["1"]["low"] == {"file_no": 9, "binlog_pos": Decimal(5)}
    assert of["1"]["high"] == {"file_no": 10, "binlog_pos": Decimal(4)}
    assert (of[None]["schemas"], of[None]["errors"], of[None]["low"]) == (1, 1, None)
