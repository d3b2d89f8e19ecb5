"""Debezium's model of the tables of a server, and its parsers, in a JVM (`ddl_parser`): what each statement changes."""

import re
from collections.abc import Iterator
from typing import Any

from cdc_platform.errors import SetupError
from cdc_platform.mysql.alter_clauses import untangled, without_idle
from cdc_platform.mysql.collations import table_charset, with_charsets
from cdc_platform.mysql.ddl import (
    OR_REPLACE,
    Change,
    Column,
    Statement,
    dropped_database,
    named_tables,
    targets,
    without_tdsql_extras,
)
from cdc_platform.mysql.ddl_columns import (
    columns_of,
    source_name,
    with_bytes,
    with_default_charset,
    without_backticks,
)
from cdc_platform.mysql.indexes import key_at_stake
from cdc_platform.mysql.marked_tables import verb
from cdc_platform.mysql.primary_keys import PrimaryKeys
from cdc_platform.mysql.readable import simplified
from cdc_platform.mysql.system_versions import SystemVersions
from cdc_platform.mysql.tokens import says, without_lists
from cdc_platform.setup.packaged import setup_command

_IF_EXISTS = re.compile(r"\bEXISTS\b", re.IGNORECASE)
_TANGLED = (
    "a column takes the name of one that is renamed or dropped later in the statement, and columns are given places"
)
_LONGEST = 4_000_000  # characters of a statement; MySQL's own limit for table definitions is far below


