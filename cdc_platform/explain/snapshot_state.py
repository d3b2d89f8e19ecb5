"""Whether a table's snapshot is kept up to its changes, and if it isn't, why not."""

from dataclasses import dataclass

from cdc_platform.config import Config
from cdc_platform.explain.reason import Reason
from cdc_platform.explain.table import Table
from cdc_platform.lake import stores
from cdc_platform.reading.catalog import TableName, states

_STATES = {
    "stopped": ("stopped", "the table is stopped"),
    "dropped": ("dropped", "the table is gone at the source"),
    "left_out": ("left out", "the rules left the table out"),
    "stale": ("not applied", "the snapshot is made anew by the next run"),
}
BEHIND = frozenset({"stopped", "left_out", "stale"})
"""The snapshot may have other rows than its changes come to; of a table that was dropped no more come."""


@dataclass(frozen=True, slots=True)
class NotKept:
    """name: stopped, dropped, left_out or stale; why: as it was recorded."""

    name: str
    why: str | None

    def reason(self, *, sure: bool) -> Reason:
        """As a reason why a row isn't as it should be."""
        kind, what = _STATES[self.name]
        return Reason(kind, f"{what}: {self.why or 'no reason is noted'}", sure=sure)


def of(config: Config, table: Table) -> NotKept | None:
    """The state of a table's snapshot now; None: it is kept up, or there is none."""
    source = table.source.name
    found = states(stores.lake(config), source).get(TableName.of(source, table.snapshot))
    return NotKept(found.state, found.reason) if found is not None and found.state in _STATES else None
