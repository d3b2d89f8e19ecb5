"""Which of today's snapshots a message may be of that names a table as it was called then, and what became of a table
that was in the lake at a time, without Spark."""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.config.tables import origin_of
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


@dataclass(frozen=True, slots=True)
class Statements:
    """What statements did to tables, by when the snapshots followed them. rows: of SCHEMA_CHANGES, in order."""

    rows: list[dict[str, Any]]

    @classmethod
    def of(cls, config: Config, source: Source) -> "Statements":
        """Those of a source that were decided."""
        rows = queries.query(
            "SELECT db_before, table_before, db_after, table_after, decision, reason, ddl, order_key, at FROM t "
            f"WHERE source = {queries.text(source.name)} AND order_key IS NOT NULL AND at IS NOT NULL "
            "AND (table_before IS NOT NULL OR table_after IS NOT NULL) ORDER BY order_key",
            t=SCHEMA_CHANGES.at(stores.lake(config)),
        )
        return cls(rows or [])

    def today(self, name: Name, then: datetime) -> Name | None:
        """What a table is called now that had a name in the lake at a time; None: it is there no more."""
        now: Name = origin_of(name)
        for _, together in groupby(self._since(then), key=lambda r: (r["order_key"], r["ddl"])):
            statement = list(together)  # all effects of one happen at once: tables may swap names
            moved = [_after(r) for r in statement if _before(r) == now]
            taken = any(_after(r) == now and _before(r) not in (None, now) for r in statement)
            if moved or taken:  # a server moves a table onto a free name only
                following = moved[0] if moved else None
                if following is None:
                    return None
                now = following
        return name if now == origin_of(name) else now

    def reserve(self, name: Name, then: datetime) -> str | None:
        """What isn't told of rows of a table that a statement since then changed, by its name of today."""
        told = [r["reason"] for r in self._since(then) if _after(r) == origin_of(name) and r["decision"] != "no effect"]
        return next((reason for reason in told if reason), None)

    def _since(self, then: datetime) -> list[dict[str, Any]]:
        return [r for r in self.rows if r["at"] > then]


def _before(row: Mapping[str, Any]) -> Name | None:
    return None if row["table_before"] is None else (row["db_before"], row["table_before"])


def _after(row: Mapping[str, Any]) -> Name | None:
    return None if row["table_after"] is None else (row["db_after"], row["table_after"])
