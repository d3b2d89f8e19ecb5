"""Whether the log of the server behind the DSN is the one that the feed reads: only then do its positions say what of
the feed's changes came before a loaded row, and what after.

Evidence are the newest events of the feed that tell a place, of the newest epoch of the source's log: the server must
have an event at exactly each of these places (file and byte), of the same server id, and in the same transaction where
both name it. A log in which that is so is the feed's, or goes on from it. Clocks and Kafka's offsets say nothing here.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from pymysql.err import MySQLError

from cdc_platform.changelog import log_epochs
from cdc_platform.changelog.epochs import Partition, Where, loaded
from cdc_platform.changes.file_stats import ENTRIES, NO_POSITION
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.events import file_number
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.queries import text
from cdc_platform.loading.errors import EvidencePurged, LoadRefused
from cdc_platform.tables import CHANGES

_EVENTS, _REACH = 5, 200
"""Places that are looked at, at most; messages of a partition in which they are looked for."""
_VENDOR = "the vendor's own initial load (a snapshot of the connector, a full load of the task)"
_SAME = "a DSN of the very server whose log the feed reads"
_GTID = re.compile(r"[0-9]+-[0-9]+-[0-9]+")
"""MariaDB's."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the feed and where it tells that it stands in the log. address: topic/partition/offset/event."""

    address: str
    file: str
    pos: int
    server: str | None
    gtid: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """epoch: of the source's log, of which the events are, the newest first."""

    source: str
    epoch: int
    events: tuple[Event, ...]

    @property
    def newest(self) -> str:
        """Address of the newest event."""
        return self.events[0].address

    @property
    def again(self) -> "Evidence":
        """To look once more at a log in which it was found: one event, by its place. A server reads its file up to a
        place to tell the GTIDs there."""
        return replace(self, events=(replace(self.events[0], gtid=None),))


def evidence(config: Config, source: Source) -> Evidence:
    """What the feed tells. All that has landed is in the changelog. Raises LoadRefused where it tells no places."""
    if FORMATS[source.format].order == "position":
        raise _untold(source, f"format {source.format}")
    log, segments = log_epochs.now(config, source)
    feed = {where: p for where, p in log.partitions.items() if not loaded(where)}
    if not feed:
        problem = "no change has come by its feed yet, so nothing tells which server's log it reads"
        raise LoadRefused(source.name, problem, ["to load when the first change of any table has come"], retriable=True)
    if without := sorted(w for w, p in feed.items() if p.at <= NO_POSITION):
        raise _untold(source, f"{without[0][0]}/{without[0][1]}")
    newest = max(p.epoch for p in feed.values())
    there = {where: p for where, p in feed.items() if p.epoch == newest and not p.replay}
    if not there:
        problem = "its feed sends again what it sent before, and hasn't come to anything new yet"
        raise LoadRefused(source.name, problem, ["to load when it has"], retriable=True)
    begun = {s.where: s.first for s in segments if s.epoch == newest and not s.replay}
    told = (e for where, p in there.items() for e in _events(config, source, where, p, begun.get(where, p.arrived)))
    found = sorted(told, key=_position, reverse=True)
    if not found or _position(found[0]) != max(p.at for p in there.values()):
        raise LoadRefused(source.name, "its newest change tells no binlog file and position", [_VENDOR])
    same_file = [e for e in found if e.file == found[0].file]  # earlier ones may be gone from the server
    return Evidence(source.name, newest, tuple(same_file[:_EVENTS]))


def _untold(source: Source, which: str) -> LoadRefused:
    problem = (
        f"changes of {which} tell no place in the server's log, so nothing says whether they came before a row that "
        "was read from the server, or after it"
    )
    return LoadRefused(source.name, problem, [_VENDOR, "a feed that tells binlog file and position"])


def _position(event: Event) -> tuple[int, int]:
    return file_number(event.file) or -1, event.pos


