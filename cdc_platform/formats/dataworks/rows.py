"""Rows of one table and one list of columns → an EVENT batch, column by column."""

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal_common.statement import names_its_table
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.dataworks.messages import ROWS, Changes, Group, Row, group_of
from cdc_platform.formats.dataworks.options import DataworksOptions
from cdc_platform.formats.dataworks.values import TYPES, texts
from cdc_platform.formats.events import BadColumn, Event, columns_json, of_table, readable_key, schema_version
from cdc_platform.formats.names import Names
from cdc_platform.formats.protobuf.arrow import build_maps
from cdc_platform.formats.texts import BAD, shown
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.values import Checked, to_text


class Table:
    """What all rows of a group share."""

    def __init__(self, group: Group, options: DataworksOptions):
        """Raises ValueError for a column type that isn't one of the six, or that the option contradicts."""
        self.group = group
        real = Names(options.columns.get(f"{group.db}.{group.table}", {}))
        self.types: list[tuple[str, MySqlType]] = []
        for name, told in zip(group.names, group.types, strict=True):
            if told not in TYPES:
                why = f"type {shown(told)} is unknown; known: {', '.join(TYPES)}"
                raise BadColumn(name, f"column {shown(name)}: {why}")
            text = real.get(name) or TYPES[told].default
            mysql_type = parse_type(text)
            if mysql_type.family not in TYPES[told].families:
                raise BadColumn(name, f"column {shown(name)}: option columns says {text!r}, the message {told}")
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


def of_message(message: Any, options: DataworksOptions) -> Event:
    """What is told of a parsed message that is refused as a whole: its table, and the row's key as far as it can be
    read. A statement may be about several tables."""
    schema, payload = (_part(message, name) for name in ("schema", "payload"))
    images = [image for name in ("before", "after") if (image := _part(_part(payload, name), "dataColumn"))]
    op = str(payload.get("op"))
    if not images and op not in ROWS and not names_its_table(op, (), is_statement=True):
        return {}
    source = _part(schema, "source")
    named = of_table(source.get("dbName"), source.get("tableName"), source.get("schemaName"))
    try:
        group = group_of(schema)
    except ValueError:
        return named
    return {**named, **_key(group, images[0], options)} if images else named


def of_row(group: Group, row: Row, options: DataworksOptions) -> Event:
    """The same of a row."""
    image = row.after if row.before is None else row.before
    return {**of_table(group.db, group.table, group.schema), **_key(group, image or {}, options)}


def _part(of: Any, name: str) -> dict[str, Any]:
    found = of.get(name) if type(of) is dict else None
    return found if type(found) is dict else {}


def _key(group: Group, image: dict[str, Any], options: DataworksOptions) -> Event:
    given = Names(options.columns.get(f"{group.db}.{group.table}", {}))
    told = dict(zip(group.names, group.types, strict=True))

    def read(name: str) -> str | None:
        mysql_type = parse_type(given.get(name) or TYPES[told[name]].default)
        return _texts([image[name]], name, told[name], mysql_type, options.time_zone)[0].as_py()

    return readable_key((name, partial(read, name)) for name in group.key)


Fail = Callable[[Row, BaseException], None]


def convert_rows(
    messages: pa.RecordBatch, table: Table, rows: Changes, zone: str, fail: Fail
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Rows of one table → EVENT batches, each with its rows' messages. Where a value can't be read, the group is halved
    until only the bad rows are left; those go to `fail`."""
    count = len(rows.at)
    try:
        batch = _batch(messages, table, rows, zone)
    except BAD as e:
        if count == 1:
            fail(rows.row(0), e)
            return
        middle = count // 2
        for half in (range(middle), range(middle, count)):
            yield from convert_rows(messages, table, rows.chosen(half), zone, fail)
        return
    yield batch, rows.at


def _texts(values: list[Any], name: str, told: str, mysql_type: MySqlType, zone: str) -> pa.StringArray:
    try:
        found = texts(values, told, mysql_type, zone)
    except BAD as e:
        raise BadColumn(name, f"column {shown(name)}: {e}") from e
    if mysql_type.family in ("binary", "geometry"):
        return found
    checked: Checked = to_text(found, mysql_type, zone)
    found, ok = checked
    if not ok.all():
        bad = values[int(np.argmin(ok))]
        raise BadColumn(name, f"column {shown(name)}: {shown(bad)} doesn't fit {mysql_type.name} (option columns)")
    return found


def _cells(table: Table, images: list[dict | None], zone: str) -> tuple[pa.StringArray, np.ndarray]:
    """All texts, and each cell's place among them (image × column, -1: not in the image)."""
    names = table.group.names
    places = np.full((len(images), len(names)), -1, np.int64)
    there = [i for i, image in enumerate(images) if image is not None]
    rows = [image for image in images if image is not None]
    parts: list[Any] = []
    base = 0
    for c, (name, told) in enumerate(zip(names, table.group.types, strict=True)):
        try:
            values, at = list(map(itemgetter(name), rows)), there
        except KeyError:
            at = [i for i, row in zip(there, rows, strict=True) if name in row]
            values = [row[name] for row in rows if name in row]
        parts.append(_texts(values, name, told, table.types[c][1], zone))
        places[at, c] = np.arange(base, base + len(at))
        base += len(at)
    if base != sum(map(len, rows)):
        extra = next(name for row in rows for name in row if name not in names)
        raise ValueError(f"column {shown(extra)} isn't in schema.dataColumn")
    return pa.concat_arrays(parts), places


def _batch(messages: pa.RecordBatch, table: Table, rows: Changes, zone: str) -> pa.RecordBatch:
    n = len(rows.at)
    text, places = _cells(table, rows.before + rows.after, zone)
    before, after = places[:n], places[n:]
    has_before = np.array([image is not None for image in rows.before], bool)
    has_after = np.array([image is not None for image in rows.after], bool)
    key = np.where(has_before[:, None], before, after)[:, table.key]
    _check_keys(table, text, [key, after[has_after][:, table.key]])
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array(rows.at))
    zeros = pa.array(np.zeros(n, np.int32))
    group, names = table.group, pa.array(table.group.names, pa.string())
    found: dict[str, Any] = {
        **{name: address.column(name) for name in address.schema.names},
        "entry_index": zeros,
        "row_index": zeros,
        "kind": pa.repeat("row", n),
        "db": pa.repeat(group.db, n),
        "schema": pa.repeat(pa.scalar(group.schema, pa.string()), n),
        "table": pa.repeat(group.table, n),
        "op": pa.array(rows.op, pa.string()),
        "key": _maps(text, names.take(pa.array(table.key, pa.int64())), key, np.full(n, bool(table.key))),
        "before": _maps(text, names, before, has_before),
        "after": _maps(text, names, after, has_after),
        "schema_version": pa.repeat(table.version, n),
        "source_time": pa.array(rows.time, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "lineage": pa.repeat("", n),
        "file_no": pa.array(rows.file_no, pa.int64()),
        "binlog_pos": pa.array(rows.position, pa.int64()).cast(pa.decimal128(20, 0)),
        "event_no": pa.array(rows.event_no, pa.int64()),
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
            raise BadColumn(name, f"key column {shown(name)} is NULL or isn't in the row")


def _maps(text: pa.StringArray, names: pa.StringArray, places: np.ndarray, has_map: np.ndarray) -> pa.MapArray:
    """Places of cells (row × column, -1: not in the image) → one map per row; null where `has_map` is False."""
    there = (places >= 0) & has_map[:, None]
    row, column = np.nonzero(there)
    return build_maps(row, names.take(pa.array(column)), text.take(pa.array(places[there])), has_map)
