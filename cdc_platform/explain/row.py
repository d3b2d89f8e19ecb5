"""One row: what it is, which change told each cell, and whether the snapshot agrees."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_platform import tables
from cdc_platform.changelog.schema import Order
from cdc_platform.config import Config
from cdc_platform.explain import records
from cdc_platform.explain.changes import Changes, KeyChanges, Within
from cdc_platform.explain.records import Address
from cdc_platform.explain.table import Table, at
from cdc_platform.lake import folders, queries, stores
from cdc_platform.lake.queries import text
from cdc_platform.reading.catalog import Cut, Snapshot, TableName
from cdc_platform.reading.frames import Frames
from cdc_platform.reading.moments import Moment
from cdc_platform.snapshots.apply.cast import typed
from cdc_platform.snapshots.reduce.one_key import Change, Key, Row
from cdc_platform.snapshots.schema.then import AtCut, at_cut, at_time, rows_by


@dataclass(frozen=True)
class Explained:
    """A row, and all that is known of how it came. stored: what the snapshot holds under the key (None: nothing; not
    asked where the moment is a time), agrees: whether that is what the changes come to (None: it can't be compared)."""

    table: Table
    key: Key
    moment: Moment
    found: KeyChanges
    row: Row
    stored: Mapping[str, Any] | None
    agrees: bool | None

    @property
    def here(self) -> bool:
        """Whether there is a row: in the snapshot now and at a cut, by the changes at a time."""
        return self.row.cells is not None if self.moment.time else self.stored is not None

    def made_by(self, only: Iterable[str] = ()) -> list[Change]:
        """The changes, as they came, that the row's cells (of these columns) come from, and the one that had the last
        word."""
        wanted = set(only) or {*(self.row.cells or ())}
        makers = [cell.by for name, cell in (self.row.cells or {}).items() if name in wanted]
        if not only or self.row.cells is None:
            makers += [self.row.last.change] if self.row.last else []
        numbers = sorted({n for change in makers if (n := self.found.number(change)) is not None})
        return [self.found.came[n] for n in numbers]


def explain(config: Config, table: Table, key: Key, when: Moment) -> Explained:
    """The row under a key. Raises NotReadable."""
    lake = stores.lake(config)
    by = rows_by(tables.CHANGELOG.at(lake), table.source.name, when.time) if when.time else None
    within = _within(config, when, by)
    as_then = table if when.now else _then(config, table, when, by)
    changes = Changes(config, as_then, within)
    found, row = changes.of(key), changes.row(key)
    if when.time:
        return Explained(as_then, key, when, found, row, None, None)
    spelled = {k: row.cells[k].text if row.cells and k in row.cells else told for k, told in key.items()}
    rows = _stored(config, as_then, spelled, when)
    stored = rows.to_pylist()[0] if rows.num_rows else None
    agrees = _agrees(as_then, row, stored, rows.schema)
    if agrees is False and as_then.alike.collation:
        agrees = None  # the snapshot may hold another spelling of the key
    return Explained(as_then, key, when, found, row, stored, agrees)


def _within(config: Config, when: Moment, by: Order | None) -> Within | None:
    """Which changes count at a moment. by: place of the last one, where that is a time."""
    if when.cut is not None:
        cut = _cut(config, when.cut)
        return lambda c: cut is not None and cut.has(c)
    if when.time is None:
        return None
    return lambda c: by is not None and c["order_key"] <= by


def _cut(config: Config, cut: Cut) -> AtCut | None:
    return at_cut(tables.CUTS.at(stores.lake(config)), cut.source, cut.number)


def _then(config: Config, table: Table, when: Moment, by: Order | None) -> Table:
    """The table with the columns and the name that it had then."""
    ddl = table.seen.ddl if table.seen else []
    if when.cut is not None:
        cut = _cut(config, when.cut)
        return at(table, cut.place(ddl), cut.came) if cut else table
    place = when.time and at_time(by, when.time, ddl)
    return at(table, place) if place else table


# -- what the snapshot holds -------------------------------------------------------------------------------


class _One(Frames):
    """Reads of one snapshot."""

    def __init__(self, snapshot: Snapshot):
        self._snapshot = snapshot

    def _find(self, table: Any, version: int | None) -> Snapshot:
        del table, version
        return self._snapshot


def _stored(config: Config, table: Table, key: Key, when: Moment) -> pa.Table:
    """The snapshot's row, or none. Raises NotReadable where a cut's version isn't there any more."""
    place = folders.snapshot(stores.lake(config), table.source.name, table.snapshot)
    version = None
    if when.cut is not None:
        known = when.cut.snapshots.get(TableName.of(table.source.name, table.snapshot))
        if known is None:
            return _NOTHING
        place, version = known
    elif queries.columns(place) is None:
        return _NOTHING
    frames = _One(Snapshot(place, version))
    schema = frames.batches(table.text, where="FALSE", bookkeeping=True).schema
    where = _where(table, {**key, **table.origin}, schema)
    if where is None:
        return _NOTHING
    return frames.arrow(table.text, where=where, bookkeeping=True).slice(0, 1)


_NOTHING = pa.table({})


def _where(table: Table, cells: Key, schema: pa.Schema) -> str | None:
    """The condition on a snapshot's row, in SQL; None: a column that it hasn't. Raises ConfigError."""
    columns = {c.name: c for c in table.columns}
    parts = []
    for name, told in cells.items():
        if name not in schema.names:
            return None
        column = '"' + name.replace('"', '""') + '"'
        if told is None:
            parts.append(f"{column} IS NULL")
            continue
        to = schema.field(name).type
        value = pa.array([told]) if (of := columns.get(name)) is None else of.value(told, to)
        parts.append(f"{column} = {_literal(value, to)}")
    return " AND ".join(parts)


def _literal(value: pa.Array, to: pa.DataType) -> str:
    one = value[0].as_py()
    if isinstance(one, bytes):
        return f"X'{one.hex()}'"
    if isinstance(one, str):
        return text(one)
    return f"arrow_cast({text(str(one))}, {text(_ARROW.get(str(to), _named(to)))})"


_ARROW = {
    **{f"int{n}": f"Int{n}" for n in (8, 16, 32, 64)},
    **{"bool": "Boolean", "float": "Float32", "double": "Float64", "date32[day]": "Date32"},
    "timestamp[us]": "Timestamp(Microsecond, None)",
    "timestamp[us, tz=UTC]": 'Timestamp(Microsecond, Some("UTC"))',
}


def _named(to: pa.DataType) -> str:
    return f"Decimal128({to.precision}, {to.scale})" if pa.types.is_decimal(to) else "Utf8"


def _agrees(table: Table, row: Row, stored: Mapping[str, Any] | None, types: pa.Schema) -> bool | None:
    """Whether the snapshot's row is what the changes come to; columns whose texts only Spark reads aside."""
    if row.cells is None or stored is None:
        return row.cells is None and stored is None
    for column in table.columns:
        cell, type_ = row.cells.get(column.name), column.parsed
        if column.name not in stored or type_ is None or cell is None:
            continue
        value = stored[column.name]
        if cell.text is None:
            told = None
        elif value is None and type_.family in _MAY_BE_INVALID:
            continue
        else:
            try:
                told = typed(pa.array([cell.text]), type_, types.field(column.name).type)[0].as_py()
            except (ValueError, pa.ArrowInvalid):
                continue
        if told != value:
            return False
    return True


_MAY_BE_INVALID = ("date", "datetime", "timestamp")
"""Families with values that are NULL in a snapshot: dates that don't exist (snapshots/schema/columns.py)."""


def parts_of(config: Config, table: Table, changes: Iterable[Change]) -> dict[Address, list[int]]:
    """Offsets of the records that the messages of changes came in, of those that came in several."""
    if not records.splits(table.source):
        return {}
    addresses = (Address(c["topic"], c["partition"], c["offset"]) for c in changes)
    found = records.messages_of(config, table.source, addresses)
    return {a: m["offsets"] for a, m in found.items() if len(m["offsets"]) > 1}
