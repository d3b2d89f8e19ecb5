"""Snapshot against truth, cell by cell.

What a snapshot column must be is written down here a second time, apart from `mysql/types.py`: the comparison
is that table's oracle.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from cdc_platform.feeds.shop import Column, Table

pc: Any = pyarrow.compute  # its functions are made at import: unseen by type checkers
_UTC = pa.timestamp("us", "UTC")

SNAPSHOT_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    # Debezium before 3.0 sends every TINYINT as int16, and nothing on the wire tells the two apart.
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(),),
    "smallint unsigned": (pa.int32(),),
    "int": (pa.int32(),),
    "int unsigned": (pa.int64(),),
    "bigint": (pa.int64(),),
    "bigint unsigned": (pa.decimal128(20, 0),),
    "float": (pa.float32(),),
    "double": (pa.float64(),),
    "bit(1)": (pa.bool_(),),
    "bit": (pa.decimal128(20, 0),),
    "date": (pa.date32(),),
    "time": (pa.string(),),
    "datetime": (pa.timestamp("us"),),
    "timestamp": (_UTC,),
    "year": (pa.int16(),),
    "blob": (pa.binary(),),
    **dict.fromkeys(("varchar", "text", "mediumtext", "enum", "set", "json"), (pa.string(),)),
}
"""MySQL type → Arrow types its snapshot column may have, the canonical one first. DECIMAL: by its digits."""


def snapshot_types(column: Column) -> tuple[pa.DataType, ...]:
    """Arrow types that the column's snapshot may have, the canonical one first."""
    base, _, rest = column.type.partition("(")
    inner, _, tail = rest.rpartition(")")
    if base == "decimal":
        precision, scale = inner.split(",")
        return (pa.decimal128(int(precision), int(scale)),)
    return SNAPSHOT_TYPES.get(column.type) or SNAPSHOT_TYPES[f"{base}{tail}"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One differing cell: primary key, column, the truth's value and the snapshot's."""

    key: tuple
    column: str
    expected: Any
    actual: Any

    def describe(self) -> str:
        was, got = _short(self.expected), _short(self.actual)
        return f"{_short(self.key)} {self.column!r}: expected {was}, got {got}"


@dataclass(slots=True)
class Differences:
    """How a snapshot differs from the truth. The lists are cut at `limit`, the counts are exact.

    `problems`: differences of the table itself (absent, column names or order, types, repeated keys).
    `compared`: rows found on both sides.
    """

    table: str
    limit: int = 20
    compared: int = 0
    problems: list[str] = field(default_factory=list)
    missing: list[tuple] = field(default_factory=list)
    extra: list[tuple] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    missing_count: int = 0
    extra_count: int = 0
    cell_count: int = 0

    @property
    def equal(self) -> bool:
        return not (self.problems or self.missing_count or self.extra_count or self.cell_count)

    def describe(self) -> list[str]:
        """One line per difference, values shortened; [] when equal."""
        lines = [f"{self.table}: {problem}" for problem in self.problems]
        for word, count, keys in (
            ("missing", self.missing_count, self.missing),
            ("extra", self.extra_count, self.extra),
        ):
            if count:
                lines.append(f"{self.table}: {count} {word} rows, keys {_short(keys)}")
        if self.cell_count:
            lines.append(f"{self.table}: {self.cell_count} differing cells")
            lines += [f"{self.table} {cell.describe()}" for cell in self.cells]
        return lines


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]}… ({len(text)} characters) …{text[-20:]}"


def read_snapshot(path: str, storage_options: Mapping[str, str] | None = None) -> pa.Table:
    """All rows and columns of a Delta table, with plain string and binary columns.

    By DataFusion, because delta-rs's own Arrow reader refuses tables with deletion vectors or column mapping.
    """
    delta = DeltaTable(path, storage_options=dict(storage_options) if storage_options else None)
    result = QueryBuilder().register("snapshot", delta).execute("SELECT * FROM snapshot")
    table = pa.table(cast(Any, result.read_all()))
    return table.cast(pa.schema([pa.field(f.name, _plain(f.type)) for f in table.schema]))


def _plain(t: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(t) or pa.types.is_large_string(t):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(t) or pa.types.is_large_binary(t) else t


def truth_table(table: Table, rows: Mapping[tuple, Mapping[str, Any]]) -> pa.Table:
    """Truth rows of Python values → Arrow table as snapshots have it, in column order."""
    arrays = {}
    for c in table.columns:
        shown = _SHOWN.get(c.type.partition("(")[0], lambda _, v: v)
        values = [None if row[c.name] is None else shown(c, row[c.name]) for row in rows.values()]
        arrays[c.name] = pa.array(values, snapshot_types(c)[0])
    return pa.table(arrays)


def time_text(value: timedelta) -> str:
    """TIME in canonical text: `[-]HH:MM:SS[.ffffff]`, trailing zeros trimmed."""
    total = value // timedelta(microseconds=1)
    seconds, micros = divmod(abs(total), 1_000_000)
    minutes, hours = seconds // 60, seconds // 3600
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"{'-' if total < 0 else ''}{hours:02d}:{minutes % 60:02d}:{seconds % 60:02d}{fraction}"


def with_digits(text: str, digits: int) -> str:
    """TIME in canonical text as SELECT prints it of a column with so many digits of a second."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(digits, '0')}" if digits else text


_SHOWN: dict[str, Callable[[Column, Any], Any]] = {"time": lambda c, v: with_digits(time_text(v), c.fsp)}


def compare(
    table: Table,
    truth: Mapping[tuple, Mapping[str, Any]] | pa.Table,
    path: str,
    *,
    limit: int = 20,
    storage_options: Mapping[str, str] | None = None,
) -> Differences:
    """Compares the Delta table at `path` with the truth of `table`.

    truth: {key tuple: row of Python values} as `Workload.truth` holds it, or an Arrow table of canonical
    snapshot types with unique keys. Columns that start with `_cdc_` are bookkeeping and left out. Floats
    compare bit by bit. A table that isn't there is a difference, not an error.
    """
    expected: pa.Table = truth if isinstance(truth, pa.Table) else truth_table(table, truth)
    found = Differences(table.full_name, limit)
    try:
        actual = read_snapshot(path, storage_options)
    except TableNotFoundError:
        found.problems.append(f"no snapshot at {path!r}")
        found.missing_count = expected.num_rows
        return found
    return compare_tables(table, expected, actual, found)


def compare_tables(table: Table, expected: pa.Table, actual: pa.Table, found: Differences) -> Differences:
    """`compare` for two Arrow tables; fills and returns `found`."""
    actual = actual.select([n for n in actual.column_names if not n.startswith("_cdc_")])
    if actual.column_names != expected.column_names:
        found.problems.append(f"columns are {actual.column_names}, expected {expected.column_names}")
    usable = {c.name for c in table.columns if _type_fits(c, actual, found)}
    if not set(table.key) <= usable:
        found.problems.append("rows can't be matched: key columns are absent or of another type")
        return found
    pairs = _match(table, expected, actual, found)
    found.compared = pairs.num_rows
    left, right = expected.take(pairs["e"]), actual.select(sorted(usable)).take(pairs["a"])
    for c in table.columns:
        if c.name in usable and not c.key:
            _compare_column(table, c.name, left, right, found)
    return found


def _type_fits(column: Column, actual: pa.Table, found: Differences) -> bool:
    if actual.column_names.count(column.name) != 1:
        return False
    have, want = actual.schema.field(column.name).type, snapshot_types(column)
    if have in want:
        return True
    found.problems.append(f"column {column.name!r} is {have}, expected {' or '.join(map(str, want))}")
    return False


def _match(table: Table, expected: pa.Table, actual: pa.Table, found: Differences) -> pa.Table:
    """Row numbers of both sides, `e` and `a`, joined on the key. Notes missing, extra and repeated keys."""
    key = list(table.key)
    types = [snapshot_types(c)[0] for c in table.columns if c.key]
    left = expected.select(key).append_column("e", pa.array(range(expected.num_rows), pa.int64()))
    right = actual.select(key).cast(pa.schema(list(zip(key, types, strict=True))))
    repeated = right.group_by(key).aggregate([([], "count_all")]).filter(pc.field("count_all") > 1)
    if repeated.num_rows:
        some = _keys(repeated.select(key).slice(0, found.limit))
        found.problems.append(f"{repeated.num_rows} keys occur more than once: {_short(some)}")
    right = right.append_column("a", pa.array(range(actual.num_rows), pa.int64()))
    # Not a full outer join: it would hide which side a key with NULL came from.
    pairs = left.join(right, key, join_type="inner")
    missing = left.join(right, key, join_type="left anti").sort_by("e")
    extra = right.join(left, key, join_type="left anti").sort_by("a")
    found.missing_count, found.extra_count = missing.num_rows, extra.num_rows
    found.missing = _keys(missing.select(key).slice(0, found.limit))
    found.extra = _keys(extra.select(key).slice(0, found.limit))
    return pairs.select(["e", "a"]).sort_by("e")


def _keys(keys: pa.Table) -> list[tuple]:
    return list(zip(*(c.to_pylist() for c in keys.columns), strict=True))


def _compare_column(table: Table, name: str, left: pa.Table, right: pa.Table, found: Differences) -> None:
    """left, right: matched rows of truth and snapshot, in the same order."""
    wanted, got = left[name], right[name].cast(left[name].type)
    e, a = _comparable(wanted), _comparable(got)
    same = pc.or_(pc.fill_null(pc.equal(e, a), False), pc.and_(pc.is_null(e), pc.is_null(a)))
    differs = pc.indices_nonzero(pc.invert(same))
    found.cell_count += len(differs)
    rows = differs.slice(0, max(0, found.limit - len(found.cells)))
    if not len(rows):
        return
    keys = _keys(left.select(list(table.key)).take(rows))
    values = zip(keys, wanted.take(rows).to_pylist(), got.take(rows).to_pylist(), strict=True)
    found.cells += [Cell(key, name, x, y) for key, x, y in values]


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as their bits, so that 0.0 and -0.0 differ and NaN equals itself; the rest as it is."""
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(column.type)
    if bits is None:
        return column
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
