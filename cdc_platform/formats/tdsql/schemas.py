"""The tables that rows stand in, as the DDL of the topic and the seed file give their columns."""

from collections.abc import Iterable
from typing import Any

from cdc_platform.errors import UnknownType
from cdc_platform.formats.collect import Table
from cdc_platform.formats.contract import UNKNOWN
from cdc_platform.formats.table_schemas import places
from cdc_platform.formats.table_schemas.lookup import REMEDY, Columns, State, TableSchemas
from cdc_platform.formats.table_schemas.states import States, build
from cdc_platform.formats.tdsql.messages import Place, place
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.tdsql.sets import Emptied, SetSchemas, with_sets
from cdc_platform.mysql.types import parse_type


def context(options: TdsqlOptions, statements: Iterable[dict[str, Any]]) -> States:
    """Seed file and DDL events (in any order, some perhaps sent twice) → States. Raises ConfigError where the seed
    file can't be read."""

    def states(of: Iterable[dict[str, Any]]) -> States:
        return build(options, of, place=_place_of, same=_same)

    return with_sets(statements, options.sets, states)


def _same(s: dict[str, Any]) -> tuple | None:
    return s["gtid"] and (s["gtid"], s["event_no"], s["db"], s["ddl"])


def _place_of(s: dict[str, Any]) -> places.Place:
    address = s["topic"], s["partition"], s["offset"]
    return _placed(address, place(s["gtid"], s["source_time"]), s.get("entry_index") or 0)


def _placed(address: tuple[str, int, int], where: Place, entry: int = 0) -> places.Place:
    number = None if where.number is None else (where.number, 0)
    return places.Place(*address, entry, where.lineage, number, where.time)


class Schemas:
    """The tables by name, place and prefix. `emptied`: of the TRUNCATEs among the messages."""

    def __init__(self, states: States | None, options: TdsqlOptions, emptied: Emptied):
        self._schemas = SetSchemas(states, options.sets)
        self.emptied = emptied
        self.fold = bool(options.fold)  # rows have one spelling where only the feed shows it
        self._tables: dict[tuple[str, str, Columns], Table] = {}

    def at(self, db: str, table: str, address: tuple[str, int, int], where: Place, prefix: str | None) -> Table:
        """The table where a row stands. Raises ValueError, its text beginning with UNKNOWN, when it isn't known."""
        columns = self._schemas.at(db, table, _placed(address, where), prefix)
        return self._table(db, table, columns, self._schemas.of(prefix))

    def steady(self, db: str, table: str, prefix: str | None) -> Table | None:
        """The table that `at` gives wherever a row stands; None: that depends, or it isn't known."""
        columns = self._schemas.steady(db, table, prefix)
        try:
            return columns and self._table(db, table, columns, self._schemas.of(prefix))
        except ValueError:
            return None

    def _table(self, db: str, table: str, columns: Columns, states: TableSchemas) -> Table:
        found = self._tables.get((db, table, columns))
        if found is None:
            types = []
            for name in columns.names:
                text = columns.types[name.lower()] or ""
                try:
                    types.append((text, parse_type(text)))
                except UnknownType:
                    raise ValueError(f"{UNKNOWN} (type {text!r} of column {name!r} isn't known): {REMEDY}") from None
            key = [i for i, name in enumerate(columns.names) if name in (columns.key or ())]
            others = _others(columns, states.states(db, table))
            found = self._tables[db, table, columns] = Table(db, table, columns.names, types, key, others=others)
        return found


def _others(columns: Columns, states: Iterable[State]) -> frozenset[int]:
    """How many columns the table had when these weren't the first of what it has, and not at another time either."""
    names = [n.casefold() for n in columns.names]
    had = [[n.casefold() for n in s.columns.names] for s in states if s.columns is not None]
    first = {len(h) for h in had if h == names[: len(h)]}
    return frozenset(len(h) for h in had if len(h) < len(names)) - first
