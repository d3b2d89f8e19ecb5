"""Columns of the tables over time: DDL and the seed file → states of each table with their places, and the state
that holds where a row stands. Built on the driver, looked up on the executors."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import Path
from typing import Any

from cdc_platform.errors import ConfigError, UnknownType
from cdc_platform.formats.collect import Table
from cdc_platform.formats.tdsql.messages import Place, place
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.mysql import ddl
from cdc_platform.mysql.types import parse_type

States = dict[str, list[dict[str, Any]]]
"""{"states": [{"db", "table", "columns", "reason", "creates", "at"}, …]} in order; `at`
is null for the seed file's, else [topic, partition, offset, lineage, number, time in µs]."""

UNKNOWN = "the table's columns aren't known"
"""How the reasons of rows begin that heal once the schema history knows more."""
REMEDY = "a CREATE TABLE in the topic or in option schema_file tells them; then the row heals by itself"


def context(options: TdsqlOptions, statements: Iterable[dict[str, Any]]) -> States:
    """Seed file and DDL events (in any order, some perhaps sent twice) → States. Raises ConfigError where the seed
    file can't be read."""
    told: dict[tuple, dict[str, Any]] = {}
    for s in sorted(statements, key=lambda s: (s["topic"], s["partition"], s["offset"])):
        told.setdefault((s["gtid"], s["event_no"], s["db"], s["ddl"]) if s["gtid"] else (len(told),), s)
    ordered = sorted(((_at(s), s) for s in told.values()), key=cmp_to_key(lambda a, b: _compare(a[0], b[0])))
    texts = [(None, s) for s in _seed(options)] + [(at, ddl.Statement(s["db"], s["ddl"])) for at, s in ordered]
    changes = ddl.history(tuple(s for _, s in texts), options.lower_case_table_names)
    return {
        "states": [
            {
                "db": c.db,
                "table": c.table,
                "columns": c.columns and [{"name": k.name, "type": k.type, "key": k.key} for k in c.columns],
                "reason": c.reason,
                "creates": texts[c.at][1].sql.lstrip()[:6].upper() == "CREATE",
                "at": texts[c.at][0],
            }
            for c in changes
        ]
    }


def _seed(options: TdsqlOptions) -> list[ddl.Statement]:
    if not options.schema_file:
        return []
    try:
        script = Path(options.schema_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = f"can't be read ({error.strerror if isinstance(error, OSError) else 'no UTF-8'})"
        wanted = ["a script of CREATE TABLE statements"]
        raise ConfigError("options.schema_file", f"{options.schema_file!r} {why}", wanted) from None
    db, found = None, []
    for sql in ddl.split_statements(script):
        used = ddl.used_database(sql)
        if used is not None:
            db = used
        else:
            found.append(ddl.Statement(db, sql))
    return found


def _at(s: dict[str, Any]) -> list[Any]:
    where = place(s["gtid"], s["source_time"])
    return [s["topic"], s["partition"], s["offset"], where.lineage, where.number, where.time]


def _compare(a: list[Any], b: list[Any]) -> int:
    """By GTID where both have one of the same server or domain; else by topic within a partition; else by time."""
    (*address_a, lineage_a, number_a, time_a), (*address_b, lineage_b, number_b, time_b) = a, b
    if lineage_a is not None and lineage_a == lineage_b and number_a != number_b:
        return -1 if number_a < number_b else 1
    if address_a[:2] != address_b[:2] and time_a != time_b and None not in (time_a, time_b):
        return -1 if time_a < time_b else 1
    return (address_a > address_b) - (address_a < address_b)


@dataclass(slots=True)
class _State:
    at: list[Any] | None
    creates: bool
    table: Table | None
    reason: str | None


class Schemas:
    """The states of all tables, by database and table."""

    def __init__(self, told: States | None, fold: bool):
        self.fold = fold
        self._states: dict[tuple[str, str], list[_State]] = {}
        self._told: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for s in (told or {}).get("states", ()):
            self._told.setdefault((s["db"].casefold(), s["table"].casefold()), []).append(s)

    def at(self, db: str, table: str, address: tuple[str, int, int], where: Place) -> Table:
        """The table where a row stands. Raises ValueError, its text beginning with UNKNOWN, when it isn't known."""
        states = self._known(db, table)
        if not states:
            raise ValueError(f"{UNKNOWN}: {REMEDY}")
        mine = [*address, where.lineage, where.number, where.time]
        for state in reversed(states):
            if state.at is None or _compare(state.at, mine) < 0:
                break
        else:
            state = states[0]
            if not state.creates:  # what was before an ALTER or DROP isn't told by it
                raise ValueError(f"{UNKNOWN} before the first DDL seen of it: {REMEDY}")
        if state.table is None:
            raise ValueError(f"{UNKNOWN} ({state.reason}): {REMEDY}")
        return state.table

    def steady(self, db: str, table: str) -> Table | None:
        """The table that `at` gives wherever a row stands; None: that depends, or it isn't known."""
        states = self._known(db, table)
        if states and (states[-1].at is None or (len(states) == 1 and states[0].creates)):
            return states[-1].table
        return None

    def _known(self, db: str, table: str) -> list[_State]:
        states = self._states.get((db, table))
        if states is None:
            states = self._states[db, table] = self._of(db, table)
        return states

    def _of(self, db: str, table: str) -> list[_State]:
        """The states of the table so spelled. Where only other spellings were created, and but one of them, theirs."""
        told = self._told.get((db.casefold(), table.casefold()), [])
        created = {(s["db"], s["table"]) for s in told if s["columns"] is not None}
        if len(created) > 1:
            told = [s for s in told if (s["db"], s["table"]) == (db, table)]
        return [_State(s["at"], s["creates"], *self._table(db, table, s)) for s in told]

    def _table(self, db: str, table: str, s: dict[str, Any]) -> tuple[Table | None, str | None]:
        if s["columns"] is None:
            return None, s["reason"]
        types = []
        for c in s["columns"]:
            try:
                types.append((c["type"], parse_type(c["type"])))
            except UnknownType:
                return None, f"type {c['type']!r} of column {c['name']!r} isn't known"
        key = [i for i, c in enumerate(s["columns"]) if c["key"]]
        return Table(db, table, tuple(c["name"] for c in s["columns"]), types, key), None
