"""What DDL statements do to tables that hold rows: where their rows go on, what becomes of their columns.

`ddl.history` tells the columns before and after each statement; here is the way between the two. TRUNCATE isn't
among them: every format tells it as a change of its own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cdc_platform.errors import UnknownType
from cdc_platform.mysql import ddl, defaults, foreign_keys
from cdc_platform.mysql.charsets import may_lack
from cdc_platform.mysql.ddl import GAP, Change, Column, Statement, named_tables, plain_name
from cdc_platform.mysql.readable import with_backticks
from cdc_platform.mysql.said import Said
from cdc_platform.mysql.tokens import says, tokens
from cdc_platform.mysql.types import parse_type

Name = tuple[str, str]
"""(database, table)."""


VERSION = 9
"""To be raised where statements are read otherwise than before: what is kept of them is read anew then."""


class Added(NamedTuple):
    """A new column. `fill`: the text that rows have in it that were there before (None: NULL); `told` False: the feed
    doesn't say it (a function of the moment or of other columns, a literal that isn't plainly one value)."""

    name: str
    type: str
    fill: str | None
    told: bool


class Retyped(NamedTuple):
    """A column's type before and after. `filled`: from then on it can't be NULL. Rows that held NULL have another value
    since, where the server isn't strict (or, of a TIMESTAMP, in any case). `charset`: its character set since, if that
    may lack characters that texts have."""

    before: str
    after: str
    filled: bool = False
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What statement `at` does to one table. `before`, `after`: its name; None: it begins or ends here. Rows of
    `before` go on in `after`. `unknown`: why what it does isn't known. `rows`: that rows go or come with it, of which
    no message tells. `cascades`: foreign keys that it makes and by which the server will change the table's rows
    without a message (name, what it says); `kept_no_more`: names of constraints that it drops, in lower case."""

    at: int
    before: Name | None
    after: Name | None
    renamed: dict[str, str] = field(default_factory=dict)  # old column → new
    dropped: tuple[str, ...] = ()
    added: tuple[Added, ...] = ()
    retyped: dict[str, Retyped] = field(default_factory=dict)  # by new name
    reordered: bool = False  # columns that stay have changed places
    columns: tuple[Column, ...] = ()  # as they are afterwards
    key: tuple[str, ...] | None = None  # its key's columns in the table's order, where that changed
    unknown: str | None = None
    rows: str | None = None
    cascades: tuple[tuple[str, str], ...] = ()
    kept_no_more: tuple[str, ...] = ()

    @property
    def same_columns(self) -> bool:
        """Whether the table stays what it is, but for its rows."""
        columns = self.renamed or self.dropped or self.added or self.retyped or self.reordered or self.key is not None
        return self.before == self.after and not columns and not self.unknown

    @property
    def nothing(self) -> bool:
        """Whether neither rows nor columns change (an index, a comment)."""
        return self.same_columns and not self.rows


def to_json(found: Sequence[Effect]) -> str:
    """Effects as text; `from_json` reads it."""
    return json.dumps([asdict(e) for e in found])


def from_json(text: str) -> list[Effect]:
    """What `to_json` wrote."""
    return [_effect(**e) for e in json.loads(text)]


def _effect(**said: Any) -> Effect:
    said |= {n: said[n] and tuple(said[n]) for n in ("before", "after", "key")}
    said |= {"dropped": tuple(said["dropped"]), "added": tuple(Added(*a) for a in said["added"])}
    said |= {"cascades": tuple((n, what) for n, what in said["cascades"]), "kept_no_more": tuple(said["kept_no_more"])}
    said["retyped"] = {n: Retyped(*types) for n, types in said["retyped"].items()}
    return Effect(**{**said, "columns": tuple(Column(**c) for c in said["columns"])})


