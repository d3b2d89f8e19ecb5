"""Rows of one table in one state of its columns → EVENT batches."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.events import BadColumn, Event, of_table, readable_key
from cdc_platform.formats.tdsql.literals import NULLS, to_text
from cdc_platform.formats.tdsql.messages import Changes, Row, place
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.tdsql.schemas import Table
from cdc_platform.formats.texts import BAD, shown

Fail = Callable[[Row, BaseException], None]

_NULLS = pa.array(["", *sorted(NULLS)], pa.string())


class Group(NamedTuple):
    """What rows must have in common to be converted together: their table's state, which of its columns each
    literal belongs to, and how many literals are in both images."""

    table: Table
    columns: tuple[int, ...]
    where: int
    field: int

    @property
    def op(self) -> str:
        """What its rows do: it shows in their images."""
        return "insert" if not self.where else "update" if self.field else "delete"


def group_of(table: Table, names: tuple[str, ...] | None, where: int, field: int) -> Group:
    """The group of rows with so many literals before and after. Raises ValueError where they don't fit the table."""
    return Group(table, _columns_of(table, names, max(where, field)), where, field)


def _columns_of(table: Table, names: tuple[str, ...] | None, width: int) -> tuple[int, ...]:
    """Place among the table's columns of each literal."""
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
    messages: pa.RecordBatch, group: Group, rows: Changes, options: TdsqlOptions, fail: Fail
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Rows of one group → EVENT batches, each with the numbers of its rows' messages. A row with a literal that can't
    be read goes to `fail`; where that can't be told, the group is halved until only the bad rows are left."""
    count = len(rows.at)
    try:
        cells = _Cells(group, rows, options)
        kept = [i for i in range(count) if i not in cells.bad] if cells.bad else None
        good = rows if kept is None else rows.chosen(kept)
        batch = _batch(messages, group, good, cells, kept, options) if good.at else None
    except BAD as e:
        if count == 1:
            fail(rows.row(0), e)
            return
        middle = count // 2
        for half in (range(middle), range(middle, count)):
            yield from convert_rows(messages, group, rows.chosen(half), options, fail)
        return
    for i, error in cells.bad.items():
        fail(rows.row(i), error)
    if batch is not None:
        yield batch, good.at


def of_row(group: Group, row: Row, options: TdsqlOptions) -> Event:
    """What is told of a row that can't be used: its table, and the key of the row before as far as it can be read."""
    table, image = group.table, row.where or row.field

    def read(at: int, c: int) -> str | None:
        text, ok, _ = _column(table, c, [image[at]], options)
        return text[0].as_py() if ok.all() else None

    key = [(at, c) for at, c in enumerate(group.columns) if c in table.key]
    return {
        **of_table(table.db, table.table),
        **readable_key((table.names[c], partial(read, at, c)) for at, c in key),
    }


class _Cells:
    """Texts of a group, all in `text`: column by column, the literals of `where` of all rows, then of `field`.
    `before`, `after`: places there of each row's cells (row × column). `bad`: rows that can't be used."""

    def __init__(self, group: Group, rows: Changes, options: TdsqlOptions):
        n, width = len(rows.at), len(group.columns)
        images = [list(chain.from_iterable(image)) for image in (rows.where, rows.field)]
        self.bad: dict[int, BadColumn] = {}
        texts = []
        for at, c in enumerate(group.columns):
            literals = [v for image in images for v in image[at::width]]
            text, ok, raw = _column(group.table, c, literals, options)
            name = group.table.names[c]
            for i in np.flatnonzero(~ok).tolist():
                why = f"{shown(raw[i].as_py())} {_unfit(group, c)}"
                self.bad.setdefault(i % n, BadColumn(name, f"column {shown(name)}: {why}"))
            if c in group.table.key and text.null_count:
                for i in np.flatnonzero(text.is_null().to_numpy(zero_copy_only=False) & ok).tolist():
                    self.bad.setdefault(i % n, BadColumn(name, f"key column {shown(name)} is NULL"))
            texts.append(text)
        self.text = pa.concat_arrays(texts)
        stride = len(texts[0])
        places = np.arange(width) * stride + np.arange(n)[:, None]
        self.before, self.after = places, places + (stride - n)
        if missing := set(group.table.key) - set(group.columns):
            name = group.table.names[min(missing)]
            self.bad = dict.fromkeys(range(n), BadColumn(name, f"key column {shown(name)} isn't in the row"))


