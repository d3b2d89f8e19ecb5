"""What MySQL DDL makes of tables: statements in order → the columns of each table after each of them.

The statements are read and applied by Debezium's own parsers (`ddl_model`); here is what can be told from a
statement's text, and the result.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from cdc_platform.mysql.ddl_process import PARSERS
from cdc_platform.mysql.readable import with_backticks


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
    without quotes; `computed`: generated, or numbered by the server; `charset`: of text, in lower case (None: the
    statements don't tell it)."""

    name: str
    type: str
    nullable: bool
    key: bool
    default: str | None = None
    computed: bool = False
    charset: str | None = None


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
    don't mind. Raises SetupError where the parsers' jars or Java are missing.

    In a process of its own (`ddl_process`): where this one has a Spark session, pyspark takes every Java exception for
    its own."""
    statements = tuple(s._replace(sql=with_backticks(s.sql)) for s in statements)
    told = [(at, s) for at, s in enumerate(statements) if _RELEVANT.match(s.sql) and not _TEMPORARY.match(s.sql)]
    if not told:
        return ()
    changes = PARSERS.ask({"statements": [[at, *s] for at, s in told], "fold": fold})
    return tuple(
        Change(at, db, table, _read_columns(columns), reason, gone, _read_columns(before))
        for at, db, table, columns, reason, gone, before in changes
    )


def _read_columns(told: list[list[Any]] | None) -> tuple[Column, ...] | None:
    return None if told is None else tuple(Column(*c) for c in told)


GAP = r"(?:\s|/\*(?!!).*?\*/|(?:--\s|#)[^\n]*(?:\n|\Z))"
_RELEVANT = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?(?:CREATE|ALTER|DROP|RENAME|USE)\b", re.IGNORECASE | re.DOTALL)
NAME = r"(?:`(?:[^`]|``)+`|[\w$\u0080-\uffff]+)"
_OF_TABLE = rf"(?:{GAP}|/\*M?!\d*|\*/|(?:OR|REPLACE|TEMPORARY|ONLINE|OFFLINE|IGNORE)\b)*+TABLES?\b"
_TARGET = re.compile(
    rf"{GAP}*+(?:/\*!\d*\s*)?(CREATE|ALTER|DROP|RENAME)\b{_OF_TABLE}{GAP}*+"
    rf"(?:IF{GAP}+(?:NOT{GAP}+)?EXISTS{GAP}+)?({NAME}){GAP}*+(?:\.{GAP}*+({NAME}))?",
    re.IGNORECASE | re.DOTALL,
)
_NEXT = re.compile(  # MariaDB's RENAME TABLE a WAIT 5 TO b
    rf"{GAP}*+(?:(?:WAIT{GAP}++\d++|NOWAIT\b){GAP}*+)?+(?:,|TO\b){GAP}*+({NAME}){GAP}*+(?:\.{GAP}*+({NAME}))?",
    re.IGNORECASE | re.DOTALL,
)
_TRUNCATE = re.compile(  # to its end: what follows a name that was taken for the table's would show the mistake
    rf"{GAP}*+(?:/\*!\d*\s*)?TRUNCATE\b(?:{GAP}++TABLE\b)?+(?:{GAP}++IF{GAP}++EXISTS\b)?+{GAP}*+"
    rf"(?:({NAME}){GAP}*+(?:\.{GAP}*+({NAME}))?+(?:{GAP}|;|\*/|NOWAIT\b|WAIT{GAP}++\d+)*+\Z)?+",
    re.IGNORECASE | re.DOTALL,
)
_CREATES = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?CREATE\b", re.IGNORECASE)
_DROPS = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?DROP\b", re.IGNORECASE)
_LIKE = re.compile(
    rf"{GAP}*+(?:/\*!\d*\s*)?CREATE\b{_OF_TABLE}{GAP}*+(?:IF{GAP}+NOT{GAP}+EXISTS{GAP}+)?{NAME}(?:{GAP}*+\.{GAP}*+{NAME})?"
    rf"{GAP}*+\(?{GAP}*+LIKE{GAP}+({NAME})(?:{GAP}*+\.{GAP}*+({NAME}))?",
    re.IGNORECASE | re.DOTALL,
)
_TEMPORARY = re.compile(
    rf"{GAP}*+(?:/\*!\d*\s*)?(?:CREATE|DROP)\b(?:{GAP}|/\*M?!\d*|(?:OR|REPLACE)\b)*+TEMPORARY\b",
    re.IGNORECASE | re.DOTALL,
)
"""A server writes `DROP /*!40005 TEMPORARY */ TABLE` at the end of a session, whatever the format of its binlog (MySQL
5.7 manual, "Usage of Row-Based Logging and Replication"); a table of the same name is another one, and stays."""
OR_REPLACE = re.compile(rf"({GAP}*+CREATE{GAP}+)OR{GAP}+REPLACE{GAP}+", re.IGNORECASE | re.DOTALL)
_DROP_DATABASE = re.compile(  # MariaDB's CREATE OR REPLACE drops it first
    rf"{GAP}*+(?:/\*!\d*\s*)?(?:DROP|CREATE{GAP}++OR{GAP}++REPLACE){GAP}++(?:DATABASE|SCHEMA)\b{GAP}*+"
    rf"(?:IF{GAP}++EXISTS\b{GAP}*+)?+({NAME})",
    re.IGNORECASE | re.DOTALL,
)
_DROP_INDEX = re.compile(
    rf"{GAP}*+(?:/\*!\d*\s*)?DROP{GAP}+(?:(?:ONLINE|OFFLINE){GAP}+)?INDEX{GAP}*+(?:IF{GAP}+EXISTS{GAP}*+)?{NAME}{GAP}*+ON{GAP}*+"
    rf"({NAME}){GAP}*+(?:\.{GAP}*+({NAME}))?",
    re.IGNORECASE | re.DOTALL,
)
_OF_TDSQL = re.compile(  # quoted text is matched first, and stays
    r"('(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"|`[^`]*+`)"
    rf"|,?\s*\b(?:shardkey{GAP}*+={GAP}*+{NAME}|TDSQL_DISTRIBUTED\s+BY\b.*)",
    re.IGNORECASE | re.DOTALL,
)


def plain_name(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[:1] == "`" else name


def quoted_name(name: str) -> str:
    """A name as DDL may write any."""
    return "`" + name.replace("`", "``") + "`"


def without_tdsql_extras(sql: str) -> str:
    """The statement without the clauses that only TDSQL knows: `shardkey=…`, `TDSQL_DISTRIBUTED BY …`."""
    return _OF_TDSQL.sub(lambda m: m[1] or "", sql)


def targets(sql: str) -> Iterator[tuple[int, int, str | None, str | None]]:
    """Of each table that a CREATE, ALTER, DROP or RENAME TABLE names as its own: from where to where it stands
    in the statement (`with_backticks`), and its one or two names. A temporary table is none: no row of it is in any
    feed."""
    sql = with_backticks(sql)
    found = _TARGET.match(sql)
    if found is None or _TEMPORARY.match(sql):
        return
    yield found.start(2), found.end(), found[2], found[3]
    if found[1].upper() in ("DROP", "RENAME"):
        while found := _NEXT.match(sql, found.end()):
            yield found.start(1), found.end(), found[1], found[2]


def dropped_database(statement: Statement) -> str | None:
    """The database that goes with all its tables: one event in a binlog, that names none of them."""
    found = _DROP_DATABASE.match(with_backticks(statement.sql))
    return plain_name(found[1]) if found is not None else None


def named_tables(statement: Statement) -> list[tuple[str, str]]:
    """(database, table) of each table that a CREATE, ALTER, DROP or RENAME TABLE names as its own."""
    names = [(first or "", second) for _, _, first, second in targets(statement.sql)]
    return [(plain_name(a), plain_name(b)) if b else (statement.db or "", plain_name(a)) for a, b in names]


def index_dropped_on(statement: Statement) -> list[tuple[str, str]]:
    """(database, table) that a DROP INDEX … ON names; nothing: it is another statement."""
    found = _DROP_INDEX.match(with_backticks(statement.sql))
    if found is None:
        return []
    first, second = found[1], found[2]
    return [(plain_name(first), plain_name(second)) if second else (statement.db or "", plain_name(first))]


def named_table(statement: Statement) -> tuple[str, str] | None:
    """The first of `named_tables`; None: it names none."""
    return next(iter(named_tables(statement)), None)


def creates(sql: str) -> bool:
    """Whether it is a CREATE of anything."""
    return _CREATES.match(sql) is not None


def drops(sql: str) -> bool:
    """Whether it is a DROP of anything."""
    return _DROPS.match(with_backticks(sql)) is not None


def tables_there_before(statement: Statement) -> list[tuple[str, str]]:
    """(database, table) of each table that a statement takes for granted: those that it alters, drops or renames, and
    that of CREATE TABLE … LIKE."""
    if not creates(statement.sql):
        return named_tables(statement)
    found = _LIKE.match(with_backticks(statement.sql))
    if found is None:
        return []
    first, second = found[1], found[2]
    return [(plain_name(first), plain_name(second)) if second else (statement.db or "", plain_name(first))]


def truncated_table(statement: Statement) -> tuple[str, str] | None:
    """(database, table) that a TRUNCATE empties; None: it is another statement. Raises ValueError when it doesn't
    tell the table or its database. (ALTER TABLE … TRUNCATE PARTITION is no TRUNCATE: it leaves other rows.)"""
    found = _TRUNCATE.match(with_backticks(statement.sql))
    if found is None:
        return None
    db, table = (found[1], found[2]) if found[2] else (None, found[1])
    name = (plain_name(db) if db else statement.db or "", plain_name(table or ""))
    if not all(name):
        raise ValueError(f"which table is truncated isn't told: {statement.sql[:200]!r}")
    return name


_SQL_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def unescaped(text: str, quote: str) -> str:
    r"""What a literal that stood in these quotes says: `\%` and `\_` are what they look like (MySQL manual, "String
    Literals": outside of pattern-matching contexts)."""
    return re.sub(
        rf"{quote}{quote}|\\(.)",
        lambda m: quote if m[1] is None else m[0] if m[1] in "%_" else _SQL_ESCAPES.get(m[1], m[1]),
        text,
        flags=re.DOTALL,
    )


def split_statements(script: str) -> Sequence[str]:
    """A script (as mysqldump --no-data writes it) → its statements, without the closing semicolons."""
    return [s for s in (m[0].strip() for m in _SPLIT.finditer(script)) if s.strip("; \n\t\r")]


def one_by_one(statement: Statement) -> Sequence[str]:
    """The statements of a text that may hold several, which begins with one about tables: a body of others (of a
    procedure, a trigger) stays with them."""
    if ";" not in statement.sql or not (named_tables(statement) or dropped_database(statement)):
        return [statement.sql]
    found = [s for s in split_statements(statement.sql) if not _EMPTY.fullmatch(s)]
    return found if len(found) > 1 else [statement.sql]


_EMPTY = re.compile(rf"{GAP}*+")
_SPLIT = re.compile(
    r"(?:'(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"|`(?:[^`]|``)*+`|/\*.*?\*/|(?:--\s|\#)[^\n]*+|[^;'\"`/#-]|[/#-])++",
    re.DOTALL,
)


_USE = re.compile(rf"{GAP}*+USE{GAP}+({NAME})\s*", re.IGNORECASE | re.DOTALL)


def used_database(sql: str) -> str | None:
    """The database that a USE statement chooses; None: it is another statement."""
    found = _USE.fullmatch(with_backticks(sql))
    return plain_name(found[1]) if found else None
