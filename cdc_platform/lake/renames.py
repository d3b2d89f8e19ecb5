"""Which of today's snapshots a message may be of that names a table as it was called then, without Spark."""

from collections.abc import Collection, Mapping, Set

from cdc_platform.config import Config, Source
from cdc_platform.lake import queries, stores
from cdc_platform.tables import SCHEMA_CHANGES, Name

Renames = Mapping[Name, Set[Name]]
"""Name → every other one that a statement gave a table of that name."""


def renames(config: Config, source: Source) -> Renames:
    """Those of all statements of a source that were decided."""
    rows = queries.query(
        "SELECT DISTINCT db_before, table_before, db_after, table_after FROM t "
        f"WHERE source = {queries.text(source.name)} AND table_before IS NOT NULL AND table_after IS NOT NULL "
        "AND (db_before <> db_after OR table_before <> table_after)",
        t=SCHEMA_CHANGES.at(stores.lake(config)),
    )
    found: dict[Name, set[Name]] = {}
    for r in rows or []:
        found.setdefault((r["db_before"], r["table_before"]), set()).add((r["db_after"], r["table_after"]))
    return found


def snapshots_of(source: Source, name: Name, renamed: Renames, there: Collection[Name]) -> set[Name]:
    """Of some snapshots those that a message may be of: that of the table that it names, and of all that had this name
    before. A name may have meant several tables, and of a message that wasn't decoded nobody knows which of them."""
    names, new = set[Name](), {name}
    while new:
        names |= new
        new = {after for before in new for after in renamed.get(before, ())} - names
    return {s for n in names if source.tables.wanted(*n) and (s := source.tables.routed(*n)) in there}
