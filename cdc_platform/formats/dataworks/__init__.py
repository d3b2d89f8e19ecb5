"""DataWorks' JSON: what Alibaba's data integration writes to Kafka when it synchronizes a whole database.

Changes are ordered by `sequenceId`, an integer of any length that all of a task's records share: as file number and
position (see `messages.py`); the full load's -1 is lower than all of them. An update may come as one record or as
two that lie in different partitions where it changes the key. Each half is an event of its own at the same
sequenceId: the first removes the old row, the second brings the new one.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from cdc_platform.formats.collect import Collector, Converted, Table
from cdc_platform.formats.contract import Beat, Context, Format, Limit, Liveness
from cdc_platform.formats.dataworks.messages import Changes, Group, Row, read
from cdc_platform.formats.dataworks.options import DataworksOptions
from cdc_platform.formats.dataworks.rows import described, of_message, of_row, row_changes
from cdc_platform.formats.dataworks.scanner import Scanner
from cdc_platform.formats.events import Addresses, Event, collection_paused
from cdc_platform.formats.limits import finer_than, of
from cdc_platform.formats.table_schemas.by_state import by_state, known_of
from cdc_platform.formats.table_schemas.lookup import NO_SCHEMAS, TableSchemas
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.formats.table_schemas.states import States, build


class _Collector(Collector[Group, Changes, Table]):
    CHANGES, LOADS = Changes, True

    def __init__(self, messages: pa.RecordBatch, options: DataworksOptions, states: States | None):
        super().__init__(messages, Scanner())
        self.options, self.schemas = options, TableSchemas(states)
        self.addresses = Addresses(messages)

    def read(self, at: int, message: Any) -> None:
        found = read(at, message)
        if isinstance(found, list):
            self.rare.extend((at, event) for event in found)
        else:
            self.add(*found)

    def of_message(self, _at: int, message: Any) -> Event:
        return of_message(message, self.options)

    def of_row(self, group: Group, row: Row) -> Event:
        return of_row(group, row, self.options)

    def variants(self, group: Group) -> Iterable[tuple[Group, Changes | None]]:
        return by_state(self._schemas(group), group, lambda: self.changes(group), self._place)

    def _schemas(self, group: Group) -> TableSchemas:
        """What is known of MySQL's tables: names without a schema."""
        return self.schemas if group.schema is None else NO_SCHEMAS

    def _place(self, row: Row) -> Place:
        number = None if row.op == "read" else (row.file_no, row.position)  # the full load has no place of its own
        return Place(*self.addresses(row.at), 0, "", number, row.time)

    def table(self, group: Group) -> Table:
        return described(group, self.options, known_of(self._schemas(group), group))

    def convert(self, group: Group, table: Table, rows: Changes) -> Converted[Changes]:
        return row_changes(self.messages, group, table, rows, self.options.time_zone), rows, {}


def decode(messages: pa.RecordBatch, options: DataworksOptions, states: States | None = None) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes. `states`: the tables'
    columns over time, as `table_schemas.states.build` gives them."""
    with collection_paused():
        return _Collector(messages, options, states).decode()


FORMAT = Format(
    name="dataworks",
    version="2",
    summary="Alibaba DataWorks' JSON of whole-database synchronization, updates in one record or two",
    options=DataworksOptions,
    decode=decode,
    context=Context(build=build, marker=r'ddl"\s*:\s*\{'),
    order="position",
    log_times=frozenset({"heartbeat"}),  # rows may come in any order
    beats=(Beat("heartbeat"),),
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
