"""What a stage reports of a catch-up."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one catch-up of one stage of one source did.

    rows: rows written to the stage's main table; batches: micro-batches run; seconds: wall time;
    metrics: further figures by name (numbers only: they are charted); tables: for snapshots, figures per "db.table".
    """

    stage: str
    source: str
    rows: int
    batches: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    tables: dict[str, dict[str, float | str]] = field(default_factory=dict)


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._start, 3)
