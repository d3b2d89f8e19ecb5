"""DDL statements that came a second time, where no position says so: after a restart a capture sends them once more,
with the rows around them. Read as new ones they would fail ("column v doesn't exist"), or move tables once more."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_platform.mysql.ddl import GAP, Statement, named_tables
from cdc_platform.mysql.effects import Effect

_MAKES = re.compile(rf"({GAP}*+CREATE{GAP}++)TABLE\b{GAP}*+(?!IF\b)", re.IGNORECASE | re.DOTALL)
_CHANGES = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?(?:ALTER|RENAME)\b", re.IGNORECASE | re.DOTALL)
_AGAIN = (
    "a statement that renames tables came a second time, as after a restart: which rows before it are of which table "
    "isn't told"
)


def repeats(rows: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Statements in order that came before in their partition, with the same text and time (and GTID, where one is
    told) and without position: number → that of the time before. rows: as schema.schema_history takes them."""
    last: dict[Any, int] = {}
    found: dict[int, int] = {}
    for at, row in enumerate(rows):
        when = row.get("gtid"), row.get("source_time")
        if row["order"][1] >= 0 or when == (None, None):
            continue
        same = (*row["address"][:2], row["db"], row["ddl"], *when)
        if same in last:
            found[at] = last[same]
        last[same] = at
    return found


def readable(statements: Sequence[Statement], again: Mapping[int, int]) -> tuple[list[Statement], dict[int, int]]:
    """The statements as the parsers are to read them, and those of `again` that they aren't to read (`settled` tells
    what these do). A table that is made again begins anew, and what follows it in the replay is read as the first
    time."""
    out, skipped = list(statements), {}
    for at, before in again.items():
        statement = statements[at]
        if (found := _MAKES.match(statement.sql)) is not None:
            rest = statement.sql[found.end(1) :]
            out[at] = statement._replace(sql=f"{found[1]}OR REPLACE {rest}")
        elif _CHANGES.match(statement.sql) is not None:
            made = {n for s in statements[before + 1 : at] if _MAKES.match(s.sql) for n in _named(s)}
            needs = _needed(statement)
            if not needs or not needs <= made:
                out[at], skipped[at] = statement._replace(sql=""), before
    return out, skipped


def _named(statement: Statement) -> list[tuple[str, str]]:
    return [(db.lower(), table.lower()) for db, table in named_tables(statement)]


def _needed(statement: Statement) -> set[tuple[str, str]]:
    """The tables that an ALTER or RENAME takes for granted: not those that it makes on the way, as a swap does."""
    named = _named(statement)
    return {old for i, old in enumerate(named[::2]) if old not in named[1 : 2 * i : 2]}


def all_effects(effects: Sequence[Effect], skipped: Mapping[int, int]) -> list[Effect]:
    """Effects of all statements, in order. Changes of columns are the same again: rows that were sent again before the
    statement have the columns of that time, and those after it come again, too. Where tables moved, nothing tells the
    two apart."""
    of: dict[int, list[Effect]] = {}
    for effect in effects:
        of.setdefault(effect.at, []).append(effect)
    for at, before in sorted(skipped.items()):
        of[at] = _again(of.get(before, []), at)
    return [effect for _, found in sorted(of.items()) for effect in found]


def _again(effects: Sequence[Effect], at: int) -> list[Effect]:
    if all(e.before == e.after for e in effects):
        return [replace(e, at=at, cascades=(), kept_no_more=()) for e in effects]
    names = dict.fromkeys(n for e in effects for n in (e.before, e.after) if n is not None)
    return [Effect(at, name, name, unknown=_AGAIN) for name in names]
