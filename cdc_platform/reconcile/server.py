"""Reads of a live MySQL or MariaDB: read only, one consistent view per table, closed before anything else is done (an
open one would hold up DDL at the source). The DSN comes from an environment variable and is told to nobody."""

import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.constants import ER

from cdc_platform.errors import ConfigError
from cdc_platform.mysql import foreign_keys
from cdc_platform.mysql.ddl import quoted_name
from cdc_platform.reconcile import statements
from cdc_platform.reconcile.columns import Pairing, SourceColumn
from cdc_platform.reconcile.errors import SourceRefused, SourceUnreachable
from cdc_platform.reconcile.frames import Sums, state

_SHAPE = "mysql://user:password@host:3306 (more as ?ssl_ca=/path/ca.pem&connect_timeout=10; escape as %XX)"
_OPTIONS = ("ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_check_hostname", "unix_socket", "connect_timeout")
_CONNECT_S = 10
_OWN = ("information_schema", "performance_schema", "mysql", "sys")
_BASE, _VERSIONED = "BASE TABLE", "SYSTEM VERSIONED"
"""What information_schema calls tables: the second is MariaDB's, of those WITH SYSTEM VERSIONING."""
_AT_ONCE = 200
"""Rows looked up by one statement."""
Wanted = Mapping[str, tuple[Sequence[str], bool]]
"""Digest of a key → texts of the key, and whether the source had such a row."""


@dataclass(frozen=True, slots=True)
class Dsn:
    """How to reach a server. `server` (host:port, or the socket) may be shown, the rest never is."""

    server: str
    arguments: dict[str, Any] = field(repr=False)


