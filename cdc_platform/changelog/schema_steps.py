"""Statements and column lists of a source, as the lake has them → its schema history."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cdc_platform.changelog.loads import NO_LOADS, Loads
from cdc_platform.changelog.repeats import all_effects, readable, repeats
from cdc_platform.changelog.schema import WHICH_MOVED, Order, SchemaHistory, Step
from cdc_platform.changelog.sessions import in_sessions
from cdc_platform.formats.table_schemas.table_changes import create_table
from cdc_platform.mysql.ddl import (
    Statement,
    dropped_database,
    one_by_one,
    tables_there_before,
    truncated_table,
)
from cdc_platform.mysql.effects import Effect, effects
from cdc_platform.mysql.effects import Name as MySqlName
from cdc_platform.mysql.readable import with_backticks
from cdc_platform.mysql.table_names import folded, folds, spelled_otherwise
from cdc_platform.tables import Name, name_of

_SPELLED = (
    "statements name {}, which no row does: option lower_case_table_names: 1 makes them count for this table, 0 says "
    "that it is another one"
)

Effects = Callable[[Sequence[Statement], bool], list[Effect]]


def schema_history(
    rows: Iterable[dict[str, Any]], read: Effects = effects, *, fold: bool | None = False, loads: Loads = NO_LOADS
) -> SchemaHistory:
    """schema_history's rows of one source (kind, db, table, columns, ddl, order_key as a tuple under `order`, and their
    address, GTID and source time) → SchemaHistory. A statement sent twice from one place counts once; without a place
    see `repeats`. `read`: who reads the statements.
    `fold`: whether names of tables that differ by case are one table's; None: as the feed shows. `loads`: what
    snapshots that were taken again do."""
    rows = list(rows)
    lists = [(name_of(r), r["order"], r["columns"]) for r in rows if r["kind"] == "message"]
    told: dict[Any, dict[str, Any]] = {}
    for r in sorted((r for r in rows if r["kind"] == "ddl" and r["ddl"]), key=lambda r: (r["order"], r["address"])):
        same = (r["order"][:3], r["db"], r["ddl"]) if r["order"][1] >= 0 else r["address"]
        told.setdefault(same, r)
    ordered = [{**r, "ddl": sql} for r in told.values() for sql in one_by_one(Statement(r["db"], r["ddl"]))]
    told_from = [(order, name) for name, order, _ in lists if len(name) == 2]
    as_told = [Statement(r["db"], with_backticks(r["ddl"])) for r in ordered]
    sent, doubts = in_sessions(as_told, [r["order"] for r in ordered], told_from)
    bare, skipped = readable(sent, repeats(ordered))
    mysql = [(name, order, text) for name, order, text in lists if len(name) == 2]  # of these statements tell
    said = dict(loads.said)
    if fold is None and not (fold := folds(bare, {name for name, _, _ in mysql})):
        for name, other in spelled_otherwise(bare, {name for name, _, _ in mysql}).items():
            said[name] = [*said.get(name, ()), _SPELLED.format(".".join(other))]
    spelled = {folded(name): name for name, _, _ in mysql}
    stored = spelled if fold else {}
    lists_read = [(folded(name), order, text) for name, order, text in mysql] if fold else mysql
    statements = [s._replace(known=_known(s, r["order"], lists_read, fold)) for s, r in zip(bare, ordered, strict=True)]
    steps = [
        Step(ordered[e.at]["order"], ordered[e.at]["address"], ordered[e.at]["ddl"], _spelled(e, stored))
        for e in all_effects(read(statements, fold) if statements else (), skipped)
    ]
    doubtful = [
        Step(r["order"], r["address"], r["ddl"], Effect(at, name, name, unknown=WHICH_MOVED))
        for at, names in doubts.items()
        for r, name in ((ordered[at], spelled.get(n, n)) for n in names)
    ]
    if more := [*doubtful, *loads.replaced]:
        steps = sorted([*steps, *more], key=lambda s: s.order)
    return SchemaHistory(steps, lists, _aliases(bare, stored), said)


def _spelled(effect: Effect, stored: dict[MySqlName, MySqlName]) -> Effect:
    """An effect with the names that rows have; `stored`: those by name in lower case."""
    before, after = (name and stored.get(name, name) for name in (effect.before, effect.after))
    return replace(effect, before=before, after=after)


def _aliases(statements: Iterable[Statement], stored: dict[MySqlName, MySqlName]) -> dict[Name, Name]:
    """What a TRUNCATE calls a table → what its rows call it, where that differs."""
    found: dict[Name, Name] = {}
    for statement in statements if stored else ():
        with suppress(ValueError):  # one that doesn't say which table it empties
            name = truncated_table(statement)
            if name is not None and (rows := stored.get(folded(name), name)) != name:
                found[name] = rows
    return found


def _known(
    statement: Statement, at: Order, lists: list[tuple[MySqlName, Order, str]], fold: bool
) -> tuple[tuple[str, str, str], ...]:
    """The tables that a statement is about, as messages told them before it; what it makes wasn't there. `fold`: the
    names in `lists` are in lower case."""
    database = dropped_database(statement)
    wanted = database.lower() if fold and database is not None else database
    of_database = {name for name, order, _ in lists if name[0] == wanted and order < at}
    found = []
    named = sorted(of_database) if database is not None else tables_there_before(statement)
    for db, table in map(folded, named) if fold else named:
        before = [(order, columns) for name, order, columns in lists if name == (db, table) and order < at]
        if before:
            found.append((db, table, create_table(table, json.loads(max(before)[1]))))
    return tuple(found)
