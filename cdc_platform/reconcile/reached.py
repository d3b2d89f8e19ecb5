"""Whether a server has come as far as the feed: one that has not may lack just what the snapshot lacks, a replica that
is behind, say. Its rows prove nothing then.

The newest change of the feed says so where it names its transaction, or its place in the log of that very server. Where
neither can be compared, the server's own word as a replica is taken, if the account may ask for it.
"""

import re
from dataclasses import dataclass
from typing import Any

from pymysql.err import MySQLError

from cdc_platform.changelog import log_epochs
from cdc_platform.changelog.epochs import loaded
from cdc_platform.changes.file_stats import ENTRIES, NO_POSITION
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.events import file_number
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.queries import text
from cdc_platform.reconcile.server import Server, position_of
from cdc_platform.tables import CHANGES, LOG_EPOCHS

MARIADB_GTID = re.compile(r"([0-9]+)-[0-9]+-([0-9]+)")
_REACH = 200
"""Messages of a partition in which its newest place is looked for."""
_STATUS = ("SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
"""MariaDB knows the first, MySQL from 8.0.22 on the second."""
_THREADS = tuple(f"{kind}_{thread}_running" for kind in ("replica", "slave") for thread in ("io", "sql"))
"""Both are "No" of a primary that was a replica once, too; that one isn't read-only."""
_LAGS = ("seconds_behind_source", "seconds_behind_master")


@dataclass(frozen=True, slots=True)
class Newest:
    """The feed's newest change: its transaction, its place in a log, the server that wrote it, as far as told. sets:
    whether several servers may write at a time that know nothing of each other, as the sets of TDSQL."""

    gtid: str | None
    file: str | None
    pos: int
    server: str | None
    sets: bool = False


def newest(config: Config, source: Source) -> Newest | None:
    """By what is in the changelog; None: no change tells where it stands."""
    lake = stores.lake(config)
    if not delta_table.exists(LOG_EPOCHS.at(lake)):
        return None
    log, _ = log_epochs.now(config, source)
    feed = [(p.epoch, p.at, p.arrived, where) for where, p in log.partitions.items() if not (loaded(where) or p.replay)]
    _, at, arrived, where = max(feed, default=(0, NO_POSITION, 0, ("", 0)))
    if at <= NO_POSITION:
        return None
    offset = arrived // ENTRIES
    rows = delta_table.ask(
        f'SELECT binlog_file, gtid, lineage FROM {{t}} WHERE topic = {text(where[0])} AND "partition" = {where[1]} '
        f'AND "offset" BETWEEN {offset - _REACH} AND {offset} AND file_no = {at[0]} AND binlog_pos = {at[1]} '
        "AND kind IN ('row', 'ddl') ORDER BY \"offset\" DESC LIMIT 1",
        t=CHANGES.at(lake, format=source.format, source=source.name),
    )
    if not rows:
        return None
    sets = "sets" in FORMATS[source.format].options.model_fields
    return Newest(rows[0]["gtid"] or None, rows[0]["binlog_file"], at[1], rows[0]["lineage"], sets)


def lacking(server: Server, newest: Newest | None) -> str | None:
    """Why what is read from a server from now on proves nothing; None: nothing says so."""
    with server.connected() as cursor:
        has = _has(cursor, newest) if newest else None
        if newest and has is False:
            return f"the server lacks transaction {newest.gtid}, which the feed has told: it is behind, or another one"
        return None if has else _behind(cursor)


def _has(cursor: Any, newest: Newest) -> bool | None:
    """Whether a server has the change; None: nothing tells."""
    try:
        found = _executed(cursor, newest.gtid, sets=newest.sets) if newest.gtid else None
        return _passed(cursor, newest) if found is None else found
    except MySQLError:  # not this kind of server, or not for this account
        return None


def _executed(cursor: Any, gtid: str, *, sets: bool) -> bool | None:
    if not (mine := MARIADB_GTID.fullmatch(gtid)):
        try:
            cursor.execute("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed), @@GLOBAL.gtid_executed", (gtid,))
        except MySQLError:
            return None
        within, executed = cursor.fetchone()
        if within is None or not executed:
            return None
        servers = {one.strip().partition(":")[0].lower() for one in gtid.split(",")}
        known = all(s in str(executed).lower() for s in servers)
        return bool(within) if known or not sets else None  # a primary of before knows nothing of the new one
    try:
        cursor.execute("SELECT CONCAT_WS(',', @@GLOBAL.gtid_binlog_pos, @@GLOBAL.gtid_slave_pos)")
    except MySQLError:
        return None
    there = [MARIADB_GTID.fullmatch(g.strip()) for g in str((cursor.fetchone() or ("",))[0] or "").split(",")]
    reached = [int(g[2]) for g in there if g and g[1] == mine[1]]
    return max(reached) >= int(mine[2]) if reached else None


def _passed(cursor: Any, newest: Newest) -> bool | None:
    """By its place, in the log of the server that wrote it."""
    cursor.execute("SELECT @@server_id")
    if newest.file is None or str(cursor.fetchone()[0]) != newest.server or not (now := position_of(cursor)):
        return None
    same = now["file"].rpartition(".")[0] == newest.file.rpartition(".")[0]
    there = (file_number(newest.file) or 0, newest.pos)
    return True if same and (file_number(now["file"]) or 0, now["position"]) >= there else None


def _behind(cursor: Any) -> str | None:
    """What a server says of itself as a replica."""
    for statement in _STATUS:
        try:
            cursor.execute(statement)
        except MySQLError:
            continue
        names = [column[0].lower() for column in cursor.description]
        for row in cursor.fetchall():
            told = dict(zip(names, row, strict=True))
            lag: Any = next((told[n] for n in _LAGS if n in told), 0)
            if lag is None and (_read_only(cursor) or any(told.get(n, "No") != "No" for n in _THREADS)):
                return "the server is a replica that has stopped, or isn't connected"
            if lag is not None and int(lag):
                return f"the server is a replica that is {int(lag):,} s behind"
    return None


def _read_only(cursor: Any) -> bool:
    try:
        cursor.execute("SELECT @@GLOBAL.read_only")
    except MySQLError:
        return True
    return bool(cursor.fetchone()[0])
