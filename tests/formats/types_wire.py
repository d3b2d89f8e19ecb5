"""The values of the matrix as each vendor's tool sends them, and what its form can't tell.

Each value is an insert of one row (`id`, `c`) into a table of its own type, by the demo's encoders.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import msgspec
import pyarrow as pa

from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.dataworks import DataworksEncoder
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.feeds import Encoder
from cdc_platform.feeds.shop import Column, Connect, Table
from cdc_platform.feeds.tdsql import TdsqlEncoder
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import SERVER_UUID, START_MS, Ddl, RowChange, Transaction
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.pb import canal_entry_pb2, canal_protocol_pb2, tencent_dts_pb2
from tests.formats import dtle_messages
from tests.formats.types_matrix import KINDS, Kind, Value

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
_ID = Column("id", "bigint(20)", "INT64", Connect("int64"), key=True, nullable=False)


def table_of(number: int) -> Table:
    """Table `types.t<number>`, whose column `c` is of KINDS[number]."""
    kind = KINDS[number]
    column = Column("c", kind.type, kind.dts, kind.connect, charset=kind.charset, fsp=kind.fsp)
    return Table("types", f"t{number}", (_ID, column))


COLUMNS = {table_of(n).full_name: {"id": "bigint(20)", "c": kind.type} for n, kind in enumerate(KINDS)}
"""Option `columns`: the real types, for formats whose messages don't tell them."""


# -- what a record holds of the column `c`, for docs/types.md -----------------------------------------------------


