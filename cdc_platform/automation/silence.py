"""How long a source may send nothing until that is a fault: by the configuration, its format or its own heartbeats."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import queries
from cdc_platform.units import duration

_LEAST_S = 120
"""No limit that is derived from heartbeats is shorter."""
_MISSED = 5
"""So many heartbeats in a row may be missed."""
_ENOUGH = 5
"""From so many heartbeats on an interval is derived from them."""


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
    times = queries.heartbeat_times(config, source)
    gaps = [(b - a).total_seconds() for a, b in pairwise(times) if b > a]
    if len(gaps) < _ENOUGH - 1:
        return Limit(None, promised.text)
    usual = median(gaps)
    return Limit(max(_LEAST_S, round(_MISSED * usual)), f"its heartbeats came every {duration(usual)}")
