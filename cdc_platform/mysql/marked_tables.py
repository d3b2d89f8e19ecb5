"""Tables of which something is so that Debezium's model doesn't have, under whatever names they go."""

import re
from collections.abc import Callable, Collection

from cdc_platform.mysql.ddl import GAP, Statement, named_tables, tables_there_before

Name = tuple[str, str]
_VERB = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?(\w+)", re.DOTALL)


def verb(statement: Statement) -> str:
    """CREATE, ALTER, …; empty: it begins with no word."""
    found = _VERB.match(statement.sql)
    return found[1].upper() if found is not None else ""


class MarkedTables:
    """The names (database, table) of those of which it is so."""

    def __init__(self, folded: Callable[[str], str]):
        self._folded = folded
        self.names: set[Name] = set()

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def follow(self, statement: Statement, came: Collection[Name], gone: Collection[Name]) -> None:
        """A statement that was applied; the tables that came about or changed by it, and those that went."""
        named = self.named(named_tables(statement))
        if verb(statement) == "RENAME":
            for old, new in zip(named[::2], named[1::2], strict=False):
                self._move(old, new)
        elif verb(statement) == "CREATE":
            like = [n for n in self.named(tables_there_before(statement)) if n in self.names]
            self.names -= {n for n in named if n in came}
            self.names |= {n for n in named if n in came and like}
        elif len(named) == 1 and named[0] in gone and came:
            self._move(named[0], next(iter(came)))
        self.names -= {*gone}

    def named(self, names: list[Name]) -> list[Name]:
        """Names as the model has them."""
        return [(self._folded(db), self._folded(table)) for db, table in names]

    def _move(self, old: Name, new: Name) -> None:
        has = old in self.names
        self.names -= {old, new}
        if has:
            self.names.add(new)
