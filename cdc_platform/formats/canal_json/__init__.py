"""canal's FlatMessage JSON (`canal.mq.flatMessage=true`), and the canal-json of other writers: TiCDC, Tencent
DTS, InLong, Flink, Flink CDC, SeaTunnel.

Facts: alibaba/canal `FlatMessage`, `MQMessageUtils.messageConverter`; TiCDC `canal_json_row_event_encoder.go`.
A message tells no binlog position, so changes are ordered by their Kafka offsets. `sqlType` depends on the
value (an unsigned number is promoted by its size) and decides nothing; `isDdl` is false on DDL of some builds
and decides between statements of type QUERY only.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal_common.options import TIMESTAMP_WITHOUT_ZONE
from cdc_platform.formats.canal_json.messages import Changes, Row, Rows, read
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.canal_json.plain import PlainReader
from cdc_platform.formats.canal_json.rows import convert, convert_sheet
from cdc_platform.formats.canal_json.sheets import Sheet
from cdc_platform.formats.canal_json.tables import Group, Table, described, grouped
from cdc_platform.formats.canal_json.unusable import of_message, of_row
from cdc_platform.formats.contract import Format, Liveness
from cdc_platform.formats.events import Event, collection_paused, error_event, event_batch, in_order, rare_batch
from cdc_platform.formats.exact_json import read_json
from cdc_platform.formats.texts import BAD

_Place = tuple[int, int, int]
"""Message in the batch, row in the message, and 0 for what comes before the row, else 1."""


class _Batch:
    """Decodes one MESSAGE batch: control messages at once, rows collected by table and columns."""

    def __init__(self, messages: pa.RecordBatch, options: CanalJsonOptions):
        self.messages, self.options = messages, options
        self.sheets: dict[Group, Sheet] = {}
        self.others: dict[Group, list[Row]] = {}
        self.rare: list[tuple[_Place, Event]] = []

    def read(self) -> None:
        values = self.messages.column("value").to_pylist()
        plain = PlainReader()(values)
        self.sheets = plain.rows
        for at in plain.others:
            if values[at] is None:
                self.rare.append(((at, 0, 1), {"kind": "skip", "reason": "no value"}))
                continue
            message = None
            try:
                message = read_json(values[at])
                found = read(at, message, self.options)
            except BAD as e:
                self.rare.append(((at, 0, 1), {**of_message(message, self.options), **error_event(e)}))
                continue
            if isinstance(found, Rows):
                for group, row in grouped(found, partial(self.fail, found)):
                    self.others.setdefault(group, []).append(row)
            else:
                self.rare.extend(((at, i, 1), event) for i, event in enumerate(found))

    def fail(self, told: Rows | Group, row: Row, error: BaseException) -> None:
        """`told`: what its message says of the row's table."""
        event = {**of_row(told, row.data, row.old, self.options), **error_event(error), "row_index": row.place}
        self.rare.append(((row.at, row.place, 1), event))

    def rows(self) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """EVENT batches of all rows with their places; puts the schema events beside."""
        first: dict[str, tuple[_Place, Table]] = {}
        for group in {**self.sheets, **self.others}:
            try:
                table = described(group, self.options)
            except ValueError as e:
                changes = self._changes(group)
                for i in range(len(changes.at)):
                    self.fail(group, changes.row(i), e)
                continue
            for batch, good in self._converted(group, table):
                places = np.column_stack((good.at, good.place, np.ones(len(batch), np.int64)))
                yield batch, places
                telling = places[batch.column("schema_version").is_valid().to_numpy(zero_copy_only=False)]
                if not len(telling):
                    continue
                at, place, _ = telling[telling[:, 0].argmin()].tolist()  # a message's rows are in order
                here, seen = (at, place, 0), first.get(table.version)
                first[table.version] = (here, table) if seen is None or here < seen[0] else seen
        self.rare.extend((here, {**table.schema_event(), "row_index": here[1]}) for here, table in first.values())

    def _converted(self, group: Group, table: Table) -> Iterable[tuple[pa.RecordBatch, Changes]]:
        dialect = self.options.dialect
        if group not in self.others and (done := convert_sheet(self.messages, table, self.sheets[group], dialect)):
            return [done]
        return convert(self.messages, table, self._changes(group), dialect, partial(self.fail, group))

    def _changes(self, group: Group) -> Changes:
        sheet, others = self.sheets.get(group), self.others.get(group)
        parts = [sheet.changes()] if sheet else []
        return Changes.together([*parts, Changes.of(others)] if others else parts)


def decode(messages: pa.RecordBatch, options: CanalJsonOptions) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes."""
    with collection_paused():
        return _decode(messages, options)


def _decode(messages: pa.RecordBatch, options: CanalJsonOptions) -> pa.RecordBatch:
    work = _Batch(messages, options)
    work.read()
    batches, places = [], []
    for batch, at in work.rows():
        batches.append(batch)
        places.append(at)
    if work.rare:
        batches.append(rare_batch(messages, work.rare))
        places.append(np.array([place for place, _ in work.rare]))
    return in_order(batches, np.concatenate(places)) if batches else event_batch([])


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
