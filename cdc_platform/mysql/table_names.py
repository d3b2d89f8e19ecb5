"""Whether a server tells the case of table names apart (`lower_case_table_names`), as far as a feed shows it.

With 1 or 2, usual on Windows, macOS and at cloud vendors, rows name the table as it is stored and statements as someone
typed it (MySQL manual, "Identifier Case Sensitivity").
"""

import re
from collections.abc import Collection, Iterable, Iterator

from cdc_platform.mysql.ddl import (
    GAP,
    Statement,
    dropped_database,
    named_tables,
    tables_there_before,
    truncated_table,
)

Name = tuple[str, str]
"""(database, table)."""

_VERB = re.compile(rf"{GAP}*+(?:/\*!\d*\s*)?(\w+)", re.DOTALL)
_IF_EXISTS = re.compile(rf"\bIF{GAP}+(?:NOT{GAP}+)?EXISTS\b", re.IGNORECASE | re.DOTALL)


def folded(name: Name) -> Name:
    """A name as such a server compares it."""
    return name[0].lower(), name[1].lower()


def folds(statements: Iterable[Statement], rows: Collection[Name]) -> bool:
    """Whether the server that ran these statements, in order, takes names that differ by case for one table. `rows`:
    names that row changes have.

    True only on proof: a statement needs a table that nothing spells so, while another spelling is known. Two tables
    that differ by case only prove the contrary."""
    stored: dict[Name, set[Name]] = {}
    for name in rows:
        stored.setdefault(folded(name), set()).add(name)
    if any(len(names) > 1 for names in stored.values()):
        return False
    there: dict[Name, set[Name]] = {n: set(names) for n, names in stored.items()}
    created: dict[Name, Name] = {}
    proven = False
    for statement in statements:
        for name in _needed(statement):
            spelled = there.get(folded(name), set())
            proven |= bool(spelled) and name not in spelled
        for name, comes in _changes(statement):
            before = created.pop(folded(name), None)
            if comes:
                if before is not None and before != name:
                    return False
                created[folded(name)] = name
                there.setdefault(folded(name), set()).add(name)
    return proven


def spelled_otherwise(statements: Iterable[Statement], rows: Collection[Name]) -> dict[Name, Name]:
    """Names that row changes have → how statements spell a table that no row has, if only the case differs: what
    `folds` doesn't prove to be the same."""
    stored = {folded(name): name for name in rows}
    named = (n for s in statements if _verb(s) != "DROP" for n in named_tables(s))
    return {there: n for n in named if n not in rows and (there := stored.get(folded(n))) is not None}


def _verb(statement: Statement) -> str:
    found = _VERB.match(statement.sql)
    return found[1].upper() if found else ""


def _needed(statement: Statement) -> Iterator[Name]:
    """Tables without which the server had refused the statement, and so not logged it."""
    verb = _verb(statement)
    try:
        emptied = truncated_table(statement)
    except ValueError:
        return
    if emptied is not None:
        yield emptied
    elif verb == "RENAME":
        names, came = named_tables(statement), set()
        for old, new in zip(names[::2], names[1::2], strict=False):
            if old not in came:
                yield old
            came.add(new)
    elif dropped_database(statement) is None and not _IF_EXISTS.search(statement.sql):
        yield from tables_there_before(statement)


def _changes(statement: Statement) -> Iterator[tuple[Name, bool]]:
    """Names that the statement takes (False) or gives (True)."""
    verb, names = _verb(statement), named_tables(statement)
    if verb == "DROP":
        yield from ((n, False) for n in names)
    elif verb == "RENAME":
        for old, new in zip(names[::2], names[1::2], strict=False):
            yield old, False
            yield new, True
    elif verb == "CREATE" and not _IF_EXISTS.search(statement.sql):
        yield from ((n, True) for n in names)
