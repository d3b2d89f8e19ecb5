"""DataWorks' JSON: what Alibaba's data integration writes to Kafka when it synchronizes a whole database.

Changes are ordered by `sequenceId`, an integer of any length that all of a task's records share: as file number and
position (see `messages.py`); the full load's -1 is lower than all of them. An update may come as one record or as
two that lie in different partitions where it changes the key. Each half is an event of its own at the same
sequenceId: the first removes the old row, the second brings the new one.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.contract import EVENT, Format, Limit
from cdc_platform.formats.dataworks.messages import Group, Row, read
from cdc_platform.formats.dataworks.options import DataworksOptions
from cdc_platform.formats.dataworks.rows import Table, convert_rows
from cdc_platform.formats.events import event_batch
from cdc_platform.formats.kafka_connect.json import read_json
from cdc_platform.formats.kafka_connect.values import BAD
from cdc_platform.formats.limits import finer_than, of

_Place = tuple[int, int]
"""Message in the batch, and 0 for what comes before its row, else 1 and on."""


def decode(messages: pa.RecordBatch, options: DataworksOptions) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes."""
    groups: dict[Group, list[Row]] = {}
    rare: list[tuple[_Place, dict[str, Any]]] = []
    for at, value in enumerate(messages.column("value").to_pylist()):
        if value is None:
            rare.append(((at, 1), {"kind": "skip", "reason": "no value"}))
            continue
        try:
            found = read(at, read_json(value))
        except BAD as e:
            rare.append(((at, 1), _error(e)))
            continue
        if isinstance(found, list):
            rare.extend(((at, 1 + i), event) for i, event in enumerate(found))
        else:
            groups.setdefault(found[0], []).append(found[1])
    batches, places = _rows(messages, groups, options, rare)
    if rare:
        batches.append(_rare_batch(messages, rare))
        places.extend(place for place, _ in rare)
    if not batches:
        return event_batch([])
    order = np.lexsort(np.array(places).T[::-1])
    return pa.concat_batches(batches).take(pa.array(order))


def _rows(
    messages: pa.RecordBatch,
    groups: dict[Group, list[Row]],
    options: DataworksOptions,
    rare: list[tuple[_Place, dict[str, Any]]],
) -> tuple[list[pa.RecordBatch], list[_Place]]:
    """EVENT batches of all rows, and their places; errors and schema events go to `rare`."""
    batches: list[pa.RecordBatch] = []
    places: list[_Place] = []

    def fail(row: Row, error: BaseException) -> None:
        rare.append(((row.at, 1), _error(error)))

    for group, rows in groups.items():
        try:
            table = Table(group, options)
        except BAD as e:
            for row in rows:
                fail(row, e)
            continue
        first = None
        for batch, good in convert_rows(messages, table, rows, options.time_zone, fail):
            batches.append(batch)
            places.extend((r.at, 1) for r in good)
            first = good[0].at if first is None else first
        if first is not None:
            rare.append(((first, 0), table.schema_event()))
    return batches, places


def _rare_batch(messages: pa.RecordBatch, rare: list[tuple[_Place, dict[str, Any]]]) -> pa.RecordBatch:
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array([p[0] for p, _ in rare]))
    batch = event_batch([{"entry_index": 0, "row_index": 0, **event} for _, event in rare])
    named = {name: address.column(name) for name in address.schema.names}
    return pa.RecordBatch.from_arrays([named.get(f.name, batch.column(f.name)) for f in EVENT], schema=EVENT)


def _error(error: BaseException) -> dict[str, Any]:
    named = isinstance(error, (LookupError, AttributeError, TypeError, RecursionError))
    return {"kind": "error", "reason": f"{type(error).__name__}: {error}" if named else str(error)}


FORMAT = Format(
    name="dataworks",
    version="1",
    summary="Alibaba DataWorks' JSON of whole-database synchronization, updates in one record or two",
    options=DataworksOptions,
    decode=decode,
    limits=(
        Limit(
            "it comes as an instant and is read in UTC: option time_zone names the zone of the synchronization task",
            of("date", "datetime"),
            unless="time_zone",
        ),
        Limit("digits beyond milliseconds aren't sent", finer_than(3, "datetime", "timestamp")),
        Limit("what arrives for a date that doesn't exist isn't known", of("date", "datetime", "timestamp")),
    ),
)
