"""Up to when the snapshots of a source are complete, by its own clock.

To be published when they have taken up all that the changelog holds. The earliest of its partitions' watermarks counts
(changelog/watermarks.py). What has come and isn't in the snapshots holds it back: of a message in quarantine that names
its table that table alone, of any other the source.

It doesn't go back. Each publication tells the offsets that its times rest on: they stay true whatever of a higher
offset is held later. Clocks aren't asked. But where a replay holds what was decoded before, the time is that before it
again, and none where nothing tells one.

A partition to which nothing comes tells no time. Whoever sends the log in its order has sent that partition all that
is older than what the others told `idle_partition_s` before Kafka was last looked at, unless it failed in between and
sends it later. So this is taken for complete and said to be (`proven` is false).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice, tee
from typing import Any, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, queries, stores, watermarks
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import SOURCE, Behind, Complete, Where
from cdc_platform.landing import run as landing
from cdc_platform.landing.ended import ended
from cdc_platform.snapshots import state
from cdc_platform.snapshots.cuts import holds, positions
from cdc_platform.snapshots.cuts.holds import Hold
from cdc_platform.spark import delta_sql
from cdc_platform.tables import LOADED, WATERMARKS, Name, name_columns

_SHOWN = 5
_UNSETTLED = ("stopped", "stale")
_LOOKED_AT = 10_000
"""So many earlier publications are looked at, at most: of years there are as many once they are folded."""


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
    missing = holds.missing(config, source, [n for n, t in tables.items() if t["state"] == "live"])
    ends = _lowered(_taken(config, source, path), missing.all)
    told = _Times(path, source, _marks(config, source, path), ends, last)
    unsettled = {n: f"{t['state']}: {t['reason'] or ''}" for n, t in tables.items() if t["state"] in _UNSETTLED}
    at, proven, reason = told.of_source(missing.all)
    behind = {n: told.of_table(n, missing.all, of, at) for n, of in missing.tables.items()}
    behind |= {n: told.still(n, why) for n, why in unsettled.items()}
    behind = dict(sorted(behind.items()))
    known, said = told.before(missing.all), (at, proven, reason or None, behind)
    stands = last and last.ends is not None and known is last
    if last and stands and said == (last.source_time, last.proven, last.reason, dict(last.behind)):
        return
    over = ended(config, source)
    reached = {w: ends[w] for w in watermarks.partitions(path, source.name) if w not in over}
    row = {
        **{"source": source.name, "scope": SOURCE, "batch": last.number + 1 if last else 0},
        **{"source_time": at, "proven": proven, "reason": reason or None},
        "behind": [{**name_columns(n), "source_time": b.source_time, "reason": b.reason} for n, b in behind.items()],
        "end_offsets": [*_ends_of(None, ends), *(e for n, b in behind.items() for e in _ends_of(n, b.ends))],
        **positions.reached(config, source, reached, known),
    }
    delta_table.append_rows(path, [row])


def _ends_of(name: Name | None, ends: Mapping[Where, int]) -> list[dict[str, Any]]:
    """As in WATERMARKS."""
    of = {"db": None, "schema": None, "table": None} if name is None else name_columns(name)
    return [{**of, "topic": t, "partition": p, "offset": offset} for (t, p), offset in sorted(ends.items())]


@dataclass(frozen=True)
class _Times:
    """Up to when a source and its tables are complete, as their marks and what is missing say. ends: what the source's
    time rests on; last: what was told before. It is gone back on only where something is missing that it rests on."""

    path: Store
    source: Source
    marks: Marks
    ends: Mapping[Where, int]
    last: Complete | None

    def of_source(self, held: Sequence[Hold]) -> tuple[datetime | None, bool, str]:
        """Time, whether it is proven, and what holds it back."""
        at, proven, reason = self._earliest(held)
        known = self.before(held)
        if known and known.source_time and (at is None or (at, proven) < (known.source_time, known.proven)):
            return known.source_time, known.proven, reason
        return at, proven, reason

    def of_table(self, name: Name, held: Sequence[Hold], own: Sequence[Hold], most: datetime | None) -> Behind:
        """held: what the whole source lacks; own: what this table lacks; most: the source's time."""
        at, _, _ = self._earliest([*held, *own])
        known = self.before([*held, *own], name)
        at = _latest(at, known and known.of(name))
        return Behind(at and most and min(at, most), own[0].reason, self._own(_lowered(self.ends, own)))

    def still(self, name: Name, why: str) -> Behind:
        """Of a table that isn't kept up to date: it stays where it was."""
        if self.last is None:
            return Behind(None, why)
        ends = {w: end for w in self.ends if (end := self.last.end(name, w)) is not None}
        return Behind(self.last.of(name), why, self._own(ends))

    def _own(self, ends: Mapping[Where, int]) -> dict[Where, int]:
        """Those that are other than the source's."""
        return {w: offset for w, offset in ends.items() if offset != self.ends.get(w)}

    def _earliest(self, held: Sequence[Hold]) -> tuple[datetime | None, bool, str]:
        reached = {
            h.where: (watermarks.reached(self.path, self.source.name, *h.where, h.offset), h.reason)
            for h in holds.first(held)
        }
        return earliest(self.marks, reached)

    def before(self, held: Sequence[Hold], name: Name | None = None) -> Complete | None:
        """The newest publication that is true of a table (None: of the source) without what is held."""
        first = {h.where: h.offset for h in holds.first(held)}
        if self.last is None or self.last.stands(name, first):
            return self.last
        return next((p for p in copy(self._before_last) if p.stands(name, first)), None)

    @cached_property
    def _before_last(self) -> Iterator[Complete]:
        """The publications before the last: one to copy, the copies read them once together."""
        number = self.last.number if self.last else 0
        return tee(islice(watermarks.earlier(self.path, self.source.name, number), _LOOKED_AT), 1)[0]


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


def _taken(config: Config, source: Source, path: Store) -> dict[Where, int]:
    """Partition → first offset that isn't taken up. Of one of which all that was landed is, the first to be landed: a
    time may rest on it that nothing else came by it."""
    ends = {w: r["offset"] + 1 for w, r in watermarks.partitions(path, source.name).items()}
    whole = {(r["topic"], r["partition"]) for r in queries.ledger(config, [source]) if not r["unaccounted"]}
    landed = {w: o for w, o in queries.landed(config, source).items() if w in whole and w[0] != LOADED}
    return {w: max(ends.get(w, 0), landed.get(w, 0)) for w in ends.keys() | landed.keys()}


def _lowered(ends: Mapping[Where, int], held: Sequence[Hold]) -> dict[Where, int]:
    """Before what is held."""
    first = {h.where: h.offset for h in holds.first(held)}
    return {w: min(offset, first.get(w, offset)) for w, offset in ends.items()}