def _shown(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _dts_cell(value: bytes) -> str | None:
    for entry in tencent_dts_pb2.Entries.FromString(value).items:
        for row in entry.event.dmlEvent.rows:
            cell = row.newColumns[1]
            name = tencent_dts_pb2.DataType.Name(cell.dataType)
            if name == "STRING" and cell.charset == "utf8mb4":
                return f"{name} {_shown(cell.bv.decode())}"
            charset = f" {cell.charset}" if cell.charset else ""
            return f"{name}{charset} x'{cell.bv.hex()}'" if name in ("STRING", "BYTES") else f"{name} {_shown(cell.sv)}"
    return None


def _canal_cell(value: bytes) -> str | None:
    messages = canal_protocol_pb2.Messages.FromString(canal_protocol_pb2.Packet.FromString(value).body).messages
    for entry in map(canal_entry_pb2.Entry.FromString, messages):
        if entry.entryType == canal_entry_pb2.ROWDATA:
            return _shown(canal_entry_pb2.RowChange.FromString(entry.storeValue).rowDatas[0].afterColumns[1].value)
    return None


def _json_cell(*path: str | int) -> Callable[[bytes], str | None]:
    """The JSON at a place of the message, numbers as they are written; None where it has no such place."""

    def cell(value: bytes) -> str | None:
        found = msgspec.Raw(value)
        for step in path:
            content: Any = msgspec.json.decode(found, type=list[msgspec.Raw] | dict[str, msgspec.Raw] | None)
            if not content or (isinstance(step, str) and step not in content):
                return None
            found = content[step]
        text = bytes(found).decode()
        return _shown(msgspec.json.decode(found)) if text[0] == '"' else text

    return cell


# -- what a feed can't tell -----------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What the messages tell of a value: `value` is None where they can't hold it at all; `why` where it isn't the
    source's."""

    value: Value | None
    why: str = ""


def _all(_kind: Kind, value: Value) -> Told:
    return Told(value)


_NULL = Value(None, cast(str, None), None)


def _debezium(kind: Kind, value: Value) -> Told:
    if _exists(kind, value):
        return Told(value)
    if "-02-30" in value.text:
        return Told(None, "the connector fails at a day that its month doesn't have")
    return Told(
        _NULL,
        "a date with a zero arrives as NULL, if NOT NULL as 1970-01-01, which is known as zero for TIMESTAMP only",
    )


def _dtle(kind: Kind, value: Value) -> Told:
    lost = _DTLE.get(kind.base)
    return lost(kind, value) if lost else Told(value)


def _dtle_enum(_kind: Kind, value: Value) -> Told:
    return Told(value) if value.text else Told(None, "its task fails at ENUM index 0")


def _dtle_decimal(kind: Kind, value: Value) -> Told:
    """dtle's bytes of a negative decimal are right only where the magnitude's leading bit is not set."""
    magnitude = int(value.text.translate({ord(c): None for c in "-."}))
    size = (magnitude.bit_length() + 7) // 8
    if value.text[0] != "-" or magnitude <= 2 ** (8 * size - 1):
        return Told(value)
    scale = len(value.text.partition(".")[2])
    digits = str(256**size - magnitude).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    wrong = Value(None, text, text if kind.spark == "string" else type(value.held)(text))
    return Told(wrong, "negative decimals whose leading bit is set arrive as positive ones")


def _dtle_date(kind: Kind, value: Value) -> Told:
    if _exists(kind, value):
        return _cut(value, 3, "digits of DATETIME beyond milliseconds aren't sent") if kind.fsp else Told(value)
    if "-02-30" in value.text:
        return Told(None, "what it sends for a day that its month doesn't have isn't known")
    at = datetime(1970, 1, 1)
    held = Value(None, "1970-01-01", at.date()) if kind.base == "date" else Value(None, str(at), at)
    return Told(held, "dates with a zero arrive as 1970-01-01, a date like any other")


def _dtle_timestamp(kind: Kind, value: Value) -> Told:
    # A zero arrives as the year 1, which no TIMESTAMP has.
    return _cut(value, 0, "fractions of TIMESTAMP aren't sent") if _exists(kind, value) else Told(value)


_DTLE: dict[str, Callable[[Kind, Value], Told]] = {
    "enum": _dtle_enum,
    "decimal": _dtle_decimal,
    "date": _dtle_date,
    "datetime": _dtle_date,
    "timestamp": _dtle_timestamp,
}


def _dataworks(kind: Kind, value: Value) -> Told:
    if not _exists(kind, value):
        return Told(
            None, "a date is a count of milliseconds: which one stands for a date that doesn't exist isn't known"
        )
    if kind.base in ("datetime", "timestamp"):
        return _cut(value, 3, "digits beyond milliseconds aren't sent")
    return Told(value)


def _cut(value: Value, digits: int, why: str) -> Told:
    unit = 10 ** (6 - digits)
    held = value.held.replace(microsecond=value.held.microsecond // unit * unit)
    if held == value.held:
        return Told(value)
    mark = "Z" if held.tzinfo else ""
    text = str(held.replace(tzinfo=None))
    return Told(Value(None, (text.rstrip("0") if held.microsecond else text) + mark, held), why)


def _exists(kind: Kind, value: Value) -> bool:
    return value.held is not None or kind.base not in ("date", "datetime", "timestamp")


# -- the feeds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Feed:
    """A column of docs/types.md: its decoder's `format`, what makes the records of a row, what those hold of `c`, what
    they tell; `types`: snapshot types other than the matrix's, by base type name."""

    format: str
    encoder: Callable[[], Encoder] | None
    cell: Callable[[bytes], str | None]
    told: Callable[[Kind, Value], Told] = _all
    options: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


FEEDS = {
    "tencent_dts": Feed("tencent_dts", lambda: DtsEncoder("t"), _dts_cell),
    "debezium": Feed(
        "debezium",
        lambda: DebeziumEncoder("t"),
        _json_cell("payload", "after", "c"),
        _debezium,
        types={"tinyint": "smallint"},  # int16 before Debezium 3: nothing on the wire tells TINYINT from SMALLINT
    ),
    "dtle": Feed(
        "debezium",
        None,
        _json_cell("payload", "after", "c"),
        _dtle,
        {"columns": COLUMNS, "dtle_text_base64": True},
    ),
    "canal": Feed("canal", lambda: CanalEncoder("t"), _canal_cell),
    "canal_json": Feed("canal_json", lambda: CanalJsonEncoder("t"), _json_cell("data", 0, "c")),
    "dataworks": Feed(
        "dataworks",
        lambda: DataworksEncoder("t"),
        _json_cell("payload", "after", "dataColumn", "c"),
        _dataworks,
        {"columns": COLUMNS},
    ),
    "tdsql": Feed("tdsql", lambda: TdsqlEncoder("t"), _json_cell("field", 1)),
}
"""Columns of docs/types.md, in its order."""


def records(name: str, number: int, at: int, source: Any) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of the messages of one insert into `table_of(number)`: row `at`, whose column `c` is `source`."""
    feed, table = FEEDS[name], table_of(number)
    if feed.encoder is None:
        return [dtle_messages.insert(table.name, at, KINDS[number], source)]
    sent = feed.encoder().encode([inserted(table, at, source)])
    if name == "tencent_dts":
        return [(r.key, tencent_dts_pb2.Envelope.FromString(r.value or b"").data) for r in sent]
    return [(r.key, r.value) for r in sent]


def wire(name: str, number: int, source: Any) -> str:
    """What the message of an insert holds of the value, as docs/types.md shows it."""
    cells = (FEEDS[name].cell(value) for _, value in records(name, number, 0, source) if value)
    return next(cell for cell in cells if cell is not None)


def creates() -> Iterator[bytes | None]:
    """TDSQL's messages of the CREATE TABLE of all tables: its rows have no types."""
    encoder = TdsqlEncoder("t")
    for number in range(len(KINDS)):
        for record in encoder.encode([created(number)]):
            yield record.value


def created(number: int) -> Transaction:
    """The CREATE TABLE of `table_of(number)`, before its rows."""
    return _transaction(-1, (), Ddl.creating(table_of(number)))


def inserted(table: Table, at: int, source: Any) -> Transaction:
    """The insert of row `at`, whose column `c` is `source`."""
    row = {"id": at, "c": source}
    return _transaction(at, (RowChange(table, "insert", None, row, 1000 + at * 100, 0),), None)


def batch_of(messages: Iterable[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    """(key, value) of messages → MESSAGE batch, offsets from 0."""
    rows = [
        {"topic": "t", "partition": 0, "offset": i, "timestamp": LANDED, "key": k, "value": v, "landed_at": LANDED}
        for i, (k, v) in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def _transaction(at: int, changes: tuple[RowChange, ...], ddl: Ddl | None) -> Transaction:
    return Transaction(
        f"{SERVER_UUID}:{at + 1}", "mysql-bin.000001", 900 + at * 100, 1090 + at * 100, START_MS, 7, changes, ddl
    )
