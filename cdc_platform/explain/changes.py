"""All changes of a key, from the changelog: as they came, and as DDL has made them since."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdc_platform import tables
from cdc_platform.changelog.schema import Step as DdlStep
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.config import Config
from cdc_platform.explain.scan import Sought, find
from cdc_platform.explain.table import Table
from cdc_platform.lake import stores
from cdc_platform.lake.skipping import files_that_may_hold
from cdc_platform.snapshots.reduce.one_key import Cell, Change, Key, Row, Step, row, sort_key, steps
from cdc_platform.snapshots.schema import upcast
from cdc_platform.tables import ROW_ADDRESS

_NUMBER = "_number"
Within = Callable[[Change], bool]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Changes of a key of a table. came: as they came, in order; number: of those among them. today: the same that are
    of the table, under its names and columns; gone: those whose table DDL ended, or whose rows went elsewhere with it.
    truncates: of the table, as they came. doubts: why the explanation may lack something."""

    table: Table
    came: list[Change]
    today: list[Change]
    gone: list[Change]
    truncates: list[Change]
    doubts: list[str] = field(default_factory=list)

    def original(self, change: Change) -> Change:
        """A change of `today` as it came."""
        return self.came[change[_NUMBER]]

    def number(self, change: Change) -> int | None:
        """Its number among those that came; None: it isn't among them, as one of a key that the row had before."""
        number = change[_NUMBER]
        alike = number < len(self.came) and all(self.came[number][c] == change[c] for c in ROW_ADDRESS.names)
        return number if alike else None

    def steps(self, key: Key) -> list[Step]:
        """What the changes do to a key, in no order."""
        names, alike = [c.name for c in self.table.columns], self.table.alike.one
        every = (s for c in self.today if c["op"] != "truncate" for s in steps(c, self.table.keys, names, alike))
        return [s for s in every if all(alike(k, s.key.get(k)) == alike(k, text) for k, text in key.items())]


class Changes:
    """Looks for changes in the lake; those of a key once."""

    def __init__(self, config: Config, table: Table, within: Within | None = None):
        """within: whether a change counts."""
        self._config, self._table, self._within = config, table, within
        self._known: dict[str, KeyChanges] = {}

    def of(self, cells: Key) -> KeyChanges:
        """Changes that hold these texts."""
        asked = json.dumps(cells, sort_keys=True)
        if asked not in self._known:
            self._known[asked] = self._look(cells)
        return self._known[asked]

    def row(self, key: Key, before: tuple[Any, ...] | None = None) -> Row:
        """What the changes of a key come to; before: those that stand before a place."""
        found = self.of(key)
        mine = [s for s in found.steps(key) if before is None or s.place < before]
        truncates = [c for c in found.truncates if before is None or sort_key(c) < before]
        return row(mine, [c.name for c in self._table.columns], truncates, self._held)

    def _held(self, move: Step) -> dict[str, Cell]:
        """Of a move that lacks columns, what the row under its old key held: known from a whole row on only."""
        before = self.row(move.moved or {}, before=move.place)
        known = before.cells is not None and before.since and (before.since[0].whole and not before.since[0].lost)
        return dict(before.cells or {}) if known else {}

    def _look(self, cells: Key) -> KeyChanges:
        cells_then, doubts = self._table.then(cells)
        sought = Sought(self._table.names, cells_then, self._table.alike, keyed=bool(self._table.keys))
        files = files_that_may_hold(
            tables.CHANGELOG.at(stores.lake(self._config)),
            [{"db": n[0], "table": n[-1]} for n in sought.names],
            source=self._table.source.name,
        )
        rows = find(files, sought, CHANGELOG_FILE)
        came = sorted(map(as_change, rows.to_pylist(maps_as_pydicts="strict")), key=sort_key)
        came = [c for c in came if self._within is None or self._within(c)]
        today = self._as_today(came)
        there = {c[_NUMBER] for c in today}
        gone = [c for i, c in enumerate(came) if i not in there and c["op"] != "truncate"]
        truncates = [came[c[_NUMBER]] for c in today if c["op"] == "truncate"]
        carries = [c for n in self._table.names for c in self._table.history.upcasts(n) if c.today == self._table.name]
        doubts += [why for c in carries if (why := upcast.unknown(c))]
        if self._table.alike.collation:
            doubts.append(
                f"keys compare by {self._table.alike.collation}: other spellings are looked for by similar rules"
            )
        return KeyChanges(self._table, came, today, gone, truncates, list(dict.fromkeys(doubts)))

    def _as_today(self, came: list[Change]) -> list[Change]:
        """Changes under today's names and columns, those of the table only, with their number among those that came."""
        if not came:
            return []
        history, name = self._table.history, self._table.name
        spans = {n: history.upcasts(n) for n in self._table.names}
        spans = {n: cs for n, cs in spans.items() if any(not c.nothing or c.today != n for c in cs)}
        lists = {name: [c.name for c in self._table.columns]}
        schema = CHANGELOG_FILE.append(pa.field(_NUMBER, pa.int64()))
        rows = [{**as_arrow(c), _NUMBER: i} for i, c in enumerate(came)]
        [batch] = pa.Table.from_pylist(rows, schema).combine_chunks().to_batches()
        carried = pa.Table.from_batches(list(upcast.upcast_rows(batch, spans, lists)), schema)
        found = map(as_change, carried.to_pylist(maps_as_pydicts="strict"))
        return sorted((c for c in found if tables.name_of(c) == name), key=sort_key)


def as_change(change: Mapping[str, Any]) -> Change:
    """A CHANGELOG row from Arrow → with its `order_key` as a tuple of integers."""
    return {**change, "order_key": tuple(map(int, change["order_key"].values()))}


def as_arrow(change: Change) -> dict[str, Any]:
    """The other way."""
    order = dict(zip(tables.ORDER.names, change["order_key"], strict=True))
    maps = {m: None if change[m] is None else list(change[m].items()) for m in ("key", "before", "after")}
    return {**change, **maps, "order_key": order}


def ended(table: Table, changes: Iterable[Change]) -> DdlStep | None:
    """The first statement behind the newest of these changes with which their table, or its name, ended."""
    newest = max(changes, key=sort_key, default=None)
    if newest is None:
        return None
    name = tables.name_of(newest)
    behind = [s for s in table.history.steps if s.order > newest["order_key"] and s.effect.before == name]
    return next((s for s in behind if s.effect.after != name), None)
