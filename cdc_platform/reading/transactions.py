"""Where in a source's log a transaction ends, or a set of them, by what the user calls it.

Most feeds tell the GTID of an event's transaction. canal's JSON, and its protobuf without `curtGtid`, tell the set of
all that was executed with it: then a transaction is the one that brings its number. A set grows by the own number of a
transaction and by those of others of which nothing is kept (tables that a filter leaves out). One server's numbers
ascend in its log, so the last of them is the event's own; where numbers of several servers are new, nobody knows.
"""

from datetime import datetime
from typing import Any, NamedTuple

from cdc_platform.config import Config
from cdc_platform.errors import NotReadable
from cdc_platform.lake import order_places, queries, stores
from cdc_platform.lake.queries import text
from cdc_platform.mysql import gtids
from cdc_platform.mysql.gtids import Ranges
from cdc_platform.tables import CHANGELOG, LOADED, SCHEMA_HISTORY

_GAPS = 20
"""So many sets are looked at that have later numbers than the one that is asked for."""
_NAMES = ["a GTID of a change in changelog", "a set of GTIDs up to one"]


class Event(NamedTuple):
    """A change or statement: its place, the GTID or set that it tells, its time by the source's clock."""

    place: dict[str, Any]
    gtid: str
    time: datetime | None


class End(NamedTuple):
    """Where it ends. gtid: what its last event tells; time: the latest of its events; passed: whether a set's last
    numbers have come, or later ones."""

    place: dict[str, Any]
    gtid: str
    time: datetime | None
    passed: bool = True


def named(given: str) -> bool:
    """Whether a text is a GTID, or a set of them."""
    return gtids.numbers(given) is not None


def end(config: Config, source: str, given: str) -> End:
    """Of a transaction, or of the last one in a set. Raises NotReadable."""
    log, asked = _Log(config, source), "".join(given.lower().split())
    if found := log.last_of(asked):
        return found
    one = gtids.single(asked)
    return _of_number(log, given, *one) if one else _of_set(log, given, gtids.numbers(asked) or {})


def _of_number(log: "_Log", given: str, name: str, number: int) -> End:
    """Of the transaction of a number, in a log of sets."""
    newest, later = _newest(name), None
    for _ in range(_GAPS):
        later = log.first(f"{newest} >= {number}", behind=later)
        told = gtids.numbers(later.gtid) if later and not gtids.single(later.gtid) else None
        if later is None or told is None:
            raise NotReadable(log.source, f"has no change of a transaction {given}", _NAMES)
        if not gtids.without({name: [(number, number)]}, told):
            break
    else:
        raise NotReadable(log.source, f"tells sets of GTIDs in which {given} is missed out", _NAMES)
    before = log.last(order_places.behind(later.place), holds=False, but=later.gtid)
    new = gtids.without(told, (before and gtids.numbers(before.gtid)) or {})
    if number < max(last for _, last in new.get(name, [(0, 0)])):  # nothing of it is kept
        if before is None:
            raise NotReadable(log.source, f"{given} was before the first change in changelog, {later.gtid}", _NAMES)
        return log.last_of(before.gtid) or End(*before)
    if "-" not in name and given not in later.gtid.split(","):  # of another server in that domain
        raise NotReadable(log.source, f"has no change of a transaction {given}", _NAMES)
    if len(new) > 1:
        problem = f"tells sets of GTIDs, and with {given} came others, so its changes can't be told from theirs"
        raise NotReadable(log.source, f"{problem}: {gtids.shown(new)}", [later.gtid])
    return log.last_of(later.gtid) or End(*later)


def _of_set(log: "_Log", given: str, asked: dict[str, Ranges]) -> End:
    """Of the last transaction in a set. The log must have it whole before all others."""
    inside = {name: _within(_newest(name), ranges) for name, ranges in asked.items()}
    within = " OR ".join(inside.values())
    only = " AND ".join(f"({_newest(name)} IS NULL OR {own})" for name, own in inside.items())
    last = log.last(f"({within}) AND {only}")
    if last is None:
        raise NotReadable(log.source, f"has no change of a transaction in {given}", _NAMES)
    other = log.first(f"NOT (({within}) AND {only})")
    if gtids.without(gtids.numbers(last.gtid) or {}, asked):
        other = last
    if other and other.place == min(other.place, last.place, key=_order):
        problem = f"{given} is no moment of its log: before the last of it stands {other.gtid}, which isn't in it"
        raise NotReadable(log.source, problem, _NAMES)
    following = log.first("true", behind=last)
    told = gtids.numbers(following.gtid) if following and not gtids.single(following.gtid) else None
    if told and (lacking := gtids.without(asked, told)):
        problem = f"{given} is no moment of its log: {gtids.shown(lacking)} hadn't come when others had"
        raise NotReadable(log.source, problem, [last.gtid])
    highest = {name: max(high for _, high in ranges) for name, ranges in asked.items()}
    passed = all(log.first(f"{_newest(name)} >= {number}") for name, number in highest.items())
    found = log.last_of(last.gtid) or End(*last)
    return found._replace(passed=passed)


def _newest(name: str) -> str:
    return f"CAST(regexp_match(lower(gtid), '{gtids.newest_pattern(name)}')[1] AS BIGINT)"


def _within(number: str, ranges: Ranges) -> str:
    return "(" + " OR ".join(f"{number} BETWEEN {first} AND {last}" for first, last in ranges) + ")"


def _order(place: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(place[f]) for f in order_places.FIELDS)


class _Log:
    """Changes and statements of a source that tell a GTID, in their order. Rows of a load tell how far its view was."""

    def __init__(self, config: Config, source: str):
        lake, self.source = stores.lake(config), source
        mine = f"source = {text(source)} AND gtid <> ''"
        self._tables = (
            (CHANGELOG.at(lake), f"{mine} AND op <> 'read' AND topic <> {text(LOADED)}"),
            (SCHEMA_HISTORY.at(lake), f"{mine} AND kind = 'ddl'"),
        )

    def last_of(self, gtid: str) -> End | None:
        """The end of what tells a GTID or set."""
        found = self._ask(f"lower(gtid) = {text(gtid.lower())}", "max(source_time) OVER ()", down=True)
        times = [e.time for e in found if e.time is not None]
        newest = max(found, key=lambda e: _order(e.place), default=None)
        return newest and End(newest.place, newest.gtid, max(times, default=None))

    def last(self, which: str, *, holds: bool = True, but: str | None = None) -> Event | None:
        """The last event of which a condition holds, or doesn't. but: what it doesn't tell."""
        where = f"{'' if holds else 'NOT '}({which})" + (f" AND gtid <> {text(but)}" if but else "")
        return max(self._ask(where, "source_time", down=True), key=lambda e: _order(e.place), default=None)

    def first(self, which: str, behind: Event | None = None) -> Event | None:
        """The first one, behind all that tell what another one does, from that one on."""
        if behind is not None:
            which = f"({which}) AND gtid <> {text(behind.gtid)} AND {order_places.behind(behind.place)}"
        return min(self._ask(which, "source_time", down=False), key=lambda e: _order(e.place), default=None)

    def _ask(self, which: str, time: str, *, down: bool) -> list[Event]:
        by = ", ".join(f"order_key['{f}']{' DESC' * down}" for f in order_places.FIELDS)
        found = []
        for path, mine in self._tables:
            sql = f"SELECT order_key, gtid, {time} AS at FROM t WHERE {mine} AND ({which}) ORDER BY {by} LIMIT 1"
            found += [Event(r["order_key"], r["gtid"], r["at"]) for r in queries.query(sql, t=path) or []]
        return found
