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
from cdc_platform.formats.canal_json.messages import Changes, Row, Rows, read
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.canal_json.rows import convert, convert_sheet
from cdc_platform.formats.canal_json.scanner import Scanner
from cdc_platform.formats.canal_json.tables import Group, described, grouped
from cdc_platform.formats.canal_json.unusable import of_message, of_row
from cdc_platform.formats.collect import Collector, Converted, Table
from cdc_platform.formats.contract import Format, Liveness
from cdc_platform.formats.events import Event, collection_paused


class _Collector(Collector[Group, Changes, Table]):
    CHANGES = Changes

    def __init__(self, messages: pa.RecordBatch, options: CanalJsonOptions):
        self.sheets = Scanner()
        super().__init__(messages, self.sheets)
        self.options = options

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

    def table(self, group: Group) -> Table:
        return described(group, self.options)

    def convert(self, _group: Group, table: Table, rows: Changes) -> Converted[Changes]:
        return convert(self.messages, table, rows, self.options.dialect)

    def batches(self, group: Group, table: Table) -> Iterable[tuple[pa.RecordBatch, Changes]]:
        if group not in self.rows:
            [sheet] = self.sheets.rows[group]
            if done := convert_sheet(self.messages, table, sheet, self.options.dialect):
                return [done]
        return super().batches(group, table)


def decode(messages: pa.RecordBatch, options: CanalJsonOptions) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes."""
    with collection_paused():
        return _Collector(messages, options).decode()


FORMAT = Format(
    name="canal_json",
    version="1",
    summary="canal's FlatMessage JSON, and the canal-json of TiCDC, Tencent DTS, InLong, Flink and others",
    options=CanalJsonOptions,
    decode=decode,
    liveness=Liveness("canal's messages promise no heartbeats"),
    part=None,
    limits=(TIMESTAMP_WITHOUT_ZONE,),
)