class Model:
    """Debezium's model of the tables, and its parsers."""

    def __init__(self, jvm: Any, fold: bool):
        self.fold = fold
        try:
            self.parsers = (
                jvm.io.debezium.connector.mysql.antlr.MySqlAntlrDdlParser(),
                jvm.io.debezium.connector.mariadb.antlr.MariaDbAntlrDdlParser(),
            )
            self.tables = jvm.io.debezium.relational.Tables(fold)
            self.primary = PrimaryKeys(self._folded)
            self.versioned = SystemVersions(self._folded)
            self._none = jvm.java.util.ArrayList()
            self._there: dict[tuple[str, str], Any] = {}  # the same; to ask Java for all at each statement is slow
            self.columns: dict[tuple[str, str], tuple[Column, ...]] = {}  # of the same
        except TypeError as error:  # py4j's way to say that there is no such class
            raise SetupError(
                f"the DDL parsers don't start: {error}. Fetch their jars again: {setup_command()}"
            ) from None

    def apply(self, at: int, statement: Statement) -> Iterator[Change]:
        """The tables that the statement changed."""
        self._know(statement)
        statement = self._decided(statement)
        if (db := dropped_database(statement)) is not None:  # the parsers leave its tables in place
            yield from self._drop_database(at, db)
            return
        named = [self.folded(*name) for name in named_tables(statement)]
        if _unless_there(statement) and not self._there.keys().isdisjoint(named):
            return  # MySQL's binlog has it all the same (manual, "Replication of CREATE … IF NOT EXISTS Statements")
        before = dict(self.columns)
        problem = self._parse(statement)
        if problem is not None:
            for name in named or self._of_index(statement):
                self._forget(name)
                yield Change(at, *name, None, problem, before=before.get(name))
            return
        changed = self._applied(statement)
        for name in named:  # not even a DROP of an unknown table goes unsaid: it ends what was there before
            if name not in changed and name not in self._there:
                yield Change(at, *name, None, "what the table was before a DDL statement isn't known")
        for name, table in changed.items():
            if table is None:
                why = "the table was dropped or renamed"
                yield Change(at, *name, None, why, gone=True, before=before.get(name))
            elif name in self.versioned:
                yield Change(at, *name, None, self.versioned.why(*name), before=before.get(name))
            else:
                yield Change(at, *name, self.columns[name], before=before.get(name))

    def _of_index(self, statement: Statement) -> list[tuple[str, str]]:
        """The table whose key a statement about an index may have changed: one with a PRIMARY KEY keeps that."""
        if (table := key_at_stake(statement)) is None or (name := self.folded(*table)) not in self._there:
            return []
        return [] if name in self.primary and verb(statement) == "CREATE" else [name]

    def there(self, statement: Statement) -> frozenset[tuple[str, str]]:
        """Tables that it names, as far as they are there."""
        return frozenset(n for n in (self.folded(*name) for name in named_tables(statement)) if n in self._there)

    def _decided(self, statement: Statement) -> Statement:
        """The statement with what it says by IF [NOT] EXISTS decided, where the table is known."""
        named = named_tables(statement)
        if len(named) != 1 or not _IF_EXISTS.search(statement.sql):
            return statement
        name = self.folded(*named[0])
        if (columns := self.columns.get(name)) is None:
            return statement
        there = {c.name.lower() for c in columns}
        sql = without_idle(without_lists(statement.sql), there, keyed=name in self.primary)
        return statement._replace(sql=sql)

    def _applied(self, statement: Statement) -> dict[tuple[str, str], Any]:
        """Tables that the statement changed, as they are after it; None for those that are gone."""
        changed = self._changed()
        came, gone = ({n for n, t in changed.items() if (t is None) is is_gone} for is_gone in (False, True))
        replaced = self._of_index(statement) if OR_REPLACE.match(statement.sql) else []
        self.versioned.apply(statement, came, gone)
        for name in {*self.primary.apply(statement, came, gone), *replaced}:
            if name in self._there:
                self.tables.overwriteTable(self._there[name].edit().setPrimaryKeyNames(self._none).create())
        for table in changed.values():
            if table is not None and (told := with_bytes(table)) is not None:
                self.tables.overwriteTable(told)
        changed |= self._changed()
        for name in gone:
            self.columns.pop(name, None)
        self.columns |= {n: columns_of(t, n in self.primary) for n, t in changed.items() if t is not None}
        return changed

    def _know(self, statement: Statement) -> None:
        for db, table, create in statement.known:
            if self.folded(db, table) not in self._there:
                self._read(db, create)
                self._applied(Statement(db, create))

    def _changed(self) -> dict[tuple[str, str], Any]:
        """Tables that changed since this was last asked, None for those that are gone."""
        ids = self.tables.drainChanges()
        found = {(source_name(i.catalog() or ""), source_name(i.table())): self.tables.forTable(i) for i in ids}
        for name, table in found.items():
            if table is None:
                self._there.pop(name, None)
            else:
                self._there[name] = table
        return found

    def _parse(self, statement: Statement) -> str | None:
        """Applies one statement; why it can't be, in one line."""
        if len(statement.sql) > _LONGEST:
            return f"a statement of {len(statement.sql)} characters"
        sql = without_lists(without_tdsql_extras(statement.sql))
        if found := OR_REPLACE.match(sql):  # the parsers leave a table in place that is there
            sql = f"{found[1]}{sql[found.end() :]}"
            for db, table in named_tables(Statement(statement.db, sql)):
                self._forget(self.folded(db, table))
        if (ordered := untangled(sql)) is None:
            return _TANGLED
        sql = ordered
        if self.fold:  # the parsers' model folds names of tables, not those of databases
            for start, end, _, _ in list(targets(sql)):
                sql = sql[:start] + sql[start:end].lower() + sql[end:]
        self._default_charset(statement, sql)
        reasons = self._read(statement.db or "", sql)
        return f"a DDL statement can't be read: {reasons[0]}" if reasons else None

    def _default_charset(self, statement: Statement, sql: str) -> None:
        """Gives a table the character set of an ALTER for columns to come that tell none, those of the same statement,
        too: the parsers leave it as it was."""
        if not (charset := table_charset(with_charsets(sql))):
            return
        for db, table in named_tables(statement):
            if (there := self._there.get(self.folded(db, table))) is not None:
                self.tables.overwriteTable(with_default_charset(there, charset))
                self._changed()

    def _read(self, db: str, sql: str) -> list[str]:
        """Why none of the parsers can read it, of that which got furthest first; nothing if one can."""
        from py4j.protocol import Py4JJavaError

        sql = with_charsets(without_backticks(sql))
        reasons: list[tuple[int, str]] = []
        for number, form in enumerate((sql, *simplified(sql))):
            for parser in self.parsers:
                try:
                    parser.setCurrentSchema(self._folded(db))
                    parser.parse(form, self.tables)
                except Py4JJavaError as error:
                    if "OutOfMemory" in error.java_exception.getClass().getName():
                        raise  # it says nothing of the statement
                    if number == 0:
                        reasons.append(_reason(error.java_exception))
                else:
                    return []
        return [why for _, why in sorted(reasons, key=lambda r: -r[0])]

    def folded(self, db: str, table: str) -> tuple[str, str]:
        """A table's name as the model has it."""
        return self._folded(db), self._folded(table)

    def _folded(self, name: str) -> str:
        return name.lower() if self.fold else name

    def _forget(self, name: tuple[str, str]) -> None:
        if name in self._there:
            self.tables.removeTable(self._there[name].id())
            self.columns.pop(name, None)
        self._changed()

    def _drop_database(self, at: int, db: str) -> Iterator[Change]:
        for name, table in list(self._there.items()):
            if name[0] == self._folded(db):
                self.tables.removeTable(table.id())
                yield Change(at, *name, None, "its database was dropped", gone=True, before=self.columns.pop(name))
        self._changed()


def _unless_there(statement: Statement) -> bool:
    """Whether it makes a table where none is."""
    return verb(statement) == "CREATE" and says(statement.sql, "TABLE", "IF", "NOT", "EXISTS") > 0


def _reason(error: Any) -> tuple[int, str]:
    """How far a parser got, in characters of a statement on one line, and what it didn't expect there."""
    lines = str(error.getMessage()).splitlines()
    try:
        position = error.getPosition()
        reached = position.line() * _LONGEST + position.column()
    except Exception:  # noqa: BLE001 - Java's exceptions differ in what they have
        reached = 0
    return reached, next((x for x in lines if "input" in x or "token" in x), lines[0])[:300]
