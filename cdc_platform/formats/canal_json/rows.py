"""Rows of FlatMessages, group by group (one table, one list of columns) → EVENT batches.

A before image is `data` with `old` laid over it: a column that `old` lacks didn't change. So every text is
converted once, and the images are choices of places among the converted texts.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal_json.messages import Row, Rows
from cdc_platform.formats.canal_json.options import CanalJsonOptions
from cdc_platform.formats.canal_text import Dialect, hint, to_text, told_type
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.events import columns_json, schema_version
from cdc_platform.formats.kafka_connect.values import BAD, Number, json_text, number_text, plain_text, shown
from cdc_platform.formats.names import Names
from cdc_platform.formats.protobuf_arrow import build_maps
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.values import Checked

_BLOB = 2004  # java.sql.Types; the only one that says how the text is written whatever the value is
_TEXTS = {str, NoneType}
_TOLD_NOTHING = ("longtext", parse_type("longtext"))

Fail = Callable[[Row, BaseException], None]


class Group(NamedTuple):
    """What rows must have in common to be converted together. `types`: of each column `mysqlType`'s text, or
    `sqlType`'s number where there is none."""

    db: str
    table: str
    key: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str | int | None, ...]


@dataclass(slots=True)
class Table:
    """What all rows of a group share. `key`: places of the key's columns among `names`."""

    db: str
    table: str
    names: tuple[str, ...]
    types: list[tuple[str, MySqlType]]
    key: list[int]
    columns_json: str = field(init=False)
    version: str = field(init=False)

    def __post_init__(self) -> None:
        in_key = set(self.key)
        self.columns_json = columns_json(
            [
                {"name": n, "type": t, "key": i in in_key}
                for i, (n, (t, _)) in enumerate(zip(self.names, self.types, strict=True))
            ]
        )
        self.version = schema_version(self.db, self.table, self.columns_json)

    def schema_event(self) -> dict[str, Any]:
        """EVENT of kind schema, without wire address."""
        told = {"db": self.db, "table": self.table, "schema_version": self.version, "columns": self.columns_json}
        return {"kind": "schema", **told}


def described(group: Group, options: CanalJsonOptions) -> Table:
    """Columns and key of a group's rows. Raises ValueError when a key column isn't in the rows."""
    given = Names(options.columns.get(f"{group.db}.{group.table}", {}))
    types = []
    for name, told in zip(group.names, group.types, strict=True):
        real = given.get(name)
        text = "longblob" if told == _BLOB else told if type(told) is str else None
        types.append((real, parse_type(real)) if real else told_type(text) or _TOLD_NOTHING)
    places = Names({name: i for i, name in enumerate(group.names)})
    key = [places.get(name) for name in group.key]
    if None in key:
        raise ValueError(f"key column {shown(group.key[key.index(None)])} isn't in the row")
    if len(set(key)) != len(key):
        raise ValueError(f"pkNames {shown(list(group.key))} names a column twice")
    return Table(group.db, group.table, group.names, types, key)


def grouped(message: Rows, fail: Fail) -> Iterator[tuple[Group, Row]]:
    """The rows of a message with their groups; `old` with the names that `data` spells."""
    seen: dict[tuple[str, ...], Group] = {}
    for row in message.rows:
        names = tuple(row.data)
        try:
            if row.old and not row.old.keys() <= row.data.keys():
                old = _renamed(row.old, row.data)
                row = row._replace(old=old)  # noqa: PLW2901 - the same row, spelled as its data is
                names += tuple(n for n in old if n not in row.data)
            group = seen.get(names)
            if group is None:
                group = seen[names] = group_of(message, names)
        except ValueError as e:
            fail(row, e)
            continue
        yield group, row


def group_of(message: Rows, names: tuple[str, ...]) -> Group:
    """The group of rows with these columns. Raises ValueError."""
    told = tuple(map(message.types.get, names))
    if set(map(type, told)) != {str} or "" in told:
        types, sql_types = Names(message.types), Names(message.sql_types)
        told = tuple(_told(n, types, sql_types) for n in names)
    return Group(message.db, message.table, message.key, names, told)


