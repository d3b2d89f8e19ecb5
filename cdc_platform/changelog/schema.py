"""Schema history of a source: which table the rows of a name belong to today, and what became of their columns.

Made from schema_history's DDL statements and column lists, in source order, however late they were delivered. An
*incarnation* is one table through all its names: it begins with CREATE (or where the topic begins), moves with
RENAME and ends with DROP.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from types import MappingProxyType
from typing import Any

from cdc_platform.mysql import foreign_keys
from cdc_platform.mysql.ddl import (
    Column,
    Statement,
    named_tables,
    tables_there_before,
)
from cdc_platform.mysql.effects import Added, Effect, Retyped
from cdc_platform.tables import Name

Order = tuple[int, ...]
"""An `order_key` as a tuple: epoch, file, pos, event, row, landed."""
Address = tuple[str, int, int, int]
"""topic, partition, offset, entry_index."""
Came = Callable[[Order, Address], bool]
"""Whether what stands at a place of the log, and of Kafka, had come."""


TAKEN_AGAIN = "-- the connector's snapshot of the table was taken again"
LOADED_AGAIN = "-- the table was loaded from the source's server"
BY_ROWS = (TAKEN_AGAIN, LOADED_AGAIN)
"""Stand in for a statement where one is asked for: rows replace the table's, and the table stays what it is."""
WHICH_MOVED = "several databases have a table that a RENAME moved, and which one's it was isn't told"
"""A later statement may tell it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One effect of a DDL statement, where it stands. last: of rows that replace the table, where the last of them
    stand: before it what replaces the table isn't whole."""

    order: Order
    address: Address
    ddl: str
    effect: Effect
    last: tuple[Order, Address] | None = None


@dataclass(frozen=True, slots=True)
class Upcast:
    """What becomes of rows of one name up to (not including) a place: where they are today, and how their columns got
    there. `until` None: to the end. `today` None: their table is gone. By lower-case name then: `names`, a column's
    name today (None: dropped; absent: as it was). By lower-case name today: `added`, columns that came since;
    `retyped`, the changes of a type, in order. `key`: other key columns since. `unknown`: why it isn't known."""

    until: Order | None
    today: Name | None
    names: dict[str, str | None] = field(default_factory=dict)
    added: dict[str, Added] = field(default_factory=dict)
    retyped: dict[str, list[Retyped]] = field(default_factory=dict)
    key: tuple[str, ...] | None = None
    columns: tuple[Column, ...] = ()  # as the last statement left them
    unknown: str | None = None

    @property
    def nothing(self) -> bool:
        """Whether such rows are as rows of today."""
        return not (self.names or self.added or self.retyped or self.key or self.unknown)


def _upcast(until: Order | None, today: Name | None, steps: Sequence[Step]) -> Upcast:
    names: dict[str, str | None] = {}
    added: dict[str, Added] = {}
    retyped: dict[str, list[Retyped]] = {}
    for effect in (s.effect for s in steps):
        now = {new.lower(): old for old, new in names.items() if new is not None}
        after: dict[str, str | None] = {old.lower(): new for old, new in effect.renamed.items()}
        after |= dict.fromkeys(map(str.lower, effect.dropped))
        for old, new in after.items():
            if old in now or (old not in added and old not in names):
                names[now.get(old, old)] = new
        added = {new.lower(): a._replace(name=new) for n, a in added.items() if (new := after.get(n, a.name))}
        retyped = {new.lower(): types for n, types in retyped.items() if (new := after.get(n, n))}
        for name, types in effect.retyped.items():
            retyped.setdefault(name.lower(), []).append(types)
        added |= {a.name.lower(): a for a in effect.added}
    return Upcast(
        until,
        today,
        {old: new for old, new in names.items() if new != old},
        added,
        retyped,
        next((s.effect.key for s in reversed(steps) if s.effect.key is not None), None),
        next((s.effect.columns for s in reversed(steps) if s.effect.columns), ()),
        next((f"{s.effect.unknown} ({s.ddl[:200]})" for s in steps if s.effect.unknown), None),
    )


@dataclass(slots=True)
class _Incarnation:
    """One table: its name today (None: gone), its steps. `told` False: nothing says that it exists, but that its name
    became free."""

    today: Name | None
    told: bool = True
    steps: list[Step] = field(default_factory=list)