def _events(config: Config, source: Source, where: Where, at: Partition, first: int) -> list[Event]:
    """The newest of a partition, one of each place. first: arrival with which its epoch begins."""
    path = CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    offset = at.arrived // ENTRIES
    since = max(offset - _REACH, first // ENTRIES)
    file, pos = at.at
    rows = delta_table.ask(
        'SELECT "offset", entry_index, binlog_file, file_no, binlog_pos, lineage, gtid FROM {t} '
        f'WHERE topic = {text(where[0])} AND "partition" = {where[1]} '
        f"AND \"offset\" BETWEEN {since} AND {offset} AND kind IN ('row', 'ddl') "
        "AND binlog_file IS NOT NULL AND file_no IS NOT NULL "
        f"AND (file_no < {file} OR (file_no = {file} AND binlog_pos <= {pos})) "
        f'ORDER BY file_no DESC, binlog_pos DESC, "offset" DESC LIMIT {_REACH}',
        t=path,
    )
    found: dict[tuple[str, int], Event] = {}
    for r in rows:
        place = (r["binlog_file"], int(r["binlog_pos"]))
        if file_number(place[0]) == r["file_no"]:  # else its number is another one than the place in that file
            address = f"{where[0]}/{where[1]}/{r['offset']}/{r['entry_index'] or 0}"
            found.setdefault(place, Event(address, *place, r["lineage"] or None, r["gtid"] or None))
    return list(found.values())[:_EVENTS]


def check(cursor: Any, of: Evidence, exact: str | None = None) -> None:
    """On a connection to the server. exact: name of a table whose changes must not stand where transactions meet: such
    a place doesn't say which of the two they are of. Raises LoadRefused where the evidence isn't in its log."""
    for event in of.events:
        if exact is not None and _between(cursor, event):
            problem = (
                f"{exact} has no key, and {event.file}:{event.pos}, where the feed puts the change at {event.address}, "
                "is the end of a transaction and the beginning of another one"
            )
            raise LoadRefused(of.source, problem, ["a primary key", _VENDOR])
        stands = f"the change at {event.address} stands at {event.file}:{event.pos} of the log that its feed reads"
        try:
            why = _not_there(cursor, event)
            oldest = _purged(cursor, event) if why else None
        except MySQLError as error:
            if not error.args or error.args[0] not in _NO_RIGHT:
                raise
            problem = f"{stands}, and the server behind the DSN doesn't let its account see that: {error.args[-1]}"
            raise LoadRefused(of.source, problem, [f"rights for the account: {_RIGHTS}", _VENDOR]) from None
        if oldest:
            problem = f"{stands}, and the server behind the DSN has purged that file: its oldest is {oldest}"
            choices = ["to load when the next change of any table that is followed has come", _SAME]
            raise EvidencePurged(of.source, problem, choices, retriable=True)
        if why:
            problem = (
                f"{stands}, and the server behind the DSN {why}: it has another log, and its positions order nothing "
                "of this feed"
            )
            raise LoadRefused(of.source, problem, [_SAME, _VENDOR])


def _not_there(cursor: Any, event: Event) -> str:
    """Why an event isn't where its feed says; empty: it is. Raises MySQLError where the account may not see it."""
    try:
        cursor.execute(f"SHOW BINLOG EVENTS IN %s FROM {int(event.pos)} LIMIT 1", (event.file,))
        row = cursor.fetchone()
    except MySQLError as error:
        if error.args and error.args[0] in _NO_RIGHT:
            raise
        return f"has no event there ({error.args[-1]})"
    if row is None:  # the end of the log: an event that tells where it ends
        end = int(event.pos)
        return "" if _size(cursor, event.file) == end else "has no event there"
    if int(row[1]) != event.pos:
        return "has no event there"
    end, server = int(row[4]), str(row[3])
    if event.server and event.server.isdigit() and event.server not in ("0", server):
        return f"has an event of server {server} there, not of {event.server}"
    return _other_transaction(cursor, event, end)


def _between(cursor: Any, event: Event) -> bool:
    """Whether a place is one at which a view may be: no event begins there, or that of a transaction."""
    try:
        cursor.execute(f"SHOW BINLOG EVENTS IN %s FROM {int(event.pos)} LIMIT 1", (event.file,))
    except MySQLError:
        return False  # `check` says what it is
    row = cursor.fetchone()
    return row is None or "gtid" in str(row[2]).lower()


_NO_RIGHT = (1044, 1045, 1142, 1143, 1227)
_RIGHTS = "BINLOG MONITOR on MariaDB, REPLICATION CLIENT and REPLICATION SLAVE on MySQL"


def _files(cursor: Any) -> list[tuple[str, int]]:
    """Of the server's log, the oldest first, with their sizes."""
    cursor.execute("SHOW BINARY LOGS")
    return [(str(row[0]), int(row[1])) for row in cursor.fetchall()]


def _size(cursor: Any, file: str) -> int | None:
    return dict(_files(cursor)).get(file)


def _purged(cursor: Any, event: Event) -> str | None:
    """The server's oldest file, where that of the event stood before it."""
    oldest, _ = next(iter(_files(cursor)), ("", 0))
    same = oldest.rpartition(".")[0] == event.file.rpartition(".")[0]
    return oldest if same and (file_number(event.file) or 0) < (file_number(oldest) or 0) else None


def _other_transaction(cursor: Any, event: Event, end: int) -> str:
    """Where both sides name transactions by one kind of GTID."""
    if not event.gtid:
        return ""
    if _GTID.fullmatch(event.gtid):
        there: set[str] = set()
        for pos in (event.pos, end):  # of its own transaction, or of the one before, where it is the first event
            cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (event.file, int(pos)))
            there |= set(str((cursor.fetchone() or ("",))[0] or "").split(","))
        return "" if event.gtid in there else f"has another transaction than {event.gtid} there"
    try:
        cursor.execute("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (event.gtid,))
    except MySQLError:  # no MySQL, or no GTID: the place stands for itself
        return ""
    row = cursor.fetchone()
    return "" if row is None or row[0] is None or int(row[0]) else f"hasn't executed transaction {event.gtid}"
