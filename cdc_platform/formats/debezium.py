"""Debezium's JSON change events (MySQL, MariaDB) and dtle's Debezium-like ones.

Per message: `{"schema":…,"payload":…}`, `"schema":null` or the bare payload, mixed at will; dtle is known by
`source.version` 0.0.1 without `connector`. JSON is read by msgspec, which keeps every digit and refuses
trailing bytes and bad UTF-8; repeated object keys are refused too, as nobody can tell which one was meant.

Bare payloads tell no types. Without the option `columns` their values stay as written, as `longtext`, and the
columns are those of the image at hand; with it they are read by Debezium's encodings under the modes set.

dtle's faults. Repaired always: a TIMESTAMP of year 1 (its zero date), snapshot years 100..255 (2000 on).
Repaired by option: BIGINT UNSIGNED above 2^63 and fractions of TIME(n<6) (`columns`), DATETIME with a time zone
(`dtle_time_zone`), base64 TEXT and JSON (`dtle_text_base64`), snapshot years 1901..1969 (`dtle_snapshot_year`).
Not repairable from the message: negative DECIMALs whose magnitude fills its bytes (-2.00 reads as 0.56),
DATETIME digits below ms, TIMESTAMP fractions, zero DATE and DATETIME (1970-01-01), trailing zeros of BINARY(n),
ENUM labels holding commas or quotes (the type text, not the values). dtle's source time is its own clock.
"""

import gc
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from cdc_platform.errors import UnknownType
from cdc_platform.formats.connect_json import Schema, Unwrapper
from cdc_platform.formats.connect_types import (
    BinaryMode,
    Column,
    DecimalMode,
    Dialect,
    TemporalMode,
    bare_column,
    column,
)
from cdc_platform.formats.connect_values import BAD, shown
from cdc_platform.formats.contract import EVENT, Format, FormatOptions
from cdc_platform.formats.debezium_control import control_events
from cdc_platform.formats.debezium_rows import Row, Table, convert_rows
from cdc_platform.formats.events import event_batch
from cdc_platform.mysql.types import parse_type


