"""Up to when the snapshots of a source are complete, by its own clock.

To be published when they have taken up all that the changelog holds. The earliest of its partitions' watermarks counts
(changelog/watermarks.py). What has come and isn't in the snapshots holds it back: of a message in quarantine that names
its table that table alone, of any other the source. It never goes back: what holds it is newer than what was complete.

A partition to which nothing comes tells no time. Whoever sends the log in its order has sent that partition all that
is older than what the others told `idle_partition_s` before Kafka was last looked at, unless it failed in between and
sends it later. So this is taken for complete and said to be (`proven` is false).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import delta_table, queries, sequences, stores, watermarks
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import SOURCE, Behind
from cdc_platform.landing import run as landing
from cdc_platform.landing.ended import ended
from cdc_platform.snapshots import state
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CONTROL_EVENTS, LOADED, QUARANTINE, WAITING, WATERMARKS, Name, name_columns, name_in

Where = tuple[str, int]

_SHOWN = 5
_UNSETTLED = ("stopped", "stale")
_SETS = ("synced_gtid", "gtid_set")
"""Where a checkpoint's `info` has the set of all GTIDs so far."""
_NEAR = 10_000
"""The newest checkpoint is looked for in so many offsets."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A message that has come and isn't in any snapshot: its first offset, and why."""

    where: Where
    offset: int
    reason: str


class Marks(NamedTuple):
    """What is known of partitions. now: watermarks (None: none was told); before: of others, so long ago that a record
    older than them would have come by the time that Kafka was last looked at; open: partitions of which not all that
    was landed is in the changelog."""

    now: Mapping[Where, datetime | None]
    before: datetime | None
    open: frozenset[Where]


def earliest(marks: Marks, held: Mapping[Where, tuple[datetime | None, str]]) -> tuple[datetime | None, bool, str]:
    """The source's watermark, whether every partition tells it, and a reason why not, or what holds it back. held: of
    partitions with a message that isn't in any snapshot the watermark before it, and why."""
    times, idle = dict(marks.now), []
    for where, told in marks.now.items():
        if where not in marks.open and marks.before is not None and (told is None or told < marks.before):
            times[where] = marks.before
            idle.append(where)
    for where, (before, _) in held.items():
        told = times.get(where)
        times[where] = before if told is None or before is None else min(told, before)
    if not times:
        return None, True, "nothing has come yet"
    first = min(times, key=lambda w: (times[w] is not None, times[w] or datetime.min))
    found = times[first]
    if first in held:
        return found, True, held[first][1]
    if found is None:
        return None, True, f"no event of {_named([first])} tells when its log had it"
    relied = [w for w in idle if (told := marks.now[w]) is None or told < found]
    return found, not relied, f"nothing comes by {_named(relied)}" if relied else ""