def _renamed(old: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    spelled = Names(data)
    out = {name if name in data else spelled.other(name) or name: value for name, value in old.items()}
    if len(out) != len(old):
        raise ValueError("old names a column twice")
    return out


def _told(name: str, types: Names, sql_types: Names) -> str | int | None:
    """Type of a column as the message tells it."""
    told = types.get(name)
    if told is not None and type(told) is not str:
        raise ValueError(f"mysqlType of {shown(name)}: {shown(told)} is no text")
    return told or (_BLOB if sql_types.get(name) == _BLOB else None)


def _tells_columns(table: Table, row: Row) -> bool:
    """Whether a row shows all columns of its table, as far as can be told: those of a delete that shows the key
    alone (TiCDC's delete-only-output-handle-key-columns), or of a row whose `old` has more columns than its
    `data`, must not pass for the table's columns."""
    key_only = row.op == "delete" and len(table.key) == len(table.names)
    return len(row.data) == len(table.names) and not key_only


def convert_rows(
    messages: pa.RecordBatch, table: Table, rows: list[Row], dialect: Dialect, fail: Fail
) -> Iterator[tuple[pa.RecordBatch, list[Row]]]:
    """Rows of one table → EVENT batches, each with its rows. A row with an unreadable text goes to `fail`; where
    a value has no text at all, the group is halved until only the bad rows are left."""
    try:
        cells = _cells(table, rows, dialect)
        good = [i for i in range(len(rows)) if i not in cells.bad]
        batch = _batch(messages, table, rows, cells, good) if good else None
    except BAD as e:
        if len(rows) == 1:
            fail(rows[0], e)
            return
        middle = len(rows) // 2
        yield from convert_rows(messages, table, rows[:middle], dialect, fail)
        yield from convert_rows(messages, table, rows[middle:], dialect, fail)
        return
    for i, reason in cells.bad.items():
        fail(rows[i], ValueError(reason))
    if batch is not None:
        yield batch, [rows[i] for i in good]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Texts of a group: all of them in `text`, and the place there of each row's cell (row × column, -1: not in
    the image) after the change and before it. `bad`: row → reason."""

    text: pa.StringArray
    after: np.ndarray
    before: np.ndarray
    bad: dict[int, str]


def _cells(table: Table, rows: list[Row], dialect: Dialect) -> _Cells:
    n, width = len(rows), len(table.names)
    olds = _old_values(table, rows)
    whole = all(len(r.data) == width for r in rows)
    columns = list(zip(*(r.data.values() for r in rows), strict=True)) if whole else []
    after, before = np.empty((n, width), np.int64), np.empty((n, width), np.int64)
    bad: dict[int, str] = {}
    texts, base = [], 0
    for c, name in enumerate(table.names):
        values = list(columns[c]) if whole else [r.data.get(name) for r in rows]
        at, old = olds[c]
        values += old
        text, ok = _column_text(name, values, table.types[c][1], dialect)
        after[:, c] = np.arange(base, base + n)
        if not whole:
            after[[i for i, r in enumerate(rows) if name not in r.data], c] = -1
        before[:, c] = after[:, c]
        before[at, c] = np.arange(base + n, base + len(values))
        for i in np.nonzero(~ok)[0].tolist():
            bad.setdefault(i if i < n else at[i - n], _unreadable(name, values[i], *table.types[c]))
        texts.append(text)
        base += len(values)
    cells = _Cells(pa.concat_arrays(texts), after, before, bad)
    _note_lost_keys(cells, table)
    return cells


def _unreadable(name: str, value: Any, type_text: str, mysql_type: MySqlType) -> str:
    return f"column {shown(name)}: {shown(value)} doesn't fit its type {shown(type_text)}{hint(mysql_type)}"


def _note_lost_keys(cells: _Cells, table: Table) -> None:
    """A row without its key can't be found again: MERGE would never match it."""
    null = np.append(cells.text.is_null().to_numpy(zero_copy_only=False), True)
    for c in table.key:
        lost = null[cells.before[:, c]] | null[cells.after[:, c]]
        for i in np.nonzero(lost)[0].tolist():
            cells.bad.setdefault(i, f"key column {shown(table.names[c])} is NULL or isn't in the row")


def _old_values(table: Table, rows: list[Row]) -> list[tuple[list[int], list[Any]]]:
    """Of each column the rows whose `old` has it, and what it has."""
    found: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in table.names}
    for i, row in enumerate(rows):
        if row.old:
            for name, value in row.old.items():
                at, values = found[name]
                at.append(i)
                values.append(value)
    return list(found.values())


def _column_text(name: str, values: list[Any], mysql_type: MySqlType, dialect: Dialect) -> Checked:
    if not set(map(type, values)) <= _TEXTS:
        try:
            values = [_native(v, mysql_type.family) for v in values]
        except BAD as e:
            raise ValueError(f"column {shown(name)}: {e}") from e
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


def _batch(messages: pa.RecordBatch, table: Table, rows: list[Row], cells: _Cells, good: list[int]) -> pa.RecordBatch:
    rows = [rows[i] for i in good]
    n = len(rows)
    after, before = cells.after[good], cells.before[good]
    deleted = np.array([r.op == "delete" for r in rows], bool)
    has_before = deleted | np.array([r.old is not None for r in rows], bool)
    has_key = np.full(n, bool(table.key))
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array([r.at for r in rows]))
    names = pa.array(table.names, pa.string())
    index = pa.array([r.place for r in rows], pa.int64())
    found: dict[str, Any] = {
        **{name: address.column(name) for name in address.schema.names},
        "entry_index": pa.array(np.zeros(n, np.int32)),
        "row_index": index.cast(pa.int32()),
        "kind": pa.repeat("row", n),
        "db": pa.repeat(table.db, n),
        "table": pa.repeat(table.table, n),
        "op": pa.array([r.op for r in rows], pa.string()),
        "key": _maps(cells.text, names.take(pa.array(table.key, pa.int64())), before[:, table.key], has_key),
        "before": _maps(cells.text, names, before, has_before),
        "after": _maps(cells.text, names, after, ~deleted),
        "schema_version": pa.array([table.version if _tells_columns(table, r) else None for r in rows], pa.string()),
        "source_time": pa.array([r.time for r in rows], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "txn_id": pa.array([r.txn for r in rows], pa.string()),
        "gtid": pa.array([r.gtid for r in rows], pa.string()),
        "row_no": index,
    }
    columns = [found[f.name] if f.name in found else pa.nulls(n, f.type) for f in EVENT]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT)


def _maps(text: pa.StringArray, names: pa.StringArray, places: np.ndarray, has_map: np.ndarray) -> pa.MapArray:
    """Places of cells (row × column, -1: not in the image) → one map per row; null where `has_map` is False."""
    there = (places >= 0) & has_map[:, None]
    row, column = np.nonzero(there)
    return build_maps(row, names.take(pa.array(column)), text.take(pa.array(places[there])), has_map)
