"""Row changes of canal: RowChanges of many entries → row images in bulk, and the columns they state.

INSERT has afterColumns, DELETE beforeColumns, UPDATE both, or no before image. Columns are those of the binlog's
row image, without those the server filters: found by name, never by position.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal.cells import Cells
from cdc_platform.formats.canal.entries import KIND, Entries, event_type
from cdc_platform.formats.canal.known import Known
from cdc_platform.formats.canal_common.options import CanalOptions
from cdc_platform.formats.events import columns_json, schema_version
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf.arrow import Lists, counts, lists, ranges
from cdc_platform.formats.texts import shown

_WIDEST = 4096  # columns of a MySQL table, at most


@dataclass(frozen=True, slots=True)
class Side:
    """One map of many rows, as entries: `row` (ascending), `names` and `text` of each."""

    row: np.ndarray
    names: pa.StringArray
    text: pa.StringArray


@dataclass(frozen=True, slots=True)
class RowChanges:
    """All rows of a batch, in wire order. Rows in `bad` (row → reason) have no cells in the images, and in `key` those
    that can be read; `bad_column`: row → the column whose value is the reason. `version[row]`:
    number in `versions` of (db, table, schema version, columns as JSON), -1 where the row doesn't tell them."""

    entry: np.ndarray
    place: np.ndarray
    op: np.ndarray  # EventType
    number: np.ndarray  # among the rows that share a binlog position
    bad: dict[int, str]
    bad_column: dict[int, str]
    key: Side
    before: Side
    after: Side
    has_key: np.ndarray
    has_before: np.ndarray
    version: np.ndarray
    versions: list[tuple[str, str, str, str]]


def row_changes(entries: Entries, options: CanalOptions, known: Known) -> RowChanges:
    """Rows of all entries that have rows. `known`: what the schema history says of their tables."""
    rows = lists(entries.bodies["row"].column("rowDatas"))
    lengths = np.where(entries.kind == KIND["row"], rows.lengths, 0)
    entry, at = np.repeat(np.arange(len(lengths)), lengths), ranges(rows.starts, lengths)
    op = event_type(entries)[entry]
    sides = [lists(rows.values.field(n)) for n in ("beforeColumns", "afterColumns")]
    before, after = (side.lengths[at] for side in sides)
    bad = _misshapen(op, before, after)
    cells, number = _cells(sides, entries.heads, at, bad)
    of_side = np.arange(len(cells.image)) >= number
    n = len(entry)
    tables = _tables(entries, entry)
    cells.retype({full: np.tile(table, 2) for full, table in tables.by_name(options.columns)}, options)
    known.complete(cells, entries, entry, tables.number, tables.names)
    text, unreadable = cells.texts(options.dialect)
    bad_column: dict[int, str] = {}
    for cell, reason in unreadable.items():
        _note(bad, bad_column, cells, n, cell, reason)
    shapes = _shapes(cells, n, tables)
    _note_bad_shapes(bad, bad_column, shapes, n)
    row = cells.image.copy()
    row[number:] -= n
    has_before = before > 0
    # The key is that of the row before: in the before image, if there is one.
    in_key = cells.key & (has_before[row] != of_side)
    _note_lost_keys(bad, bad_column, cells, n, in_key, text)
    fine = np.ones(n, bool)
    fine[list(bad)] = False
    names = pa.array(cells.names, pa.string())
    keep = fine[row]

    def side(first: int, last: int) -> Side:
        if keep[first:last].all():
            name = pa.array(cells.name[first:last])
            return Side(row[first:last], names.take(name), text.slice(first, last - first))
        return chosen(first + np.nonzero(keep[first:last])[0])

    def chosen(where: np.ndarray) -> Side:
        return Side(row[where], names.take(pa.array(cells.name[where])), text.take(pa.array(where)))

    keep_key = keep | _readable(shapes, text, unreadable, cells, n) if bad else keep
    keys = np.nonzero(in_key & keep_key)[0]
    has_key = np.zeros(n, bool)
    has_key[row[in_key & keep_key]] = True
    version = _telling(shapes, op, fine, cells, n)
    told, version[version >= 0] = np.unique(version[version >= 0], return_inverse=True)
    return RowChanges(
        entry=entry,
        place=counts(lengths),
        op=op,
        number=_numbers(entries, entry),
        bad=bad,
        bad_column=bad_column,
        key=chosen(keys[np.argsort(row[keys], kind="stable")]),  # a key is of either image
        before=side(0, number),
        after=side(number, len(row)),
        has_key=has_key,
        has_before=has_before,
        version=version,
        versions=[_version(tables, shapes, cells, int(shape)) for shape in told],
    )


