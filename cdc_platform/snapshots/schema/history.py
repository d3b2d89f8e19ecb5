"""DDL of the source → the snapshots' shape: in place where that rewrites nothing, else built anew from the changelog.

Each statement is decided once and its decision kept in `schema_changes`. Doing one again after a crash changes
nothing: what is there already is left alone.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from cdc_platform.changelog.schema import Came, Order, Step, Upcast
from cdc_platform.config import Config, Source
from cdc_platform.config.tables import origin_of
from cdc_platform.errors import UnknownType
from cdc_platform.lake import delta_table, stores
from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.effects import Effect, effects, to_json
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.schema.conversions import same_values
from cdc_platform.snapshots.schema.seen import address_of, digest_of, kept_effects, seen
from cdc_platform.spark import delta_sql
from cdc_platform.tables import SCHEMA_CHANGES, SCHEMA_EFFECTS, Name


class Decision(NamedTuple):
    """What was done about one effect of a statement."""

    step: Step
    decision: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of rows that are older than DDL, as plain data: Spark Connect sends it to its server. `spans`: of
    names whose rows aren't simply today's; `columns`: of today's tables concerned; `merged`: per snapshot of several
    tables, their column lists."""

    spans: dict[Name, list[Upcast]]
    columns: dict[Name, str | None]
    merged: dict[Name, dict[Name, str]]

    def old(self, name: Name, low: Order) -> bool:
        """Whether rows of a name from this place on are to be carried."""
        carries = self.spans.get(name, ())
        always = bool(carries) and carries[-1].today not in (name, None)  # another name of a table
        return always or any(c.until is not None and low < c.until for c in carries)


class History:
    """The source's schema history as it stands at the start of a run."""

    def __init__(self, spark: SparkSession, config: Config, source: Source):
        self.spark, self.source = spark, source
        self.changes = delta_sql.ensure(SCHEMA_CHANGES, SCHEMA_CHANGES.at(stores.lake(config)))
        found = seen(config, source, partial(_effects, config, source))
        self.full, self._ddl, self._placed, self._outside = found.full, found.ddl, found.placed, found.outside
        done = delta_table.ask(
            f'SELECT topic, "partition", "offset", entry_index FROM {{changes}} WHERE source = \'{source.name}\'',
            changes=self.changes,
        )
        self.decided = set(map(address_of, done))

    def until(self, place: Order, came: Came | None = None) -> "History":
        """As it was at a place, by what is known now (SchemaHistory.until)."""
        then = copy(self)
        then.full = self.full.until(place, came)
        return then

    @property
    def statements(self) -> list[dict[str, Any]]:
        """SCHEMA_HISTORY rows of all DDL, with `order` and `address`."""
        return self._ddl

    @property
    def any_ddl(self) -> bool:
        """Whether any statement was ever seen."""
        return bool(self._ddl)

    def plan(self) -> Plan:
        """What batches need."""
        every = {n: self.full.upcasts(n) for n in self.full.names}
        spans = {n: cs for n, cs in every.items() if any(not c.nothing or c.today != n for c in cs)}
        today = {c.today for carries in spans.values() for c in carries if c.today is not None}
        targets = {self.source.tables.routed(*n) for n in self._names if self.source.tables.routes}
        lists = {t: self.lists(t) for t in targets if self.source.tables.merged(*t)}
        return Plan(spans, {n: self.full.columns(n) for n in today}, lists)

    @property
    def _names(self) -> set[Name]:
        return {*self.full.names, *self.full.listed}

    def members(self, snapshot: Name) -> list[Name]:
        """Tables that are kept in a snapshot of this name, or were: itself, or those that routes lead there."""
        tables = self.source.tables
        if not tables.merged(*snapshot):
            return [snapshot]
        return sorted(n for n in self._names if tables.routed(*n) == snapshot and tables.wanted(*n))

    def untold_rows(self, name: Name) -> list[str]:
        """What DDL and foreign keys do to rows of a table of which no message tells. A foreign key holds whatever the
        place of the statement that tells it."""
        return self.full.untold_rows(name, self._outside)

    def lists(self, snapshot: Name) -> dict[Name, str]:
        """Column lists of the tables of a merged snapshot that exist."""
        there = ((n, self.full.columns(n)) for n in self.members(snapshot) if self.full.exists(n))
        return {n: columns for n, columns in there if columns}

    def undecided(self) -> list[dict[str, Any]]:
        """DDL rows that no run has looked at."""
        return [r for r in self._ddl if r["address"] not in self.decided]

    def undecided_steps(self, *names: Name) -> list[Step]:
        """What they do to the tables that have these names today, or had them until now."""
        new = {r["address"] for r in self.undecided()}
        held = {*names, *(before for n in names for before in self.full.names_of(n))}
        return [
            s
            for s in self.full.steps
            if s.address in new and not s.effect.nothing and ({s.effect.before, s.effect.after} & held)
        ]

    def keep(self, decisions: Iterable[Decision]) -> None:
        """Writes what was decided of the new statements; one without effect is kept, too."""
        decisions = list(decisions)
        told = {d.step.address for d in decisions}
        for r in self.undecided():
            if r["address"] not in told:
                placed = r["address"] in self._placed
                why = None if placed else "its order among the rows isn't told; columns follow the messages"
                step = Step(r["order"], r["address"], r["ddl"], Effect(0, None, None))
                decisions.append(Decision(step, "no effect" if placed else "not placed", why))
        rows = [_row(self.source, d.step, d.decision, d.reason) for d in decisions]
        delta_table.append_rows(self.changes, rows)
        self.decided |= {d.step.address for d in decisions}


def _effects(config: Config, source: Source, statements: Sequence[Statement], fold: bool) -> list[Effect]:
    """Effects of the statements; the parsers, which take a JVM, are asked once."""
    path = delta_sql.ensure(SCHEMA_EFFECTS, SCHEMA_EFFECTS.at(stores.lake(config)))
    digest = digest_of(statements, fold)
    if (kept := kept_effects(config, source, digest)) is not None:
        return kept
    made = effects(statements, fold)
    delta_table.append_rows(path, [{"source": source.name, "digest": digest, "effects": to_json(made)}])
    return made


def _row(source: Source, step: Step, decision: str, reason: str | None) -> dict[str, Any]:
    before, after = (origin_of(name) if name else (None, None) for name in (step.effect.before, step.effect.after))
    epoch, file, pos, *rest = step.order
    return {
        "source": source.name,
        **dict(zip(("topic", "partition", "offset", "entry_index"), step.address, strict=True)),
        "ddl": step.ddl,
        **dict(zip(("db_before", "table_before"), before, strict=True)),
        **dict(zip(("db_after", "table_after"), after, strict=True)),
        "decision": decision,
        "reason": reason,
        "order_key": (epoch, file, Decimal(pos), *rest),
    }


# -- in place ----------------------------------------------------------------------------------------------


def changes_only_columns(steps: Iterable[Step], names: Iterable[Name]) -> bool:
    """Whether the steps change the columns of these tables only, and no value that they hold."""
    of = set(names)
    return all(
        s.effect.before == s.effect.after
        and s.effect.before in of
        and s.effect.unknown is None
        and s.effect.key is None
        and all(same_values(t) for t in s.effect.retyped.values())
        and all(_known_type(a.type) for a in s.effect.added)
        for s in steps
    )


def _known_type(text: str) -> bool:
    try:
        parse_type(text)
    except UnknownType:
        return False
    return True
