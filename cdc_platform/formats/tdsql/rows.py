"""Rows of one table in one state of its columns → EVENT batches."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import re
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.collect import Converted, Table
from cdc_platform.formats.events import BadColumn, Event, of_table, readable_key, row_batch
from cdc_platform.formats.images import image_maps
from cdc_platform.formats.tdsql.literals import NULLS, to_text
from cdc_platform.formats.tdsql.messages import Changes, Row, place
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.texts import shown
from cdc_platform.mysql.types import MySqlType

_NULLS = pa.array(["", *sorted(NULLS)], pa.string())


class Group(NamedTuple):
    """What rows must have in common to be converted together: their table's state, which of its columns each
    literal belongs to (-1: a hidden one), and how many literals are in both images."""

    table: Table
    columns: tuple[int, ...]
    where: int
    field: int

    @property
    def op(self) -> str:
        """What its rows do: it shows in their images."""
        return "insert" if not self.where else "update" if self.field else "delete"

    @property
    def visible(self) -> list[tuple[int, int]]:
        """(place of a literal, its column), without hidden ones."""
        return [(at, c) for at, c in enumerate(self.columns) if c >= 0]


def group_of(table: Table, names: tuple[str, ...] | None, where: int, field: int, options: TdsqlOptions) -> Group:
    """The group of rows with so many literals before and after. Raises ValueError where they don't fit the table."""
    hidden = options.hidden_columns.get(f"{table.db}.{table.table}", 0)
    return Group(table, _columns_of(table, names, max(where, field), hidden), where, field)


_HIDDEN = re.compile(r"db_row_hash_[0-9]+")
"""MariaDB's columns for UNIQUE over TEXT, BLOB or long VARCHAR (its sql/table.cc, `make_hidden_column`)."""


def _columns_of(table: Table, names: tuple[str, ...] | None, width: int, hidden: int) -> tuple[int, ...]:
    """Place among the table's columns of each literal. hidden: how many columns at the end aren't the table's."""
    count = len(table.names)
    if names is None:
        if width > count + hidden:
            raise ValueError(f"{width} values, but the table has {count} columns here: {_longer(table, width - count)}")
        if width in table.others:
            raise ValueError(
                f"{width} values: the table had so many columns once, and they aren't the first of the {count} that it "
                "has here. The row is from before the statement that changed that, as those of another set may be"
            )
        # A shorter row was written before columns were added at the end.
        return tuple(range(min(width, count))) + (-1,) * (width - count)
    folded = {n.casefold(): i for i, n in enumerate(table.names)}
    folded |= {n.casefold(): -1 for n in names if n.casefold() not in folded and _HIDDEN.fullmatch(n.casefold())}
    unknown = next((n for n in names if n.casefold() not in folded), None)
    if unknown is not None:
        raise ValueError(f"column {shown(unknown)} isn't among the table's columns here")
    return tuple(folded[n.casefold()] for n in names)


def _longer(table: Table, more: int) -> str:
    """Why a row may have more values than its table has columns."""
    why = "the statement that added the others isn't in the topic before this row (option schema_file can tell it)"
    if not _may_be_hashed([t for _, t in table.types]):
        return why
    return (
        f"{why}, or they are MariaDB's own DB_ROW_HASH_1, which stands behind the columns of a table with UNIQUE over "
        "TEXT, BLOB or long VARCHAR: then option hidden_columns "
        f"{{'{table.db}.{table.table}': {more}}} lets such rows in"
    )


_KEY_BYTES = 767
"""Bytes that every key holds (InnoDB's limit per column in its older row formats): MariaDB hashes longer ones."""


def _may_be_hashed(types: list[MySqlType]) -> bool:
    """Whether MariaDB may keep a UNIQUE key over columns of these types by a hidden column."""
    keyed = [t for t in types if t.family in ("text", "binary", "json")]
    sizes = [4 * t.args[0] for t in keyed if t.args and t.name in ("char", "varchar", "binary", "varbinary")]
    return len(sizes) < len(keyed) or sum(sizes) > _KEY_BYTES


