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
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Carry, Order, Step
from cdc_platform.config import Config, Source
from cdc_platform.errors import UnknownType
from cdc_platform.lake import delta_table, stores
from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.defaults import instead_of_null
from cdc_platform.mysql.effects import Effect, effects, to_json
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.schema import features
from cdc_platform.snapshots.schema.columns import ORDER_FIELDS, TableColumn, order_literal, order_sql
from cdc_platform.snapshots.schema.conversions import same_values
from cdc_platform.snapshots.schema.seen import address_of, digest_of, kept_effects, seen
from cdc_platform.snapshots.schema.shapes import ADDRESS
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta, quoted
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

    spans: dict[Name, list[Carry]]
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

    def until(self, place: Order) -> "History":
        """As it was at a place, by what is known now."""
        then = copy(self)
        then.full = self.full.until(place)
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
        every = {n: self.full.carries(n) for n in self.full.names}
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
    before, after = (_two(name) if name else (None, None) for name in (step.effect.before, step.effect.after))
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


def _two(name: Name) -> tuple[str, str]:
    """Database (and schema) and table."""
    return ".".join(name[:-1]), name[-1]


# -- in place ----------------------------------------------------------------------------------------------


def in_place(steps: Iterable[Step], names: Iterable[Name]) -> bool:
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


def alter(spark: SparkSession, target: Target, steps: Iterable[Step]) -> bool:
    """Brings a snapshot's columns up to date without rewriting what is there. False: it must be built anew, as one of
    a table without a key: the digests beside it are of whole rows."""
    have = [f.name for f in delta_sql.read(spark, target.snapshot).schema.fields]
    if ADDRESS in have:
        return False
    table = f"ALTER TABLE {delta(target.snapshot)}"
    for step in steps:
        effect = step.effect
        if (moves := _moves(have, effect)) is None:
            return False
        _rename_and_drop(spark, target, have, moves)
        have = [n for n in moves.names if n not in moves.dropped]
        for added in effect.added:
            column = TableColumn(added.name, parse_type(added.type), False)
            if _find(have, added.name) is None:
                before = [c.name for c in effect.columns[: _place(effect, added.name)]]
                previous = next((n for b in reversed(before) if (n := _find(have, b))), None)
                features.allow_names(spark, target.snapshot, [added.name])
                delta_sql.add_column(spark, target.snapshot, added.name, column.spark, previous, column.comment)
                have.insert(have.index(previous) + 1 if previous else 0, added.name)
            if added.fill is not None:
                _fill(spark, target, column, added.fill, step.order)
        if not _fill_nulls(spark, target, effect, step.order):
            return False
        _reorder(spark, table, have, effect)
    return True


class _Moves(NamedTuple):
    """What a statement's renames and drops do to columns, one after the other. names: of each column afterwards, before
    drops."""

    renamed: list[tuple[str, str]]
    dropped: list[str]
    names: list[str]


def _moves(have: list[str], effect: Effect) -> _Moves | None:
    """None: a name is taken, or isn't there. What is done already is left out."""
    renamed, names = [], list(have)
    for old, new in effect.renamed.items():
        there, taken = _find(names, old), _find(names, new)
        if there is None and taken is not None:
            continue
        if there is None or taken is not None:
            return None
        renamed.append((there, new))
        names[names.index(there)] = new
    return _Moves(renamed, [there for old in effect.dropped if (there := _find(names, old)) is not None], names)


def _rename_and_drop(spark: SparkSession, target: Target, have: list[str], moves: _Moves) -> None:
    """Does that to a snapshot: by column mapping, or by rewriting it in one commit."""
    if not (moves.renamed or moves.dropped):
        return
    path = target.snapshot
    if target.for_any:
        features.remove(spark, path)
        features.allow_names(spark, path, [new for _, new in moves.renamed])
        if not features.Features.of(path).mapped:
            columns = ((old, new) for old, new in zip(have, moves.names, strict=True) if new not in moves.dropped)
            rows = delta_sql.read(spark, path).select(*(F.col(quoted(old)).alias(new) for old, new in columns))
            rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path.spark_uri())
            return
    features.map_columns(spark, path)
    for old, new in moves.renamed:
        spark.sql(f"ALTER TABLE {delta(path)} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
    for old in moves.dropped:
        spark.sql(f"ALTER TABLE {delta(path)} DROP COLUMN {quoted(old)}")


def _reorder(spark: SparkSession, table: str, have: list[str], effect: Effect) -> None:
    """The source's order of columns; `have` is kept up."""
    previous: str | None = None
    for name in (n for c in effect.columns if (n := _find(have, c.name)) is not None):
        place = have.index(previous) + 1 if previous else 0
        if have[place] != name:
            spark.sql(f"{table} ALTER COLUMN {quoted(name)} " + (f"AFTER {quoted(previous)}" if previous else "FIRST"))
            have.remove(name)
            have.insert(have.index(previous) + 1 if previous else 0, name)
        previous = name


def _fill(
    spark: SparkSession, target: Target, column: TableColumn, fill: str, order: Order, *, only_null: bool = False
) -> None:
    """The default of a new column in rows that were there before it; only_null: where they hold nothing in it."""
    value = spark.range(1).select(column.value(F.lit(fill)).alias("v"))
    view = f"cdc_fill_{abs(hash((target.snapshot.uri(), column.name)))}"
    value.createOrReplaceTempView(view)
    try:
        null = f" AND t.{quoted(column.name)} IS NULL" if only_null else ""
        at = order_sql(dict(zip(ORDER_FIELDS, order, strict=True)))
        spark.sql(
            f"MERGE INTO {delta(target.snapshot)} AS t USING {view} AS s ON t._cdc_order < {at}{null} "
            f"WHEN MATCHED THEN UPDATE SET {quoted(column.name)} = s.v"
        )
    finally:
        spark.catalog.dropTempView(view)


def _fill_nulls(spark: SparkSession, target: Target, effect: Effect, order: Order) -> bool:
    """What rows hold that held NULL in columns which are NOT NULL since. False: it isn't told."""
    for name, types in effect.retyped.items():
        type_ = parse_type(types.after)
        if not types.filled or type_.family in ("date", "datetime"):  # zero dates are NULL here
            continue
        held = delta_sql.read(spark, target.snapshot).where(F.col(quoted(name)).isNull())
        if held.where(F.col("_cdc_order") < order_literal(dict(zip(ORDER_FIELDS, order, strict=True)))).isEmpty():
            continue
        text = instead_of_null(type_)
        if text is None:
            return False
        _fill(spark, target, TableColumn(name, type_, False), text, order, only_null=True)
    return True


def _place(effect: Effect, name: str) -> int:
    return next((i for i, c in enumerate(effect.columns) if c.name.lower() == name.lower()), len(effect.columns))


def _find(have: list[str], name: str) -> str | None:
    return next((h for h in have if h.lower() == name.lower()), None)
