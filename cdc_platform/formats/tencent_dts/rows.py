"""Row changes of Tencent DTS: DMLEvents of many entries → row images in bulk, and the columns they state.

`columns[i]` describes oldColumns[i] and newColumns[i] of every row: INSERT has new, DELETE old, UPDATE both.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_platform.formats.events import columns_json, schema_version
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf.arrow import Lists, counts, distinct, ranges
from cdc_platform.formats.tencent_dts.cells import Cells, ColumnTypes, Converted, convert, untyped
from cdc_platform.formats.tencent_dts.wire import Messages, Side


@dataclass(frozen=True, slots=True)
class Tables:
    """Which entries state the same columns of the same table. `block[entry]`: which list of `columns` is an entry's;
    `group[entry]` is -1 for entries that are no DML; `first[g]` is one entry of group g; `problems[g]` says why its
    column list can't be used."""

    columns: Lists
    block: np.ndarray
    group: np.ndarray
    first: np.ndarray
    problems: dict[int, str]


def tables(header: pa.StructArray, messages: Messages, entries: np.ndarray) -> Tables:
    """`entries`: indices of the DML entries."""
    columns, block = messages.columns, messages.block
    name, mysql_type = (columns.values.field(n).dictionary_encode() for n in ("name", "originalType"))
    code = name.indices.to_numpy().astype(np.int64) * max(len(mysql_type.dictionary), 1)
    code = (code + mysql_type.indices.to_numpy()) * 2 + columns.values.field("isKey").to_numpy(zero_copy_only=False)
    # One binary value per list, made of its columns' numbers: Arrow's dictionary then finds the equal lists.
    offsets = np.append(columns.starts, columns.starts[-1:] + columns.lengths[-1:]).astype(np.int32) * 8
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(code, np.int64))]
    same = pa.Array.from_buffers(pa.binary(), len(columns.starts), buffers).dictionary_encode().indices.to_numpy()
    key = same[block[entries]].astype(np.int64)
    for field in ("schemaName", "tableName"):
        part = header.field(field).dictionary_encode()
        key = key * (len(part.dictionary) + 1) + part.indices.fill_null(0).to_numpy()[entries]
    first, which = distinct(key)
    group = np.full(len(block), -1)
    group[entries] = which
    problems = {}
    for g, entry in enumerate(entries[first]):
        list_ = block[entry]
        names = columns.values.field("name").slice(columns.starts[list_], columns.lengths[list_]).to_pylist()
        if not names or "" in names:
            problems[g] = "DML event with a column that has no name" if names else "DML event without columns"
        elif len(set(names)) < len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            problems[g] = f"DML event names columns twice: {', '.join(map(repr, twice))}"
    return Tables(columns, block, group, entries[first], problems)


@dataclass(frozen=True, slots=True)
class Image:
    """One side of many rows, as map entries: `row` (ascending), `names` and `text` of each cell in it."""

    row: np.ndarray
    names: pa.StringArray
    text: pa.StringArray


@dataclass(frozen=True, slots=True)
class RowChanges:
    """All rows of a piece, in wire order. Rows in `bad` (row → reason) have no cells in the images, and in `key` those
    that can be read; `bad_column`: row → the column whose value is the reason."""

    entry: np.ndarray
    op: np.ndarray  # DMLType
    group: np.ndarray
    bad: dict[int, str]
    bad_column: dict[int, str]
    before: Image
    after: Image
    key: Image
    has_key: np.ndarray
    schemas: dict[int, tuple[str, str]]  # group → (schema version, columns as JSON)


