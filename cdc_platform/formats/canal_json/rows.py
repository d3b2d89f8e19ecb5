"""Rows of FlatMessages, group by group (one table, one list of columns) → EVENT batches.

A before image is `data` with `old` laid over it: a column that `old` lacks didn't change. So every text is
converted once, and the images are choices of places among the converted texts.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass, field
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal_common.text import Dialect, hint, to_text
from cdc_platform.formats.canal_json.messages import COMMIT_TS, Changes
from cdc_platform.formats.canal_json.sheets import Old, Sheet
from cdc_platform.formats.collect import Converted, Table
from cdc_platform.formats.contract import UNKNOWN, UNORDERED
from cdc_platform.formats.events import BadColumn, row_batch
from cdc_platform.formats.images import image_maps
from cdc_platform.formats.texts import BAD, Number, json_text, number_text, plain_text, shown
from cdc_platform.mysql.fitting import longest_text
from cdc_platform.mysql.types import MySqlType
from cdc_platform.mysql.values import Checked

_TEXTS = {str, NoneType}


def convert_sheet(
    messages: pa.RecordBatch, table: Table, sheet: Sheet, dialect: Dialect
) -> tuple[pa.RecordBatch, Changes] | None:
    """As `convert`, of a whole sheet; None: it has a bad row, which is for `convert` to find."""
    try:
        cells = _cells_of_sheet(table, sheet, dialect)
        return None if cells is None else (_batch(messages, table, sheet.fields, cells), sheet.fields)
    except BAD:
        return None


def convert(messages: pa.RecordBatch, table: Table, changes: Changes, dialect: Dialect) -> Converted[Changes]:
    """Rows of one table. Raises BadColumn where a value has no text at all."""
    cells = good_cells = _cells(table, changes, dialect)
    good, bad = changes, cells.bad
    if bad:
        kept = [i for i in range(len(changes)) if i not in bad]
        good, good_cells = changes.take(kept), cells.of_rows(kept)
    return (_batch(messages, table, good, good_cells) if len(good) else None), good, bad


@dataclass(frozen=True, slots=True)
class _Cells:
    """Texts of a group: all of them in `text`, and the place there of each row's cell (row × column, -1: not in
    the image) after the change and before it. `has_old`: whether `old` says what it was before; `whole`: whether
    `data` has all columns. `bad`: rows that can't be used."""

    text: pa.StringArray
    after: np.ndarray
    before: np.ndarray
    has_old: np.ndarray
    whole: np.ndarray
    bad: dict[int, BadColumn] = field(default_factory=dict)

    def of_rows(self, kept: list[int]) -> "_Cells":
        """Some of the rows, none of them bad."""
        return _Cells(self.text, self.after[kept], self.before[kept], self.has_old[kept], self.whole[kept])


def _cells_of_sheet(table: Table, sheet: Sheet, dialect: Dialect) -> _Cells | None:
    """None: there is a bad row. Cells stay where they are unless their column's text changes."""
    n, width = len(sheet.fields), len(table.names)
    texts = [sheet.text()]
    old_row, old_column = sheet.old()
    places = np.arange(len(texts[0]))
    after, old = places[: n * width].reshape(n, width), places[n * width :]
    base = len(places)
    sizes = pc.fill_null(pc.binary_length(texts[0]), 0).to_numpy(zero_copy_only=False)
    for c, (_, mysql_type) in enumerate(table.types):
        at = np.flatnonzero(old_column == c)
        if mysql_type.family == "text":  # as it shall be, unless it is too long
            longest = longest_text(mysql_type)
            if longest is None or max(sizes[after[:, c]].max(initial=0), sizes[old[at]].max(initial=0)) <= longest:
                continue
        values = texts[0].take(pa.array(np.concatenate((after[:, c], old[at]))))
        text, ok = to_text(values, mysql_type, dialect)
        if not ok.all():
            return None
        if text is not values:
            after[:, c] = np.arange(base, base + n)
            old[at] = np.arange(base + n, base + len(text))
            texts.append(text)
            base += len(text)
    before = after.copy()
    before[old_row, old_column] = old
    cells = _Cells(pa.concat_arrays(texts), after, before, sheet.has_old(), np.ones(n, bool))
    _note_lost_keys(cells, table)
    return None if cells.bad else cells