class DebeziumOptions(FormatOptions):
    """Options of the format `debezium`; all but `columns` matter for bare payloads or for dtle only."""

    columns: dict[str, dict[str, str]] = Field(
        default={}, description="Real MySQL types that the messages don't tell, e.g. "
        "{'shop.orders': {'id': 'bigint unsigned', 'at': 'time(3)'}}")
    time_precision_mode: TemporalMode = Field(
        default="adaptive_time_microseconds", description="The connector's setting, for bare payloads")
    decimal_handling_mode: DecimalMode = Field(
        default="precise", description="The connector's setting, for bare payloads")
    binary_handling_mode: BinaryMode = Field(
        default="bytes", description="The connector's setting, for bare payloads and for columns that `columns` "
        "or the schema calls binary while they come as text")
    unavailable_value: str = Field(
        default="__debezium_unavailable_value", description="unavailable.value.placeholder: the column isn't in the image")
    dtle_time_zone: str | None = Field(default=None, description="DateTimeZone of the dtle job, if set")
    dtle_text_base64: bool = Field(
        default=False, description="dtle writes JSON columns, and those that `columns` calls *text, as base64 in "
        "incremental rows")
    dtle_snapshot_year: bool = Field(
        default=False, description="dtle's snapshot rows give YEAR 1901..1969 as 2001..2069: turn them back")

    @field_validator("dtle_time_zone")
    @classmethod
    def _known_zone(cls, zone: str | None) -> str | None:
        if zone is not None:
            try:
                ZoneInfo(zone)
            except (ValueError, OSError, LookupError):
                raise ValueError(f"unknown time zone {zone!r}; valid: IANA names such as Asia/Shanghai") from None
        return zone

    @field_validator("columns")
    @classmethod
    def _known_types(cls, tables: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for table, columns in tables.items():
            for name, text in columns.items():
                try:
                    parse_type(text)
                except UnknownType:
                    raise ValueError(f"{table}.{name}: unknown MySQL type {text!r}") from None
        return tables


_MANY = 10_000      # tables × schemas kept for one decode call; beyond it something invents schemas
_OPS = {"c": "insert", "u": "update", "d": "delete", "r": "read", "t": "truncate"}
_NO_SNAPSHOT = (None, False, "false", "incremental")
_FLATTENED = ("no op, before and after: this is no Debezium change event. If ExtractNewRecordState (unwrap) flattens "
              "the messages, remove that SMT from the connector")
_ROUTING = "__dbz__physicalTableIdentifier"  # added to the key by ByLogicalTableRouter; no column


class _Batch:
    """Decodes one MESSAGE batch: control messages at once, rows collected by table and schema."""

    def __init__(self, messages: pa.RecordBatch, options: DebeziumOptions):
        self.messages, self.options = messages, options
        self.values, self.keys = Unwrapper(), Unwrapper()
        self.tables: dict[tuple, Table] = {}
        self.groups: dict[tuple, list[Row]] = {}
        self.rare: list[tuple[int, dict]] = []

    def fail(self, index: int, error: BaseException) -> None:
        self.rare.append((index, _error(error)))

    def read(self) -> None:
        columns = (self.messages.column(n).to_pylist() for n in ("topic", "key", "value"))
        for index, (topic, key, value) in enumerate(zip(*columns, strict=True)):
            try:
                if value is None:
                    self.rare.append((index, {"kind": "skip", "reason": "tombstone"}))
                else:
                    self._message(index, topic or "", key, value)
            except BAD as e:
                self.fail(index, e)

    def _message(self, index: int, topic: str, key: bytes | None, value: bytes) -> None:
        schema, payload, _ = self.values(topic, value)
        if payload is None:     # dtle's tombstone is the text {"schema":null,"payload":null}
            self.rare.append((index, {"kind": "skip", "reason": "tombstone"}))
            return
        if type(payload) is not dict:
            raise ValueError(f"payload {shown(payload)} is no object")
        if "op" in payload:
            self._row(index, topic, key, schema, payload)
            return
        events = control_events(payload, topic, schema.name if schema else None)
        if events is None:
            raise ValueError(_FLATTENED)
        self.rare.extend((index, event) for event in events)

    def _row(self, index: int, topic: str, key: bytes | None, schema: Schema | None, payload: dict) -> None:
        op, source = payload["op"], payload.get("source")
        if op == "m":
            self.rare.append((index, {"kind": "skip", "reason": "logical decoding message (op m)"}))
            return
        if type(op) is not str or op not in _OPS:
            raise ValueError(f"unknown op {shown(op)}; known: {', '.join(_OPS)}, m")
        if type(source) is not dict:
            raise ValueError(f"source {shown(source)} is no object")
        db, table = source.get("db"), source.get("table")
        if not (type(db) is str and db and type(table) is str and table):
            raise ValueError(f"source names no table: db {shown(db)}, table {shown(table)}")
        before, after = _images(op, payload)
        key_schema, key_row = self._key(topic, key) if op != "t" else (None, None)
        snapshot = source.get("snapshot") not in _NO_SNAPSHOT
        dtle = source.get("version") == "0.0.1" and "connector" not in source
        shape = None if schema is not None else _shape(before, after)
        names = tuple(key_row) if key_row else ()
        group = (schema, key_schema, db, table, dtle, dtle and snapshot, names, shape)
        known = self.tables.get(group)
        if known is None:
            known = self._table(*group)
            if len(self.tables) < _MANY:
                self.tables[group] = known
        if not known.key_names:
            key_row = None
        elif op in "ud" and before is not None and known.key_set <= before.keys():
            key_row = before     # the row before; dtle's Kafka key is that already
        elif op in "cr" and after is not None and known.key_set <= after.keys():
            key_row = after
        if op == "d" and before is None and key_row is None:
            raise ValueError("delete without before and without a readable key: no telling which row")
        name = "read" if op == "c" and snapshot else _OPS[op]   # 0.x and dtle write snapshot rows as c
        transaction = payload.get("transaction")
        if transaction is not None and type(transaction) is not dict:
            raise ValueError(f"transaction {shown(transaction)} is no object")
        self.groups.setdefault(group, []).append(Row(index, name, before, after, key_row, source, transaction))

    def _key(self, topic: str, key: bytes | None) -> tuple[Schema | None, dict | None]:
        """Kafka key → its schema and columns; nothing when it is null, junk or without columns (no primary key)."""
        if key is None:
            return None, None
        try:
            schema, payload, _ = self.keys(topic, key)
        except BAD:
            return None, None
        if type(payload) is not dict:
            return None, None
        payload.pop(_ROUTING, None)
        return (schema, payload) if payload else (None, None)

    def _table(self, schema: Schema | None, key_schema: Schema | None, db: str, table: str, dtle: bool,
               snapshot: bool, names: tuple[str, ...], shape: tuple[str, ...] | None) -> Table:
        o = self.options
        dialect = Dialect(
            temporal=o.time_precision_mode, decimal=o.decimal_handling_mode, binary=o.binary_handling_mode,
            unavailable=o.unavailable_value, dtle=dtle, snapshot=snapshot, zone=o.dtle_time_zone,
            text_base64=o.dtle_text_base64, snapshot_year=o.dtle_snapshot_year)
        given = o.columns.get(f"{db}.{table}", {})
        if schema is not None:
            columns = [column(f, given.get(f["field"]), dialect) for f in schema.fields]
        else:
            # A bare value under a key with schema: the key's types hold for the images too, or keys would differ.
            typed = {f["field"]: f for f in key_schema.fields} if key_schema else {}
            columns = [
                column(typed[n], given.get(n), dialect) if n in typed else bare_column(n, given.get(n), dialect)
                for n in (shape or names)
            ]
        found: dict[str, Column] = {c.name: c for c in columns}
        if len(found) != len(columns):
            raise ValueError("the schema names a column twice")
        key_names = names if all(n in found for n in names) else ()
        return Table(db, table, dtle, found, key_names, complete=schema is not None or bool(shape))

    def rows(self) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        described: dict[str, tuple[int, Table]] = {}
        for group, rows in self.groups.items():
            table = self.tables.get(group) or self._table(*group)
            for batch, indexes in convert_rows(self.messages, table, rows, self.fail):
                yield batch, indexes
                first = next((i for i, r in zip(indexes, batch.column("schema_version"), strict=True) if r.is_valid), None)
                if table.version is not None and first is not None:
                    seen = described.get(table.version)
                    described[table.version] = (first, table) if seen is None or first < seen[0] else seen
        for first, t in described.values():
            self.rare.append((first, {"kind": "schema", "db": t.db, "table": t.table, "schema_version": t.version,
                                      "columns": t.columns_json}))


def _shape(before: dict | None, after: dict | None) -> tuple[str, ...]:
    """Column names of a bare row, in the order of its images."""
    if after and before and after.keys() != before.keys():
        return tuple({**after, **before})
    return tuple(after or before or ())


def _images(op: str, payload: dict) -> tuple[dict | None, dict | None]:
    """before and after of a row message, checked against what its op needs."""
    before, after = payload.get("before"), payload.get("after")
    for name, image in (("before", before), ("after", after)):
        if image is not None and type(image) is not dict:
            raise ValueError(f"{name} {shown(image)} is no object")
    if op == "t":
        return None, None
    if op == "d":
        return before, None
    if after is None:
        raise ValueError(f"op {op} without after")
    return (before if op == "u" else None), after


def decode(messages: pa.RecordBatch, options: DebeziumOptions) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes."""
    collecting = gc.isenabled()
    gc.disable()    # parsed JSON holds no cycles; walking it again and again halves the speed (measured)
    try:
        return _decode(messages, options)
    finally:
        if collecting:
            gc.enable()


def _decode(messages: pa.RecordBatch, options: DebeziumOptions) -> pa.RecordBatch:
    work = _Batch(messages, options)
    work.read()
    batches, order = [], []
    for batch, indexes in work.rows():
        batches.append(batch)
        order.extend(indexes)
    if work.rare:
        batches.append(_rare_batch(messages, work.rare))
        order.extend(i for i, _ in work.rare)
    if not batches:
        return event_batch([])
    found = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    places = np.array(order)
    return found if (np.diff(places) >= 0).all() else found.take(pa.array(np.argsort(places, kind="stable")))


def _rare_batch(messages: pa.RecordBatch, rare: list[tuple[int, dict]]) -> pa.RecordBatch:
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array([i for i, _ in rare]))
    events = [{"entry_index": 0, "row_index": 0, **event} for _, event in rare]
    try:
        batch = event_batch(events)
    except BAD:     # a number beyond its column: find whose
        batch = event_batch(list(map(_checked, events)))
    named = {name: address.column(name) for name in address.schema.names}
    return pa.RecordBatch.from_arrays([named.get(f.name, batch.column(f.name)) for f in EVENT], schema=EVENT)


def _checked(event: dict) -> dict:
    try:
        event_batch([event])
    except BAD as e:
        return {"entry_index": event["entry_index"], "row_index": 0, **_error(e)}
    return event


def _error(error: BaseException) -> dict:
    named = isinstance(error, (LookupError, AttributeError, TypeError, RecursionError))
    return {"kind": "error", "reason": f"{type(error).__name__}: {error}" if named else str(error)}


FORMAT = Format(
    name="debezium",
    version="1",
    summary="Debezium JSON (MySQL, MariaDB) with or without schema, and dtle's flavour of it",
    options=DebeziumOptions,
    decode=decode,
    part=None,
)
