"""Serialized Entries → their messages as Arrow structs, column lists and values.

Nearly all bytes are values and column lists that come again and again. So messages are parsed but for these; then
each distinct column list is, once, and the values are read as `Data.plain` can. Where that doesn't do, or anything
can't be read, all is parsed as it stands.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf.arrow import Lists, bytes_of, distinct, lists, opaque, parse
from cdc_platform.formats.tencent_dts.cells import untyped
from cdc_platform.formats.tencent_dts.data import Data

_OUTLINE = opaque(pb.Entries, "DMLEvent.columns", "RowChange.oldColumns", "RowChange.newColumns")


@dataclass(frozen=True, slots=True)
class Side:
    """One side (old or new) of row changes: row i has `lengths[i]` values, from `starts[i]` on in `data`."""

    data: Data
    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True, slots=True)
class Messages:
    """`items`: entries of each message; `columns`: lists of columns, `block[entry]` the one that an entry has;
    `rows`: row changes of each entry, and their values, old and new."""

    items: Lists
    columns: Lists
    block: np.ndarray
    rows: Lists
    old: Side
    new: Side


def read(values: pa.BinaryArray) -> tuple[Messages, dict[int, str]]:
    """Serialized Entries → (messages, what is wrong with those that can't be read by their index)."""
    parsed, unreadable = parse(values, _OUTLINE)
    found = None if unreadable else _outlined(parsed)
    if found is not None:
        return found, {}
    parsed, unreadable = parse(values, pb.Entries)
    items, dml, rows, images = _structure(parsed)
    old, new = (Side(Data.parsed(i.values), i.starts, i.lengths) for i in images)
    return Messages(items, lists(dml.field("columns")), np.arange(len(dml)), rows, old, new), unreadable


def _structure(parsed: pa.RecordBatch) -> tuple[Lists, pa.StructArray, Lists, list[Lists]]:
    items = lists(parsed.column("items"))
    dml = items.values.field("event").field("dmlEvent")
    rows = lists(dml.field("rows"))
    return items, dml, rows, [lists(rows.values.field(name)) for name in ("oldColumns", "newColumns")]


def _outlined(parsed: pa.RecordBatch) -> Messages | None:
    items, dml, rows, images = _structure(parsed)
    told = _columns(dml.field("columns"))
    # A column that states no type gets one from its table's values: tables can't share it.
    if told is None or untyped(told[0].values.field("originalType")).any():
        return None
    old, new = (Data.plain(image.values) for image in images)
    if old is None or new is None:
        return None
    old, new = (Side(data, i.starts, i.lengths) for data, i in zip((old, new), images, strict=True))
    return Messages(items, *told, rows, old, new)


def _columns(told: pa.ListArray) -> tuple[Lists, np.ndarray] | None:
    """Serialized columns of each entry → (distinct lists of columns, which of them each entry has)."""
    ends = told.offsets.to_numpy()
    offsets, data = bytes_of(told.values)
    # Equal lists have the same bytes, and are split at the same places.
    sizes = pa.py_buffer(np.diff(offsets))
    first, block = distinct(_codes(offsets[ends], data) * len(ends) + _codes(ends * offsets.itemsize, sizes))
    alone = []
    for entry in first.tolist():
        message: Any = _OUTLINE()  # the whole of it, for groups may be nested only so deep
        message.items.add().event.dmlEvent.columns.extend(told[entry].as_py() or ())
        alone.append(message.SerializeToString())
    parsed, unreadable = parse(pa.array(alone, pa.binary()), pb.Entries)
    return None if unreadable else (lists(_structure(parsed)[1].field("columns")), block)


def _codes(offsets: np.ndarray, data: pa.Buffer) -> np.ndarray:
    """A number for each of the byte strings between offsets, the same for equal ones."""
    strings = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])
    return strings.dictionary_encode().indices.to_numpy().astype(np.int64)
