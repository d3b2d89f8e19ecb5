"""Which changes came twice, where positions alone order a source."""

from typing import Any

import pyarrow as pa
import pytest

from cdc_platform.changelog import repeated
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.order import ADDRESS
from cdc_platform.changelog.order_key import placed
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.events import event_batch
from cdc_platform.spark.arrow_tasks import spark_schema
from tests.changelog.feed import LANDED, SourceTable, as_event

pytestmark = pytest.mark.spark

ORDERS = SourceTable("shop", "orders", [("id", "int"), ("note", "text")])


def batch(*events: dict[str, Any]) -> pa.RecordBatch:
    return event_batch(
        [as_event({"landed_at": LANDED, **({} if "offset" in e else {"offset": i}), **e}) for i, e in enumerate(events)]
    )


def frame(spark: Any, *events: dict[str, Any]) -> Any:
    return spark.createDataFrame(pa.Table.from_batches([batch(*events)]), spark_schema(EVENT))


def placed_frame(spark: Any, *events: dict[str, Any]) -> Any:
    rows = placed(batch(*events), Arrivals({}, {}, {}, by_position=True))
    return spark.createDataFrame(pa.Table.from_batches([rows]), spark_schema(rows.schema))


def again_at(rows: Any) -> set[int]:
    """Offsets of the rows that repeat an earlier one."""
    found = repeated.repeated_here(rows)
    return set() if found is None else {r["offset"] for r in found.select(*ADDRESS).collect()}


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
    assert again_at(frame(spark, *once)) == set()
    again = [
        once[0],
        once[3],
        once[8],
        once[12],
        {**once[0], "after": dict(reversed(once[0]["after"].items()))},
    ]
    assert again_at(frame(spark, *once, *again)) == {len(once) + i for i in range(len(again))}


def test_a_replayed_range_is_found_in_the_changelog(spark: Any) -> None:
    stored = [ORDERS.insert((1, 10 * i), {"id": str(i)}) for i in range(1, 5)]
    changelog = placed_frame(spark, *stored)
    come = placed_frame(
        spark,
        *(dict(e, offset=100 + i) for i, e in enumerate(stored)),
        ORDERS.insert((1, 30), {"id": "30"}, offset=200),
        ORDERS.insert((2, 30), {"id": "3"}, offset=201),
        dict(stored[0], offset=0),
    )
    found = repeated.repeated_before(come, changelog, (1, 10), (1, 40))
    assert sorted(r["offset"] for r in found.collect()) == [100, 101, 102, 103], "offset 0 is the stored row itself"
