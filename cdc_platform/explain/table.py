"""The table that is asked about: its key, its columns, and under which names and columns its changes stand."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from deltalake.exceptions import TableNotFoundError

from cdc_platform.changelog.schema import Came, Order, SchemaHistory, Upcast
from cdc_platform.config import Config, Source
from cdc_platform.config.tables import ORIGIN, origin_of
from cdc_platform.errors import ConfigError
from cdc_platform.explain.columns import Column
from cdc_platform.explain.scan import Alikes
from cdc_platform.lake import queries
from cdc_platform.snapshots.schema.conversions import same_values
from cdc_platform.snapshots.schema.seen import Seen, seen
from cdc_platform.suggest import closest
from cdc_platform.tables import Name


@dataclass(frozen=True)
class Table:
    """A table of a source. name: as it is called at the source; snapshot: of the one that keeps its rows. seen: what
    the source said of its tables; None: no run has come so far. until: as it was at that place; None: today.
    came: whether the last rows of a load had come by then (SchemaHistory.until)."""

    source: Source
    name: Name
    snapshot: Name
    seen: Seen | None
    until: Order | None = None
    came: Came | None = None

    @property
    def text(self) -> str:
        """db.table."""
        return ".".join(self.name)

    @cached_property
    def history(self) -> SchemaHistory:
        """What DDL did, up to the place."""
        full = self.seen.full if self.seen else SchemaHistory([], [])
        return full if self.until is None else full.until(self.until, self.came)

    @cached_property
    def columns(self) -> list[Column]:
        """Columns in order; none where no message told them."""
        told = self.history.columns(self.name) or self.history.last_listed(self.name)
        configured = self.source.tables.keys
        keys = configured.get(".".join(self.snapshot)) or configured.get(self.text)
        return [
            Column(c["name"], c.get("type"), c["name"] in keys if keys else bool(c.get("key")))
            for c in json.loads(told or "[]")
        ]

    @property
    def keys(self) -> list[str]:
        """Names of the key's columns; none: it has no key, or it isn't known."""
        return [c.name for c in self.columns if c.key]

    def column(self, given: str) -> str:
        """The column that people mean: MySQL's names ignore case. Raises ConfigError where none is, or several are."""
        known = [c.name for c in self.columns]
        alike = [n for n in known if n.lower() == given.lower()]
        if given in known or len(alike) == 1:
            return given if given in known else alike[0]
        raise ConfigError("--column", f"{self.text} has no column {given!r}", alike or known)

    @property
    def origin(self) -> dict[str, str]:
        """What tells its rows from those of the other tables in its snapshot."""
        merged = self.source.tables.merged(*self.snapshot)
        return dict(zip(ORIGIN, origin_of(self.name), strict=True)) if merged else {}

    @cached_property
    def alike(self) -> Alikes:
        """How texts of its key's columns compare. A name that some of several families have had: by their bytes."""
        columns = [c for c in self.columns if c.key or not self.keys]
        today = {c.name.lower(): type_.family for c in columns if (type_ := c.parsed)}
        told = set(today.items())
        for carry in (c for name in self.names for c in self.history.upcasts(name) if c.today == self.name):
            renamed = ((old.lower(), new.lower()) for old, new in carry.names.items() if new is not None)
            told |= {(old, today[new]) for old, new in renamed if new in today}
        one = {name for name, n in Counter(name for name, _ in told).items() if n == 1}
        families = {name: family for name, family in told if name in one}
        return Alikes(families, self.source.tables.collation(*self.snapshot) or "")

    @cached_property
    def names(self) -> frozenset[Name]:
        """Every name under which changes of its rows may stand."""
        return frozenset({self.name, *self.history.names_of(self.name)})

    @cached_property
    def shared(self) -> dict[Name, Name]:
        """Names under which its rows may stand that are another's of today's tables, too, and that one."""
        ends = ((name, c.today) for name in self.names for c in self.history.upcasts(name))
        return {name: today for name, today in ends if today not in (None, self.name) and self.history.exists(today)}

    @property
    def renamed(self) -> Name | None:
        """What it is called today, where DDL gave it another name and no table has this one since."""
        if self.history.exists(self.name):
            return None
        return next(
            (c.today for c in reversed(self.history.upcasts(self.name)) if c.today not in (None, self.name)), None
        )

    def then(self, cells: Mapping[str, str | None]) -> tuple[tuple[dict[str, str | None], ...], list[str]]:
        """Cells of today → what they may have been called in changes from before DDL, each once; and why some of these
        can't be looked for."""
        found: list[dict[str, str | None]] = [dict(cells)]
        untold: list[str] = []
        for name in self.names:
            spelled = self._spelled(name)
            for carry in self.history.upcasts(name):
                if carry.today != self.name or carry.nothing:
                    continue
                was, why = _then(cells, carry)
                if why:
                    untold.append(why)
                elif was:
                    named = {spelled.get(column.lower(), column): text for column, text in was.items()}
                    found.append(named)
        unique = [f for i, f in enumerate(found) if f not in found[:i]]
        return tuple(unique), list(dict.fromkeys(untold))

    def _spelled(self, name: Name) -> dict[str, str]:
        return {c["name"].lower(): c["name"] for text in self.history.lists_of(name) for c in json.loads(text)}


