"""What is left of messages whose bytes were erased."""

from datetime import UTC, datetime

import pyarrow as pa

from cdc_platform.formats import erased
from cdc_platform.formats.contract import EVENT, MESSAGE

THEN, NOW = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 29, tzinfo=UTC)


def test_what_is_left_has_the_address_of_its_message():
    """Landed once more, of a topic that was made again, it has another one than it was kept with."""
    events = [
        {
            "topic": "t",
            "partition": 0,
            "offset": 5,
            "landed_at": THEN,
            "entry_index": i,
            "kind": "row",
            "table": "others",
        }
        for i in (0, 2)
    ]
    kept = erased.kept(pa.Table.from_pylist(events, schema=EVENT))
    message = {"topic": "t", "partition": 0, "offset": 10**9 + 5, "landed_at": NOW, "erased": kept}
    schema = pa.schema([*MESSAGE, pa.field("erased", pa.binary())])
    _, gone = erased.apart(pa.RecordBatch.from_pylist([message], schema=schema))
    assert gone is not None
    told = [row for batch in erased.decode(gone) for row in batch.to_pylist()]
    assert [(r["offset"], r["landed_at"], r["entry_index"], r["kind"]) for r in told] == [
        (10**9 + 5, NOW, 0, "row"),
        (10**9 + 5, NOW, 2, "row"),
        (10**9 + 5, NOW, 3, "erased"),
    ]