def _named(partitions: list[Where]) -> str:
    texts = [f"{topic}/{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


def publish(config: Config, source: Source, tables: state.Tables) -> None:
    """Publishes up to when a source is complete, where that has changed. tables: their present state."""
    path = delta_sql.ensure(WATERMARKS, WATERMARKS.at(stores.lake(config)))
    last = watermarks.complete(path, source.name)
    of_tables, holds = _missing(config, source)
    of_tables |= {n: f"{t['state']}: {t['reason'] or ''}" for n, t in tables.items() if t["state"] in _UNSETTLED}
    of_tables = _never_came(config, source, [n for n, t in tables.items() if t["state"] == "live"]) | of_tables
    held = {h.where: (watermarks.reached(path, source.name, *h.where, h.offset), h.reason) for h in holds}
    at, proven, reason = earliest(_marks(config, source, path), held)
    if last and last.source_time and (at is None or at <= last.source_time):
        at, proven = last.source_time, last.proven
    behind = {n: Behind(last.of(n) if last else None, why) for n, why in sorted(of_tables.items())}
    said = (at, proven, reason or None, behind)
    if last and said == (last.source_time, last.proven, last.reason, dict(last.behind)):
        return
    row = {
        **{"source": source.name, "scope": SOURCE, "batch": last.number + 1 if last else 0},
        **{"source_time": at, "proven": proven, "reason": reason or None},
        "behind": [{**name_columns(n), "source_time": b.source_time, "reason": b.reason} for n, b in behind.items()],
        **_place(config, source, path, holds),
    }
    delta_table.append_rows(path, [row])


def _marks(config: Config, source: Source, path: Store) -> Marks:
    over = ended(config, source)
    now = {w: r["source_time"] for w, r in watermarks.partitions(path, source.name).items() if w not in over}
    rows = (r for r in queries.ledger(config, [source]) if r["topic"] != LOADED)
    ledger = {w: r for r in rows if (w := (r["topic"], r["partition"])) not in over}
    if len(ledger.keys() | now.keys()) < 2:
        return Marks(now, None, frozenset())
    now = {**dict.fromkeys(ledger), **now}
    unread = frozenset(w for w, r in ledger.items() if r["unaccounted"])
    before = None
    if looked := landing.looked_at(config, source):
        until = looked - timedelta(seconds=source.idle_partition_s)
        old = watermarks.partitions(path, source.name, until=until)
        before = max((r["source_time"] for w, r in old.items() if r["source_time"] and w not in over), default=None)
    return Marks(now, before, unread)


def _never_came(config: Config, source: Source, names: list[Name]) -> dict[Name, str]:
    """Snapshots that may lack records which were lost before or in Kafka, and which these are."""
    gaps = sequences.of_tables(config, source, names)
    return sequences.lost_of_tables(config, source, names) | {name: of[0].text for name, of in gaps.items()}


def _missing(config: Config, source: Source) -> tuple[dict[Name, str], list[Hold]]:
    """Tables that lack what quarantine holds, and why; and messages that are in no table: those in quarantine that name
    none, and those whose parts haven't all come."""
    path = QUARANTINE.at(stores.lake(config))
    place = f'topic, "partition", db, {queries.schema_of(path)}, "table"'
    rows = queries.query(
        f'SELECT {place}, min("offset") AS "offset", last_value(reason ORDER BY quarantined_at) AS reason FROM t '
        f"WHERE source = '{source.name}' AND resolved_at IS NULL GROUP BY 1, 2, 3, 4, 5",
        t=path,
    )
    named, holds = {}, []
    for r in rows or []:
        where, why = (r["topic"], r["partition"]), f"quarantine holds {r['topic']}/{r['partition']}/{r['offset']}"
        if (name := name_in(r)) is None:
            holds.append(Hold(where, r["offset"], f"{why}, which names no table: {r['reason']}"))
        elif source.tables.wanted(*name):
            named[source.tables.routed(*name)] = f"{why}: {r['reason']}"
    return named, [*_first(holds), *_waiting(config, source)]


def _first(holds: list[Hold]) -> list[Hold]:
    """Of each partition the earliest."""
    return list({h.where: h for h in sorted(holds, key=lambda h: -h.offset)}.values())


def _waiting(config: Config, source: Source) -> list[Hold]:
    """Of each partition the first message whose parts haven't all come."""
    split = FORMATS[source.format].part is not None
    if not split or not any(r["waiting"] for r in queries.ledger(config, [source])):
        return []
    rows = queries.query(
        'SELECT topic, "partition", min("offset") AS "offset" FROM t WHERE batch = (SELECT max(batch) FROM t) '
        'GROUP BY topic, "partition"',
        t=WAITING.at(stores.lake(config), source=source.name),
    )
    return [
        Hold(
            (r["topic"], r["partition"]),
            r["offset"],
            f"the message at {r['topic']}/{r['partition']}/{r['offset']} waits for its other parts",
        )
        for r in rows or []
    ]


def _place(config: Config, source: Source, path: Store, holds: list[Hold]) -> dict[str, Any]:
    """Binlog place of the newest checkpoint (or commit, heartbeat) of a source with one partition, and the GTIDs up to
    there: before the first message that isn't in any snapshot."""
    over = ended(config, source)
    marks = {w: r for w, r in watermarks.partitions(path, source.name).items() if w not in over}
    if len(marks) != 1:
        return {}
    [((topic, partition), mark)] = marks.items()
    end = min((h.offset for h in holds if h.where == (topic, partition)), default=mark["offset"] + 1)
    rows = queries.query(
        "SELECT binlog_file, binlog_pos, info FROM t "
        f"WHERE source = '{source.name}' AND topic = '{delta_table.topic(topic)}' AND \"partition\" = {partition} "
        f'AND "offset" > {end - _NEAR} AND "offset" < {end} AND binlog_file IS NOT NULL ORDER BY "offset" DESC LIMIT 1',
        t=CONTROL_EVENTS.at(stores.lake(config)),
    )
    if not rows:
        return {}
    info = dict(rows[0]["info"] or [])
    gtids = next((info[n] for n in _SETS if info.get(n)), None)
    return {"binlog_file": rows[0]["binlog_file"], "binlog_pos": rows[0]["binlog_pos"], "gtid": gtids}
