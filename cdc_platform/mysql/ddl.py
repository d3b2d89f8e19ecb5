"""What MySQL DDL makes of tables: statements in order → the columns of each table after each of them.

The statements are read and applied by Debezium's own parsers (MySQL's, and MariaDB's for what that refuses),
in a small JVM beside Python's, through py4j; no Java of ours. Beside Spark's JVM, not in it: over Spark
Connect that one is out of reach, and its class path should not grow.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from cdc_platform.errors import SetupError
from cdc_platform.jars import ddl_classpath
from cdc_platform.java import find_java
from cdc_platform.mysql.types import FAMILIES

_JVM = ["-Xmx256m", "-Xss8m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]  # it lives for a second or two
_LONGEST = 4_000_000  # characters of a statement; MySQL's own limit for table definitions is far below


class Statement(NamedTuple):
    """One DDL statement and the database of its session (None: none). `known`: (db, table, CREATE TABLE) of the
    tables that it concerns, as they are known to have been, should no statement before it tell."""

    db: str | None
    sql: str
    known: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column: MySQL type text as `mysql.types.parse_type` reads it; `key`: part of the primary key, or of the
    first unique key without NULLs where there is no primary one. `default`: constant, as the statement writes it
    without quotes; `computed`: generated, or numbered by the server."""

    name: str
    type: str
    nullable: bool
    key: bool
    default: str | None = None
    computed: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A table after statement number `at`. `columns` None: it is gone, or not known any more, see `reason`. `before`:
    its columns before the statement; None: it wasn't there, or not known."""

    at: int
    db: str
    table: str
    columns: tuple[Column, ...] | None
    reason: str | None = None
    gone: bool = False
    before: tuple[Column, ...] | None = None


@lru_cache(maxsize=16)
def history(statements: tuple[Statement, ...], fold: bool = False) -> tuple[Change, ...]:
    """Applies the statements one after the other to an empty server; what each changed, in order. `fold`: the
    server doesn't tell the case of table names apart (lower_case_table_names); they are in lower case then.

    A statement that can't be read makes the table that it names unknown until it is created anew; other tables
    don't mind. Raises SetupError where the parsers' jars or Java are missing."""
    told = [(at, s) for at, s in enumerate(statements) if _RELEVANT.match(s.sql)]
    if not told:
        return ()
    with _java() as jvm:
        model = _Model(jvm, fold)
        return tuple(change for at, s in told for change in model.apply(at, s))


GAP = r"(?:\s|/\*(?!!).*?\*/|(?:--\s|#)[^\n]*(?:\n|\Z))"
_RELEVANT = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?(?:CREATE|ALTER|DROP|RENAME|USE)\b", re.IGNORECASE | re.DOTALL)
NAME = r"(?:`(?:[^`]|``)+`|[\w$\u0080-\uffff]+)"
_TARGET = re.compile(
    rf"{GAP}*+(?:/\*!\d*\s*)?(CREATE|ALTER|DROP|RENAME)\b[^`'\"(]*?\bTABLES?{GAP}+"
    rf"(?:IF{GAP}+(?:NOT{GAP}+)?EXISTS{GAP}+)?({NAME}){GAP}*+(?:\.{GAP}*+({NAME}))?",
    re.IGNORECASE | re.DOTALL,
)
_NEXT = re.compile(rf"{GAP}*+(?:,|TO\b){GAP}*+({NAME}){GAP}*+(?:\.{GAP}*+({NAME}))?", re.IGNORECASE | re.DOTALL)
_OR_REPLACE = re.compile(rf"({GAP}*+CREATE{GAP}+)OR{GAP}+REPLACE{GAP}+", re.IGNORECASE | re.DOTALL)
_DROP_DB = re.compile(
    rf"{GAP}*+DROP{GAP}+(?:DATABASE|SCHEMA){GAP}+(?:IF{GAP}+EXISTS{GAP}+)?({NAME})", re.IGNORECASE | re.DOTALL
)
_OF_TDSQL = re.compile(  # quoted text is matched first, and stays
    r"('(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"|`[^`]*+`)"
    rf"|,?\s*\b(?:shardkey{GAP}*+={GAP}*+{NAME}|TDSQL_DISTRIBUTED\s+BY\b.*)",
    re.IGNORECASE | re.DOTALL,
)


def plain_name(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[:1] == "`" else name


def without_tdsql_extras(sql: str) -> str:
    """The statement without the clauses that only TDSQL knows: `shardkey=…`, `TDSQL_DISTRIBUTED BY …`."""
    return _OF_TDSQL.sub(lambda m: m[1] or "", sql)