def effects(statements: Sequence[Statement], fold: bool = False) -> list[Effect]:
    """Effects of the statements, in order, applied one after the other to an empty server."""
    statements = [s._replace(sql=with_backticks(s.sql)) for s in statements]
    by_statement: dict[int, dict[Name, Change]] = {}
    for change in ddl.history(tuple(statements), fold):
        by_statement.setdefault(change.at, {})[change.db, change.table] = change
    found = [e for at, changes in by_statement.items() for e in _of(statements[at], changes, fold)]
    return sorted(found, key=lambda e: (e.at, e.after is not None, e.before or ("", ""), e.after or ("", "")))


def _of(statement: Statement, changes: dict[Name, Change], fold: bool) -> Iterator[Effect]:
    moved = dict(_renames(statement, changes, fold))
    came = set(moved.values())
    for name, change in changes.items():
        after = moved.get(name)
        if after is not None and (there := changes.get(after)) is not None:
            yield _altered(statement, name, after, change.before, there)
        elif name in came:
            if change.before is not None and name not in moved and not change.gone:
                yield Effect(change.at, name, None)  # what stood there is gone; the server allows it after a DROP only
        elif change.gone:
            if change.before is not None or not _says(statement, "RENAME"):  # a name in passing, in a swap
                yield Effect(change.at, name, None)
        elif change.columns is None:
            yield Effect(change.at, name, name, unknown=change.reason, cascades=_cascades(statement.sql))
        elif change.before is None or (_says(statement, "CREATE") and named_tables(statement)):
            if change.before is not None:
                yield Effect(change.at, name, None)
            yield Effect(change.at, None, name, columns=change.columns, cascades=_cascades(statement.sql))
        else:
            yield _altered(statement, name, name, change.before, change)
    if (found := _exchanged_with(statement)) is not None:
        yield Effect(next(iter(changes.values())).at, found, found, rows=_rows(statement.sql))


def _exchanged_with(statement: Statement) -> Name | None:
    """The table whose rows a partition takes, and the other way round."""
    if not says(statement.sql, "EXCHANGE", "PARTITION"):
        return None
    found = tokens(statement.sql)
    for at, words in enumerate(zip(found, found[1:], found[2:], strict=False)):
        if [t.text.upper() for t in words[:2]] == ["WITH", "TABLE"]:
            first, *rest = (plain_name(t.text) for t in found[at + 2 : at + 5 : 2])
            qualified = [t.text for t in found[at + 3 : at + 4]] == ["."]
            return (first, rest[0]) if qualified and rest else (statement.db or "", first)
    return None


_UNTOLD_ROWS = {
    ("DROP", "PARTITION"): "a partition was dropped: its rows went without a message, and are still here",
    ("TRUNCATE", "PARTITION"): "a partition was emptied: its rows went without a message, and are still here",
    ("EXCHANGE", "PARTITION"): "a partition and a table were exchanged: rows went and came without a message",
    **dict.fromkeys(
        (("DISCARD", "PARTITION"), ("DISCARD", "TABLESPACE")),
        "its tablespace was discarded: rows went without a message, and are still here",
    ),
    **dict.fromkeys(
        (("IMPORT", "PARTITION"), ("IMPORT", "TABLESPACE")), "a tablespace was imported: rows came without a message"
    ),
    ("ALTER", "IGNORE"): "ALTER IGNORE drops rows that a new key or type doesn't allow, without a message",
}
"""Words of an ALTER TABLE (MySQL manual, "ALTER TABLE Partition Operations"; MariaDB's, "ALTER TABLE") → what it does
to rows: the binlog holds the statement alone."""


def _rows(sql: str) -> str | None:
    return next((told for words, told in _UNTOLD_ROWS.items() if says(sql, *words)), None)


def _cascades(sql: str) -> tuple[tuple[str, str], ...]:
    return tuple(foreign_keys.added(sql)) if says(sql, "REFERENCES") else ()


