"""Rows of one table and one list of columns → an EVENT batch, column by column."""

from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal_common.statement import names_its_table
from cdc_platform.formats.collect import Table
from cdc_platform.formats.contract import UNKNOWN
from cdc_platform.formats.dataworks.messages import ROWS, Changes, Group, Row, group_of, schema_of
from cdc_platform.formats.dataworks.options import DataworksOptions
from cdc_platform.formats.dataworks.values import TYPES, default_type, texts
from cdc_platform.formats.events import BadColumn, Event, of_table, readable_key, row_batch
from cdc_platform.formats.images import image_maps
from cdc_platform.formats.names import Names, dotted
from cdc_platform.formats.table_schemas.lookup import Columns
from cdc_platform.formats.texts import BAD, shown
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.values import Checked, to_text


def described(group: Group, options: DataworksOptions, known: Columns | None = None) -> Table:
    """Columns and key of a group's rows; `known`: what the schema history says of them, used where the message can
    carry it. Raises BadColumn for a column type that isn't one of the six, or that option columns contradicts."""
    given = Names(options.columns.get(dotted(group.db, group.schema, group.table), {}))
    types: list[tuple[str, MySqlType]] = []
    for name, stated in zip(group.names, group.types, strict=True):
        if stated not in TYPES:
            why = f"type {shown(stated)} is unknown; known: {', '.join(TYPES)}"
            raise BadColumn(name, f"column {shown(name)}: {why}")
        text = given.get(name) or _known(known, name, stated)
        mysql_type = parse_type(text) if text else default_type(stated)
        text = text or TYPES[stated].default
        if mysql_type.family not in TYPES[stated].families:
            raise BadColumn(name, f"column {shown(name)}: option columns says {text!r}, the message {stated}")
        types.append((text, mysql_type))
    key = [group.names.index(name) for name in group.key]
    return Table(group.db, group.table, group.names, types, key, group.schema)


def _known(known: Columns | None, name: str, stated: str) -> str | None:
    text = known.type_of(name) if known else None
    return text if text and parse_type(text).family in TYPES[stated].families else None


def of_message(message: Any, options: DataworksOptions) -> Event:
    """What is known of a parsed message that is refused as a whole: its table, and the row's key as far as it can be
    read. A statement may be about several tables."""
    schema, payload = (_part(message, name) for name in ("schema", "payload"))
    images = [image for name in ("before", "after") if (image := _part(_part(payload, name), "dataColumn"))]
    op = str(payload.get("op"))
    statement = _part(payload, "ddl").get("text") is not None
    if not images and op not in ROWS and statement and not names_its_table(op, (), is_statement=True):
        return {}
    source = _part(schema, "source")
    named = of_table(source.get("dbName"), source.get("tableName"))
    try:
        named |= of_table(None, None, schema_of(source))
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
    given = Names(options.columns.get(dotted(group.db, group.schema, group.table), {}))
    stated = dict(zip(group.names, group.types, strict=True))

    def read(name: str) -> str | None:
        text = given.get(name)
        mysql_type = parse_type(text) if text else default_type(stated[name])
        return _texts([image[name]], name, stated[name], mysql_type, options.time_zone)[0].as_py()

    return readable_key((name, partial(read, name)) for name in group.key)


def _texts(values: list[Any], name: str, stated: str, mysql_type: MySqlType, zone: str) -> pa.StringArray:
    try:
        found = texts(values, stated, mysql_type, zone)
    except BAD as e:
        raise BadColumn(name, f"column {shown(name)}: {e}") from e
    told = mysql_type is not default_type(stated)
    if mysql_type.family in ("binary", "geometry"):
        return found
    checked: Checked = to_text(found, mysql_type, zone)
    found, ok = checked
    if not ok.all():
        bad = values[int(np.argmin(ok))]
        why = f"column {shown(name)}: {shown(bad)} doesn't fit {mysql_type.name}"
        raise BadColumn(name, f"{why} (option columns)" if told else f"{UNKNOWN}: {why}")
    return found


def _cells(group: Group, table: Table, images: list[dict | None], zone: str) -> tuple[pa.StringArray, np.ndarray]:
    """All texts, and each cell's place among them (image × column, -1: not in the image)."""
    places = np.full((len(images), len(group.names)), -1, np.int64)
    there = [i for i, image in enumerate(images) if image is not None]
    rows = [image for image in images if image is not None]
    parts: list[Any] = []
    base = 0
    for c, (name, stated) in enumerate(zip(group.names, group.types, strict=True)):
        try:
            values, at = list(map(itemgetter(name), rows)), there
        except KeyError:
            at = [i for i, row in zip(there, rows, strict=True) if name in row]
            values = [row[name] for row in rows if name in row]
        parts.append(_texts(values, name, stated, table.types[c][1], zone))
        places[at, c] = np.arange(base, base + len(at))
        base += len(at)
    if base != sum(map(len, rows)):
        extra = next(name for row in rows for name in row if name not in group.names)
        raise ValueError(f"column {shown(extra)} isn't in schema.dataColumn")
    return pa.concat_arrays(parts), places


def row_changes(messages: pa.RecordBatch, group: Group, table: Table, rows: Changes, zone: str) -> pa.RecordBatch:
    """Rows of one group → EVENT batch. Raises one of BAD where a value can't be read."""
    n = len(rows)
    text, places = _cells(group, table, rows.before + rows.after, zone)
    before, after = places[:n], places[n:]
    has_before = np.array([image is not None for image in rows.before], bool)
    has_after = np.array([image is not None for image in rows.after], bool)
    key = np.where(has_before[:, None], before, after)[:, table.key]
    _check_keys(table, text, [key, after[has_after][:, table.key]])
    names = pa.array(table.names, pa.string())
    key_names = names.take(pa.array(table.key, pa.int64()))
    columns = {
        "db": table.db,
        "schema": table.schema,
        "table": table.table,
        "op": rows.op,
        "key": image_maps(text, key_names, key, np.full(n, bool(table.key))),
        "before": image_maps(text, names, before, has_before),
        "after": image_maps(text, names, after, has_after),
        "schema_version": table.version,
        "source_time": rows.time,
        "lineage": "",
        "file_no": rows.file_no,
        "binlog_pos": rows.position,
        "event_no": rows.event_no,
        "row_no": pa.array(np.zeros(n, np.int64)),
    }
    return row_batch(messages, rows.at, columns)


def _check_keys(table: Table, text: pa.StringArray, keys: list[np.ndarray]) -> None:
    """A row without its key can't be found again: MERGE would never match it."""
    null = np.append(text.is_null().to_numpy(zero_copy_only=False), True)
    for places in keys:
        lost = null[places].any(axis=0) if len(places) else np.zeros(len(table.key), bool)
        if lost.any():
            name = table.names[table.key[int(np.argmax(lost))]]
            raise BadColumn(name, f"key column {shown(name)} is NULL or isn't in the row")