def row_changes(
    header: pa.StructArray, ops: np.ndarray, messages: Messages, found: Tables, entries: np.ndarray, *, zone: str
) -> RowChanges:
    """Rows of `entries` (DML entries whose column list can be used). `ops`: DMLType of each entry; `zone`: of zoneless
    TIMESTAMP text."""
    rows, columns = messages.rows, found.columns
    lengths = rows.lengths[entries]
    entry, at = np.repeat(entries, lengths), ranges(rows.starts[entries], lengths)
    op, block = ops[entry], found.block[entry]
    width, first_column = columns.lengths[block], columns.starts[block]
    bad = _mismatches(op, width, messages.old.lengths[at], messages.new.lengths[at])
    usable = _all_but(bad, len(at))
    sides = [_cells(side, at, usable, first_column) for side in (messages.old, messages.new)]
    types, wires = _types(found, sides, entry)
    done = [convert(cells, wire, types, zone) for cells, wire in zip(sides, wires, strict=True)]
    names = columns.values.field("name")
    is_key = columns.values.field("isKey").to_numpy(zero_copy_only=False)
    # The key is that of the row before: in the old image, but for INSERT, which has only a new one.
    key_cells = [
        is_key[c.column] & ((op == pb.INSERT)[c.row] == new) for c, new in zip(sides, (False, True), strict=True)
    ]
    bad_column: dict[int, str] = {}
    for cells, result, is_key_cell in zip(sides, done, key_cells, strict=True):
        _note_bad_cells(bad, bad_column, cells, result, names)
        _note_lost_keys(bad, bad_column, cells, result, is_key_cell, names)
    fine = _all_but(bad, len(at))
    keep = [fine[cells.row] & result.in_image for cells, result in zip(sides, done, strict=True)]
    before, after = (_image(c, r, k, names) for c, r, k in zip(sides, done, keep, strict=True))
    told = [_readable(result) for result in done] if bad else keep
    key_of = [(k | t) & mine for k, t, mine in zip(keep, told, key_cells, strict=True)]
    keys = (_image(c, r, k, names) for c, r, k in zip(sides, done, key_of, strict=True))
    key_counts = np.append(0, np.cumsum(is_key))
    has_key = key_counts[first_column + width] > key_counts[first_column]
    if bad:
        at_all = np.bincount(
            np.concatenate([c.row[k] for c, k in zip(sides, key_of, strict=True)]), minlength=len(fine)
        )
        has_key = np.where(fine, has_key, at_all > 0)
    group = found.group[entry]
    return RowChanges(
        entry=entry,
        op=op,
        group=group,
        bad=bad,
        bad_column=bad_column,
        before=before,
        after=after,
        key=_merged(*keys),
        has_key=has_key,
        schemas=_schemas(header, found, types, np.unique(group)),
    )


def _mismatches(op: np.ndarray, width: np.ndarray, old: np.ndarray, new: np.ndarray) -> dict[int, str]:
    """Rows whose images don't have one value per column: pairing them would shift values."""
    odd = (old != np.where(op == pb.INSERT, 0, width)) | (new != np.where(op == pb.DELETE, 0, width))
    return {
        int(i): f"{pb.DMLType.Name(int(op[i]))} of {width[i]} columns has {old[i]} old and {new[i]} new values"
        for i in np.nonzero(odd)[0]
    }


def _all_but(bad: dict[int, str], length: int) -> np.ndarray:
    mask = np.ones(length, bool)
    mask[list(bad)] = False
    return mask


def _cells(side: Side, at: np.ndarray, usable: np.ndarray, first_column: np.ndarray) -> Cells:
    lengths = np.where(usable, side.lengths[at], 0)
    place = counts(lengths)
    first, column = (np.repeat(starts, lengths) + place for starts in (side.starts[at], first_column))
    return Cells(side.data, first, np.repeat(np.arange(len(at)), lengths), column)


