"""How long a source may send nothing until that is a fault: by the configuration, its format or its own heartbeats.

Two missed heartbeats are a fault: a limit is twice their interval, and at least `FLOOR_S`. The sensor that applies it
looks every 15 s.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import ceil

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import Beat
from cdc_platform.lake.heard import heartbeat_times
from cdc_platform.units import duration

MISSED = 2
"""So many intervals may pass without a heartbeat."""
FLOOR_S = 30
"""No limit that is derived from an interval is shorter: producers gather records for seconds, brokers elect leaders."""
_ENOUGH = 5
"""From so many heartbeats on an interval is derived from them."""
_WITHIN = 0.95
"""The interval of heartbeats is what so many of their gaps don't exceed: a median would call each jitter a fault."""
_FRESH_S = 6 * 3600
"""No freshness window that is derived is shorter: within half of it each quiet table is told once more, which for a
thousand of them is eight thousand events a day."""


@dataclass(frozen=True, slots=True)
class Limit:
    """seconds: of silence that are allowed; None: any number. why: a clause for people."""

    seconds: int | None
    why: str


def limit(config: Config, source: Source) -> Limit:
    """How long a source may send nothing: what the configuration says; else by the interval that its format promises,
    or that of the heartbeats that it has sent; else any time."""
    form = FORMATS[source.format]
    if source.heartbeat_timeout_s is not None:
        return Limit(source.heartbeat_timeout_s, "heartbeat_timeout_s")
    if form.liveness.interval_s is not None:
        return Limit(_allowed(form.liveness.interval_s), form.liveness.text)
    measured = _interval(config, source, form.beats)
    if measured is None:
        return Limit(None, form.liveness.text)
    return Limit(_allowed(measured), f"its heartbeats came every {duration(measured)}")


def freshness(config: Config, source: Source) -> int | None:
    """Seconds within which a source's tables should have been brought up to date; None: nothing promises that. By
    default six hours, or twice what the source may be silent, if that is longer: of a
    source that may be silent for any time nobody can tell a quiet table from one that is old."""
    if source.freshness_s is not None:
        return source.freshness_s or None
    silent = limit(config, source).seconds
    return None if silent is None else max(_FRESH_S, 2 * silent)


def database_limit(config: Config, source: Source, last: datetime) -> Limit:
    """How long a source's database may be silent while its capture is heard: what the configuration says; else by
    heartbeats that its own log holds (`Format.log_times`), where it has sent some in the day before it was heard last
    (when that landed); else any time. So one that is dead for long has the limit that it had."""
    if source.database_timeout_s is not None:
        return Limit(source.database_timeout_s, "database_timeout_s")
    form = FORMATS[source.format]
    measured = _interval(config, source, tuple(beat for beat in form.beats if beat.kind in form.log_times), last)
    if measured is None:
        return Limit(None, "its log has no heartbeats")
    return Limit(_allowed(measured), f"the database's heartbeats came every {duration(measured)}")


def _allowed(interval: float) -> int:
    """Seconds without a heartbeat that are no fault yet, by the interval at which they come."""
    return max(FLOOR_S, ceil(MISSED * interval))


def _interval(config: Config, source: Source, beats: tuple[Beat, ...], until: datetime | None = None) -> float | None:
    """Seconds within which events of these kinds follow each other; None: too few have come."""
    times = heartbeat_times(config, source, [(b.kind, b.type) for b in beats], until) if beats else []
    gaps = sorted((b - a).total_seconds() for a, b in pairwise(times) if b > a)
    return gaps[ceil(_WITHIN * len(gaps)) - 1] if len(gaps) >= _ENOUGH - 1 else None
