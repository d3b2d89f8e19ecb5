"""Which tables the rows of a changelog file change, and what those changes come to: noted in its footer, so that the
snapshots needn't look for them. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.full_images import FullImageTable, ImageStatistics, looked, table_of_list
from cdc_platform.changelog.full_images import statistics_json as figures_told
from cdc_platform.changelog.order_key import ends, numbers, those
from cdc_platform.config.tables import Tables
from cdc_platform.tables import Name, name_of

_COLUMNS = ("db", "schema", "table", "schema_version")
_Group = tuple[str | None, str | None, str | None, str | None]


class TableStatistics:
    """Changes of a file by db, schema, table and schema_version. Of versions whose columns the file states before, too,
    whether they are plain (full_images.py)."""

    def __init__(
        self,
        tables: Tables,
        lists: Mapping[Name, str] = MappingProxyType({}),
        stated: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """lists: columns that all changes of a table have, whatever version they name; stated: of versions."""
        self._tables, self._lists = tables, lists
        self._groups: dict[_Group, dict[str, Any]] = {}
        self._plain: dict[_Group, tuple[FullImageTable | None, ImageStatistics] | bool | None] = {}
        self._stated: dict[str, str] = dict(stated)
        self._fine = True

    def state(self, events: pa.RecordBatch) -> None:
        """Column lists among events that come before rows."""
        stated = those(events, pc.equal(events.column("kind"), "schema"))
        self._stated |= dict(zip(*(stated.column(c).to_pylist() for c in ("schema_version", "columns")), strict=True))

    def add(self, rows: pa.RecordBatch) -> None:
        """More rows of the changelog, with their `order_key`."""
        if not rows.num_rows or not self._fine:
            return
        try:
            order = numbers(rows.column("order_key"))
        except pa.ArrowInvalid:  # a position that no 64-bit integer holds
            self._fine = False
            return
        codes = [rows.column(c).dictionary_encode() for c in _COLUMNS]
        names = [c.dictionary.to_pylist() for c in codes]
        group = np.zeros(rows.num_rows, np.int64)
        for c in codes:
            group = group * (len(c.dictionary) + 1) + pc.fill_null(c.indices, len(c.dictionary)).to_numpy()
        for code in np.unique(group).tolist():
            mine = group == code
            whole = bool(mine.all())
            some = rows if whole else rows.filter(pa.array(mine))
            self._add(_unpacked(code, names), some, order if whole else order[mine])

    def _add(self, name: _Group, rows: pa.RecordBatch, order: np.ndarray) -> None:
        told = pc.or_(pc.is_valid(rows.column("key")), pc.fill_null(pc.equal(rows.column("op"), "truncate"), False))
        low, newest = ends(order)
        known = self._groups.setdefault(name, {"n": 0, "low": low, "newest": newest, "told_keys": True})
        known["n"] += rows.num_rows
        known["low"], known["newest"] = min(known["low"], low), max(known["newest"], newest)
        known["told_keys"] &= told.true_count == rows.num_rows
        if name not in self._plain:
            self._plain[name] = self._table(name)
        plain = self._plain[name]
        if isinstance(plain, tuple) and not looked(plain[0], rows, order, plain[1]):
            self._plain[name] = None if plain[0] is None else False

    def _table(self, name: _Group) -> tuple[FullImageTable | None, ImageStatistics] | bool | None:
        db, schema, table, version = name
        if db is None or table is None:
            return None
        of = name_of({"db": db, "schema": schema, "table": table})
        if (columns := self._lists.get(of) or self._stated.get(version or "")) is None:
            return None, ImageStatistics()
        found = table_of_list(of, columns, self._tables.key_columns(*of))
        return found is not None and (found, ImageStatistics())

    def to_json(self) -> list[dict[str, Any]] | None:
        """Per db, schema, table and schema_version: n changes, low and newest order, told_keys; plain: of which table
        (FullImageTable.as_noted; of none, if they are nothing but TRUNCATEs) and what plain changes come to; False:
        they aren't; None: it isn't known. None: nothing is known."""
        if not self._fine:
            return None
        return [
            {**dict(zip(_COLUMNS, group, strict=True)), **figures, "plain": self._full_image_json(group)}
            for group, figures in self._groups.items()
        ]

    def _full_image_json(self, name: _Group) -> dict[str, Any] | bool | None:
        plain = self._plain[name]
        if not isinstance(plain, tuple):
            return plain
        table, figures = plain
        return {**(table.as_noted() if table else {}), **figures_told(figures)}


def _unpacked(code: int, names: list[list[str]]) -> _Group:
    out: list[str | None] = []
    for known in reversed(names):
        code, place = divmod(code, len(known) + 1)
        out.append(known[place] if place < len(known) else None)
    return out[3], out[2], out[1], out[0]
