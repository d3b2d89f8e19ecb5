"""DataWorks' JSON: what Alibaba's data integration writes to Kafka when it synchronizes a whole database.

Changes are ordered by `sequenceId`, an integer of any length that all of a task's records share: as file number and
position (see `messages.py`); the full load's -1 is lower than all of them. An update may come as one record or as
two that lie in different partitions where it changes the key. Each half is an event of its own at the same
sequenceId: the first removes the old row, the second brings the new one.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from cdc_platform.formats.contract import Format, Limit, Liveness
from cdc_platform.formats.dataworks.messages import Changes, Group, Row, read
from cdc_platform.formats.dataworks.options import DataworksOptions
from cdc_platform.formats.dataworks.plain import PlainReader
from cdc_platform.formats.dataworks.rows import Table, convert_rows, of_message, of_row
from cdc_platform.formats.events import Event, collection_paused, error_event, event_batch, in_order, rare_batch
from cdc_platform.formats.exact_json import read_json
from cdc_platform.formats.limits import finer_than, of
from cdc_platform.formats.texts import BAD

_Place = tuple[int, int]
"""Message in the batch, and 0 for what comes before its row, else 1 and on."""


class _Batch:
    """Decodes one MESSAGE batch: control messages at once, rows collected by table and columns."""

    def __init__(self, messages: pa.RecordBatch, options: DataworksOptions):
        self.messages, self.options = messages, options
        self.groups: dict[Group, list[Changes]] = {}
        self.rare: list[tuple[_Place, Event]] = []

    def read(self) -> None:
        values = self.messages.column("value").to_pylist()
        plain = PlainReader()(values)
        self.groups = plain.rows
        others: dict[Group, list[Row]] = {}
        for at in plain.others:
            if values[at] is None:
                self.rare.append(((at, 1), {"kind": "skip", "reason": "no value"}))
                continue
            message = None
            try:
                message = read_json(values[at])
                found = read(at, message)
            except BAD as e:
                self.rare.append(((at, 1), {**of_message(message, self.options), **error_event(e)}))
                continue
            if isinstance(found, list):
                self.rare.extend(((at, 1 + i), event) for i, event in enumerate(found))
            else:
                others.setdefault(found[0], []).append(found[1])
        for group, rows in others.items():
            self.groups.setdefault(group, []).append(Changes.of(rows))

    def fail(self, group: Group, row: Row, error: BaseException) -> None:
        self.rare.append(((row.at, 1), {**of_row(group, row, self.options), **error_event(error)}))

    def rows(self) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """EVENT batches of all rows with their places; puts the schema events beside."""
        for group, parts in self.groups.items():
            rows = Changes.together(parts)
            try:
                table = Table(group, self.options)
            except BAD as e:
                for i in range(len(rows.at)):
                    self.fail(group, rows.row(i), e)
                continue
            first = None
            for batch, at in convert_rows(
                self.messages, table, rows, self.options.time_zone, partial(self.fail, group)
            ):
                yield batch, np.column_stack((at, np.ones(len(at), np.int64)))
                first = at[0] if first is None else first
            if first is not None:
                self.rare.append(((first, 0), table.schema_event()))


def decode(messages: pa.RecordBatch, options: DataworksOptions) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes."""
    with collection_paused():
        return _decode(_Batch(messages, options))


def _decode(work: _Batch) -> pa.RecordBatch:
    work.read()
    batches, places = [], []
    for batch, at in work.rows():
        batches.append(batch)
        places.append(at)
    if work.rare:
        batches.append(rare_batch(work.messages, work.rare))
        places.append(np.array([at for at, _ in work.rare]))
    return in_order(batches, np.concatenate(places)) if batches else event_batch([])


FORMAT = Format(
    name="dataworks",
    version="1",
    summary="Alibaba DataWorks' JSON of whole-database synchronization, updates in one record or two",
    options=DataworksOptions,
    decode=decode,
    liveness=Liveness("DataWorks sends heartbeats, but promises no interval"),
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
