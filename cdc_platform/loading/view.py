"""One consistent view of the server, and a place in its log that it may be put at.

A place P is right for what a view shows if all that stands before P in the log is in the view. What is in the view
and stands behind P comes once more by the feed, behind P: the row is then the feed's, whatever the view showed. So P
needs only be a lower bound.

- MariaDB and Percona tell P exactly (`binlog_snapshot_file`, `_position`).
- MySQL writes a transaction to its log before it can be seen. So P is read first; then all transactions that have a
  GTID and aren't committed yet (`gtid_owned`) are waited for; then the view is opened. Without GTIDs nothing tells
  that.
- Rows of a prepared XA transaction stand in the log from its prepare on, and are in no view until its commit: while
  there is one, nothing is read.

Debezium's incremental snapshots do it by a table that they write to, or (read only) by the GTIDs before and after a
chunk, between which changes win; DBLog by a watermark that it writes. Here nothing is written, and the order of all
changes does the rest.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymysql.err import MySQLError

from cdc_platform.formats.events import file_number
from cdc_platform.formats.loaded import LogPosition
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.key import SORTED
from cdc_platform.loading.proof import Evidence, check
from cdc_platform.reconcile import statements
from cdc_platform.reconcile.server import Server, position_of

_WAIT_S, _POLL_S = 30.0, 0.05
_PATIENT = "SET SESSION net_write_timeout = 86400, net_read_timeout = 86400"
"""Rows are taken as they can be landed: by itself a server closes the connection when that takes a minute."""


@dataclass(frozen=True, slots=True)
class Open:
    """A view: its cursor, the place for what it shows, and the server's time (µs since 1970)."""

    cursor: Any
    at: LogPosition
    time_us: int
    server: dict[str, str]


@contextmanager
def opened(server: Server, of: Evidence, exact: str | None = None) -> Iterator[Open]:
    """A view of the server whose log the evidence is in. exact: name of a table of which nothing may be in the view
    that stands behind its place, or before it and isn't in the view. Raises LoadRefused, SourceUnreachable,
    SourceRefused."""
    with server.connected(_PATIENT, SORTED) as cursor:
        before, prepared = who(cursor), _xa(cursor, of.source)
        at = _begun(cursor, of.source)
        if exact is not None and not at.exact:
            problem = f"{exact} has no key, and the server doesn't tell exactly which part of its log a view shows"
            raise LoadRefused(of.source, problem, ["MariaDB or Percona Server, which tell it", "a primary key"])
        check(cursor, of, exact)  # within the transaction: a proxy keeps it at one server
        _not_before(of, at)
        if who(cursor) != before:
            raise LoadRefused(of.source, "statements of one connection are answered by several servers", ["no proxy"])
        if _xa(cursor, of.source) != prepared:
            raise _prepared(of.source)
        cursor.execute("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)")
        yield Open(cursor, at, int(cursor.fetchone()[0]), before)


def _not_before(of: Evidence, at: LogPosition) -> None:
    """Raises LoadRefused where the server's log has begun anew, by number or by name, and the feed is still before."""
    newest = of.events[0]
    names = [file.rpartition(".")[0] for file in (newest.file, at.file)]
    if names[0] != names[1] or (file_number(at.file) or -1, at.pos) < (file_number(newest.file) or -1, newest.pos):
        problem = (
            f"the server is at {at.file}:{at.pos} of its log, and the feed at {newest.file}:{newest.pos}: the log has "
            "begun anew, and the feed hasn't come to it"
        )
        raise LoadRefused(of.source, problem, ["to load when it has"], retriable=True)


def who(cursor: Any) -> dict[str, str]:
    """Which server answers."""
    cursor.execute("SELECT @@server_id, @@hostname, @@port, @@version")
    return dict(zip(("id", "host", "port", "version"), map(str, cursor.fetchone()), strict=True))


def _begun(cursor: Any, source: str) -> LogPosition:
    cursor.execute(statements.BEGIN)
    place = position_of(cursor)
    if place and place["exact"]:
        return LogPosition(place["file"], place["position"], place["gtid"])
    cursor.execute("COMMIT")
    low = _stable_position(cursor, source)
    cursor.execute(statements.BEGIN)
    return low


def _stable_position(cursor: Any, source: str) -> LogPosition:
    """A place before which all is committed."""
    place = position_of(cursor)
    if place is None:
        raise LoadRefused(
            source, "the server tells no position of its log", ["the right REPLICATION CLIENT", "log_bin"]
        )
    try:
        cursor.execute("SELECT @@GLOBAL.gtid_mode")
        mode = str(cursor.fetchone()[0]).upper()
    except MySQLError:
        mode = "unknown"
    if mode != "ON":
        problem = f"the server doesn't tell which part of its log a view shows (gtid_mode is {mode})"
        raise LoadRefused(source, problem, ["gtid_mode = ON", "MariaDB or Percona Server, which tell it"])
    end, open_ = time.monotonic() + _WAIT_S, _owned(cursor)
    while still := open_ & _owned(cursor):
        if time.monotonic() > end:
            problem = f"{len(still)} transactions are in the log and not committed for {_WAIT_S:.0f} s"
            raise LoadRefused(source, problem, ["to load later"], retriable=True)
        time.sleep(_POLL_S)
    return LogPosition(place["file"], place["position"], place["gtid"], exact=False)


def _owned(cursor: Any) -> frozenset[str]:
    """Transactions that have a GTID and aren't committed: `uuid:number#thread:number#thread,\\nuuid:…`."""
    cursor.execute("SELECT @@GLOBAL.gtid_owned")
    found = set()
    for part in str(cursor.fetchone()[0] or "").replace("\n", "").split(","):
        uuid, *numbers = part.strip().split(":")
        found |= {f"{uuid}:{n.split('#')[0]}" for n in numbers}
    return frozenset(found)


def _xa(cursor: Any, source: str) -> int:
    """How many XA transactions were prepared since the server's start. Raises LoadRefused while one is."""
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'")
    row = cursor.fetchone()
    count = int(row[1]) if row else 0
    try:
        cursor.execute("XA RECOVER")
        there = len(cursor.fetchall())
    except MySQLError:  # not for this account (XA_RECOVER_ADMIN)
        there = count
    if there:
        raise _prepared(source)
    return count


def _prepared(source: str) -> LoadRefused:
    problem = (
        "the server has prepared XA transactions, or can't tell that it has none: their rows are in its log and in no "
        "view of it"
    )
    return LoadRefused(
        source, problem, ["to load when none is prepared", "the right XA_RECOVER_ADMIN on MySQL"], retriable=True
    )