def _types(found: Tables, sides: list[Cells], entry: np.ndarray) -> tuple[ColumnTypes, list[np.ndarray]]:
    """Types of all columns, and the wire types of each side's cells. A column that states no type takes the
    one of the first cell of its group that holds a value."""
    columns = found.columns
    original = columns.values.field("originalType")
    bare = untyped(original)
    wires = [cells.wire_types(bare) for cells in sides]
    fallback = np.zeros(len(bare), np.int64)
    if bare.any():
        stride = int(columns.lengths.max()) + 1

        def slot(of_entry: np.ndarray, column: np.ndarray) -> np.ndarray:
            return found.group[of_entry] * stride + column - columns.starts[found.block[of_entry]]

        slots = np.concatenate([slot(entry[c.row], c.column) for c in sides])
        wire = np.concatenate(wires)
        told = (wire != pb.NIL) & (wire != pb.NA) & bare[np.concatenate([c.column for c in sides])]
        known, first = np.unique(slots[told], return_index=True)
        # Where columns state no type, no two entries share a list: that of entry i is list i.
        of_entry = np.repeat(np.arange(len(columns.starts)), columns.lengths)
        mine = slot(of_entry, ranges(columns.starts, columns.lengths))
        hit = np.isin(mine, known) & (found.group[of_entry] >= 0)
        fallback[hit] = wire[told][first][np.searchsorted(known, mine[hit])]
    return ColumnTypes.read(original, fallback), wires


def _note(bad: dict[int, str], column: dict[int, str], row: int, name: str, reason: str) -> None:
    """A column for whose value a row can't be used, if nothing else is known of it yet."""
    if row not in bad:
        bad[row], column[row] = reason, name


def _note_bad_cells(
    bad: dict[int, str], column: dict[int, str], cells: Cells, result: Converted, names: pa.StringArray
) -> None:
    for i in sorted(result.bad):
        name = names[int(cells.column[i])].as_py()
        _note(bad, column, int(cells.row[i]), name, f"column {name!r}: {result.bad[i]}")


def _note_lost_keys(
    bad: dict[int, str],
    column: dict[int, str],
    cells: Cells,
    result: Converted,
    is_key_cell: np.ndarray,
    names: pa.StringArray,
) -> None:
    """A row without its key can't be found again: MERGE would never match it."""
    lost = np.nonzero(is_key_cell & result.text.is_null().to_numpy(zero_copy_only=False))[0]
    for i in lost.tolist():
        why = "is NULL" if result.in_image[i] else "is not in the image"
        name = names[int(cells.column[i])].as_py()
        _note(bad, column, int(cells.row[i]), name, f"key column {name!r} {why}")


def _readable(result: Converted) -> np.ndarray:
    """Cells that tell what they do of bad rows, too."""
    found = result.in_image & result.text.is_valid().to_numpy(zero_copy_only=False)
    found[list(result.bad)] = False
    return found


def _image(cells: Cells, result: Converted, keep: np.ndarray, names: pa.StringArray) -> Image:
    if keep.all():
        return Image(cells.row, names.take(pa.array(cells.column)), result.text)
    where = np.nonzero(keep)[0]
    return Image(cells.row[where], names.take(pa.array(cells.column[where])), result.text.take(pa.array(where)))


def _merged(one: Image, two: Image) -> Image:
    row = np.concatenate([one.row, two.row])
    order = np.argsort(row, kind="stable")
    index = pa.array(order)
    names, text = pa.concat_arrays([one.names, two.names]), pa.concat_arrays([one.text, two.text])
    return Image(row[order], names.take(index), text.take(index))


def _schemas(
    header: pa.StructArray, found: Tables, types: ColumnTypes, groups: np.ndarray
) -> dict[int, tuple[str, str]]:
    fields = found.columns.values
    out = {}
    for g in groups.tolist():
        entry = int(found.first[g])
        block = int(found.block[entry])
        start, length = int(found.columns.starts[block]), int(found.columns.lengths[block])
        names, keys = (fields.field(n).slice(start, length).to_pylist() for n in ("name", "isKey"))
        texts = [types.texts[code] for code in types.code[start : start + length]]
        columns = columns_json([{"name": n, "type": t, "key": k} for n, t, k in zip(names, texts, keys, strict=True)])
        db, table = (header.field(n)[entry].as_py() for n in ("schemaName", "tableName"))
        out[g] = schema_version(db, table, columns), columns
    return out
