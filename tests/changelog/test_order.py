"""The numeric order of changes within a source, and figures of a batch."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform.changelog import order
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.order_key import Clock, order_key
from cdc_platform.changes.file_stats import Summary
from cdc_platform.formats.events import event_batch
from tests.changelog.feed import LANDED, SourceTable, as_event, position

ORDERS = SourceTable("shop", "orders", [("id", "int"), ("note", "text")])
BEYOND_LONG = 2**64 - 1


def in_order(arrivals: Arrivals, *events: dict[str, Any]) -> list[dict[str, Any]]:
    """Events as their `order_key` sorts them, with that (`o`)."""
    rows = [
        as_event({"landed_at": LANDED, **({} if "offset" in e else {"offset": i}), **e}) for i, e in enumerate(events)
    ]
    orders = order_key(event_batch(rows), arrivals).to_pylist()
    told = [{**e, "offset": r["offset"], "o": o} for e, r, o in zip(events, rows, orders, strict=True)]
    return sorted(told, key=lambda e: tuple(e["o"].values()))


def by_position(before: dict[str | None, int]) -> Arrivals:
    return Arrivals({}, {}, before, by_position=True)


def numbered(*rekeyed: str) -> Arrivals:
    return Arrivals({}, {}, {}, numbered=True, rekeyed=rekeyed)


def test_order_is_numeric() -> None:
    """Each pair: the later change first in text, second in number."""
    insert = ORDERS.insert
    sorted_ = [
        insert((None, None), {"id": "1"}, lineage="a", offset=900),  # no position: before the binlog
        insert((999_999, 10), {"id": "2"}, offset=800, lineage="a"),
        insert((1_000_000, 4), {"id": "3"}, offset=7, lineage="a"),  # a seventh digit
        insert((1_000_000, 2**63 - 1), {"id": "4"}, offset=6, lineage="a"),
        insert((1_000_000, BEYOND_LONG), {"id": "5"}, offset=5, event_no=9, lineage="a"),
        insert((1_000_000, BEYOND_LONG, 2), {"id": "6"}, offset=4, event_no=10, lineage="a"),
        insert((1_000_000, BEYOND_LONG, 10), {"id": "7"}, offset=3, event_no=10, lineage="a"),
        insert((1, 4), {"id": "8"}, offset=2, lineage="b"),  # failover: another server
    ]
    found = in_order(by_position({"a": 0, "b": 1, None: 0}), *sorted_[::-1])
    assert [r["after"]["id"] for r in found] == [str(i) for i in range(1, 9)]
    assert found[4]["o"]["pos"] == Decimal(BEYOND_LONG)


def test_without_positions_offsets_order_rows_and_events() -> None:
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
    found = in_order(by_position({}), *rows[::-1])
    assert [r["after"]["id"] for r in found] == [r["after"]["id"] for r in rows]


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


@pytest.mark.parametrize("arrivals", [numbered(), numbered("shop.orders")], ids=["by event_no", "by the configuration"])
def test_halves_of_a_change_in_two_partitions_are_in_order(arrivals: Arrivals) -> None:
    rows = [{**r, "event_no": 0} for r in MOVES] if arrivals.rekeyed else MOVES
    by_partition = sorted(rows, key=lambda r: (-r["partition"], r["offset"]))  # as they come
    found = in_order(arrivals, *by_partition)
    assert [(r["partition"], r["offset"]) for r in found] == [(r["partition"], r["offset"]) for r in rows]


def test_halves_of_a_change_are_in_order_however_a_file_is_cut_into_batches() -> None:
    rows = [as_event({"landed_at": LANDED, **r}) for r in MOVES if r["partition"] == 0 and "txn_seq" not in r]
    rows += [{**rows[-1], "offset": rows[-1]["offset"] + 1}, {**rows[0], "offset": 950}]
    whole = order_key(event_batch(rows), numbered()).to_pylist()
    for cut in range(1, len(rows)):
        clock = Clock({})
        parts = [order_key(event_batch(some), numbered(), clock).to_pylist() for some in (rows[:cut], rows[cut:])]
        assert [*parts[0], *parts[1]] == whole, cut


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
    found = order.merged_statistics([summary.to_json()])
    of = {f["lineage"]: f for f in found}
    figures = {k: of["1"][k] for k in ("rows", "schemas", "ddl", "control", "errors", "retold", "events")}
    assert figures == {"rows": 2, "schemas": 0, "ddl": 1, "control": 2, "errors": 0, "retold": 5, "events": 5}
    assert of["1"]["low"] == {"file_no": 9, "binlog_pos": Decimal(5)}
    assert of["1"]["high"] == {"file_no": 10, "binlog_pos": Decimal(4)}
    assert (of[None]["schemas"], of[None]["errors"], of[None]["low"]) == (1, 1, None)
