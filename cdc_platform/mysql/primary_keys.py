"""Which tables have a PRIMARY KEY. Debezium's model calls the first unique key primary where there is none, and keeps
it when its index is dropped or its column takes NULL, and a primary one that is dropped by its name: rows that are none
would pass for one."""

from collections.abc import Collection, Iterator

from cdc_platform.mysql.ddl import Statement, index_dropped_on
from cdc_platform.mysql.marked_tables import MarkedTables, Name
from cdc_platform.mysql.tokens import says, tokens


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


class PrimaryKeys(MarkedTables):
    """Tables that have one. A key that only `KEY` says, without PRIMARY, counts as unique."""

    def apply(self, statement: Statement, came: Collection[Name], gone: Collection[Name]) -> Iterator[Name]:
        """A statement that was applied; the tables that came about or changed by it, and those that went. Gives those
        whose unique key may have gone with an index: nothing tells its rows apart any more but all that they hold."""
        self.follow(statement, came, gone)
        changed = {*came, *self.named(index_dropped_on(statement))}
        unmade = says(statement.sql, "DROP", "PRIMARY")
        if says(statement.sql, "PRIMARY") > unmade:
            self.names |= {*came}
            return
        if unmade or drops_by_name(statement.sql):
            self.names -= changed
        if any(says(statement.sql, "DROP", word) for word in _INDEX):
            yield from changed - self.names
