"""Rows that the platform read from the source's server itself: the record that lands, and its decoder.

No vendor's format: it comes by no Kafka topic (LOADED stands in place of one), in any source, beside whatever its feed
is. A record is one JSON object:

    {"format": "cdc-platform load", "version": 1, "load": "0.17", "kind": "whole", "server": {"id": "7", …},
     "at": {"file": "mysql-bin.000003", "pos": 4711, "gtid": "0-7-12", "exact": true}, "time_us": 1790000000000000,
     "db": "shop", "table": "orders", "columns": [{"name": "id", "type": "int(11)", "key": true}, …],
     "after": "shop.orders/0/8123/0", "begin": "mysql-bin.000003:4711", "chunk": 0, "last": true, "next": null,
     "rows": [["1", null, …], …], "gone": []}

`at`: where in the server's log the rows were read: what is before it is in them; what is in them and not before it
comes behind it in the log, too. after: the event of the feed (topic, partition, offset, event of the message) that was
found in that log where it says, so that both are one log. kind whole: part of a load of a whole table, whose last
record says `last`; keys: rows of some keys alone, and of keys that the server lacks (`gone`: values of the key's
columns). Values are the server's texts, NULL as null, bytes as base64. next: where a load goes on (texts of the key).
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from cdc_platform.errors import UnknownType
from cdc_platform.formats.contract import LOAD, LOAD_END, LOAD_WHOLE
from cdc_platform.formats.events import (
    BadColumn,
    Event,
    OfTable,
    columns_json,
    error_event,
    file_number,
    rare_batch,
    row_batch,
    schema_version,
)
from cdc_platform.formats.images import image_maps
from cdc_platform.formats.texts import shown
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.values import Checked, to_text, unchanged

NAME, VERSION = "load", "load-1"
"""What stands in `format` and `decoder_version` of such rows."""
FORMAT = "cdc-platform load"
BYTES = ("binary", "geometry")
"""Families of types whose values stand as base64."""
_GONE, _ROWS = 1, 2
"""`entry_index` of keys that the server lacks, and of rows; 0: of the column list. Under a collation a row may
have come in place of one whose key counts as equal."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column as the feed's messages state it, where they do, else as the server does. limits: what they can't tell of
    it (names of `Limit.stated`), which holds behind a load, too."""

    name: str
    type: str
    key: bool
    limits: tuple[str, ...] = ()


class LogPosition(msgspec.Struct, frozen=True):
    """A place in the server's log. exact: the rows are what the server held there; else they may hold more."""

    file: str
    pos: int
    gtid: str | None = None
    exact: bool = True


class Record(msgspec.Struct, frozen=True):
    """See the module."""

    load: str
    kind: str
    server: dict[str, str]
    at: LogPosition
    time_us: int
    db: str
    table: str
    columns: list[Column]
    after: str
    begin: str
    chunk: int = 0
    last: bool = False
    next: list[str] | None = None
    rows: list[list[str | None]] = []
    gone: list[list[str | None]] = []
    format: str = FORMAT
    version: int = 1
    made: str | None = None
    """When the server's table was made: a load doesn't go on in another one of its name."""
    loaded: int | None = None
    """Rows of a load up to the end of this chunk; None: it is no load, or an earlier version of the platform's."""


_decoder = msgspec.json.Decoder(Record)


def encoded(record: Record) -> bytes:
    """As it lands."""
    return msgspec.json.encode(record)


def record_of(value: bytes) -> Record:
    """Raises ValueError where it is none."""
    found = _decoder.decode(value)  # its errors are ValueErrors
    if found.format != FORMAT or found.version != 1:
        raise ValueError(f"a record of {shown(found.format)}, version {found.version}: this platform reads version 1")
    return found


def decode(messages: pa.RecordBatch) -> pa.RecordBatch:
    """MESSAGE batch of LOADED → EVENT batch, in the order of the messages."""
    batches: list[pa.RecordBatch] = []
    for number, value in enumerate(messages.column("value").to_pylist()):
        one = messages.slice(number, 1)
        try:
            batches += _events(one, record_of(value or b""))
        except (ValueError, UnknownType) as error:
            batches.append(rare_batch(one, [((0,), error_event(error))]))
    return pa.concat_batches(batches) if batches else rare_batch(messages, [])


