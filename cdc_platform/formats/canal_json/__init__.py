"""canal's FlatMessage JSON (`canal.mq.flatMessage=true`), and the canal-json of other writers: TiCDC, Tencent
DTS, InLong, Flink, Flink CDC, SeaTunnel.

Facts: alibaba/canal `FlatMessage`, `MQMessageUtils.messageConverter`; TiCDC `canal_json_row_event_encoder.go`.
A message tells no binlog position, so changes are ordered by their Kafka offsets. `sqlType` depends on the
value (an unsigned number is promoted by its size) and decides nothing; `isDdl` is false on DDL of some builds
and decides between statements of type QUERY only.
"""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal_json.messages import Row, Rows, read
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.canal_json.plain import PlainReader
from cdc_platform.formats.canal_json.rows import Group, Table, convert_rows, described, grouped
from cdc_platform.formats.canal_options import TIMESTAMP_WITHOUT_ZONE
from cdc_platform.formats.contract import EVENT, Format
from cdc_platform.formats.events import event_batch
from cdc_platform.formats.kafka_connect.json import read_json
from cdc_platform.formats.kafka_connect.values import BAD

_Place = tuple[int, int, int]
"""Message in the batch, row in the message, and 0 for what comes before the row, else 1."""


class _Batch:
    """Decodes one MESSAGE batch: control messages at once, rows collected by table and columns."""

    def __init__(self, messages: pa.RecordBatch, options: CanalJsonOptions):
        self.messages, self.options = messages, options
        self.groups: dict[Group, list[Row]] = {}
        self.rare: list[tuple[_Place, dict[str, Any]]] = []

    def read(self) -> None:
        values = self.messages.column("value").to_pylist()
        for at, (value, rows) in enumerate(zip(values, PlainReader()(values), strict=True)):
            if value is None:
                self.rare.append(((at, 0, 1), {"kind": "skip", "reason": "no value"}))
                continue
            if rows is not None:
                for group, row in rows:
                    self.groups.setdefault(group, []).append(row)
                continue
            try:
                found = read(at, read_json(value), self.options)
            except BAD as e:
                self.rare.append(((at, 0, 1), _error(e)))
                continue
            if isinstance(found, Rows):
                for group, row in grouped(found, self.fail):
                    self.groups.setdefault(group, []).append(row)
            else:
                self.rare.extend(((at, i, 1), event) for i, event in enumerate(found))

    def fail(self, row: Row, error: BaseException) -> None:
        self.rare.append(((row.at, row.place, 1), {**_error(error), "row_index": row.place}))

    def rows(self) -> Iterator[tuple[pa.RecordBatch, list[_Place]]]:
        """EVENT batches of all rows with their places; puts the schema events beside."""
        first: dict[str, tuple[_Place, Table]] = {}
        for group, rows in self.groups.items():
            try:
                table = described(group, self.options)
            except ValueError as e:
                for row in rows:
                    self.fail(row, e)
                continue
            for batch, good in convert_rows(self.messages, table, rows, self.options.dialect, self.fail):
                yield batch, [(r.at, r.place, 1) for r in good]
                versions = batch.column("schema_version")
                telling = next((r for r, v in zip(good, versions, strict=True) if v.is_valid), None)
                if telling is None:
                    continue
                here = (telling.at, telling.place, 0)
                seen = first.get(table.version)
                first[table.version] = (here, table) if seen is None or here < seen[0] else seen
        self.rare.extend((here, {**table.schema_event(), "row_index": here[1]}) for here, table in first.values())


def decode(messages: pa.RecordBatch, options: CanalJsonOptions) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes."""
    collecting = gc.isenabled()
    gc.disable()  # parsed JSON holds no cycles; walking it again and again costs more than parsing
    try:
        return _decode(messages, options)
    finally:
        if collecting:
            gc.enable()


def _decode(messages: pa.RecordBatch, options: CanalJsonOptions) -> pa.RecordBatch:
    work = _Batch(messages, options)
    work.read()
    batches, places = [], []
    for batch, at in work.rows():
        batches.append(batch)
        places.extend(at)
    if work.rare:
        batches.append(_rare_batch(messages, work.rare))
        places.extend(place for place, _ in work.rare)
    if not batches:
        return event_batch([])
    found = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    order = np.lexsort(np.array(places).T[::-1])
    return found if (np.diff(order) > 0).all() else found.take(pa.array(order))


def _rare_batch(messages: pa.RecordBatch, rare: list[tuple[_Place, dict[str, Any]]]) -> pa.RecordBatch:
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array([p[0] for p, _ in rare]))
    batch = event_batch([{"entry_index": 0, "row_index": 0, **event} for _, event in rare])
    named = {name: address.column(name) for name in address.schema.names}
    return pa.RecordBatch.from_arrays([named.get(f.name, batch.column(f.name)) for f in EVENT], schema=EVENT)


def _error(error: BaseException) -> dict[str, Any]:
    named = isinstance(error, (LookupError, AttributeError, TypeError, RecursionError))
    return {"kind": "error", "reason": f"{type(error).__name__}: {error}" if named else str(error)}


FORMAT = Format(
    name="canal_json",
    version="1",
    summary="canal's FlatMessage JSON, and the canal-json of TiCDC, Tencent DTS, InLong, Flink and others",
    options=CanalJsonOptions,
    decode=decode,
    part=None,
    limits=(TIMESTAMP_WITHOUT_ZONE,),
)
