"""How far each partition of a source is by which changes may come: the time that it tells, and the offsets that are
taken up of it.

A partition to which nothing comes tells no time. Whoever sends the log in its order has sent that partition all that
is older than what the others told `idle_partition_s` before Kafka was last looked at, unless it failed in between and
sends it later. So this is taken for complete and said to be (`proven` is false). One by which changes have come since
isn't idle, however old they are: a capture of its own may send them late, for any time.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import queries, sequences, watermarks
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import Where
from cdc_platform.landing import run as landing
from cdc_platform.landing.ended import ended, successors
from cdc_platform.snapshots.cuts import control_topics
from cdc_platform.tables import LOADED

_SHOWN = 5
NEVER = 1 << 62
"""An offset that none reaches."""


class Marks(NamedTuple):
    """What is known of partitions. now: watermarks (None: none was told); before: of others, so long ago that a record
    older than them would have come by the time that Kafka was last looked at; open: partitions of which not all that
    was landed is in the changelog, by which changes have come since then, or that may go on without telling a time:
    they aren't idle; ends: first offset that isn't taken up, NEVER of those in `again`, whose offsets have begun again,
    so that nothing of theirs is behind what was told; taken: the one behind the newest event; backed: partitions by
    which nothing came that is older than what was told before: nothing was landed of them, or they took another's
    place."""

    now: Mapping[Where, datetime | None]
    before: datetime | None
    open: frozenset[Where]
    ends: Mapping[Where, int] = {}
    taken: Mapping[Where, int] = {}
    backed: frozenset[Where] = frozenset()
    again: frozenset[Where] = frozenset()


def earliest(marks: Marks, held: Mapping[Where, tuple[datetime | None, str]]) -> tuple[datetime | None, bool, str]:
    """The source's watermark, whether every partition tells it, and a reason why not, or what holds it back. held: of
    partitions with a message that isn't in any snapshot the watermark before it, and why."""
    times, idle = complete_by(marks, held)
    if not times:
        return None, True, "nothing has come yet"
    first = min(times, key=lambda w: (times[w] is not None, times[w] or datetime.min))
    found = times[first]
    if found is None:
        return (
            None,
            True,
            held[first][1] if first in held else f"no event of {_named([first])} tells when its log had it",
        )
    relied = [w for w in idle if (told := marks.now[w]) is None or told < found]
    why = [held[first][1]] if first in held else []
    return (
        found,
        not relied,
        "; ".join([*why, *([f"nothing that tells a time comes by {_named(relied)}"] if relied else [])]),
    )


def complete_by(
    marks: Marks, held: Mapping[Where, tuple[datetime | None, str]]
) -> tuple[dict[Where, datetime | None], list[Where]]:
    """Up to when each partition is complete, and which are taken for it, before what is held of them."""
    times, idle = dict(marks.now), []
    for where, told in marks.now.items():
        if where not in marks.open and marks.before is not None and (told is None or told < marks.before):
            times[where] = marks.before
            idle.append(where)
    for where, (before, _) in held.items():
        told = times.get(where)
        times[where] = before if told is None or before is None else min(told, before)
    return times, idle


def _named(partitions: list[Where]) -> str:
    texts = [f"{topic}/{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


def read(config: Config, source: Source, path: Store) -> Marks:
    """As the changelog and the ledger tell it. path: of WATERMARKS."""
    over = ended(config, source)
    ledger = {(r["topic"], r["partition"]): r for r in queries.ledger(config, [source]) if r["topic"] != LOADED}
    without = control_topics.found(config, source, ledger)
    ledger = {w: r for w, r in ledger.items() if w[0] not in without}
    found = {w: r for w, r in watermarks.partitions(path, source.name).items() if w[0] not in without}
    whole = {w for w, r in ledger.items() if not r["unaccounted"]}
    # Of one of which all that was landed is taken up, the first to be landed: a time may rest on it that nothing else
    # came by it.
    landed = {w: o for w, o in queries.landed(config, source).items() if w in whole}
    taken = {w: r["offset"] + 1 for w, r in found.items()}
    ends = {w: max(taken.get(w, 0), landed.get(w, 0)) for w in taken.keys() | landed.keys()}
    again = sequences.began_again(config, source)
    ends |= dict.fromkeys(again & ends.keys(), NEVER)
    now = {w: r["source_time"] for w, r in found.items() if w not in over}
    events, there = {w: taken[w] for w in now}, ledger.keys() - over
    backed = frozenset(w for w in there if not ledger[w]["landed"]) | (successors(config, source) if over else set())
    if len(there | now.keys()) < 2:
        return Marks(now, None, frozenset(), ends, events, backed, again)
    before, came = None, set()
    if looked := landing.looked_at(config, source):
        until = looked - timedelta(seconds=source.idle_partition_s)
        old = watermarks.partitions(path, source.name, until=until)
        before = max((r["source_time"] for w, r in old.items() if r["source_time"] and w not in over), default=None)
        came = {w for w, r in found.items() if _newest_change(r) != _newest_change(old.get(w, {}))}
    open_ = frozenset(there - whole) | came | _mute(source, ledger, now)
    return Marks({**dict.fromkeys(there), **now}, before, open_, ends, events, backed, again)


def _newest_change(told: Mapping[str, Any]) -> tuple[int | None, datetime | None]:
    """What is another when a change has come by a partition, or what else tells the time. By the time alone an earlier
    version's rows tell it."""
    return told.get("change_batch"), told.get("source_time")


def _mute(source: Source, ledger: Mapping[Where, Mapping[str, int]], now: Mapping[Where, Any]) -> frozenset[Where]:
    """Partitions of a format whose rows tell no time that have had records, and never one that tells it: they may have
    rows all the time, so they aren't idle."""
    if "row" in FORMATS[source.format].log_times:
        return frozenset()
    return frozenset(w for w, r in ledger.items() if r["landed"] and now.get(w) is None)
