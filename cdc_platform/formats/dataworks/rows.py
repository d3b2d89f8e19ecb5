"""Rows of one table and one list of columns → an EVENT batch, column by column.

The messages know six types. What they leave out (length, precision, sign, which of DATE, DATETIME and TIMESTAMP)
the option `columns` can tell; without it a type is taken that keeps every value as it came.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.dataworks.messages import Group, Row
from cdc_platform.formats.dataworks.options import DataworksOptions
from cdc_platform.formats.events import columns_json, schema_version
from cdc_platform.formats.kafka_connect.values import (
    BAD,
    Number,
    base64_text,
    datetime_text,
    number_text,
    shown,
    zoned_datetime_text,
)
from cdc_platform.formats.names import Names
from cdc_platform.formats.protobuf_arrow import build_maps
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.values import Checked, to_text

_MIDNIGHT = " 00:00:00"
_INTEGER = re.compile(r"-?[0-9]{1,65}", re.ASCII)

Text = Callable[[Any, MySqlType, str], str]
"""(JSON value, the column's MySQL type, zone) → the source's text. Raises ValueError."""


def _boolean(value: Any, _type: MySqlType, _zone: str) -> str:
    if type(value) is not bool:
        raise ValueError(f"{shown(value)} is neither true nor false")
    return "1" if value else "0"


def _long(value: Any, _type: MySqlType, _zone: str) -> str:
    text = str(value) if type(value) in (int, Number, str) else ""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{shown(value)} is no integer")
    return text


def _double(value: Any, mysql_type: MySqlType, _zone: str) -> str:
    if type(value) not in (int, Number, str):
        raise ValueError(f"{shown(value)} is no number")
    try:
        return str(value) if mysql_type.family == "float" else number_text(str(value), None)
    except ArithmeticError:
        raise ValueError(f"{shown(value)} is no number") from None


def _date(value: Any, mysql_type: MySqlType, zone: str) -> str:
    if type(value) is not int:
        raise ValueError(f"{shown(value)} is no count of milliseconds")
    try:
        if mysql_type.family == "timestamp":
            return datetime_text(value, 1000) + "Z"
        text = zoned_datetime_text(value, zone)
    except ArithmeticError:
        raise ValueError(f"{value} ms are outside the years 1 to 9999") from None
    if mysql_type.family == "date":
        if not text.endswith(_MIDNIGHT):
            raise ValueError(f"{value} is {text} in {zone}, no midnight and so no DATE (option time_zone)")
        return text.removesuffix(_MIDNIGHT)
    return text


def _bytes(value: Any, _type: MySqlType, _zone: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no base64 text")
    return base64_text(value)


def _string(value: Any, _type: MySqlType, _zone: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no text")
    return value


_TYPES: dict[str, tuple[str, Text, frozenset[str]]] = {
    "BOOLEAN": ("tinyint(1)", _boolean, frozenset(("boolean", "integer", "bit"))),
    "LONG": ("decimal(20,0)", _long, frozenset(("integer", "bit", "boolean", "year", "decimal"))),
    "DOUBLE": ("decimal(65,30)", _double, frozenset(("decimal", "float"))),
    "DATE": ("datetime(3)", _date, frozenset(("date", "datetime", "timestamp"))),
    "BYTES": ("longblob", _bytes, frozenset(("binary", "geometry"))),
    "STRING": ("longtext", _string, frozenset(("text", "enum", "set", "json", "time", "year", "decimal", "integer"))),
}
"""Type of the message → MySQL type that keeps all its values (unsigned BIGINT; DECIMAL of any scale), its reader, and
the families that the option may name instead."""


class Table:
    """What all rows of a group share."""

    def __init__(self, group: Group, options: DataworksOptions):
        """Raises ValueError for a column type that isn't one of the six, or that the option contradicts."""
        self.group = group
        real = Names(options.columns.get(f"{group.db}.{group.table}", {}))
        self.types: list[tuple[str, MySqlType]] = []
        for name, told in zip(group.names, group.types, strict=True):
            if told not in _TYPES:
                raise ValueError(f"column {shown(name)}: type {shown(told)} is unknown; known: {', '.join(_TYPES)}")
            default, _, families = _TYPES[told]
            text = real.get(name) or default
            mysql_type = parse_type(text)
            if mysql_type.family not in families:
                raise ValueError(f"column {shown(name)}: option columns says {text!r}, the message {told}")
            self.types.append((text, mysql_type))
        self.key = [group.names.index(k) for k in group.key]
        self.columns = columns_json(
            [{"name": n, "type": t, "key": n in group.key} for n, (t, _) in zip(group.names, self.types, strict=True)]
        )
        self.version = schema_version(group.db, group.table, self.columns)

    def schema_event(self) -> dict[str, Any]:
        """EVENT of kind schema, without wire address."""
        told = {"db": self.group.db, "schema": self.group.schema, "table": self.group.table}
        return {**told, "kind": "schema", "schema_version": self.version, "columns": self.columns}


Fail = Callable[[Row, BaseException], None]


def convert_rows(
    messages: pa.RecordBatch, table: Table, rows: list[Row], zone: str, fail: Fail
) -> Iterator[tuple[pa.RecordBatch, list[Row]]]:
    """Rows of one table → EVENT batches, each with its rows. Where a value can't be read, the group is halved until
    only the bad rows are left; those go to `fail`."""
    try:
        batch = _batch(messages, table, rows, zone)
    except BAD as e:
        if len(rows) == 1:
            fail(rows[0], e)
            return
        middle = len(rows) // 2
        yield from convert_rows(messages, table, rows[:middle], zone, fail)
        yield from convert_rows(messages, table, rows[middle:], zone, fail)
        return
    yield batch, rows


def _texts(images: list[dict | None], name: str, told: str, mysql_type: MySqlType, zone: str) -> tuple[Any, list[int]]:
    """Texts of one column, and the images that have it."""
    at = [i for i, image in enumerate(images) if image is not None and name in image]
    values = [images[i][name] for i in at]  # type: ignore[index]
    text = _TYPES[told][1]
    try:
        found = pa.array([None if v is None else text(v, mysql_type, zone) for v in values], pa.string())
    except BAD as e:
        raise ValueError(f"column {shown(name)}: {e}") from e
    if mysql_type.family in ("binary", "geometry"):
        return found, at
    checked: Checked = to_text(found, mysql_type, zone)
    found, ok = checked
    if not ok.all():
        bad = values[int(np.argmin(ok))]
        raise ValueError(f"column {shown(name)}: {shown(bad)} doesn't fit {mysql_type.name} (option columns)")
    return found, at


def _cells(table: Table, images: list[dict | None], zone: str) -> tuple[pa.StringArray, np.ndarray]:
    """All texts, and each cell's place among them (image × column, -1: not in the image)."""
    places = np.full((len(images), len(table.group.names)), -1, np.int64)
    parts: list[Any] = []
    base = 0
    for c, (name, told) in enumerate(zip(table.group.names, table.group.types, strict=True)):
        found, at = _texts(images, name, told, table.types[c][1], zone)
        places[at, c] = np.arange(base, base + len(at))
        parts.append(found)
        base += len(at)
    known = set(table.group.names)
    for image in images:
        if image is not None and not image.keys() <= known:
            raise ValueError(f"column {shown(next(n for n in image if n not in known))} isn't in schema.dataColumn")
    return pa.concat_arrays(parts), places


def _batch(messages: pa.RecordBatch, table: Table, rows: list[Row], zone: str) -> pa.RecordBatch:
    n = len(rows)
    text, places = _cells(table, [*(r.before for r in rows), *(r.after for r in rows)], zone)
    before, after = places[:n], places[n:]
    has_before = np.array([r.before is not None for r in rows], bool)
    has_after = np.array([r.after is not None for r in rows], bool)
    key = np.where(has_before[:, None], before, after)[:, table.key]
    _check_keys(table, text, [key, after[has_after][:, table.key]])
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array([r.at for r in rows]))
    zeros = pa.array(np.zeros(n, np.int32))
    group, names = table.group, pa.array(table.group.names, pa.string())
    found: dict[str, Any] = {
        **{name: address.column(name) for name in address.schema.names},
        "entry_index": zeros,
        "row_index": zeros,
        "kind": pa.repeat("row", n),
        "db": pa.repeat(group.db, n),
        "schema": pa.array([group.schema] * n, pa.string()),
        "table": pa.repeat(group.table, n),
        "op": pa.array([r.op for r in rows], pa.string()),
        "key": _maps(text, names.take(pa.array(table.key, pa.int64())), key, np.full(n, bool(table.key))),
        "before": _maps(text, names, before, has_before),
        "after": _maps(text, names, after, has_after),
        "schema_version": pa.repeat(table.version, n),
        "source_time": pa.array([r.time for r in rows], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "lineage": pa.repeat("", n),
        "file_no": pa.array([r.file_no for r in rows], pa.int64()),
        "binlog_pos": pa.array([r.position for r in rows], pa.int64()).cast(pa.decimal128(20, 0)),
        "event_no": pa.array([r.event_no for r in rows], pa.int64()),
        "row_no": pa.array(np.zeros(n, np.int64)),
    }
    columns = [found[f.name] if f.name in found else pa.nulls(n, f.type) for f in EVENT]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT)


def _check_keys(table: Table, text: pa.StringArray, keys: list[np.ndarray]) -> None:
    """A row without its key can't be found again: MERGE would never match it."""
    null = np.append(text.is_null().to_numpy(zero_copy_only=False), True)
    for places in keys:
        lost = null[places].any(axis=0) if len(places) else np.zeros(len(table.key), bool)
        if lost.any():
            name = table.group.names[table.key[int(np.argmax(lost))]]
            raise ValueError(f"key column {shown(name)} is NULL or isn't in the row")


def _maps(text: pa.StringArray, names: pa.StringArray, places: np.ndarray, has_map: np.ndarray) -> pa.MapArray:
    """Places of cells (row × column, -1: not in the image) → one map per row; null where `has_map` is False."""
    there = (places >= 0) & has_map[:, None]
    row, column = np.nonzero(there)
    return build_maps(row, names.take(pa.array(column)), text.take(pa.array(places[there])), has_map)
