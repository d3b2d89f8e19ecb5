"""What a stage reports of a catch-up."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one catch-up of one room of one source did.

    rows: rows written to the room's main table; batches: micro-batches run; seconds: wall time;
    metrics: further figures by name (numbers only: they are charted); tables: for snapshots, figures per "db.table".
    """

    room: str
    source: str
    rows: int
    batches: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    tables: dict[str, dict[str, float | str]] = field(default_factory=dict)