def convert(messages: pa.RecordBatch, group: Group, rows: Changes, options: TdsqlOptions) -> Converted[Changes]:
    """Rows of one group. Raises one of BAD where it isn't known which row has the fault."""
    cells = _Cells(group, rows, options)
    kept = [i for i in range(len(rows)) if i not in cells.bad] if cells.bad else None
    good = rows if kept is None else rows.take(kept)
    return (_batch(messages, group, good, cells, kept, options) if len(good) else None), good, cells.bad


def of_row(group: Group, row: Row, options: TdsqlOptions) -> Event:
    """What is told of a row that can't be used: its table, and the key of the row before as far as it can be read."""
    table, image = group.table, row.where or row.field

    def read(at: int, c: int) -> str | None:
        text, ok, _ = _column(table, c, [image[at]], options)
        return text[0].as_py() if ok.all() else None

    key = [(at, c) for at, c in group.visible if c in table.key]
    return {
        **of_table(table.db, table.table),
        **readable_key((table.names[c], partial(read, at, c)) for at, c in key),
    }


class _Cells:
    """Texts of a group, all in `text`: column by column, the literals of `where` of all rows, then of `field`.
    `before`, `after`: places there of each row's cells (row × column). `bad`: rows that can't be used."""

    def __init__(self, group: Group, rows: Changes, options: TdsqlOptions):
        n, width, shown_ = len(rows.at), len(group.columns), group.visible
        images = [list(chain.from_iterable(image)) for image in (rows.where, rows.field)]
        self.bad: dict[int, BadColumn] = {}
        texts = []
        for at, c in shown_:
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
        places = np.arange(len(shown_)) * stride + np.arange(n)[:, None]
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


_QUOTED = ("text", "json", "binary", "geometry", "enum", "set")


def _unfit(group: Group, c: int) -> str:
    text, mysql_type = group.table.types[c]
    hint = "; see option escapes" if mysql_type.family in _QUOTED else ""
    return f"doesn't fit its type {shown(text)}{hint}"


def _batch(
    messages: pa.RecordBatch, group: Group, rows: Changes, cells: _Cells, kept: list[int] | None, options: TdsqlOptions
) -> pa.RecordBatch:
    """`kept`: which of the cells' rows these are; None: all."""
    table = group.table
    columns_ = [c for _, c in group.visible]
    names = pa.array([table.names[c] for c in columns_], pa.string())
    key = [columns_.index(c) for c in table.key]
    whole = len(columns_) == len(table.names)
    before, after = (p if kept is None else p[kept] for p in (cells.before, cells.after))
    every = np.ones(len(rows), bool)
    event_no, gtid = pa.array(rows.event_no, pa.int64()), pa.array(rows.gtid, pa.string())
    columns = {
        "db": table.db,
        "table": table.table,
        "op": group.op,
        "key": image_maps(cells.text, names.take(pa.array(key)), before[:, key], every) if key else None,
        "before": image_maps(cells.text, names, before, every) if group.where else None,
        "after": image_maps(cells.text, names, after, every) if group.field else None,
        "schema_version": table.version if whole else None,
        "source_time": rows.time,
        "txn_id": gtid,
        "txn_seq": event_no,
        "gtid": gtid,
        "binlog_file": rows.binlog_file,
        "event_no": event_no,
        "row_no": rows.row_no,
        **(_order_by_gtid(rows) if options.order == "gtid" else {}),
    }
    return row_batch(messages, rows.at, columns)


def _order_by_gtid(rows: Changes) -> dict[str, list]:
    places = [place(gtid, None) for gtid in rows.gtid]
    return {
        "lineage": [p.lineage for p in places],
        "file_no": [None if p.number is None else 0 for p in places],
        "binlog_pos": [p.number for p in places],
    }
