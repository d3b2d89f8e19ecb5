"""Up to when the snapshots of a source are complete, by its own clock.

To be published when they have taken up all that the changelog holds. The earliest of its partitions' watermarks counts
(changelog/watermarks.py). What has come and isn't in the snapshots holds it back: of a message in quarantine that names
its table that table alone, of any other the source. It doesn't go back: what holds it is newer than what was complete.
But where a replay holds what was decoded before, the time is that before it again, and none where nothing tells one.

A partition to which nothing comes tells no time. Whoever sends the log in its order has sent that partition all that
is older than what the others told `idle_partition_s` before Kafka was last looked at, unless it failed in between and
sends it later. So this is taken for complete and said to be (`proven` is false).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, queries, stores, watermarks
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import SOURCE, Behind, Complete
from cdc_platform.landing import run as landing
from cdc_platform.landing.ended import ended
from cdc_platform.snapshots import state
from cdc_platform.snapshots.cuts import holds, positions
from cdc_platform.snapshots.cuts.holds import Hold, Where
from cdc_platform.spark import delta_sql
from cdc_platform.tables import LOADED, WATERMARKS, Name, name_columns

_SHOWN = 5
_UNSETTLED = ("stopped", "stale")
_SKEW = timedelta(minutes=10)
"""What landed and what was told in so short a time isn't told apart: machines' clocks may differ."""


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
    told = _Times(path, source, _marks(config, source, path), last)
    missing = holds.missing(config, source, [n for n, t in tables.items() if t["state"] == "live"])
    unsettled = {n: f"{t['state']}: {t['reason'] or ''}" for n, t in tables.items() if t["state"] in _UNSETTLED}
    at, proven, reason = told.of_source(missing.all)
    behind = {n: told.of_table(n, missing.all, of, at) for n, of in missing.tables.items()}
    behind |= {n: Behind(last.of(n) if last else None, why) for n, why in unsettled.items()}
    behind = dict(sorted(behind.items()))
    said = (at, proven, reason or None, behind)
    if last and said == (last.source_time, last.proven, last.reason, dict(last.behind)):
        return
    row = {
        **{"source": source.name, "scope": SOURCE, "batch": last.number + 1 if last else 0},
        **{"source_time": at, "proven": proven, "reason": reason or None},
        "behind": [{**name_columns(n), "source_time": b.source_time, "reason": b.reason} for n, b in behind.items()],
        **positions.reached(config, source, _ends(config, source, path, missing.all), told.before(missing.all)),
    }
    delta_table.append_rows(path, [row])


@dataclass(frozen=True)
class _Times:
    """Up to when a source and its tables are complete, as their marks and what is missing say. last: what was told
    before. It is gone back on only where something is missing that landed before it was told."""

    path: Store
    source: Source
    marks: Marks
    last: Complete | None

    def of_source(self, held: Sequence[Hold]) -> tuple[datetime | None, bool, str]:
        """Time, whether it is proven, and what holds it back."""
        at, proven, reason = self._earliest(held)
        last = self.last
        if last is None or last.source_time is None or (at is not None and at > last.source_time):
            return at, proven, reason
        why = {h.reason for h in held}
        if reason in why and reason != last.reason:
            known = self.before(held)
            at = _latest(at, known and known.source_time)
            if at is None or at < last.source_time:
                return at, True, reason
        return last.source_time, last.proven, reason

    def of_table(self, name: Name, held: Sequence[Hold], own: Sequence[Hold], most: datetime | None) -> Behind:
        """held: what the whole source lacks; own: what this table lacks; most: the source's time."""
        before = self.last.of(name) if self.last else None
        was = self.last.behind.get(name) if self.last else None
        if was and was.reason == own[0].reason:
            return Behind(before, own[0].reason)
        at, _, _ = self._earliest([*held, *own])
        known = self.before([*held, *own])
        at = _latest(at, known and known.of(name))
        return Behind(at and most and min(at, most), own[0].reason)

    def _earliest(self, held: Sequence[Hold]) -> tuple[datetime | None, bool, str]:
        reached = {
            h.where: (watermarks.reached(self.path, self.source.name, *h.where, h.offset), h.reason)
            for h in holds.first(held)
        }
        return earliest(self.marks, reached)

    def before(self, held: Sequence[Hold]) -> Complete | None:
        """What was told before any of it had landed: that is complete without it. The last, if nothing is held."""
        if not held:
            return self.last
        since = [h.since for h in held if h.since is not None]
        if not since or len(since) < len(held):
            return None
        return watermarks.complete(self.path, self.source.name, until=min(since) - _SKEW)


def _latest(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((at for at in (one, other) if at is not None), default=None)


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


def _ends(config: Config, source: Source, path: Store, held: Sequence[Hold]) -> dict[Where, int]:
    """Partition → first offset that isn't in all snapshots."""
    over, first = ended(config, source), {h.where: h.offset for h in holds.first(held)}
    marks = watermarks.partitions(path, source.name)
    return {w: min(first.get(w, r["offset"] + 1), r["offset"] + 1) for w, r in marks.items() if w not in over}
