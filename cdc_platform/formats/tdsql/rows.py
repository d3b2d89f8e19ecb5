"""Rows of one table in one state of its columns → EVENT batches."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.kafka_connect.values import BAD, shown
from cdc_platform.formats.protobuf_arrow import build_maps
from cdc_platform.formats.tdsql.literals import NULLS, to_text
from cdc_platform.formats.tdsql.messages import Row
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.tdsql.schemas import Table

Fail = Callable[[Row, BaseException], None]


class Group(NamedTuple):
    """What rows must have in common to be converted together: their table's state, which of its columns each
    literal belongs to, and how many literals are in both images."""

    table: Table
    columns: tuple[int, ...]
    where: int
    field: int


def columns_of(table: Table, names: tuple[str, ...] | None, row: Row) -> tuple[int, ...]:
    """Place among the table's columns of each literal. Raises ValueError where the row doesn't fit the table."""
    width = max(len(row.where), len(row.field))
    if names is None:
        if width > len(table.names):
            raise ValueError(f"{width} values, but the table has {len(table.names)} columns here")
        return tuple(range(width))  # a shorter row was written before columns were added at the end
    folded = {n.casefold(): i for i, n in enumerate(table.names)}
    unknown = next((n for n in names if n.casefold() not in folded), None)
    if unknown is not None:
        raise ValueError(f"column {shown(unknown)} isn't among the table's columns here")
    return tuple(folded[n.casefold()] for n in names)


def convert_rows(
    messages: pa.RecordBatch, group: Group, rows: list[Row], options: TdsqlOptions, fail: Fail
) -> Iterator[tuple[pa.RecordBatch, list[Row]]]:
    """Rows of one group → EVENT batches, each with its rows. A row with a literal that can't be read goes to
    `fail`; where that can't be told, the group is halved until only the bad rows are left."""
    try:
        cells = _Cells(group, rows, options)
        good = [i for i in range(len(rows)) if i not in cells.bad]
        batch = _batch(messages, group, rows, cells, good, options) if good else None
    except BAD as e:
        if len(rows) == 1:
            fail(rows[0], e)
            return
        middle = len(rows) // 2
        yield from convert_rows(messages, group, rows[:middle], options, fail)
        yield from convert_rows(messages, group, rows[middle:], options, fail)
        return
    for i, reason in cells.bad.items():
        fail(rows[i], ValueError(reason))
    if batch is not None:
        yield batch, [rows[i] for i in good]


class _Cells:
    """Texts of a group, all in `text`: column by column, the literals of `where` of all rows, then of `field`.
    `before`, `after`: places there of each row's cells (row × column). `bad`: row → reason."""

    def __init__(self, group: Group, rows: list[Row], options: TdsqlOptions):
        n, images = len(rows), [name for name in ("where", "field") if getattr(group, name)]
        columns = [list(zip(*(getattr(r, name) for r in rows), strict=True)) for name in images]
        self.bad: dict[int, str] = {}
        texts = []
        for place, c in enumerate(group.columns):
            text, ok, raw = self._column(group.table, c, [v for image in columns for v in image[place]], options)
            for i in np.nonzero(~ok)[0].tolist():
                self.bad.setdefault(i % n, f"column {shown(group.table.names[c])}: {shown(raw[i])} {_unfit(group, c)}")
            if c in group.table.key:
                for i in np.nonzero(text.is_null().to_numpy(zero_copy_only=False) & ok)[0].tolist():
                    self.bad.setdefault(i % n, f"key column {shown(group.table.names[c])} is NULL")
            texts.append(text)
        self.text = pa.concat_arrays(texts)
        stride = n * len(images)
        places = np.arange(len(texts)) * stride + np.arange(n)[:, None]
        self.before, self.after = places, places + (len(images) - 1) * n
        if missing := set(group.table.key) - set(group.columns):
            name = group.table.names[min(missing)]
            self.bad = dict.fromkeys(range(n), f"key column {shown(name)} isn't in the row")

    @staticmethod
    def _column(table: Table, c: int, raw: list, options: TdsqlOptions) -> tuple[pa.StringArray, np.ndarray, list]:
        if not NULLS.isdisjoint(raw) or None in raw or "" in raw:
            raw = [None if not v or v in NULLS else v for v in raw]
        text, ok = to_text(pa.array(raw, pa.string()), table.types[c][1], options.time_zone, options.escapes)
        return text, ok, raw


def _unfit(group: Group, c: int) -> str:
    text, mysql_type = group.table.types[c]
    hint = "; see option escapes" if mysql_type.family in ("text", "json", "binary", "geometry") else ""
    return f"doesn't fit its type {shown(text)}{hint}"


def _batch(
    messages: pa.RecordBatch, group: Group, rows: list[Row], cells: _Cells, good: list[int], options: TdsqlOptions
) -> pa.RecordBatch:
    rows = [rows[i] for i in good]
    n, table = len(rows), group.table
    deleted, inserted = (np.array([r.op == op for r in rows], bool) for op in ("delete", "insert"))
    names = pa.array([table.names[c] for c in group.columns], pa.string())
    key = np.array([group.columns.index(c) for c in table.key], np.int64)
    whole = len(group.columns) == len(table.names)
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array([r.at for r in rows]))
    event_no = pa.array([r.event_no for r in rows], pa.int64())
    gtid = pa.array([r.gtid for r in rows], pa.string())
    zeros = pa.array(np.zeros(n, np.int32))
    before, after = cells.before[good], cells.after[good]
    found: dict[str, Any] = {
        **{name: address.column(name) for name in address.schema.names},
        "entry_index": zeros,
        "row_index": zeros,
        "kind": pa.repeat("row", n),
        "db": pa.repeat(table.db, n),
        "table": pa.repeat(table.table, n),
        "op": pa.array([r.op for r in rows], pa.string()),
        "key": _maps(cells.text, names.take(pa.array(key)), before[:, key], np.full(n, bool(table.key))),
        "before": _maps(cells.text, names, before, ~inserted),
        "after": _maps(cells.text, names, after, ~deleted),
        "schema_version": pa.repeat(table.version, n) if whole else None,
        "source_time": pa.array([r.place.time for r in rows], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "txn_id": gtid,
        "txn_seq": event_no,
        "gtid": gtid,
        "binlog_file": pa.array([r.binlog_file for r in rows], pa.string()),
        "event_no": event_no,
        "row_no": pa.array([r.row_no for r in rows], pa.int64()),
    }
    if options.order == "gtid":
        told = [r.place.number is not None for r in rows]
        found |= {
            "lineage": pa.array([r.place.lineage for r in rows], pa.string()),
            "file_no": pa.array([0 if t else None for t in told], pa.int64()),
            "binlog_pos": pa.array([r.place.number for r in rows], pa.int64()).cast(pa.decimal128(20, 0)),
        }
    columns = [found[f.name] if found.get(f.name) is not None else pa.nulls(n, f.type) for f in EVENT]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT)


def _maps(text: pa.StringArray, names: pa.StringArray, places: np.ndarray, has_map: np.ndarray) -> pa.MapArray:
    """Places of cells (row × column) → one map per row; null where `has_map` is False."""
    rows = np.nonzero(has_map)[0]
    n, width = len(rows), places.shape[1]
    keys = names.take(pa.array(np.tile(np.arange(width), n)))
    return build_maps(np.repeat(rows, width), keys, text.take(pa.array(places[rows].ravel())), has_map)
