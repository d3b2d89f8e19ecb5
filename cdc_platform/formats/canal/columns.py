"""RowChanges of canal whose Column messages, nearly all of their bytes, are read as plain ones."""

import pyarrow as pa

from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf_arrow import opaque
from cdc_platform.formats.protobuf_plain import read_plain

_SIDES = ("beforeColumns", "afterColumns")
_INDEX, _SQL_TYPE, _NAME, _KEY, _UPDATED, _NULL, _VALUE, _LENGTH, _MYSQL_TYPE = _TAGS = (
    0x08, 0x10, 0x1A, 0x20, 0x28, 0x30, 0x42, 0x48, 0x52,
)  # fmt: skip

OUTLINE_OF_ENTRY = opaque(pb.Entry, *(f"RowData.{side}" for side in _SIDES))
OUTLINE = opaque(pb.RowChange, *(f"RowData.{side}" for side in _SIDES))
"""Messages with their columns left as bytes."""


def with_columns(changes: pa.RecordBatch) -> pa.RecordBatch | None:
    """Parsed OUTLINEs → parsed RowChanges, of whose columns only what concerns rows is told; None where a column isn't
    plain, or anything is wrong with it."""
    rows = changes.column("rowDatas")
    sides = []
    for name in _SIDES:
        side = rows.values.field(name)
        columns = _columns(side.values)
        if columns is None:
            return None
        sides.append(pa.ListArray.from_arrays(side.offsets, columns))
    whole = pa.ListArray.from_arrays(rows.offsets, pa.StructArray.from_arrays(sides, _SIDES))
    return changes.set_column(changes.schema.get_field_index("rowDatas"), "rowDatas", whole)


def _columns(values: pa.BinaryArray) -> pa.StructArray | None:
    found = read_plain(values, _TAGS)
    if found is None:
        return None
    numbers = {"index": _INDEX, "sqlType": _SQL_TYPE}
    flags = {"isKey": _KEY, "isNull": _NULL}
    texts = {"name": _NAME, "value": _VALUE, "mysqlType": _MYSQL_TYPE}
    try:
        fields = {
            **{name: pa.array(found.numbers[tag].astype("int32")) for name, tag in numbers.items()},
            **{name: pa.array(found.numbers[tag] != 0) for name, tag in flags.items()},
            **{name: found.texts[tag].strings() for name, tag in texts.items()},
        }
    except pa.ArrowInvalid:  # no UTF-8
        return None
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))