def _misshapen(op: np.ndarray, before: np.ndarray, after: np.ndarray) -> dict[int, str]:
    """Rows whose images don't fit their event, or that no table can have."""
    bad = {}
    for which, what in (
        ((op != pb.DELETE) & (after == 0), "has no after image"),
        ((op == pb.DELETE) & (before == 0), "has no before image"),
        ((op == pb.DELETE) & (after > 0), "has an after image"),
        ((op == pb.INSERT) & (before > 0), "has a before image"),
        ((before > _WIDEST) | (after > _WIDEST), f"has more than {_WIDEST} columns"),
    ):
        for i in np.nonzero(which)[0].tolist():
            bad.setdefault(i, f"{pb.EventType.Name(int(op[i]))} {what}")
    return bad


def _cells(sides: list[Lists], heads: pa.StructArray | None, at: np.ndarray, bad: dict[int, str]) -> tuple[Cells, int]:
    """Cells of the before images of all rows, then of the after images: image i is row i's before image, image
    n+i its after image. And how many are of before images."""
    usable = np.ones(len(at), bool)
    usable[list(bad)] = False
    lengths = [np.where(usable, side.lengths[at], 0) for side in sides]
    columns, whole = [], True
    for side, number in zip(sides, lengths, strict=True):
        all_ = number.sum() == len(side.values)  # then they are all there are in their order
        columns.append(side.values if all_ else side.values.take(pa.array(ranges(side.starts[at], number))))
        whole &= all_
    image = np.repeat(np.arange(2 * len(at)), np.concatenate(lengths))
    return Cells.read(pa.concat_arrays(columns), heads, image, whole), len(columns[0])


@dataclass(frozen=True, slots=True)
class _Tables:
    """Table of each row, as a number in `names` (pairs of database and table)."""

    number: np.ndarray
    names: list[tuple[str, str]]

    def by_name(self, wanted: dict[str, dict[str, str]]) -> list[tuple[str, np.ndarray]]:
        """Full names among `wanted`, with which rows are theirs."""
        return [(f"{d}.{t}", self.number == i) for i, (d, t) in enumerate(self.names) if f"{d}.{t}" in wanted]


