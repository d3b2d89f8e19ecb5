"""What the benchmark's runs come to: medians, rates and ratios."""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from statistics import median
from typing import Any

from cdc_platform.bench.meter import Reading

RAW, CHAIN, IDLE = "raw copy", "whole chain", "nothing new"
_LOG_STAGES = ("landing", "envelopes", "changes", "changelog")


@dataclass(slots=True)
class Trial:
    """One run of one format: records and bytes in Kafka, a reading per stage, the differences found."""

    format: str
    records: int
    bytes: int
    publish_s: float
    stages: dict[str, Reading] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def whole(readings: Iterable[Reading]) -> Reading:
    """Stretches one after another as one."""
    readings = list(readings)
    return Reading(
        sum(r.seconds for r in readings), sum(r.cpu_s for r in readings), max(r.peak_bytes for r in readings)
    )


def stage_rows(rows: int, trials: list[Trial]) -> list[dict[str, Any]]:
    """One row per stage of one format's trials. events_per_s and mb_per_s go by the median of seconds. An
    event is a row change, a MB 10^6 bytes of keys and values in Kafka."""
    out = []
    for stage in trials[0].stages:
        readings = [t.stages[stage] for t in trials]
        seconds = [r.seconds for r in readings]
        mid = median(seconds)
        # A stage that has nothing to do for this format takes no time, and nothing new is no rows: no rate.
        rated = mid >= 0.01 and stage != IDLE
        out.append(
            {
                "format": trials[0].format,
                "stage": stage,
                "seconds": round(mid, 2),
                "min_s": round(min(seconds), 2),
                "max_s": round(max(seconds), 2),
                "events_per_s": round(rows / mid) if rated else None,
                "mb_per_s": round(trials[0].bytes / 1e6 / mid, 1) if rated else None,
                "cpu_s": round(median(r.cpu_s for r in readings), 1),
                "peak_mb": round(max(r.peak_bytes for r in readings) / 1e6),
            }
        )
    return out


def ratios(trials: list[Trial]) -> dict[str, Any]:
    """raw_to_log: seconds of the raw copy ÷ those of landing to changelog (1 would be the limit);
    chain_to_raw: seconds of the whole chain ÷ those of the raw copy. Medians over the trials."""
    raw = [t.stages[RAW].seconds for t in trials]
    log = [sum(t.stages[stage].seconds for stage in _LOG_STAGES) for t in trials]
    chain = [t.stages[CHAIN].seconds for t in trials]
    return {
        "format": trials[0].format,
        "records": trials[0].records,
        "mb": round(trials[0].bytes / 1e6, 1),
        "raw_to_log": round(median(r / x for r, x in zip(raw, log, strict=True)), 3),
        "chain_to_raw": round(median(c / r for c, r in zip(chain, raw, strict=True)), 2),
        "publish_s": round(median(t.publish_s for t in trials), 2),
    }


def machine(master: str) -> dict[str, Any]:
    """Where the figures come from."""
    import psutil

    from cdc_platform.setup.java import find_java

    return {
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_1m": round(os.getloadavg()[0], 1),
        "spark_master": master,
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": find_java().version,
        **{name: version(name) for name in ("pyspark", "delta-spark", "pyarrow")},
    }
