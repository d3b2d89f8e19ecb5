"""Keys that `tableChanges` list, as far as the statements beside them bear them out. They are Debezium's model's, whose
primary key may be a unique one that takes NULL, or whose index is gone (`mysql.primary_keys`)."""

from collections.abc import Callable, Collection, Iterator, Sequence

from cdc_platform.formats.table_schemas.table_changes import TableChange
from cdc_platform.mysql.ddl import Statement, named_tables, quoted_name
from cdc_platform.mysql.marked_tables import Name, verb
from cdc_platform.mysql.primary_keys import PrimaryKeys


class ListedKeys:
    """The keys of all tables, statement by statement. `folded`: how a name of a database or table is told apart."""

    def __init__(self, folded: Callable[[str], str]):
        self._folded = folded
        self._primary = PrimaryKeys(folded)
        self._listed: dict[Name, TableChange] = {}
        self._lost: set[Name] = set()
        """Of those that are no PRIMARY KEY, those whose index may be gone. The model keeps them in all later lists."""

    def of(self, statement: Statement, changes: Sequence[TableChange]) -> Iterator[TableChange]:
        """The tables after a statement without keys that may be gone, those too that only lose theirs by it."""
        for change in changes:
            self._rename(change)
        came = {self._name(c) for c in changes if c.columns is not None}
        gone = {self._name(c) for c in changes if c.columns is None}
        if verb(statement) != "RENAME":
            self._apply(statement, came, gone)
        for name in gone:
            self._listed.pop(name, None)
        self._lost -= gone | {self._name(c) for c in changes if c.creates}
        for change in changes:
            yield self._checked(change)
        yield from self._without()

    def after(self, statement: Statement) -> list[TableChange]:
        """The same of a statement that lists no tables; nothing where it names tables whose columns it may change."""
        named = {self._of(*name) for name in named_tables(statement)}
        self._apply(statement, *(((), named) if verb(statement) == "DROP" else (named, ())))
        return [] if named else [*self._without()]

    def _without(self) -> Iterator[TableChange]:
        """Tables as they were listed last, where they have lost a key since."""
        for name in self._lost & self._listed.keys():
            if any(c["key"] for c in self._listed[name].columns or ()):
                yield self._checked(self._listed[name])._replace(before=None, creates=False)

    def _apply(self, statement: Statement, came: Collection[Name], gone: Collection[Name]) -> None:
        if verb(statement) == "CREATE":
            self._lost -= {self._of(*name) for name in named_tables(statement)} & {*came}
        self._lost |= {*self._primary.apply(statement, came, gone)}

    def _rename(self, change: TableChange) -> None:
        """Where the message is sent again, its old name isn't there any more."""
        if change.before is None or (old := self._of(*change.before)) not in self._listed:
            return
        new = self._name(change)
        named = [f"{quoted_name(db)}.{quoted_name(table)}" for db, table in (old, new)]
        for _ in self._primary.apply(Statement(None, f"RENAME TABLE {' TO '.join(named)}"), (), ()):
            pass
        self._lost = {new if name == old else name for name in self._lost - {new}}
        self._listed[new] = self._listed.pop(old)

    def _checked(self, change: TableChange) -> TableChange:
        if change.columns is None:
            return change
        name, primary = self._name(change), self._name(change) in self._primary
        keyed = {c["name"] for c in change.columns if c["key"]}
        if primary or not keyed:
            self._lost.discard(name)
        elif name in self._lost or keyed & change.nullable:
            change = change._replace(columns=tuple({**c, "key": False} for c in change.columns))
        self._listed[name] = change = change._replace(primary=primary)
        return change

    def _name(self, change: TableChange) -> Name:
        return self._of(change.db, change.table)

    def _of(self, db: str, table: str) -> Name:
        return self._folded(db), self._folded(table)
