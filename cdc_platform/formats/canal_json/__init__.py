"""canal's FlatMessage JSON (`canal.mq.flatMessage=true`), and the canal-json of other writers: TiCDC, Tencent
DTS, InLong, Flink, Flink CDC, SeaTunnel.

Facts: alibaba/canal `FlatMessage`, `MQMessageUtils.messageConverter`; TiCDC `canal_json_row_event_encoder.go`.
A message tells no binlog position, so changes are ordered by their Kafka offsets. `sqlType` depends on the
value (an unsigned number is promoted by its size) and decides nothing; `isDdl` is false on DDL of some builds
and decides between statements of type QUERY only.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from cdc_platform.formats.canal_common.options import TIMESTAMP_WITHOUT_ZONE
from cdc_platform.formats.canal_common.text import is_complete_type
from cdc_platform.formats.canal_json.messages import Changes, Row, Rows, read
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.canal_json.rows import convert, convert_sheet
from cdc_platform.formats.canal_json.scanner import Scanner
from cdc_platform.formats.canal_json.tables import Group, described, grouped
from cdc_platform.formats.canal_json.unusable import of_message, of_row
from cdc_platform.formats.collect import Collector, Converted, Table
from cdc_platform.formats.contract import Beat, Context, Format, GtidSets, Liveness
from cdc_platform.formats.events import Addresses, Event, collection_paused
from cdc_platform.formats.table_schemas.by_state import by_state, known_of
from cdc_platform.formats.table_schemas.lookup import NO_SCHEMAS, TableSchemas
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.formats.table_schemas.states import States, build


class _Collector(Collector[Group, Changes, Table]):
    CHANGES, LOADS = Changes, True

    def __init__(self, messages: pa.RecordBatch, options: CanalJsonOptions, states: States | None):
        self.sheets = Scanner()
        super().__init__(messages, self.sheets)
        self.options, self.schemas = options, TableSchemas(states)
        self.addresses = Addresses(messages)

    def read(self, at: int, message: Any) -> None:
        found = read(at, message, self.options)
        if isinstance(found, Rows):
            for group, row in grouped(found, partial(self.fail, found)):
                self.add(group, row)
        else:
            self.rare.extend((at, event) for event in found)

    def of_message(self, _at: int, message: Any) -> Event:
        return of_message(message, self.options)

    def of_row(self, group: Rows | Group, row: Row) -> Event:
        return {**of_row(group, row.data, row.old, self.options), "row_index": row.place}

    def scanned(self, group: Group) -> list[Changes]:
        return [sheet.changes() for sheet in self.sheets.rows.get(group, [])]

    def variants(self, group: Group) -> Iterable[tuple[Group, Changes | None]]:
        if not any(type(told) is not str or not is_complete_type(told) for told in group.types):
            return [(group, None)]
        return by_state(self._schemas(group), group, lambda: self.changes(group), self._place)

    def _schemas(self, group: Group) -> TableSchemas:
        """What is known of MySQL's tables: names without a schema."""
        return self.schemas if group.schema is None else NO_SCHEMAS

    def _place(self, row: Row) -> Place:
        return Place(*self.addresses(row.at), time=row.time)

    def table(self, group: Group) -> Table:
        return described(group, self.options, known_of(self._schemas(group), group))

    def convert(self, _group: Group, table: Table, rows: Changes) -> Converted[Changes]:
        return convert(self.messages, table, rows, self.options.dialect)

    def batches(self, group: Group, table: Table) -> Iterable[tuple[pa.RecordBatch, Changes]]:
        if group not in self.rows:
            [sheet] = self.sheets.rows[group]
            if done := convert_sheet(self.messages, table, sheet, self.options.dialect):
                return [done]
        return super().batches(group, table)


def decode(messages: pa.RecordBatch, options: CanalJsonOptions, states: States | None = None) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes. `states`: the tables'
    columns over time, as `table_schemas.states.build` gives them."""
    with collection_paused():
        return _Collector(messages, options, states).decode()


FORMAT = Format(
    name="canal_json",
    version="2",
    summary="canal's FlatMessage JSON, and the canal-json of TiCDC, Tencent DTS, InLong, Flink and others",
    options=CanalJsonOptions,
    decode=decode,
    order="position",
    log_times=frozenset({"row", "ddl", "checkpoint"}),  # a heartbeat is stamped by canal itself
    gtid_sets=GtidSets("gtid", with_next=frozenset({"checkpoint", "heartbeat"})),
    beats=(Beat("heartbeat"), Beat("checkpoint", "TIDB_WATERMARK")),  # other checkpoints: one per transaction
    liveness=Liveness("canal's messages promise no heartbeats"),
    part=None,
    context=Context(build=build, marker=r'sql"\s*:\s*"[^"]'),
    limits=(TIMESTAMP_WITHOUT_ZONE,),
)