def dsn_from(variable: str) -> Dsn:
    """The DSN that an environment variable holds. Raises ConfigError, which never quotes it."""
    text = os.environ.get(variable)
    if not text:
        raise ConfigError(variable, "this environment variable must hold the DSN of the source database", [_SHAPE])
    problem = "is no DSN"
    try:
        parts = urlsplit(text)
        options = {k: v[-1] for k, v in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
        port, host, user = parts.port or 3306, parts.hostname or "", parts.username
        unknown = sorted(set(options) - set(_OPTIONS))
        problem = f"unknown options {unknown} in the DSN" if unknown else problem
        if parts.scheme not in ("mysql", "mariadb") or not (host or "unix_socket" in options) or not user or unknown:
            raise ValueError
        timeout = int(options.get("connect_timeout", _CONNECT_S))
        problem = "the connect_timeout in the DSN must be at least 1 second"
        if timeout < 1:
            raise ValueError
        problem = "the certificates named in the DSN can't be read"
        context = _tls(options)
    except (ValueError, OSError):
        raise ConfigError(variable, problem, [_SHAPE]) from None
    arguments: dict[str, Any] = {
        "host": host or None,
        "port": port,
        "user": unquote(user),
        "password": unquote(parts.password or "").encode(),  # PyMySQL takes texts for Latin-1
        "connect_timeout": timeout,
        "charset": "utf8mb4",
        "unix_socket": options.get("unix_socket"),
        **({"ssl": context} if context else {}),  # without: TLS where the server offers it, unverified
    }
    return Dsn(options.get("unix_socket") or f"{host}:{port}", arguments)


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    """TLS that is required, with certificate and host name verified: PyMySQL's own ssl_ca verifies nothing.
    Raises OSError."""
    if options.get("ssl") != "true" and not {"ssl_ca", "ssl_cert"} & options.keys():
        return None
    context = ssl.create_default_context(cafile=options.get("ssl_ca"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that MySQL made for itself don't pass it
    context.check_hostname = options.get("ssl_check_hostname") != "false"
    if "ssl_cert" in options:
        context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    return context


def _error_text(error: pymysql.err.MySQLError) -> str:
    """The server's own words. They hold names and addresses, never a password."""
    code, text = (*error.args, "", "")[:2] if len(error.args) > 1 else ("", str(error))
    return f"{text} ({code})" if code else text


class Server:
    """A source database."""

    def __init__(self, dsn: Dsn):
        self._dsn = dsn

    @contextmanager
    def connected(self, *begin: str) -> Iterator[Any]:
        """A cursor, on which some statements were executed; every error of the server as one of ours."""
        try:
            connection = pymysql.connect(**self._dsn.arguments, autocommit=True)
        except (pymysql.err.MySQLError, OSError, RuntimeError) as error:
            # RuntimeError: a login of MySQL 8 without TLS would need one more package.
            problem = _error_text(error) if isinstance(error, pymysql.err.MySQLError) else f"{error} (try ?ssl=true)"
            raise SourceUnreachable(self._dsn.server, problem) from None
        try:
            with connection, connection.cursor() as cursor:
                for statement in (*statements.SESSION, *begin):
                    cursor.execute(statement)
                yield cursor
        except pymysql.err.MySQLError as error:
            raise SourceRefused(self._dsn.server, _error_text(error)) from None

    def engine(self, db: str, table: str) -> str:
        """The storage engine of a table; empty: there is none."""
        return str(self._table_info("engine", db, table) or "")

    def versioned(self, db: str, table: str) -> bool:
        """Whether a table is WITH SYSTEM VERSIONING."""
        return self._table_info("table_type", db, table) == _VERSIONED

    def made(self, db: str, table: str) -> str | None:
        """When the table that has this name now was made, by which it is told from another one of that name: of all
        that names a table's identity, this alone is shown to an account that may only SELECT. InnoDB of MySQL up to 5.7
        and of MariaDB gives the time of the table's file, which a RENAME changes, too."""
        found = self._table_info("CAST(create_time AS CHAR)", db, table)
        return None if found is None else str(found)

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Global variables and status counters by their name in lower case; without those that the server lacks.
        Raises SourceUnreachable where nobody answers or the login is refused."""
        with self.connected() as cursor:
            found: dict[str, str] = {}
            for kind in ("VARIABLES", "STATUS"):
                cursor.execute(f"SHOW GLOBAL {kind} WHERE variable_name IN %s", (list(names),))
                found |= {str(name).lower(): str(value) for name, value in cursor.fetchall()}
            return found

    def tables(self, databases: Sequence[str]) -> list[tuple[str, str]]:
        """(database, table) of all tables in these databases that this account may see: no views."""
        if not databases:
            return []
        with self.connected() as cursor:
            cursor.execute(
                "SELECT table_schema, table_name FROM information_schema.tables "
                "WHERE table_type IN %s AND table_schema IN %s",
                ((_BASE, _VERSIONED), list(databases)),
            )
            return [(str(db), str(table)) for db, table in cursor.fetchall()]

    def cascades(self, tables: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
        """(database, table, e.g. `p_id: ON DELETE CASCADE`) of the foreign keys by which the server changes rows of
        these tables. From their statements: information_schema shows keys only to those who may do more than read."""
        found = []
        with self.connected() as cursor:
            for db, table in tables:
                try:
                    cursor.execute(f"SHOW CREATE TABLE {table_name(db, table)}")
                except pymysql.err.MySQLError:  # gone by now, or not for this account
                    continue
                found += [
                    (db, table, rules) for _, rules in foreign_keys.added(str((cursor.fetchone() or ("", ""))[1]))
                ]
        return found

    def databases(self) -> list[str]:
        """Databases that this account may see, but the server's own."""
        with self.connected() as cursor:
            cursor.execute("SHOW DATABASES")
            return [str(db) for (db,) in cursor.fetchall() if str(db).lower() not in _OWN]

    def create_table(self, db: str, table: str) -> str | None:
        """What `SHOW CREATE TABLE` says; None: there is no such table."""
        with self.connected() as cursor:
            try:
                cursor.execute(f"SHOW CREATE TABLE {table_name(db, table)}")
            except pymysql.err.ProgrammingError as error:
                if error.args[0] == ER.NO_SUCH_TABLE:
                    return None
                raise
            found = cursor.fetchone()
            return str(found[1]) if found else None

    def columns(self, db: str, table: str) -> list[SourceColumn]:
        """Columns in their order, with the primary key's; [] where there is no such table."""
        with self.connected() as cursor:
            cursor.execute(
                "SELECT column_name, column_type, column_key = 'PRI', extra LIKE '%%VIRTUAL%%' "
                "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                (db, table),
            )
            return [SourceColumn(str(n), str(t), bool(key), bool(v)) for n, t, key, v in cursor.fetchall()]

    def row_estimate(self, db: str, table: str) -> int:
        """About how many rows; from the server's statistics."""
        return int(self._table_info("table_rows", db, table) or 0)

    def _table_info(self, what: str, db: str, table: str) -> Any:
        """What information_schema tells of a table; None: nothing, or there is none."""
        with self.connected() as cursor:
            of = "FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
            cursor.execute(f"SELECT {what} {of}", (db, table))
            return (cursor.fetchone() or (None,))[0]

    @contextmanager
    def view(self, db: str, table: str, pairing: Pairing) -> "Iterator[View]":
        """A read-only transaction with one consistent view."""
        with self.connected(statements.BEGIN) as cursor:
            yield View(cursor, table_name(db, table), pairing)

    def states_now(self, db: str, table: str, pairing: Pairing, wanted: Wanted) -> dict[str, str]:
        """Digest of key → state of its rows at this moment. What is not found by its key is looked for by its digest:
        a row that only seems to be gone would hide a difference."""
        found: dict[str, list[str]] = {}
        for digest, row in self._rows_by_keys(statements.states, db, table, pairing, wanted):
            found.setdefault(digest, []).append(row)
        return {digest: state(len(rows), min(rows), max(rows)) for digest, rows in found.items()}

    def rows(self, db: str, table: str, pairing: Pairing, wanted: Wanted) -> list[tuple[Any, ...]]:
        """See `statements.rows`."""
        return self._rows_by_keys(statements.rows, db, table, pairing, wanted)

    def _rows_by_keys(
        self, statement: Callable[..., str], db: str, table: str, pairing: Pairing, wanted: Wanted
    ) -> list[tuple[Any, ...]]:
        with self.connected() as cursor:
            return rows_by_keys(cursor, statement, table_name(db, table), pairing, wanted)


def rows_by_keys(
    cursor: Any, statement: Callable[..., str], name: str, pairing: Pairing, wanted: Wanted
) -> list[tuple[Any, ...]]:
    """Rows of some keys, whose first value is the digest of their key. statement: (quoted name, pairing, conditions) →
    SQL of them."""
    out: list[tuple[Any, ...]] = []
    known = [(d, statements.by_key(pairing, keys)) for d, (keys, _) in wanted.items()] if pairing.keyed else []
    pairs = [(digest, condition) for digest, condition in known if condition]
    for at in range(0, len(pairs), _AT_ONCE):
        some = dict(pairs[at : at + _AT_ONCE])
        cursor.execute(statement(name, pairing, some.values()))
        # Under a collation a condition also finds rows whose keys count as equal: not wanted here.
        out += [row for row in cursor.fetchall() if row[0] in some]
    seen = {row[0] for row in out}
    if rest := [digest for digest, (_, there) in wanted.items() if there and digest not in seen]:
        cursor.execute(statement(name, pairing, [statements.by_digest(pairing, rest)]))
        out += cursor.fetchall()
    return out


class View:
    """One table in one consistent view of the server."""

    def __init__(self, cursor: Any, name: str, pairing: Pairing):
        self._cursor, self._name, self._pairing = cursor, name, pairing
        self.position = position_of(cursor)

    def sums(self, buckets: int) -> tuple[Sums, int]:
        """Sums per bucket, and how many dates don't exist."""
        self._cursor.execute(statements.sums(self._name, self._pairing, buckets))
        found = self._cursor.fetchall()
        return {int(b): (int(n), int(s1), int(s2)) for b, n, s1, s2, _ in found}, sum(int(r[4]) for r in found)

    def digests(self, buckets: int, chosen: Sequence[int]) -> list[tuple[str, ...]]:
        """Digest of key, digest of row, the key's texts."""
        self._cursor.execute(statements.digests(self._name, self._pairing, buckets, chosen))
        return self._cursor.fetchall()


def table_name(db: str, table: str) -> str:
    return f"{quoted_name(db)}.{quoted_name(table)}"


_POSITIONS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")  # MySQL 8.4 knows only the first, others the second


def position_of(cursor: Any) -> dict[str, Any] | None:
    """Binlog position of the view: exactly, as MariaDB and Percona tell it of a consistent view; else the server's own
    position just after, exact: False. None: no binlog, or no right to see it (REPLICATION CLIENT)."""
    cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
    told = {str(name).lower(): value for name, value in cursor.fetchall()}
    if file := told.get("binlog_snapshot_file"):
        place = int(told["binlog_snapshot_position"])
        return {"file": file, "position": place, "gtid": _gtid(cursor, file, place), "exact": True}
    for statement in _POSITIONS:
        try:
            cursor.execute(statement)
        except pymysql.err.MySQLError:
            continue
        found = cursor.fetchone()
        if found:
            gtid = found[4] if len(found) > 4 else None
            return {"file": found[0], "position": int(found[1]), "gtid": gtid or None, "exact": False}
    return None


def _gtid(cursor: Any, file: str, position: int) -> str | None:
    try:
        cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, position))
    except pymysql.err.MySQLError:  # not MariaDB
        return None
    return (cursor.fetchone() or (None,))[0] or None
