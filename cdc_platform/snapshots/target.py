"""Where a source table is kept: its snapshot and, beside it, its tombstones."""

from dataclasses import dataclass

from cdc_platform.config import Config
from cdc_platform.lake import folders, stores
from cdc_platform.lake.store import Store
from cdc_platform.tables import Name, as_name

LOST = "its Delta table isn't in the lake any more"
"""Why a table is stopped that was kept before: its changes alone don't make its rows."""


class Stale(Exception):
    """The table can't be brought up to date from this batch alone: it is to be made anew from the changelog."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a source table is kept. There are no tombstones before the first delete or TRUNCATE. for_any: the snapshot
    is kept to what every Delta reader can (features.py)."""

    source: str
    name: Name
    snapshot: Store
    tombstones: Store
    for_any: bool = False
    around: Store | None = None  # where a table would be whose folder this one's is in: one called as its schema
    instead_of: "Target | None" = None  # the one whose place it is to take

    @staticmethod
    def of(config: Config, source: str, *name: str) -> "Target":
        table = as_name(*name)
        lake = stores.lake(config)
        for_any = config.source(source).tables.for_any_reader(*table)
        around = folders.snapshot(lake, source, (table[0], table[1])) if len(table) == 3 else None
        places = folders.snapshot(lake, source, table), folders.tombstones(lake, source, table)
        return Target(source, table, *places, for_any, around)