class SchemaHistory:
    """Steps in source order, and what they mean for rows that were written before them.

    `lists`: (name, place, JSON) of every column list that messages told. `aliases`: other names under which changes of
    a table stand, always. `said`: of tables, what else no message tells of their rows."""

    def __init__(
        self,
        steps: Sequence[Step],
        lists: Iterable[tuple[Name, Order, str]],
        aliases: Mapping[Name, Name] = MappingProxyType({}),
        said: Mapping[Name, list[str]] = MappingProxyType({}),
    ):
        self.steps = list(steps)
        self.said = said
        self._aliases = aliases
        self._lists = sorted(lists, key=lambda x: x[1])
        self._spans: dict[Name, list[tuple[Order | None, _Incarnation]]] = {}
        for _, together in groupby(self.steps, key=lambda s: (s.address, s.effect.at)):
            self._apply(list(together))

    @cached_property
    def unsettled(self) -> set[Name]:
        """Tables, by today's names, of which it isn't told whether a RENAME took them, or gave them their rows."""
        each = [inc for spans in self._spans.values() for _, inc in spans]
        doubted = [inc for inc in each if any(s.effect.unknown == WHICH_MOVED for s in inc.steps)]
        return {inc.today for inc in doubted if inc.today is not None}

    def _apply(self, statement: list[Step]) -> None:
        """All effects of one statement happen at once: tables may swap names."""
        held = {s.effect.before: self._holder(s.effect.before) for s in statement if s.effect.before is not None}
        for s in statement:
            before, after = s.effect.before, s.effect.after
            if before is None and after is not None:  # CREATE: rows before it that no DROP ended are of this table, too
                inc = self._holder(after)
                inc.told = True
                inc.steps.append(s)
            elif before is not None:
                inc = held[before]
                inc.today = after
                inc.steps.append(s)
                if before != after:
                    self._move(s.order, before, after, inc, {id(i) for i in held.values()})

    def _move(self, at: Order, before: Name, after: Name | None, inc: _Incarnation, moving: set[int]) -> None:
        if self._spans[before][-1][1] is inc:
            self._spans[before].append((at, _Incarnation(before, told=False)))
        if after is not None:
            there = self._spans.setdefault(after, [])
            if there and id(there[-1][1]) not in moving:
                there[-1][1].today = None  # the server moves onto a free name only: its DROP was missed
            there.append((at, inc))

    def _holder(self, name: Name) -> _Incarnation:
        spans = self._spans.setdefault(name, [])
        if not spans:
            spans.append((None, _Incarnation(name)))
        return spans[-1][1]

    def until(self, place: Order, came: Came | None = None) -> "SchemaHistory":
        """As it was there, by what is known now: without statements and lists from behind it. A load takes no rows away
        until its last ones have come; came: tells it; None: what stands there or before."""
        lists = [told for told in self._lists if told[1] <= place]
        come = came or (lambda order, _: order <= place)
        steps = [s for s in self.steps if s.order <= place and (s.last is None or come(*s.last))]
        return SchemaHistory(steps, lists or self._lists, self._aliases, self.said)

    def named_at(self, today: Name, place: Order) -> Name:
        """The name under which a table that is asked for by today's stood at a place: the same, where a table had it
        then, be it another one, as before an online schema change put its copy in its place; else the one that today's
        table had; today's, where nothing tells another."""
        if self.was_there(today, place):
            return today
        for name in self.names_of(today):
            here = next((c for c in self.upcasts(name) if c.until is None or place < c.until), None)
            if here is not None and here.today == today and self.was_there(name, place):
                return name
        return today

    def was_there(self, name: Name, place: Order) -> bool:
        """Whether something tells that there was a table of that name at a place: a statement, or a column list."""
        spans = self.until(place)._spans.get(self._aliases.get(name, name), [])
        start, inc = spans[-1] if spans else (None, None)
        if inc is not None and inc.told:
            return True
        lists = (at for at, _ in self._lists_by_name.get(name, ()))
        return any(at <= place and (start is None or start < at) for at in lists)

    def lists_of(self, name: Name) -> list[str]:
        """The column lists that messages told for a name, as JSON, in order."""
        return [columns for _, columns in self._lists_by_name.get(name, ())]

    @property
    def names(self) -> list[Name]:
        """Every name that a statement concerns."""
        return list({**self._spans, **self._aliases})

    @property
    def listed(self) -> set[Name]:
        """Every name that a column list is told for."""
        return set(self._lists_by_name)

    def untold_rows(self, today: Name, others: Iterable[Statement] = ()) -> list[str]:
        """What DDL did to rows of today's table, and what the server does to them by foreign keys, of which no message
        tells. `others`: statements that aren't among the steps, in order."""
        spans = self._spans.get(today, [])
        effects = [s.effect for s in (spans[-1][1].steps if spans else [])]
        cascades = _cascades(today, [s.effect for s in self._steps_of(today)], others)
        said = [text for name in self.names_of(today) for text in self.said.get(name, ())]
        return list(dict.fromkeys([*(e.rows for e in effects if e.rows), *cascades, *said]))

    def _steps_of(self, today: Name) -> list[Step]:
        """Statements about today's table: rows that replaced all that was there (BY_ROWS) ended none of its keys."""
        found: list[Step] = []
        for _, inc in reversed(self._spans.get(today, [])):
            found[:0] = [s for s in inc.steps if s.ddl not in BY_ROWS]
            if not inc.steps or inc.steps[0].ddl not in BY_ROWS or inc.steps[0].effect.before is not None:
                break
        return found

    def last_listed(self, name: Name) -> str | None:
        """The newest column list that messages told for a name, be its table there or not."""
        return next((columns for _, columns in reversed(self._lists_by_name.get(name, ()))), None)

    def exists(self, name: Name) -> bool:
        """Whether, by all DDL seen, there is a table of that name; True where none concerns it."""
        return name not in self._spans or self._spans[name][-1][1].told

    def upcasts(self, name: Name) -> list[Upcast]:
        """What becomes of rows of a name, span by span; the last one has no end."""
        name = self._aliases.get(name, name)
        spans = self._spans.get(name, [(None, _Incarnation(name))])
        out: list[Upcast] = []
        if spans[0][0] is not None:  # rows from before a table took the name: of one that nobody told of
            out.append(Upcast(spans[0][0], name))
        for i, (start, inc) in enumerate(spans):
            end = spans[i + 1][0] if i + 1 < len(spans) else None
            inside = [
                s
                for s in inc.steps
                if (start is None or s.order > start) and (end is None or s.order < end) and not s.effect.nothing
            ]
            out += [_upcast(s.order, inc.today, [x for x in inc.steps if x.order >= s.order]) for s in inside]
            out.append(_upcast(end, inc.today, [x for x in inc.steps if end is not None and x.order >= end]))
        return out

    def is_as_now(self, today: Name, at: Order) -> bool:
        """Whether rows of today's table at a place are as rows of today: no statement behind it made others of them."""
        here = next(c for c in self.upcasts(today) if c.until is None or at < c.until)
        return here.today == today and here.nothing

    def names_of(self, today: Name) -> list[Name]:
        """Every name under which rows of today's table may stand."""
        own = [] if today in self._spans or today in self._aliases else [today]
        return [*self._names.get(today, ()), *own]

    @cached_property
    def _names(self) -> dict[Name, list[Name]]:
        """Today's table → names under which its rows may stand, of those that something is told of."""
        found: dict[Name, list[Name]] = {}
        for name in {**self._spans, **self._aliases}:
            for today in {c.today for c in self.upcasts(name) if c.today is not None}:
                found.setdefault(today, []).append(name)
        return found

    @cached_property
    def _lists_by_name(self) -> dict[Name, list[tuple[Order, str]]]:
        """Name → its column lists, in order of their places."""
        found: dict[Name, list[tuple[Order, str]]] = {}
        for name, order, columns in self._lists:
            found.setdefault(name, []).append((order, columns))
        return found

    def columns(self, today: Name) -> str | None:
        """The column list of today's table, as JSON: the newest that a message told, and what DDL made of it since;
        else as the last statement left it."""
        told: list[tuple[Order, Upcast, str]] = []
        for name in self.names_of(today):
            start: Order | None = None
            for carry in self.upcasts(name):
                told += [
                    (order, carry, columns)
                    for order, columns in self._lists_by_name.get(name, ())
                    if carry.today == today
                    and (start is None or order > start)
                    and (carry.until is None or order < carry.until)
                ]
                start = carry.until
        if told:
            _, carry, columns = max(told, key=lambda t: t[0])
            return json.dumps(upcast_list(json.loads(columns), carry), ensure_ascii=False)
        steps = self._spans[today][-1][1].steps if today in self._spans else []
        stated = next((s.effect.columns for s in reversed(steps) if s.effect.columns), None)
        if not stated:
            return None
        return json.dumps([{"name": c.name, "type": c.type, "key": c.key} for c in stated], ensure_ascii=False)


