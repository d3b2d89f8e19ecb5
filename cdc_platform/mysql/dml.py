"""Which table a statement that changes rows is about: such statements come in place of rows (`binlog_format` isn't
ROW), and one on a table that nobody follows is nobody's concern."""

from itertools import pairwise

from cdc_platform.mysql.ddl import Statement, plain_name
from cdc_platform.mysql.readable import with_backticks
from cdc_platform.mysql.tokens import Token, tokens

_MODIFIERS = frozenset(
    ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "CONCURRENT", "IGNORE", "QUICK", "INTO", "FROM", "LOCAL", "REPLACE")
)
_BEHIND = {
    "INSERT": None,
    "REPLACE": None,
    "UPDATE": frozenset(("SET", "AS", "PARTITION")),
    "DELETE": frozenset(("WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION", ";", "")),
    "LOAD": None,
}
"""Verb → what may stand behind the table's name where it is the only one; None: anything."""


def changed_table(statement: Statement) -> tuple[str, str] | None:
    """(database, table) of the one table whose rows an INSERT, REPLACE, UPDATE, DELETE or LOAD DATA changes; None: it
    is another statement, or it names several or no database."""
    found = tokens(with_backticks(statement.sql))
    verb = found[0].text.upper() if found and found[0].kind == "word" else ""
    if verb not in _BEHIND:
        return None
    at = _name_at(found, verb)
    names = [at] if at is not None else []
    while names and (names[-1] + 2) < len(found) and found[names[-1] + 1] == Token("mark", "."):
        names.append(names[-1] + 2)
    if not 1 <= len(names) <= 2 or any(found[i].kind not in ("word", "quoted") for i in names):
        return None
    behind = found[names[-1] + 1].text.upper() if names[-1] + 1 < len(found) else ""
    allowed = _BEHIND[verb]
    if allowed is not None and behind not in allowed:
        return None
    *db, table = (plain_name(found[i].text) for i in names)
    name = (db[0] if db else statement.db or "", table)
    return name if all(name) else None


def _name_at(found: list[Token], verb: str) -> int | None:
    """Where the first table's name begins."""
    if verb == "LOAD":
        words = [t.text.upper() if t.kind == "word" else "" for t in found]
        pairs = pairwise(words)
        return next((i + 2 for i, pair in enumerate(pairs) if pair == ("INTO", "TABLE") and i + 2 < len(found)), None)
    at = 1
    while at < len(found) and found[at].kind == "word" and found[at].text.upper() in _MODIFIERS:
        at += 1
    return at if at < len(found) else None
