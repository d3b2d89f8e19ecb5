"""The database of a statement's session, where a message names another one in its place: canal's JSON has that of the
new name of a RENAME (`DruidDdlParser` gives the event the new name, alibaba/canal#3330)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cdc_platform.mysql.ddl import (
    Statement,
    creates,
    dropped_database,
    drops,
    named_tables,
    plain_name,
    tables_there_before,
    targets,
)
from cdc_platform.mysql.table_names import folded
from cdc_platform.mysql.tokens import Token, tokens

Name = tuple[str, str]
Order = tuple[int, ...]
"""An `order_key` as a tuple."""
_Parts = tuple[str | None, str]
"""Database, if it is told, and table."""


class InSessions(NamedTuple):
    """Statements with the database of their session; `doubts`: number of a statement → tables, in lower case, of
    which it renamed which isn't told: those that it may have taken, and what it calls them."""

    statements: list[Statement]
    doubts: dict[int, list[Name]]


def in_sessions(
    statements: Sequence[Statement], places: Sequence[Order], rows: Iterable[tuple[Order, Name]]
) -> InSessions:
    """Statements with the database of their session. Another than what they tell on proof only: a RENAME moves tables
    into the database that the message names, and by names alone takes tables that this one doesn't have there, and just
    one other does, or of several just one that nothing says to be there afterwards. places: of the statements, in
    order. rows: names that row changes have, from which place on."""
    coming = sorted(rows, reverse=True)
    there: set[Name] = set()
    spelled: dict[str, str] = {}  # databases
    out: list[Statement] = []
    doubts: dict[int, list[Name]] = {}
    for at, (statement, place) in enumerate(zip(statements, places, strict=True)):
        while coming and coming[-1][0] < place:
            name = coming.pop()[1]
            spelled.setdefault(name[0].lower(), name[0])
            there.add(folded(name))
        moves = list(_renames(statement.sql)) if "rename" in statement.sql.lower() else []
        found = _sessions(statement, moves, there)
        if len(found) > 1:
            found = _left(found, {folded(("", old))[1] for (_, old), _ in moves}, statements[at + 1 :])
        out.append(statement._replace(db=spelled.get(found[0], found[0])) if len(found) == 1 else statement)
        if len(found) > 1:
            olds = sorted(folded((db, old)) for db in found for (_, old), _ in moves)
            doubts[at] = [*olds, *(folded((db or statement.db or "", new)) for _, (db, new) in moves)]
        if creates(statement.sql):
            there |= set(map(folded, named_tables(statement)))
            spelled |= {db.lower(): db for db, _ in named_tables(statement)}
        elif drops(statement.sql):
            there -= set(map(folded, named_tables(statement)))
        for (was, old), (db, table) in moves:
            there.discard(folded((was or out[-1].db or "", old)))
            there.add(folded((db or statement.db or "", table)))
    return InSessions(out, doubts)


def _left(found: list[str], olds: set[str], later: Sequence[Statement]) -> list[str]:
    """Of the databases one of whose tables went away, those that it can be. Where a statement makes a table of that
    name next, it went: a CREATE of one that is there fails, and isn't in the log. Where a statement takes it for
    granted, it was still there. IF [NOT] EXISTS and OR REPLACE say neither."""
    for statement in later:
        if (dropped_database(statement) or "").lower() in found:
            return found  # a table that comes afterwards proves nothing
        text = statement.sql.lower()
        if "exists" in text or "replace" in text:
            continue
        made, needed = ({db for db, table in names if table in olds} for names in _made_and_needed(statement))
        gone = [db for db in found if db in made]
        if gone or len(found) < 2:
            return gone if len(gone) == 1 else found
        found = [db for db in found if db not in needed]
    return found


def _made_and_needed(statement: Statement) -> tuple[set[Name], set[Name]]:
    """Names in lower case of the tables that a statement brings about, and of those that were there before it. Whose
    session a RENAME is of may not be told: of an old name without database nothing is."""
    if moves := list(_renames(statement.sql)):
        made = {folded((db or statement.db or "", table)) for _, (db, table) in moves}
        return made, {folded((db, table)) for (db, table), _ in moves if db is not None}
    named, needed = set(map(folded, named_tables(statement))), set(map(folded, tables_there_before(statement)))
    return (named - needed, needed) if creates(statement.sql) else (set(), named)


def _sessions(statement: Statement, moves: list[tuple[_Parts, _Parts]], there: set[Name]) -> list[str]:
    """Databases, in lower case, that the session may be in, where it isn't in the one that the statement tells."""
    named = (statement.db or "").lower()
    olds = {table.lower() for (db, table), _ in moves if db is None}
    stays = {old.lower() for (_, old), (_, new) in moves if old.lower() == new.lower()}  # in one session: no move
    into = all((db or "").lower() == named for _, (db, _) in moves)
    if not named or not into or not olds or len(olds) < len(moves):
        return []
    if any((named, old) in there for old in olds - stays):
        return []
    return sorted(db for db in {db for db, _ in there} - {named} if all((db, old) in there for old in olds))


def _renames(sql: str) -> Iterator[tuple[_Parts, _Parts]]:
    """(old, new) of each table that a statement renames."""
    named = [_parts(first, second) for _, _, first, second in targets(sql)]
    found = tokens(sql)
    verb = found[0].text.upper() if found else ""
    if verb == "RENAME":
        yield from zip(named[::2], named[1::2], strict=False)
    elif verb == "ALTER" and named and (new := _new_name(found)) is not None:
        yield named[0], new


def _parts(first: str | None, second: str | None) -> _Parts:
    if second is None:
        return None, plain_name(first or "")
    return plain_name(first or ""), plain_name(second)


def _new_name(found: Sequence[Token]) -> _Parts | None:
    """What an ALTER TABLE … RENAME [TO] calls its table."""
    depth = 0
    for at, token in enumerate(found):
        depth += (token == Token("mark", "(")) - (token == Token("mark", ")"))
        if depth or token.kind != "word" or token.text.upper() != "RENAME":
            continue
        rest = found[at + 1 : at + 5]
        if rest and rest[0].text.upper() in ("TO", "AS", "="):
            rest = rest[1:]
        elif rest and rest[0].text.upper() in ("COLUMN", "INDEX", "KEY"):
            continue
        if rest:
            qualified = len(rest) > 2 and rest[1] == Token("mark", ".")
            return _parts(rest[0].text, rest[2].text if qualified else None)
    return None