def _cascades(table: Name, effects: Iterable[Effect], others: Iterable[Statement]) -> list[str]:
    """Foreign keys that a table has today by which its rows change. The server calls those without a name
    `<table>_ibfk_<n>`."""
    there: dict[str, str] = {}

    def change(name: str, made: Iterable[tuple[str, str]], dropped: Iterable[str]) -> None:
        for gone in dropped:
            there.pop(gone, None)
        for given, what in made:
            numbers = [n for n in there if n.startswith(f"{name.lower()}_ibfk_")]
            there[given or f"{name.lower()}_ibfk_{len(numbers) + 1}"] = what

    for statement in others:
        if named_tables(statement) == [table]:
            if tables_there_before(statement) != [table]:
                there.clear()  # it is made
            change(table[1], foreign_keys.added(statement.sql), foreign_keys.dropped(statement.sql))
    for effect in effects:
        if effect.before is None:
            there.clear()
        change((effect.after or table)[1], effect.cascades, effect.kept_no_more)
    return [
        f"foreign key {name} ({what}): what the server does to rows by it comes without a message before MySQL 9.6"
        for name, what in there.items()
    ]


def upcast_list(columns: list[dict[str, Any]], carry: Upcast) -> list[dict[str, Any]]:
    """A column list as it was → as DDL has made it since."""
    named = [(carry.names.get(c["name"].lower(), c["name"]), c) for c in columns]
    out = [{**c, "name": name} for name, c in named if name is not None]
    have = {c["name"].lower() for c in out}
    out += [{"name": a.name, "type": a.type, "key": False} for n, a in carry.added.items() if n not in have]
    for c in out:
        if types := carry.retyped.get(c["name"].lower()):
            c["type"] = types[-1].after
    place = {c.name.lower(): i for i, c in enumerate(carry.columns)}
    out.sort(key=lambda c: place.get(c["name"].lower(), len(place)))
    if carry.key is None:
        return out
    key = {k.lower() for k in carry.key}
    return [{**c, "key": c["name"].lower() in key} for c in out]