def _targets(sql: str) -> Iterator[tuple[int, int, str | None, str | None]]:
    """Of each table that a CREATE, ALTER, DROP or RENAME TABLE names as its own: from where to where it stands
    in the statement, and its one or two names."""
    found = _TARGET.match(sql)
    if found is None:
        return
    yield found.start(2), found.end(), found[2], found[3]
    if found[1].upper() in ("DROP", "RENAME"):
        while found := _NEXT.match(sql, found.end()):
            yield found.start(1), found.end(), found[1], found[2]


def named_tables(statement: Statement) -> list[tuple[str, str]]:
    """(database, table) of each table that a CREATE, ALTER, DROP or RENAME TABLE names as its own."""
    names = [(first or "", second) for _, _, first, second in _targets(statement.sql)]
    return [(plain_name(a), plain_name(b)) if b else (statement.db or "", plain_name(a)) for a, b in names]


def named_table(statement: Statement) -> tuple[str, str] | None:
    """The first of `named_tables`; None: it names none."""
    return next(iter(named_tables(statement)), None)


@contextmanager
def _java() -> Iterator[Any]:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    classpath = ddl_classpath()
    launched: Any = launch_gateway(
        classpath=classpath,
        jarpath=classpath.partition(os.pathsep)[0],
        javaopts=_JVM,
        java_path=str(find_java().binary),
        die_on_exit=True,  # the server ends with its standard input, so also when Python is killed
        enable_auth=True,
        return_proc=True,
    )
    port, token, process = launched
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()  # not close(): Java objects freed later would still be told to a server that is gone
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Model:
    """Debezium's model of the tables, and its parsers."""

    def __init__(self, jvm: Any, fold: bool):
        self.fold = fold
        try:
            self.parsers = (
                jvm.io.debezium.connector.mysql.antlr.MySqlAntlrDdlParser(),
                jvm.io.debezium.connector.mariadb.antlr.MariaDbAntlrDdlParser(),
            )
            self.tables = jvm.io.debezium.relational.Tables(fold)
        except TypeError as error:  # py4j's way to say that there is no such class
            raise SetupError(f"the DDL parsers don't start: {error}. Fetch their jars again: make setup") from None

    def apply(self, at: int, statement: Statement) -> Iterator[Change]:
        """The tables that the statement changed."""
        if found := _DROP_DB.match(statement.sql):  # the parsers leave its tables in place
            yield from self._drop_database(at, plain_name(found[1]))
            return
        self._know(statement)
        named = [(self._folded(db), self._folded(table)) for db, table in named_tables(statement)]
        before = {name: _columns(self._there[name]) for name in self._there if name in named or not named}
        problem = self._parse(statement)
        changed = {(i.catalog() or "", i.table()): i for i in self.tables.drainChanges()}
        if problem is not None:
            for name in named:
                self._forget(name)
                yield Change(at, *name, None, problem, before=before.get(name))
            return
        known = {*changed, *self._there}
        for name in named:  # not even a DROP of an unknown table goes unsaid: it ends what was there before
            if name not in known:
                yield Change(at, *name, None, "what the table was before a DDL statement isn't known")
        for name, i in changed.items():
            table = self.tables.forTable(i)
            if table is None:
                yield Change(at, *name, None, "the table was dropped or renamed", gone=True, before=before.get(name))
            else:
                yield Change(at, *name, _columns(table), before=before.get(name))

    def _know(self, statement: Statement) -> None:
        for db, table, create in statement.known:
            if (self._folded(db), self._folded(table)) not in self._there:
                self._read(db, create)
        self.tables.drainChanges()

    @property
    def _there(self) -> dict[tuple[str, str], Any]:
        return {(i.catalog() or "", i.table()): self.tables.forTable(i) for i in self.tables.tableIds()}

    def _parse(self, statement: Statement) -> str | None:
        """Applies one statement; why it can't be, in one line."""
        if len(statement.sql) > _LONGEST:
            return f"a statement of {len(statement.sql)} characters"
        sql = without_tdsql_extras(statement.sql)
        if found := _OR_REPLACE.match(sql):  # the parsers leave a table in place that is there
            sql = f"{found[1]}{sql[found.end() :]}"
            for db, table in named_tables(Statement(statement.db, sql)):
                self._forget((self._folded(db), self._folded(table)))
        if self.fold:  # the parsers' model folds names of tables, not those of databases
            for start, end, _, _ in list(_targets(sql)):
                sql = sql[:start] + sql[start:end].lower() + sql[end:]
        reasons = self._read(statement.db or "", sql)
        return f"a DDL statement can't be read: {reasons[0]}" if reasons else None

    def _read(self, db: str, sql: str) -> list[str]:
        """Why none of the parsers can read it; nothing if one can."""
        from py4j.protocol import Py4JJavaError

        reasons = []
        for parser in self.parsers:
            try:
                parser.setCurrentSchema(self._folded(db))
                parser.parse(sql, self.tables)
            except Py4JJavaError as error:
                lines = str(error.java_exception.getMessage()).splitlines()
                reasons.append(next((x for x in lines if "input" in x or "token" in x), lines[0])[:300])
            else:
                return []
        return reasons

    def _folded(self, name: str) -> str:
        return name.lower() if self.fold else name

    def _forget(self, name: tuple[str, str]) -> None:
        for i in [i for i in self.tables.tableIds() if (i.catalog(), i.table()) == name]:
            self.tables.removeTable(i)
        self.tables.drainChanges()

    def _drop_database(self, at: int, db: str) -> Iterator[Change]:
        for i in list(self.tables.tableIds()):
            if i.catalog() == self._folded(db):
                columns = _columns(self.tables.forTable(i))
                self.tables.removeTable(i)
                yield Change(at, i.catalog(), i.table(), None, "its database was dropped", gone=True, before=columns)
        self.tables.drainChanges()


