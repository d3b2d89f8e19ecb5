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
    """One DDL statement and the database of its session (None: none)."""

    db: str | None
    sql: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column: MySQL type text as `mysql.types.parse_type` reads it; `key`: part of the primary key, or of the
    first unique key without NULLs where there is no primary one."""

    name: str
    type: str
    nullable: bool
    key: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A table after statement number `at`. `columns` None: it is gone, or not known any more, see `reason`."""

    at: int
    db: str
    table: str
    columns: tuple[Column, ...] | None
    reason: str | None = None


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


_GAP = r"(?:\s|/\*(?!!).*?\*/|(?:--\s|#)[^\n]*(?:\n|\Z))"
_RELEVANT = re.compile(rf"{_GAP}*+(?:/\*!\d*\s*)?(?:CREATE|ALTER|DROP|RENAME|USE)\b", re.IGNORECASE | re.DOTALL)
_NAME = r"(?:`(?:[^`]|``)+`|[\w$\u0080-\uffff]+)"
_TARGET = re.compile(
    rf"{_GAP}*+(?:/\*!\d*\s*)?(CREATE|ALTER|DROP|RENAME)\b[^`'\"(]*?\bTABLES?{_GAP}+"
    rf"(?:IF{_GAP}+(?:NOT{_GAP}+)?EXISTS{_GAP}+)?({_NAME}){_GAP}*+(?:\.{_GAP}*+({_NAME}))?",
    re.IGNORECASE | re.DOTALL,
)
_NEXT = re.compile(rf"{_GAP}*+(?:,|TO\b){_GAP}*+({_NAME}){_GAP}*+(?:\.{_GAP}*+({_NAME}))?", re.IGNORECASE | re.DOTALL)
_TRUNCATE = re.compile(  # to its end: what follows a name that was taken for the table's would show the mistake
    rf"{_GAP}*+(?:/\*!\d*\s*)?TRUNCATE\b(?:{_GAP}++TABLE\b)?+(?:{_GAP}++IF{_GAP}++EXISTS\b)?+{_GAP}*+"
    rf"(?:({_NAME}){_GAP}*+(?:\.{_GAP}*+({_NAME}))?+(?:{_GAP}|;|\*/|NOWAIT\b|WAIT{_GAP}++\d+)*+\Z)?+",
    re.IGNORECASE | re.DOTALL,
)
_DROP_DB = re.compile(
    rf"{_GAP}*+DROP{_GAP}+(?:DATABASE|SCHEMA){_GAP}+(?:IF{_GAP}+EXISTS{_GAP}+)?({_NAME})", re.IGNORECASE | re.DOTALL
)
_OF_TDSQL = re.compile(  # quoted text is matched first, and stays
    r"('(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"|`[^`]*+`)"
    rf"|,?\s*\b(?:shardkey{_GAP}*+={_GAP}*+{_NAME}|TDSQL_DISTRIBUTED\s+BY\b.*)",
    re.IGNORECASE | re.DOTALL,
)


def _plain(name: str) -> str:
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
    return [(_plain(a), _plain(b)) if b else (statement.db or "", _plain(a)) for a, b in names]


def named_table(statement: Statement) -> tuple[str, str] | None:
    """The first of `named_tables`; None: it names none."""
    return next(iter(named_tables(statement)), None)


def truncated_table(statement: Statement) -> tuple[str, str] | None:
    """(database, table) that a TRUNCATE empties; None: it is another statement. Raises ValueError when it doesn't
    tell the table or its database. (ALTER TABLE … TRUNCATE PARTITION is no TRUNCATE: it leaves other rows.)"""
    found = _TRUNCATE.match(statement.sql)
    if found is None:
        return None
    db, table = (found[1], found[2]) if found[2] else (None, found[1])
    name = (_plain(db) if db else statement.db or "", _plain(table or ""))
    if not all(name):
        raise ValueError(f"which table is truncated isn't told: {statement.sql[:200]!r}")
    return name


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
            yield from self._drop_database(at, _plain(found[1]))
            return
        problem = self._parse(statement)
        changed = list(self.tables.drainChanges())
        named = [(self._folded(db), self._folded(table)) for db, table in named_tables(statement)]
        if problem is not None:
            for name in named:
                self._forget(name)
                yield Change(at, *name, None, problem)
            return
        known = {(i.catalog(), i.table()) for i in (*changed, *self.tables.tableIds())}
        for name in named:  # not even a DROP of an unknown table goes unsaid: it ends what was there before
            if name not in known:
                yield Change(at, *name, None, "what the table was before a DDL statement isn't known")
        for i in changed:
            table = self.tables.forTable(i)
            if table is None:
                yield Change(at, i.catalog() or "", i.table(), None, "the table was dropped or renamed")
            else:
                yield Change(at, i.catalog() or "", i.table(), _columns(table))

    def _parse(self, statement: Statement) -> str | None:
        """Applies one statement; why it can't be, in one line."""
        from py4j.protocol import Py4JJavaError

        if len(statement.sql) > _LONGEST:
            return f"a statement of {len(statement.sql)} characters"
        sql, reasons = without_tdsql_extras(statement.sql), []
        if self.fold:  # the parsers' model folds names of tables, not those of databases
            for start, end, _, _ in list(_targets(sql)):
                sql = sql[:start] + sql[start:end].lower() + sql[end:]
        for parser in self.parsers:
            try:
                parser.setCurrentSchema(self._folded(statement.db or ""))
                parser.parse(sql, self.tables)
            except Py4JJavaError as error:
                lines = str(error.java_exception.getMessage()).splitlines()
                reasons.append(next((x for x in lines if "input" in x or "token" in x), lines[0])[:300])
            else:
                return None
        return f"a DDL statement can't be read: {reasons[0]}"

    def _folded(self, name: str) -> str:
        return name.lower() if self.fold else name

    def _forget(self, name: tuple[str, str]) -> None:
        for i in [i for i in self.tables.tableIds() if (i.catalog(), i.table()) == name]:
            self.tables.removeTable(i)
        self.tables.drainChanges()

    def _drop_database(self, at: int, db: str) -> Iterator[Change]:
        for i in list(self.tables.tableIds()):
            if i.catalog() == self._folded(db):
                self.tables.removeTable(i)
                yield Change(at, i.catalog(), i.table(), None, "its database was dropped")
        self.tables.drainChanges()


def _columns(table: Any) -> tuple[Column, ...]:
    key = set(table.primaryKeyColumnNames())
    return tuple(Column(c.name(), _type_text(c), c.isOptional(), c.name() in key) for c in table.columns())


_AS_BINARY = {
    "char": "binary",
    "varchar": "varbinary",
    **{f"{size}text": f"{size}blob" for size in ("", "tiny", "medium", "long")},
}
_ATTRIBUTES = ("unsigned", "signed", "zerofill")
_OF_TEXT = ("binary", "ascii", "unicode")  # `varchar(5) binary`: a collation, no type
_ALONE = {"binary": "binary(1)"}  # its length matters: the binlog leaves zeros at its end out
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
        return f"{_ALONE.get(name, name)}{attributes}"
    args = f"{length},{scale.get()}" if scale.isPresent() else str(length)
    return f"{name}({args}){attributes}"


_SQL_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_SHOWN = {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"}


def _label(written: str) -> str:
    """A label as the statement writes it (either kind of quotes, SQL's escapes) → as SHOW COLUMNS would."""
    quote = written[0]
    text = re.sub(
        rf"{quote}{quote}|\\(.)",
        lambda m: quote if m[1] is None else _SQL_ESCAPES.get(m[1], m[1]),
        written[1:-1],
        flags=re.DOTALL,
    )
    return "'" + "".join(_SHOWN.get(c, c) for c in text) + "'"


def split_statements(script: str) -> Sequence[str]:
    """A script (as mysqldump --no-data writes it) → its statements, without the closing semicolons."""
    return [s for s in (m[0].strip() for m in _SPLIT.finditer(script)) if s.strip("; \n\t\r")]


_SPLIT = re.compile(
    r"(?:'(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"|`(?:[^`]|``)*+`|/\*.*?\*/|(?:--\s|\#)[^\n]*+|[^;'\"`/#-]|[/#-])++",
    re.DOTALL,
)


_USE = re.compile(rf"{_GAP}*+USE{_GAP}+({_NAME})\s*", re.IGNORECASE | re.DOTALL)


def used_database(sql: str) -> str | None:
    """The database that a USE statement chooses; None: it is another statement."""
    found = _USE.fullmatch(sql)
    return _plain(found[1]) if found else None
