"""Snapshots as the platform writes them, one for each thing that a reader may read wrongly: vectors, names, types,
statistics, checkpoints, what others did to them in between."""

from tests.reading.written import changes, upkeep, values
from tests.reading.written.case import CASES, Case

__all__ = ["CASES", "Case", "changes", "upkeep", "values"]