def _column(
    table: Table, c: int, literals: list[str | None], options: TdsqlOptions
) -> tuple[pa.StringArray, np.ndarray, pa.StringArray]:
    """Literals of one column → (text, ok, what was read)."""
    raw = pa.array(literals, pa.string())
    null = pc.is_in(raw, _NULLS)
    if pc.any(null).as_py():
        raw = pc.if_else(null, None, raw)
    text, ok = to_text(raw, table.types[c][1], options.time_zone, options.escapes)
    return text, ok, raw


def _unfit(group: Group, c: int) -> str:
    text, mysql_type = group.table.types[c]
    hint = "; see option escapes" if mysql_type.family in ("text", "json", "binary", "geometry") else ""
    return f"doesn't fit its type {shown(text)}{hint}"


def _batch(
    messages: pa.RecordBatch, group: Group, rows: Changes, cells: _Cells, kept: list[int] | None, options: TdsqlOptions
) -> pa.RecordBatch:
    """`kept`: which of the cells' rows these are; None: all."""
    n, table = len(rows.at), group.table
    names = pa.array([table.names[c] for c in group.columns], pa.string())
    key = [group.columns.index(c) for c in table.key]
    whole = len(group.columns) == len(table.names)
    before, after = (p if kept is None else p[kept] for p in (cells.before, cells.after))
    address = messages.select(["topic", "partition", "offset", "landed_at"]).take(pa.array(rows.at))
    event_no, gtid = pa.array(rows.event_no, pa.int64()), pa.array(rows.gtid, pa.string())
    zeros = pa.array(np.zeros(n, np.int32))
    found: dict[str, Any] = {
        **{name: address.column(name) for name in address.schema.names},
        "entry_index": zeros,
        "row_index": zeros,
        "kind": pa.repeat("row", n),
        "db": pa.repeat(table.db, n),
        "table": pa.repeat(table.table, n),
        "op": pa.repeat(group.op, n),
        "key": _maps(cells.text, names.take(pa.array(key)), before[:, key]) if key else None,
        "before": _maps(cells.text, names, before) if group.where else None,
        "after": _maps(cells.text, names, after) if group.field else None,
        "schema_version": pa.repeat(table.version, n) if whole else None,
        "source_time": pa.array(rows.time, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "txn_id": gtid,
        "txn_seq": event_no,
        "gtid": gtid,
        "binlog_file": pa.array(rows.binlog_file, pa.string()),
        "event_no": event_no,
        "row_no": pa.array(rows.row_no, pa.int64()),
        **(_order_by_gtid(rows) if options.order == "gtid" else {}),
    }
    columns = [found[f.name] if found.get(f.name) is not None else pa.nulls(n, f.type) for f in EVENT]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT)


def _order_by_gtid(rows: Changes) -> dict[str, pa.Array]:
    places = [place(gtid, None) for gtid in rows.gtid]
    numbers = [p.number for p in places]
    return {
        "lineage": pa.array([p.lineage for p in places], pa.string()),
        "file_no": pa.array([None if number is None else 0 for number in numbers], pa.int64()),
        "binlog_pos": pa.array(numbers, pa.int64()).cast(pa.decimal128(20, 0)),
    }


def _maps(text: pa.StringArray, names: pa.StringArray, places: np.ndarray) -> pa.MapArray:
    """Places of cells (row × column) → one map per row."""
    n, width = places.shape
    keys = names.take(pa.array(np.tile(np.arange(width), n)))
    starts = pa.array(np.arange(0, n * width + 1, width, dtype=np.int32))
    return pa.MapArray.from_arrays(starts, keys, text.take(pa.array(places.ravel())))
