"""RowChanges of canal whose Column messages, nearly all of their bytes, are read as plain ones."""

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal.patterns import (
    COLUMN,
    INDEX,
    IS_KEY,
    IS_NULL,
    MYSQL_TYPE,
    NAME,
    SQL_TYPE,
    VALUE,
    match,
)
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf.arrow import as_lists, lists, opaque
from cdc_platform.formats.protobuf.in_place import Fields, Texts, read_plain

_SIDES = {"beforeColumns": 0x0A, "afterColumns": 0x12}
_ROW = Fields(tuple(_SIDES.values()), frozenset(_SIDES.values()))

OUTLINE_OF_ENTRY = opaque(pb.Entry, *(f"RowData.{side}" for side in _SIDES))
OUTLINE = opaque(pb.RowChange, *(f"RowData.{side}" for side in _SIDES))
"""Messages with their columns left as bytes."""


def with_columns(changes: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.StructArray] | None:
    """Parsed OUTLINEs → (parsed RowChanges, heads of their columns), both as `plain_rows`."""
    rows = changes.column("rowDatas")
    sides = {name: lists(rows.values.field(name)) for name in _SIDES}
    found = _sides({n: (Texts.of(s.values), s.lengths) for n, s in sides.items()}, np.zeros(len(rows.values), np.int32))
    if found is None:
        return None
    whole = pa.ListArray.from_arrays(rows.offsets, found[0])
    return changes.set_column(changes.schema.get_field_index("rowDatas"), "rowDatas", whole), found[1]


def plain_rows(rows: Texts, table: np.ndarray) -> tuple[pa.StructArray, pa.StructArray] | None:
    """Serialized RowDatas, and the table of each as a number → (RowDatas with before and after columns, heads of these
    columns); None where a column isn't plain, or anything is wrong with it.

    A column says its head's number, isNull and its value. Its head says what it shares with others: name, sqlType,
    mysqlType, isKey and index."""
    found = read_plain(rows, _ROW)
    if found is None:
        return None
    return _sides({name: (found.texts[tag], found.counts[tag]) for name, tag in _SIDES.items()}, table)


def _sides(
    sides: dict[str, tuple[Texts, np.ndarray]], table: np.ndarray
) -> tuple[pa.StructArray, pa.StructArray] | None:
    told, heads, number = [], [], 0
    for columns, lengths in sides.values():
        found = _columns(columns, lengths, table, number)
        if found is None:
            return None
        told.append(as_lists(lengths, found[0]))
        heads.append(found[1])
        number += len(found[1])
    return pa.StructArray.from_arrays(told, list(sides)), pa.concat_arrays(heads)


def _columns(
    columns: Texts, lengths: np.ndarray, table: np.ndarray, first: int
) -> tuple[pa.StructArray, pa.StructArray] | None:
    """Columns of one side, and their heads, which are numbered from `first` on."""
    matches = match(columns, lengths, table)
    alone = matches.pattern < 0
    own = alone.copy()
    own[matches.pattern[~alone]] = True  # those that have a head of their own
    own, alone = np.nonzero(own)[0], np.nonzero(alone)[0]
    found = read_plain(columns.chosen(own), COLUMN)
    if found is None:
        return None
    head = np.zeros(len(columns), np.int32)
    head[own] = np.arange(first, first + len(own))
    matches.pattern[alone] = alone
    head = head[matches.pattern]
    among = np.searchsorted(own, alone)
    matches.null[alone] = found.numbers[IS_NULL][among] != 0
    matches.value.offsets.reshape(-1, 2)[alone] = found.texts[VALUE].offsets.reshape(-1, 2)[among]
    fields = {
        "index": pa.array(found.numbers[INDEX].astype(np.int32)),
        "sqlType": pa.array(found.numbers[SQL_TYPE].astype(np.int32)),
        "isKey": pa.array(found.numbers[IS_KEY] != 0),
    }
    try:
        fields |= {"name": found.texts[NAME].strings(), "mysqlType": found.texts[MYSQL_TYPE].strings()}
        value = matches.value.strings()
    except pa.ArrowInvalid:  # no UTF-8
        return None
    told = [pa.array(head), pa.array(matches.null), value]
    heads = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.StructArray.from_arrays(told, ["head", "isNull", "value"]), heads