def _events(message: pa.RecordBatch, record: Record) -> list[pa.RecordBatch]:
    """Of one record. Raises ValueError, UnknownType."""
    table = _Table(record)
    try:
        found = [rare_batch(message, [((0,), table.schema_event())])]
        if record.gone:
            found.append(table.gone(message))
        if record.rows:
            found.append(table.rows(message))
    except BadColumn as error:
        told = f"column {shown(error.column)}: {error}"
        raise OfTable(record.db, record.table, told) from None
    return found


@dataclass
class _Table:
    record: Record

    def __post_init__(self) -> None:
        record = self.record
        self.columns = columns_json([msgspec.structs.asdict(c) for c in record.columns])
        # Each load states the columns once more, as its place is kept beside them; so does its last record.
        states = [self.columns, LOAD, record.load, "last" if record.last else ""] if self.whole else [self.columns]
        self.version = schema_version(record.db, record.table, "\x00".join(states))
        self.types = {c.name: parse_type(c.type) for c in record.columns}
        self.keys = [c.name for c in record.columns if c.key]

    @property
    def whole(self) -> bool:
        return self.record.kind == "whole"

    @property
    def _place(self) -> Event:
        at, record = self.record.at, self.record
        return {
            **{"db": record.db, "table": record.table, "schema_version": self.version},
            **{"binlog_file": at.file, "gtid": at.gtid, "lineage": record.after},
        }

    def schema_event(self) -> Event:
        record, at = self.record, self.record.at
        info = [(LOAD, f"{record.begin} (load {record.load})"), (LOAD_WHOLE, "true")] if self.whole else []
        info += [(LOAD_END, "table")] if self.whole and record.last else []
        place = {"file_no": file_number(at.file), "binlog_pos": Decimal(at.pos)}
        return {**self._place, **place, "kind": "schema", "columns": self.columns, **({"info": info} if info else {})}

    def rows(self, message: pa.RecordBatch) -> pa.RecordBatch:
        names = [c.name for c in self.record.columns]
        n, columns = len(self.record.rows), self._columns(names, self.record.rows)
        after = _maps(names, columns)
        key = _maps(self.keys, [columns[names.index(k)] for k in self.keys]) if self.keys else None
        return self._batch(message, n, _ROWS, {"op": "read", "key": key, "after": after})

    def gone(self, message: pa.RecordBatch) -> pa.RecordBatch:
        key = _maps(self.keys, self._columns(self.keys, self.record.gone))
        return self._batch(message, len(self.record.gone), _GONE, {"op": "delete", "key": key, "before": key})

    def _batch(self, message: pa.RecordBatch, n: int, entry: int, own: dict[str, Any]) -> pa.RecordBatch:
        at = self.record.at
        told = {
            **self._place,
            **{
                "entry_index": pa.array(np.full(n, entry, np.int32)),
                "row_index": pa.array(np.arange(n, dtype=np.int32)),
            },
            **{"file_no": pa.array([file_number(at.file)] * n, pa.int64()), "binlog_pos": [at.pos] * n},
            "source_time": [self.record.time_us] * n,
        }
        return row_batch(message, [0] * n, {**told, **own})

    def _columns(self, names: list[str], rows: list[list[str | None]]) -> list[pa.StringArray]:
        """Canonical texts, by column. Raises BadColumn."""
        if any(len(row) != len(names) for row in rows):
            raise ValueError("a row hasn't as many values as there are columns")
        told = zip(*rows, strict=True)
        return [_texts(name, self.types[name], list(values)) for name, values in zip(names, told, strict=True)]


def _texts(name: str, type_: MySqlType, values: list[str | None]) -> pa.StringArray:
    text, ok = _canonical(pa.array(values, pa.string()), type_)
    if not ok.all():
        bad = values[int(np.argmin(ok))]
        raise BadColumn(name, f"{shown(bad)} is no value of {type_.name}")
    return text


def _canonical(values: pa.StringArray, type_: MySqlType) -> Checked:
    return unchanged(values) if type_.family in BYTES else to_text(values, type_)


def _maps(names: list[str], columns: list[pa.StringArray]) -> pa.MapArray:
    n, width = len(columns[0]), len(names)
    places = np.arange(width * n).reshape(width, n).T
    text = pa.concat_arrays([c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns])
    return image_maps(text, pa.array(names, pa.string()), places, np.ones(n, bool))