def _tables(entries: Entries, entry: np.ndarray) -> _Tables:
    db, table = (entries.header.field(n).dictionary_encode() for n in ("schemaName", "tableName"))
    dbs, tables = db.dictionary.to_pylist(), table.dictionary.to_pylist()
    # Rows have names, entries may have none.
    db, table = (pc.fill_null(found.indices, 0).to_numpy().astype(np.int64)[entry] for found in (db, table))
    found, number = np.unique(db * max(len(tables), 1) + table, return_inverse=True)
    return _Tables(number, [(dbs[c // len(tables)], tables[c % len(tables)]) for c in found.tolist()])


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Images that state the same columns of the same table have the same shape. `of[image]`: -1 without cells;
    `first[shape]`: its first image; `problems[shape]`: why its columns can't be used; `starts`, `lengths`: the
    cells of each image."""

    of: np.ndarray
    first: np.ndarray
    problems: dict[int, str]
    starts: np.ndarray
    lengths: np.ndarray


def _shapes(cells: Cells, n: int, tables: _Tables) -> _Shapes:
    lengths = np.bincount(cells.image, minlength=2 * n)
    offsets = np.append(0, np.cumsum(lengths))
    texts: dict[str, int] = {}  # cells of one column may differ in how they are read, not in its type
    type_ = np.array([texts.setdefault(k.text, len(texts)) for k in cells.kinds], np.int64)[cells.kind]
    code = (cells.name * max(len(texts), 1) + type_) * 2 + cells.key
    # One binary value per image, made of its columns' numbers: Arrow's dictionary then finds the equal lists.
    buffers = [None, pa.py_buffer(offsets.astype(np.int32) * 8), pa.py_buffer(np.ascontiguousarray(code, np.int64))]
    same = pa.Array.from_buffers(pa.binary(), 2 * n, buffers).dictionary_encode().indices.to_numpy()
    both = same.astype(np.int64) * max(len(tables.names), 1) + np.tile(tables.number, 2)
    _, first, of = np.unique(both, return_index=True, return_inverse=True)
    of[lengths == 0] = -1
    problems = {}
    for shape, image in enumerate(first.tolist()):
        names = [cells.names[i] for i in cells.name[offsets[image] : offsets[image + 1]]]
        if "" in names:
            problems[shape] = "a column has no name"
        elif len(set(names)) < len(names):
            problems[shape] = f"column {shown(next(n for n in names if names.count(n) > 1))} comes twice"
    return _Shapes(of, first, problems, offsets[:-1], lengths)


def _note(bad: dict[int, str], column: dict[int, str], cells: Cells, n: int, cell: int, reason: str) -> None:
    """A cell for which its row can't be used, if nothing else is known of the row yet."""
    row = int(cells.image[cell]) % max(n, 1)
    if row not in bad:
        bad[row], column[row] = reason, cells.names[cells.name[cell]]


def _readable(shapes: "_Shapes", text: pa.StringArray, unreadable: dict[int, str], cells: Cells, n: int) -> np.ndarray:
    """Cells that tell what they do of bad rows, too: no NULL, and in no image whose columns aren't known."""
    found = text.is_valid().to_numpy(zero_copy_only=False)
    found[list(unreadable)] = False
    odd = np.isin(shapes.of, list(shapes.problems))
    return found & ~(odd[:n] | odd[n:])[cells.image % max(n, 1)]


def _note_bad_shapes(bad: dict[int, str], column: dict[int, str], shapes: _Shapes, n: int) -> None:
    for image in np.nonzero(np.isin(shapes.of, list(shapes.problems)))[0].tolist():
        bad[image % n] = shapes.problems[int(shapes.of[image])]
        column.pop(image % n, None)


def _note_lost_keys(
    bad: dict[int, str], column: dict[int, str], cells: Cells, n: int, in_key: np.ndarray, text: pa.StringArray
) -> None:
    """A row without its key can't be found again: MERGE would never match it."""
    for cell in np.nonzero(cells.key & text.is_null().to_numpy(zero_copy_only=False))[0].tolist():
        name = shown(cells.names[cells.name[cell]])
        _note(bad, column, cells, n, cell, f"key column {name} is NULL")
    told = np.bincount(cells.image[cells.key], minlength=2 * n)
    used = np.bincount(cells.image[in_key] % max(n, 1), minlength=n)
    for row in np.nonzero(used < np.maximum(told[:n], told[n:]))[0].tolist():
        bad.setdefault(row, f"the before image has {used[row]} key columns, the after image {told[n + row]}")


def _telling(shapes: _Shapes, op: np.ndarray, fine: np.ndarray, cells: Cells, n: int) -> np.ndarray:
    """The shape that states each row's table, -1 where its images show a part of it: those with a gap in the
    columns' places (TiCDC tells no places), those of an UPDATE that differ, those of the key alone."""
    use = np.where(op == pb.DELETE, np.arange(n), np.arange(n) + n)
    only_key = np.bincount(cells.image[cells.key], minlength=2 * n) == shapes.lengths
    gap = np.zeros(2 * n, bool)
    misplaced = cells.index != counts(shapes.lengths)
    if misplaced.any():
        gap[cells.image[misplaced]] = True
        gap &= np.bincount(cells.image[cells.index != 0], minlength=2 * n) > 0  # places are told
    has_before = shapes.lengths[:n] > 0
    differ = (op == pb.UPDATE) & has_before & (shapes.of[:n] != shapes.of[n:])
    whole = fine & ~gap[use] & ~differ & ~(only_key[use] & (op != pb.INSERT))
    return np.where(whole, shapes.of[use], -1)


def _version(tables: _Tables, shapes: _Shapes, cells: Cells, shape: int) -> tuple[str, str, str, str]:
    image = int(shapes.first[shape])
    start = int(shapes.starts[image])
    mine = slice(start, start + int(shapes.lengths[image]))
    db, table = tables.names[int(tables.number[image % len(tables.number)])]
    columns = columns_json(
        [
            {"name": cells.names[name], "type": cells.kinds[kind].text, "key": key}
            for name, kind, key in zip(cells.name[mine], cells.kind[mine], cells.key[mine], strict=True)
        ]
    )
    return db, table, schema_version(db, table, columns), columns


def _numbers(entries: Entries, entry: np.ndarray) -> np.ndarray:
    """Number of each row among its message's rows at the same binlog position: with `partitionHash` canal makes an
    entry of every row, all with their event's position."""
    if not len(entry):
        return entry
    file = entries.header.field("logfileName").dictionary_encode().indices
    place = [entries.message, pc.fill_null(file, -1).to_numpy()]
    place += [pc.fill_null(entries.header.field(n), 0).to_numpy() for n in ("logfileOffset", "serverId")]
    changed = np.any([np.diff(a[entry]) != 0 for a in place], axis=0)
    starts = np.append(0, np.nonzero(changed)[0] + 1)
    return counts(np.diff(np.append(starts, len(entry))))
