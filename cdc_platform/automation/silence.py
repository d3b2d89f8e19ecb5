"""How long a source may send nothing until that is a fault: by the configuration, its format or its own heartbeats."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import Beat
from cdc_platform.lake import queries
from cdc_platform.units import duration

_LEAST_S = 120
"""No limit that is derived from heartbeats is shorter."""
_MISSED = 5
"""So many heartbeats in a row may be missed."""
_ENOUGH = 5
"""From so many heartbeats on an interval is derived from them."""


_FRESH_S = 6 * 3600
"""No freshness window that is derived is shorter: within half of it each quiet table is told once more, which for a
thousand of them is eight thousand events a day."""


@dataclass(frozen=True, slots=True)
class Limit:
    """seconds: of silence that are allowed; None: any number. why: a clause for people."""

    seconds: int | None
    why: str


def limit(config: Config, source: Source) -> Limit:
    """How long a source may send nothing: what the configuration says, else what its format promises, else five times
    the usual interval of the heartbeats that it has sent, else any time."""
    promised = FORMATS[source.format].liveness
    if source.heartbeat_timeout_s is not None:
        return Limit(source.heartbeat_timeout_s, "heartbeat_timeout_s")
    if promised.limit_s is not None:
        return Limit(promised.limit_s, promised.text)
    usual = _usual(config, source, FORMATS[source.format].beats)
    if usual is None:
        return Limit(None, promised.text)
    return Limit(max(_LEAST_S, round(_MISSED * usual)), f"its heartbeats came every {duration(usual)}")


def freshness(config: Config, source: Source) -> int | None:
    """Seconds within which a source's tables should have been brought up to date; None: nothing promises that. By
    default six hours, or twice what the source may be silent, if that is longer: of a
    source that may be silent for any time nobody can tell a quiet table from one that is old."""
    if source.freshness_s is not None:
        return source.freshness_s or None
    silent = limit(config, source).seconds
    return None if silent is None else max(_FRESH_S, 2 * silent)


def database_limit(config: Config, source: Source) -> Limit:
    """How long a source's database may be silent while its capture is heard: by heartbeats that its own log holds
    (`Format.log_times`), where it has sent some; else any time."""
    form = FORMATS[source.format]
    usual = _usual(config, source, tuple(beat for beat in form.beats if beat.kind in form.log_times))
    if usual is None:
        return Limit(None, "its log has no heartbeats")
    return Limit(max(_LEAST_S, round(_MISSED * usual)), f"the database's heartbeats came every {duration(usual)}")


def _usual(config: Config, source: Source, beats: tuple[Beat, ...]) -> float | None:
    """Seconds between events of these kinds, usually; None: too few have come."""
    times = queries.heartbeat_times(config, source, [(b.kind, b.type) for b in beats]) if beats else []
    gaps = [(b - a).total_seconds() for a, b in pairwise(times) if b > a]
    return median(gaps) if len(gaps) >= _ENOUGH - 1 else None
