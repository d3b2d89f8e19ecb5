"""Sets: the servers of a distributed TDSQL, each with a part of every table's rows, which run a statement each at a
time of its own. Messages tell them apart by `prefix`, if at all: no page says whether a set keeps its prefix when its
task is made anew. So where prefixes differ, and it matters whether they are one set's, only option `sets` decides."""

from collections.abc import Callable, Iterable
from typing import Any

from cdc_platform.formats import senders
from cdc_platform.formats.contract import UNKNOWN
from cdc_platform.formats.table_schemas.lookup import Columns, TableSchemas
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.formats.table_schemas.states import States
from cdc_platform.formats.tdsql.options import Sets
from cdc_platform.formats.texts import shown

PREFIX = "prefix"
"""In `info` of a statement's event: the prefix of its message."""
SENDERS = r'"prefix"\s*:\s*"(?P<prefix>(?:[^"\\]|\\.)+)"'
"""Of `Context.senders`. Within a JSON text a quote has a backslash: this is found in no value of a row."""
_ASK = "option sets tells whether they are one set's (one) or a set's each (prefix)"


def prefix_of(statement: dict[str, Any]) -> str | None:
    """Of a DDL event."""
    return dict(statement["info"] or ()).get(PREFIX)


def with_sets(
    statements: Iterable[dict[str, Any]], sets: Sets | None, build: Callable[[Iterable[dict[str, Any]]], States]
) -> States:
    """States of all statements; under "sets" those by the statements of each prefix, where they may differ (None: they
    are those of all; under "": those of a prefix without statements); under "seen" where messages of each of several
    prefixes were seen first: [prefix, topic, partition, offset]."""
    rows = list(statements)
    told = [s for s in rows if s["entry_index"] != senders.ENTRY]
    prefixes = {p for s in told if (p := prefix_of(s)) is not None}
    states = build(told)
    seen = senders.of(rows, SENDERS)
    if sets is None and len({s.said for s in seen}) > 1:
        states = {**states, "seen": sorted([s.said, s.topic, s.partition, at] for s, at in seen.items())}
    if sets == "one" or (sets is None and not prefixes):
        return states
    each = {p or "": [s for s in told if prefix_of(s) in (None, p)] for p in (None, *sorted(prefixes))}
    return {**states, "sets": {p: build(mine) if len(mine) < len(told) else None for p, mine in each.items()}}


class SetSchemas:
    """The states of all tables, by the set that a row comes from."""

    def __init__(self, states: States | None, sets: Sets | None):
        self.whole = TableSchemas(states)
        self.apart = sets == "prefix"
        sets_told = (states or {}).get("sets", {})
        self.by_prefix = {p: TableSchemas(s) if s is not None else self.whole for p, s in sets_told.items()}

    def of(self, prefix: str | None) -> TableSchemas:
        """The states by which rows with a prefix are read."""
        return self._own(prefix) if self.apart else self.whole

    def at(self, db: str, table: str, place: Place, prefix: str | None) -> Columns:
        """The columns where a row stands. Raises ValueError that begins with UNKNOWN where they aren't known."""
        found = self.of(prefix).at(db, table, place)
        if self.by_prefix and not self.apart and not self._certain(found, db, table, place, prefix):
            by = ", ".join(shown(p) for p in sorted(self.by_prefix) if p)
            of = f"statements came with prefix {by}, this row with {shown(prefix)}, whose own may be later"
            raise ValueError(f"{UNKNOWN} ({of}): {_ASK}")
        return found

    def steady(self, db: str, table: str, prefix: str | None) -> Columns | None:
        """What `at` gives wherever a row with a prefix stands; None: that depends, or it isn't known."""
        found = self.of(prefix).steady(db, table)
        if found is None or not self.by_prefix or self.apart:
            return found
        own = self._own(prefix).steady(db, table)
        return found if own is found or (own is not None and _alike(own, found)) else None

    def _own(self, prefix: str | None) -> TableSchemas:
        return self.by_prefix.get(prefix or "") or self.by_prefix.get("") or self.whole

    def _certain(self, found: Columns, db: str, table: str, place: Place, prefix: str | None) -> bool:
        """Whether a row has these columns whether the statements of other prefixes concern it or not."""
        if (own := self._own(prefix)) is self.whole:
            return True
        try:
            return _alike(own.at(db, table, place), found)
        except ValueError:  # no statement came with its prefix
            return all(s.columns is not None and _alike(s.columns, found) for s in self.whole.states(db, table))


def _alike(a: Columns, b: Columns) -> bool:
    return (a.names, a.types, a.key) == (b.names, b.types, b.key)


class Emptied:
    """Whether a TRUNCATE empties a whole table."""

    def __init__(self, states: States | None, sets: Sets | None):
        self._sets = sets
        self._seen: dict[str, dict[tuple[str, int], int]] = {}
        for prefix, topic, partition, offset in (states or {}).get("seen", ()):
            self._seen.setdefault(prefix, {})[topic, partition] = offset

    def reason(self, addresses: Callable[[int], tuple[str, int, int]], at: int, prefix: str | None) -> str | None:
        """Why it isn't known to, of the one in message `at`; None: it does. Rows that another set sends behind it in
        its partition are newer than it, so that it is the same however late it is read; of what came in other
        partitions nothing says whether it is."""
        if self._sets == "one":
            return None
        if self._sets == "prefix":
            return "TRUNCATE by one of several sets: which of the table's rows are its own isn't told"
        topic, partition, offset = addresses(at) if self._seen else ("", 0, 0)
        before = {p for p, first in self._seen.items() if first.keys() - {(topic, partition)}}
        before |= {p for p, first in self._seen.items() if first.get((topic, partition), offset) < offset}
        several = before if prefix is None else before | {prefix}
        if len(several) < 2:
            return None
        by = ", ".join(shown(p) for p in sorted(several))
        return f"TRUNCATE where messages have several prefixes, {by}: rows of another set would go with it; {_ASK}"