def _cells(table: Table, changes: Changes, dialect: Dialect) -> _Cells:
    n, width = len(changes.data), len(table.names)
    complete = np.array(list(map(len, changes.data))) == width
    whole = bool(complete.all())
    data = list(chain.from_iterable(map(dict.values, changes.data))) if whole else []
    after = np.empty((n, width), np.int64)
    old = Old(table.names, changes.old)
    old_places = np.empty(len(old.values), np.int64)
    bad: dict[int, BadColumn] = {}
    texts, base = [], 0
    for c, name in enumerate(table.names):
        values = data[c::width] if whole else [d.get(name) for d in changes.data]
        at = np.flatnonzero(old.column == c)
        values += [old.values[i] for i in at.tolist()]
        text, ok = column_text(name, values, table.types[c][1], dialect)
        after[:, c] = np.arange(base, base + n)
        if not whole:
            after[[i for i, d in enumerate(changes.data) if name not in d], c] = -1
        old_places[at] = np.arange(base + n, base + len(values))
        for i in np.flatnonzero(~ok).tolist():
            row = i if i < n else int(old.row[at[i - n]])
            bad.setdefault(row, _unreadable(name, values[i], *table.types[c]))
        texts.append(text)
        base += len(values)
    before = after.copy()
    before[old.row, old.column] = old_places
    has_old = np.array([o is not None for o in changes.old], bool)
    cells = _Cells(pa.concat_arrays(texts), after, before, has_old, complete, bad)
    _note_lost_keys(cells, table)
    return cells


def _unreadable(name: str, value: Any, type_text: str, mysql_type: MySqlType) -> BadColumn:
    why = f"{shown(value)} doesn't fit its type {shown(type_text)}{hint(mysql_type)}"
    waits = mysql_type.family in ("enum", "set") and not mysql_type.labels
    return BadColumn(name, f"{f'{UNKNOWN}: ' if waits else ''}column {shown(name)}: {why}")


def _note_lost_keys(cells: _Cells, table: Table) -> None:
    """A row without its key can't be found again: MERGE would never match it."""
    null = np.append(cells.text.is_null().to_numpy(zero_copy_only=False), True)
    for c in table.key:
        lost = null[cells.before[:, c]] | null[cells.after[:, c]]
        for i in np.flatnonzero(lost).tolist():
            name = table.names[c]
            cells.bad.setdefault(i, BadColumn(name, f"key column {shown(name)} is NULL or isn't in the row"))


def column_text(name: str, values: list[Any], mysql_type: MySqlType, dialect: Dialect) -> Checked:
    """JSON values of one column → their texts, and which of them are ones of its type. Raises BadColumn where a value
    has no text at all."""
    if not set(map(type, values)) <= _TEXTS:
        try:
            values = [_native(v, mysql_type.family) for v in values]
        except BAD as e:
            raise BadColumn(name, f"column {shown(name)}: {e}") from e
    return to_text(pa.array(values, pa.string()), mysql_type, dialect)


def _native(value: Any, family: str) -> str | None:
    """A JSON value as text: canal writes texts only, other writers numbers and booleans too."""
    if value is None or type(value) is str:
        return value
    if family in ("binary", "geometry") or (type(value) in (dict, list) and family not in ("json", "text")):
        raise ValueError(f"{shown(value)} is no {family}")
    if type(value) is Number and family == "decimal":
        return number_text(value, None)
    return json_text(value) if family == "json" else plain_text(value)


def _batch(messages: pa.RecordBatch, table: Table, changes: Changes, cells: _Cells) -> pa.RecordBatch:
    deleted = np.array([op == "delete" for op in changes.op], bool)
    has_key = np.full(len(changes), bool(table.key))
    names = pa.array(table.names, pa.string())
    key_names = names.take(pa.array(table.key, pa.int64()))
    index = pa.array(changes.place, pa.int64())
    columns = {
        "row_index": index.cast(pa.int32()),
        "db": table.db,
        "schema": table.schema,
        "table": table.table,
        "op": changes.op,
        "key": image_maps(cells.text, key_names, cells.before[:, table.key], has_key),
        "before": image_maps(cells.text, names, cells.before, deleted | cells.has_old),
        "after": image_maps(cells.text, names, cells.after, ~deleted),
        "schema_version": _versions(table, cells.whole, deleted),
        "source_time": changes.time,
        "txn_id": changes.txn,
        "gtid": changes.gtid,
        "row_no": index,
        **_places(changes),
    }
    if not all(changes.ordered):
        columns["info"] = [None if told else [(UNORDERED, "")] for told in changes.ordered]
    return row_batch(messages, changes.at, columns)


def _places(changes: Changes) -> dict[str, list]:
    """TiCDC's commitTs orders changes, in whatever partition they come. A change that it splits in two is a delete
    first."""
    if not any(changes.txn):
        return {}
    told = [None if txn is None else int(txn) for txn in changes.txn]
    return {
        "file_no": [None if txn is None else COMMIT_TS for txn in told],
        "binlog_pos": told,
        "event_no": [int(op != "delete") for op in changes.op],
    }


def _versions(table: Table, whole: np.ndarray, deleted: np.ndarray) -> pa.StringArray:
    """The table's version for rows that show all its columns, as far as can be told: those of a delete that shows the
    key alone (TiCDC's delete-only-output-handle-key-columns), or of a row whose `old` has more columns than its
    `data`, must not pass for the table's columns."""
    tells = whole & ~deleted if len(table.key) == len(table.names) else whole
    return pc.if_else(pa.array(tells), pa.scalar(table.version), pa.scalar(None, pa.string()))
