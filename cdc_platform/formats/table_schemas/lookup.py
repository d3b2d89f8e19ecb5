"""The states of all tables, looked up where a row stands. On the executors."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cdc_platform.errors import UnknownType
from cdc_platform.formats.contract import UNKNOWN
from cdc_platform.formats.table_schemas.places import Place, compare, of_json
from cdc_platform.formats.table_schemas.states import States
from cdc_platform.mysql.types import parse_type

_MANY = 10_000  # answers kept

REMEDY = "a CREATE TABLE in the topic or in option schema_file tells them; then the row heals by itself"


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A table's columns in one state. `types`: MySQL type text by name in lower case (None: not said); `key`: names of
    the key's columns, empty: it has none; None: not said; `defaulted`: names in lower case of those that may be NULL
    and have a default."""

    names: tuple[str, ...]
    types: dict[str, str | None]
    key: tuple[str, ...] | None
    folded: frozenset[str] = field(repr=False)
    defaulted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, columns: Iterable[dict[str, Any]]) -> "Columns":
        """From a state's `columns`."""
        columns = list(columns)
        types = {c["name"].lower(): c["type"] for c in columns}
        key = None if any(c["key"] is None for c in columns) else tuple(c["name"] for c in columns if c["key"])
        defaulted = frozenset(c["name"].lower() for c in columns if c.get("default"))
        return cls(tuple(c["name"] for c in columns), types, key, frozenset(types), defaulted)

    def type_of(self, name: str) -> str | None:
        """Type text of a column, in any case of its name; None: not known, or none that is read here."""
        text = self.types.get(name.lower())
        try:
            return text and parse_type(text) and text
        except UnknownType:
            return None


@dataclass(slots=True)
class State:
    """A table's columns from a place on (None: from the beginning). `creates`: it was so before that, too. `reason`:
    why `columns` aren't known."""

    at: Place | None
    creates: bool
    columns: Columns | None
    reason: str | None


class TableSchemas:
    """The states of all tables, by database and table."""

    def __init__(self, told: States | None):
        self._states: dict[tuple[str, str], list[State]] = {}
        self._steady: dict[tuple[str, str], Columns | None] = {}
        self._covers: dict[tuple[str, str, int, tuple[str, ...]], Columns | None] = {}
        self._always: dict[tuple[str, str, str], tuple[str | None] | None] = {}
        self._told: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for s in (told or {}).get("states", ()):
            self._told.setdefault((s["db"].casefold(), s["table"].casefold()), []).append(s)

    @cached_property
    def empty(self) -> bool:
        """Whether nothing is known of any table."""
        return not self._told

    def knows(self, db: str, table: str) -> bool:
        """Whether any state of a table is known."""
        return (db.casefold(), table.casefold()) in self._told

    def states(self, db: str, table: str) -> Sequence[State]:
        """All states of a table, in order."""
        return self._known(db, table)

    def at(self, db: str, table: str, place: Place) -> Columns:
        """The columns where a row stands. Raises ValueError that begins with UNKNOWN where they aren't known."""
        states = self._known(db, table)
        if not states:
            raise ValueError(f"{UNKNOWN}: {REMEDY}")
        state = states[max(self._index(states, place), 0)]
        if not _precedes(state, place) and not state.creates:  # what was before an ALTER or DROP isn't told by it
            raise ValueError(f"{UNKNOWN} before the first DDL seen of it: {REMEDY}")
        if state.columns is None:
            raise ValueError(f"{UNKNOWN} ({state.reason}): {REMEDY}")
        return state.columns

    def steady(self, db: str, table: str) -> Columns | None:
        """What `at` gives wherever a row stands; None: that depends, or it isn't known."""
        name = db, table
        if name not in self._steady:
            states = self._known(db, table)
            certain = bool(states) and (states[-1].at is None or (len(states) == 1 and states[0].creates))
            self._steady[name] = states[-1].columns if certain else None
        return self._steady[name]

    def always(self, db: str, table: str, name: str) -> tuple[str | None] | None:
        """The type of a column where all states that have it say the same; None: it depends on where a row stands."""
        asked = db, table, name.lower()
        if asked not in self._always:
            states = self._known(db, table)
            types = {s.columns.type_of(name) for s in states if s.columns and name.lower() in s.columns.folded}
            certain = not states or (len(types) < 2 and (states[0].at is None or states[0].creates))
            self._always[asked] = (next(iter(types), None),) if certain else None
        return self._always[asked]

    def of_row(self, db: str, table: str, place: Place, names: tuple[str, ...]) -> Columns | None:
        """The columns where a row stands whose message names some: where those don't cover its names, the nearest
        state that does (a statement may come late, or its place be uncertain); None: no state is known."""
        states = self._known(db, table)
        if not states:
            return None
        here = self._index(states, place)
        asked = db, table, here, names
        if asked not in self._covers:
            if len(self._covers) > _MANY:
                self._covers.clear()
            self._covers[asked] = self._covering(states, here, names)
        return self._covers[asked]

    @staticmethod
    def _covering(states: list[State], here: int, names: Collection[str]) -> Columns | None:
        wanted = {n.lower() for n in names}

        def rank(i: int) -> tuple[int, int, int]:
            columns = states[i].columns
            return len(wanted & columns.folded) if columns else -1, -abs(i - here), i

        if here < 0 and not states[0].creates:  # what was before an ALTER isn't told by it
            return None
        best = max((i for i, s in enumerate(states) if s.columns), key=rank, default=None)
        return states[best].columns if best is not None and rank(best)[0] else None

    @staticmethod
    def _index(states: list[State], place: Place) -> int:
        """The last state that precedes a place; -1: none does."""
        return next((i for i in reversed(range(len(states))) if _precedes(states[i], place)), -1)

    def _known(self, db: str, table: str) -> list[State]:
        states = self._states.get((db, table))
        if states is None:
            states = self._states[db, table] = self._of(db, table)
        return states

    def _of(self, db: str, table: str) -> list[State]:
        """The states of the table so spelled. Where only other spellings were created, and but one of them, theirs."""
        told = self._told.get((db.casefold(), table.casefold()), [])
        created = {(s["db"], s["table"]) for s in told if s["columns"] is not None}
        if len(created) > 1:
            told = [s for s in told if (s["db"], s["table"]) == (db, table)]
        return [
            State(
                s["at"] and of_json(s["at"]),
                s["creates"],
                None if s["columns"] is None else Columns.of(s["columns"]),
                s["reason"],
            )
            for s in told
        ]


NO_SCHEMAS = TableSchemas(None)
"""Nothing is known of any table."""


def _precedes(state: State, place: Place) -> bool:
    """Whether a row stands after a state. Where the feed doesn't say, it does: a snapshot's rows have the place of the
    statements that describe their tables."""
    return state.at is None or compare(state.at, place) <= 0