def _columns(table: Any) -> tuple[Column, ...]:
    key = set(table.primaryKeyColumnNames())
    return tuple(
        Column(
            c.name(),
            _type_text(c),
            c.isOptional(),
            c.name() in key,
            c.defaultValueExpression().orElse(None),
            c.isGenerated() or c.isAutoIncremented(),
        )
        for c in table.columns()
    )


_AS_BINARY = {
    "char": "binary",
    "varchar": "varbinary",
    **{f"{size}text": f"{size}blob" for size in ("", "tiny", "medium", "long")},
}
_ATTRIBUTES = ("unsigned", "signed", "zerofill")
_OF_TEXT = ("binary", "ascii", "unicode")  # `varchar(5) binary`: a collation, no type
_RENAMED = {"boolean": "tinyint(1)", "bool": "tinyint(1)", "serial": "bigint unsigned"}


def _type_text(column: Any) -> str:
    words = column.typeName().lower().split()
    words = [w for i, w in enumerate(words) if not (i and w in _OF_TEXT)]
    name = " ".join(w for w in words if w not in _ATTRIBUTES)
    attributes = "".join(f" {w}" for w in words if w in _ATTRIBUTES)
    if name in _RENAMED:
        return _RENAMED[name] + attributes
    if FAMILIES.get(name) in ("enum", "set"):
        return f"{name}({','.join(_label(x) for x in column.enumValues())})"
    # CHARACTER SET binary turns a text column into its binary twin (MySQL manual, "The binary Character Set").
    if (column.charsetName() or "").lower() == "binary":
        name = _AS_BINARY.get(name, name)
    length, scale = column.length(), column.scale()
    if length < 0:
        return name + attributes
    args = f"{length},{scale.get()}" if scale.isPresent() else str(length)
    return f"{name}({args}){attributes}"


_SQL_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_SHOWN = {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"}


def _label(written: str) -> str:
    """A label as the statement writes it (either kind of quotes, SQL's escapes) → as SHOW COLUMNS would."""
    text = unescaped(written[1:-1], written[0])
    return "'" + "".join(_SHOWN.get(c, c) for c in text) + "'"


def unescaped(text: str, quote: str) -> str:
    """What a literal that stood in these quotes says."""
    return re.sub(
        rf"{quote}{quote}|\\(.)",
        lambda m: quote if m[1] is None else _SQL_ESCAPES.get(m[1], m[1]),
        text,
        flags=re.DOTALL,
    )


def split_statements(script: str) -> Sequence[str]:
    """A script (as mysqldump --no-data writes it) → its statements, without the closing semicolons."""
    return [s for s in (m[0].strip() for m in _SPLIT.finditer(script)) if s.strip("; \n\t\r")]


_SPLIT = re.compile(
    r"(?:'(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"|`(?:[^`]|``)*+`|/\*.*?\*/|(?:--\s|\#)[^\n]*+|[^;'\"`/#-]|[/#-])++",
    re.DOTALL,
)


_USE = re.compile(rf"{GAP}*+USE{GAP}+({NAME})\s*", re.IGNORECASE | re.DOTALL)


def used_database(sql: str) -> str | None:
    """The database that a USE statement chooses; None: it is another statement."""
    found = _USE.fullmatch(sql)
    return plain_name(found[1]) if found else None
