"""When a source was heard: its heartbeats and its last signs of life, by control events of one day and by statistics in
Delta logs."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import queries, stores
from cdc_platform.lake.queries import text


def heartbeat_times(
    config: Config,
    source: Source,
    beats: Iterable[tuple[str, str | None]],
    until: datetime | None = None,
    newest: int = 100,
) -> list[datetime]:
    """Times, by the source's clock, of a source's newest heartbeats, in order: of those that were landed in the day
    before `until` (None: the last day in which it sent anything but rows). beats: kinds of events, and of which `type`
    (None: any) in their `info`."""
    within = _day_before(until) if until else _last_day(config, source)
    of = (f"kind = {text(kind)}" + (f" AND info['type'] = {text(type_)}" if type_ else "") for kind, type_ in beats)
    found = queries.query(
        f"SELECT source_time FROM t WHERE source = {text(source.name)} AND ({' OR '.join(of)}) "
        f"AND source_time IS NOT NULL AND {within} ORDER BY source_time DESC LIMIT {newest}",
        t=tables.CONTROL_EVENTS.at(stores.lake(config)),
    )
    return sorted(row["source_time"] for row in found or [])


def _last_day(config: Config, source: Source) -> str:
    """Condition on the rows of control_events that were landed in the last day in which there are any: with it older
    files aren't read."""
    newest = queries.newest(tables.CONTROL_EVENTS.at(stores.lake(config)), "landed_at", source)
    return _day_before(newest) if newest else "false"


def _day_before(until: datetime) -> str:
    return f"landed_at >= TIMESTAMP '{until - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}'"


class Heard(NamedTuple):
    """When, by our clock, signs of life of a source were landed, the newest of each sort; None: there was none.

    landed: any record; known: any that is in the changelog; database: one that the database's own log held."""

    landed: datetime | None
    known: datetime | None
    database: datetime | None


def last_heard(config: Config, source: Source, kinds: Iterable[str]) -> Heard:
    """When a source was heard last. kinds: of control events that the database's log holds; row changes count, too."""
    path = tables.CONTROL_EVENTS.at(stores.lake(config))
    of = f"source = {text(source.name)} AND kind IN ({', '.join(map(text, sorted(kinds)))})"
    asked = f"SELECT max(landed_at) AS at FROM t WHERE {of}"
    found = queries.query(f"{asked} AND {_last_day(config, source)}", t=path) or [{"at": None}]
    if found[0]["at"] is None:  # the capture alone was heard for a day
        found = queries.query(asked, t=path) or found
    rows, control = queries.newest_rows(config, source)[1], queries.newest(path, "landed_at", source)
    landed = queries.newest(tables.LANDING.at(stores.lake(config), source=source.name), "landed_at")
    return Heard(landed, _latest(rows, control), _latest(rows, found[0]["at"]))


def _latest(*times: datetime | None) -> datetime | None:
    return max((at for at in times if at is not None), default=None)