def _then(cells: Mapping[str, str | None], carry: Upcast) -> tuple[dict[str, str | None], str | None]:
    """Cells under the names of their columns then; or why they can't be told."""
    before = {new.lower(): old for old, new in carry.names.items() if new is not None}
    was: dict[str, str | None] = {}
    for column, text in cells.items():
        low = column.lower()
        if (added := carry.added.get(low)) is not None:
            if added.fill != text:
                return {}, None  # rows of then have another value in it
            continue
        if not all(same_values(t) for t in carry.retyped.get(low, ())):
            return {}, f"column {column!r} had another type: changes from before that are not looked for"
        was[before.get(low, column)] = text
    if not was:
        return {}, "the key has only columns that were added later: changes from before that are not looked for"
    return was, None


def find(config: Config, source: Source, given: str) -> Table:
    """The table of a source that is meant by db.table (db.schema.table). Raises ConfigError with the valid names."""
    try:
        told: Seen | None = seen(config, source)
    except TableNotFoundError:
        told = None
    known = _known(config, source, told)
    name = known.get(given)
    rules = source.tables
    if name is None:
        raise ConfigError(
            "DB.TABLE", f"source {source.name} has no table {given!r}", closest(given, known) or ["none yet"]
        )
    if rules.merged(*name):
        members = sorted(".".join(n) for n in known.values() if rules.routed(*n) == name and n != name)
        if members and name not in (told.full.listed if told else ()):
            raise ConfigError(
                "DB.TABLE", f"{given} holds the rows of {len(members)} tables; name the one that the row is of", members
            )
    return Table(source, name, rules.routed(*name), told)


def _known(config: Config, source: Source, told: Seen | None) -> dict[str, Name]:
    listed = {*told.full.listed, *told.full.names} if told else set()
    snapshots = {name for s, name in queries.known_tables(config) if s.name == source.name}
    return {".".join(name): name for name in sorted({*listed, *snapshots})}


def parse_key(table: Table, given: str, *, today: bool = True) -> dict[str, str]:
    """KEY → texts of the key's columns: `7` where it is one column, else `id=7,name=x`; of a table without a key those
    of any columns. today: False: the key is of an earlier moment, when its columns may have had other types. Raises
    ConfigError with the names, or an example."""
    keys = table.keys
    names = keys or [c.name for c in table.columns]
    if not names:
        raise ConfigError("DB.TABLE", f"no message has told the columns of {table.text} yet", [])
    pairs = dict(_pairs(given, names))
    if not pairs:
        if len(keys) == 1:
            pairs = {keys[0]: given}
        elif keys:
            raise ConfigError("KEY", f"the key of {table.text} has several columns", [_example(keys)])
        else:
            raise ConfigError(
                "KEY",
                f"{table.text} has no key: tell a row by what is in it, column by column",
                [_example(names[:2]), f"columns: {', '.join(names)}"],
            )
    if keys and (missing := [k for k in keys if k not in pairs]):
        raise ConfigError("KEY", f"lacks {', '.join(missing)}", [_example(keys)])
    if keys and (more := [p for p in pairs if p not in keys]):
        raise ConfigError("KEY", f"{', '.join(more)} is no part of the key of {table.text}", [_example(keys)])
    columns = {c.name: c for c in table.columns}
    return {n: columns[n].canonical(text, must_fit=today) for n, text in pairs.items()}


def _pairs(given: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Column and text of `a=1,b=x`. A comma in a value counts as one unless a column's name and `=` follow. Raises
    ConfigError."""
    starts = [i for i in range(len(given)) if i == 0 or given[i - 1] == ","]
    begins = [(i, n) for i in starts for n in sorted(names, key=len, reverse=True) if given.startswith(f"{n}=", i)]
    begins = [b for j, b in enumerate(begins) if j == 0 or b[0] != begins[j - 1][0]]
    if begins and begins[0][0] == 0:
        ends = [b[0] - 1 for b in begins[1:]] + [len(given)]
        yield from ((n, given[i + len(n) + 1 : end]) for (i, n), end in zip(begins, ends, strict=True))
    elif "=" in given and len(names) > 1:
        named = given.partition("=")[0]
        raise ConfigError("KEY", f"no column {named!r}", closest(named, names))


def _example(names: list[str]) -> str:
    return ",".join(f"{n}=…" for n in names)


def at(table: Table, until: Order, came: Came | None = None) -> Table:
    """The table as it was at a place: under the name that it had then."""
    full = table.seen.full if table.seen else SchemaHistory([], [])
    name = full.named_at(table.name, until)
    return replace(table, name=name, snapshot=table.source.tables.routed(*name), until=until, came=came)