def _renames(statement: Statement, changes: dict[Name, Change], fold: bool) -> Iterator[tuple[Name, Name]]:
    """(old name, new name) of each table that the statement renames."""
    named = [(db.lower(), t.lower()) if fold else (db, t) for db, t in named_tables(statement)]
    if _says(statement, "RENAME"):
        came_from: dict[Name, Name] = {}
        for old, new in zip(named[::2], named[1::2], strict=False):
            came_from[new] = came_from.pop(old, old)  # a, b swap by way of a third name
        yield from ((old, new) for new, old in came_from.items() if old != new)
    elif len(named) == 1 and (change := changes.get(named[0])) is not None and change.gone:
        yield from ((named[0], new) for new, c in changes.items() if new != named[0] and c.columns is not None)


_VERB = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?(\w+)", re.DOTALL)


def _says(statement: Statement, verb: str) -> bool:
    found = _VERB.match(statement.sql)
    return found is not None and found[1].upper() == verb


def _altered(statement: Statement, name: Name, after: Name, before: tuple[Column, ...] | None, to: Change) -> Effect:
    if before is None or to.columns is None:
        return Effect(to.at, name, after, unknown=to.reason or "what the table was before isn't known")
    text = Said(statement.sql)
    old, new = {c.name.lower(): c for c in before}, {c.name.lower(): c for c in to.columns}
    renamed = {a: b for a, b in text.renames if a in old and b in new}
    stays = [n for n in old if n in new and n not in renamed and n not in renamed.values() and n not in text.drops]
    kept = {**{n: n for n in stays}, **renamed}  # old → new
    came = [c for n, c in new.items() if n not in kept.values()]
    said = defaults.added(statement.sql)
    key_was = [kept.get(n) for n, c in old.items() if c.key]
    key = tuple(c.name for c in to.columns if c.key)
    return Effect(
        to.at,
        name,
        after,
        renamed={old[a].name: new[b].name for a, b in kept.items() if old[a].name != new[b].name},
        dropped=tuple(c.name for n, c in old.items() if n not in kept),
        added=tuple(_added(c, text, said) for c in came),
        retyped={new[b].name: r for a, b in kept.items() if (r := _retyped(old[a], new[b])) is not None},
        reordered=[kept[n] for n in old if n in kept] != [n for n in new if n in kept.values()],
        columns=to.columns,
        key=None if key_was == [k.lower() for k in key] else key,
        rows=_rows(statement.sql),
        cascades=_cascades(statement.sql),
        kept_no_more=tuple(sorted(foreign_keys.dropped(statement.sql))),
    )


def _retyped(was: Column, is_: Column) -> Retyped | None:
    filled = was.nullable and not is_.nullable
    charset = is_.charset if may_lack(is_.charset, was.charset) else None
    return Retyped(was.type, is_.type, filled, charset) if filled or charset or was.type != is_.type else None


def _added(column: Column, statement: Said, said: Mapping[str, defaults.Literal]) -> Added:
    """What rows that were there before have in a new column. `said`: the statement's defaults."""
    untold = Added(column.name, column.type, None, False)
    try:
        mysql_type = parse_type(column.type)
    except UnknownType:
        return untold
    family, default = mysql_type.family, said.get(column.name.lower())
    # The parsers found a default where none was read here; or explicit_defaults_for_timestamp decides.
    unsaid = default is None and (column.default is not None or family == "timestamp")
    # Of times it is ON UPDATE that the parsers take for a number of the server's, and it concerns later changes only.
    if (column.computed and family != "datetime") or statement.generates or unsaid:
        return untold
    if default is not None and default.kind != "null":
        fill = defaults.value(default, mysql_type)
        return Added(column.name, column.type, fill, fill is not None)
    if column.nullable:
        return Added(column.name, column.type, None, True)
    first = mysql_type.labels[0] if family == "enum" and mysql_type.labels else None
    implicit = first or defaults.instead_of_null(mysql_type)
    return Added(column.name, column.type, implicit, implicit is not None)
