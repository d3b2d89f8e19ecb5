"""Which tables have a PRIMARY KEY. Debezium's model calls the first unique key primary where there is none, and keeps
it when its index is dropped or its column takes NULL, and a primary one that is dropped by its name: rows that are none
would pass for one."""

import re
from collections.abc import Callable, Collection, Iterator

from cdc_platform.mysql.ddl import GAP, Statement, index_dropped_on, named_tables, tables_there_before
from cdc_platform.mysql.tokens import says, tokens

Name = tuple[str, str]
_VERB = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?(\w+)", re.DOTALL)


def verb(statement: Statement) -> str:
    """CREATE, ALTER, …; empty: it begins with no word."""
    found = _VERB.match(statement.sql)
    return found[1].upper() if found is not None else ""


def drops_by_name(sql: str) -> bool:
    """Whether it drops the PRIMARY KEY as an index or constraint of its name, which is one of no other."""
    words = [t.text.upper() for t in tokens(sql)]
    return any(
        words[at] in _INDEX and words[at - 1] == "DROP" and _behind_if_exists(words, at + 1) in _NAMED_PRIMARY
        for at in range(1, len(words))
    )


_INDEX = ("INDEX", "KEY", "CONSTRAINT")
_NAMED_PRIMARY = ("`PRIMARY`", '"PRIMARY"')


def _behind_if_exists(words: list[str], at: int) -> str:
    return "".join(words[at + 2 : at + 3] if words[at : at + 2] == ["IF", "EXISTS"] else words[at : at + 1])


class PrimaryKeys:
    """The names (database, table) that have one. A key that only `KEY` says, without PRIMARY, counts as unique."""

    def __init__(self, folded: Callable[[str], str]):
        self._folded = folded
        self._names: set[Name] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def apply(self, statement: Statement, came: Collection[Name], gone: Collection[Name]) -> Iterator[Name]:
        """A statement that was applied; the tables that came about or changed by it, and those that went. Gives those
        whose unique key may have gone with an index: nothing tells its rows apart any more but all that they hold."""
        named = self._named(named_tables(statement))
        if verb(statement) == "RENAME":
            for old, new in zip(named[::2], named[1::2], strict=False):
                self._move(old, new)
        elif verb(statement) == "CREATE":
            like = [n for n in self._named(tables_there_before(statement)) if n in self._names]
            self._names -= {n for n in named if n in came}
            self._names |= {n for n in named if n in came and like}
        elif len(named) == 1 and named[0] in gone and came:
            self._move(named[0], next(iter(came)))
        self._names -= {*gone}
        changed = {*came, *self._named(index_dropped_on(statement))}
        unmade = says(statement.sql, "DROP", "PRIMARY")
        if says(statement.sql, "PRIMARY") > unmade:
            self._names |= {*came}
            return
        if unmade or drops_by_name(statement.sql):
            self._names -= changed
        if any(says(statement.sql, "DROP", word) for word in _INDEX):
            yield from changed - self._names

    def _named(self, names: list[Name]) -> list[Name]:
        return [(self._folded(db), self._folded(table)) for db, table in names]

    def _move(self, old: Name, new: Name) -> None:
        has = old in self._names
        self._names -= {old, new}
        if has:
            self._names.add(new)
