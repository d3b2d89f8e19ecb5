"""Moments that people ask about: a time by the source's clock, a transaction, or a cut."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_platform.config import Config
from cdc_platform.errors import ConfigError
from cdc_platform.lake import order_places, queries, stores
from cdc_platform.reading import transactions
from cdc_platform.reading.catalog import Cut, find_cut
from cdc_platform.tables import CHANGELOG, CONTROL_EVENTS


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment that is asked about. time: by the source's clock; cut: of the source; gtid: the end of that
    transaction, or of the last in that set, committed at `time` where the feed tells it, its place in the source's
    order; whole: that is known to have come. None of them: now."""

    time: datetime | None = None
    cut: Cut | None = None
    gtid: str | None = None
    place: tuple[int, ...] | None = None
    whole: bool = True

    @property
    def now(self) -> bool:
        """Whether it is now."""
        return self.time is None and self.cut is None and self.gtid is None

    @property
    def point(self) -> datetime | int | tuple[int, ...]:
        """The time, the cut's number or the transaction's place. Raises ValueError: it is now."""
        found = self.place or (self.cut.number if self.cut else self.time)
        if found is None:
            raise ValueError("now is no point")
        return found


def parse(config: Config, source: str, given: str, asked: str, *, gtids: bool = False) -> Moment:
    """A cut's number, or a time as ISO 8601 has it, in UTC where it names no zone. asked: what the user calls it, for
    the error; gtids: whether a GTID, or a set of them, does, too. Raises ConfigError, NotReadable."""
    if gtids and transactions.named(given) and not re.fullmatch(r"\d{4}-\d\d-\d\d", given):
        return _transaction(config, source, given)
    if re.fullmatch("[0-9]+", given):
        return Moment(cut=find_cut(stores.lake(config), source, int(given), "any"))
    try:
        return Moment(time=time(given))
    except ValueError:
        valid = ["2026-11-20T12:00:00Z", "2026-11-20 12:00:00+08:00", "the number of a cut (`cdc-platform cut list`)"]
        valid += ["a GTID", "a set of GTIDs"] * gtids
        raise ConfigError(asked, f"{given!r} is no time and no cut", valid) from None


def time(given: str) -> datetime:
    """A time as ISO 8601 has it, in UTC where it names no zone. Raises ValueError."""
    told = datetime.fromisoformat(given)
    return told.astimezone(UTC) if told.tzinfo else told.replace(tzinfo=UTC)


def _transaction(config: Config, source: str, gtid: str) -> Moment:
    last = transactions.end(config, source, gtid)
    ends = queries.query(
        f"SELECT max(source_time) AS at, count(*) AS n FROM t WHERE source = {queries.text(source)} "
        f"AND lower(gtid) = {queries.text(last.gtid.lower())} AND kind = 'commit'",
        t=CONTROL_EVENTS.at(stores.lake(config)),
    )
    [end] = ends or [{"at": None, "n": 0}]
    behind = f"source = {queries.text(source)} AND op <> 'read' AND {order_places.behind(last.place, _PLACE)} LIMIT 1"
    path = CHANGELOG.at(stores.lake(config))
    whole = end["n"] > 0 or bool(queries.query(f"SELECT 1 AS there FROM t WHERE {behind}", t=path))
    times = [at for at in (last.time, end["at"]) if at is not None]
    place = tuple(int(last.place[f]) for f in order_places.FIELDS)
    return Moment(max(times, default=None), gtid=gtid, place=place, whole=whole and last.passed)


_PLACE = ("epoch", "file", "pos", "event", "row")
"""Of an `order_key`, as they are compared one after the other."""


def to_json(of: Moment) -> dict[str, Any] | None:
    """What a command says of it: `time`; `cut` and its `source_time`; `gtid` and its `time`; None: now."""
    if of.now:
        return None
    if of.gtid:
        return {"gtid": of.gtid, "time": of.time}
    return {"cut": of.cut.number, "source_time": of.cut.source_time} if of.cut else {"time": of.time}
