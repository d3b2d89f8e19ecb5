"""The values of the matrix as each vendor's tool sends them, and what its form can't tell.

Each value is an insert of one row (`id`, `c`) into a table of its own type, by the demo's encoders.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from cdc_platform.demo.canal import CanalEncoder
from cdc_platform.demo.canal_json import CanalJsonEncoder
from cdc_platform.demo.dataworks import DataworksEncoder
from cdc_platform.demo.debezium import DebeziumEncoder
from cdc_platform.demo.feeds import Encoder
from cdc_platform.demo.shop import Column, Connect, Table
from cdc_platform.demo.tdsql import TdsqlEncoder
from cdc_platform.demo.tencent_dts import DtsEncoder
from cdc_platform.demo.workload import SERVER_UUID, START_MS, RowChange, Transaction
from cdc_platform.formats.pb import canal_entry_pb2, canal_protocol_pb2, tencent_dts_pb2
from tests.formats import dtle_messages
from tests.formats.types_matrix import KINDS, Kind, Value

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
_ID = Column("id", "bigint(20)", "INT64", Connect("int64"), key=True, nullable=False)
Raw = dict[str, msgspec.Raw]


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
    envelope = tencent_dts_pb2.Envelope.FromString(value)
    for entry in tencent_dts_pb2.Entries.FromString(envelope.data).items:
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


def _json_cell(*path: str) -> Callable[[bytes], str | None]:
    def cell(value: bytes) -> str | None:
        found = msgspec.Raw(value)
        for step in path:
            if bytes(found) == b"null":
                return None
            content = msgspec.json.decode(found, type=list[msgspec.Raw] if step.isdigit() else Raw)
            if not step.isdigit() and step not in content:
                return None
            found = cast(Any, content)[int(step) if step.isdigit() else step]
        text = bytes(found).decode()
        return _shown(msgspec.json.decode(found)) if text[0] == '"' else text

    return cell


# -- what a feed can't tell -----------------------------------------------------------------------------------------

NOT_SENT = "not sent"

Told = Callable[[Kind, Value], Value | str]
"""What the messages tell of a value: itself where nothing is lost, or NOT_SENT with the reason."""


def _all(_kind: Kind, value: Value) -> Value:
    return value


def _cut(value: Value, digits: int) -> Value:
    held = value.held.replace(microsecond=value.held.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
    text = f"{held:%H:%M:%S.%f}"[: 9 + digits].rstrip("0").rstrip(".") if held.microsecond else f"{held:%H:%M:%S}"
    return value._replace(text=f"{held.date()} {text}{'Z' if held.tzinfo else ''}", held=held)


def _debezium(kind: Kind, value: Value) -> Value | str:
    if not _exists(kind, value):
        # The connector's binlog reader takes a date with a zero in it for NULL, and fails at any other.
        return NOT_SENT if "-02-30" in value.text else Value(None, cast(str, None), None)
    return value


def _dtle(kind: Kind, value: Value) -> Value | str:
    if kind.base == "enum" and value.text == "":
        return NOT_SENT  # index 0 makes dtle's task fail
    if not _exists(kind, value):
        if kind.base == "timestamp":
            return value
        zero = {"date": "1970-01-01", "datetime": "1970-01-01 00:00:00"}[kind.base]
        return NOT_SENT if "00" not in value.text[:10].split("-")[1:] else _moment(zero)
    if kind.base == "decimal" and value.text[0] == "-":
        return _without_sign(value, kind)
    if kind.base in ("datetime", "timestamp") and kind.fsp:
        return _cut(value, 3 if kind.base == "datetime" else 0)
    return value


def _moment(text: str) -> Value:
    held = datetime.fromisoformat(text)
    return Value(None, text, held if " " in text else held.date())


def _without_sign(value: Value, kind: Kind) -> Value:
    """What dtle's bytes of a negative decimal say: right only where the magnitude's leading bit is not set."""
    magnitude = int(value.text.translate({ord(c): None for c in "-."}))
    size = (magnitude.bit_length() + 7) // 8
    if magnitude <= 2 ** (8 * size - 1):
        return value
    scale = len(value.text.partition(".")[2])
    digits = str(256**size - magnitude).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return Value(None, text, text if kind.spark == "string" else type(value.held)(text))


def _dataworks(kind: Kind, value: Value) -> Value | str:
    if not _exists(kind, value):
        return NOT_SENT  # a count of milliseconds has no place for it
    return _cut(value, 3) if kind.base in ("datetime", "timestamp") else value


def _exists(kind: Kind, value: Value) -> bool:
    return value.held is not None or kind.base not in ("date", "datetime", "timestamp")


# -- the feeds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Feed:
    """`column` of docs/types.md: its decoder `format`, what makes the records of a row, what they show of column `c`, what they
    tell; `types`: snapshot types other than the matrix's, by base type name."""

    format: str
    encoder: Callable[[], Encoder] | None
    cell: Callable[[bytes], str | None]
    told: Told = _all
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
    "canal_json": Feed("canal_json", lambda: CanalJsonEncoder("t"), _json_cell("data", "0", "c")),
    "dataworks": Feed(
        "dataworks",
        lambda: DataworksEncoder("t"),
        _json_cell("payload", "after", "dataColumn", "c"),
        _dataworks,
        {"columns": COLUMNS},
    ),
    "tdsql": Feed("tdsql", lambda: TdsqlEncoder("t"), _json_cell("field", "1")),
}
"""Columns of docs/types.md, in its order."""


def records(name: str, number: int, at: int, source: Any) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of the messages of one insert into `table_of(number)`: row `at`, whose column `c` is `source`."""
    feed, table = FEEDS[name], table_of(number)
    if feed.encoder is None:
        return [dtle_messages.insert(table.name, at, KINDS[number], source)]
    row = {"id": at, "c": source}
    changes = (RowChange(table, "insert", None, row, 1000 + at * 100, 0),)
    sent = feed.encoder().encode([_transaction(at, changes, None)])
    return [(r.key, tencent_dts_pb2.Envelope.FromString(r.value).data if name == "tencent_dts" else r.value) for r in sent]


def wire(name: str, number: int, source: Any) -> str:
    """What the message of an insert holds of the value, as docs/types.md shows it."""
    feed, table = FEEDS[name], table_of(number)
    if feed.encoder is None:
        values = [dtle_messages.insert(table.name, 0, KINDS[number], source)[1]]
    else:
        changes = (RowChange(table, "insert", None, {"id": 0, "c": source}, 1000, 0),)
        values = [r.value for r in feed.encoder().encode([_transaction(0, changes, None)]) if r.value]
    return next(cell for cell in map(_safe(feed.cell), values) if cell is not None)


def _safe(cell: Callable[[bytes], str | None]) -> Callable[[bytes], str | None]:
    """Messages that hold no row have no such place."""

    def found(value: bytes) -> str | None:
        try:
            return cell(value)
        except (IndexError, msgspec.ValidationError):
            return None

    return found


def creates() -> Iterator[bytes | None]:
    """TDSQL's messages of the CREATE TABLE of all tables: its rows have no types."""
    encoder = TdsqlEncoder("t")
    for number in range(len(KINDS)):
        for record in encoder.encode([_transaction(number, (), table_of(number))]):
            yield record.value


def _transaction(at: int, changes: tuple[RowChange, ...], ddl: Table | None) -> Transaction:
    return Transaction(
        f"{SERVER_UUID}:{at + 1}", "mysql-bin.000001", 900 + at * 100, 1090 + at * 100, START_MS, 7, changes, ddl
    )
