"""Statements of their own about an index, CREATE INDEX and DROP INDEX: they name a table, too."""

from cdc_platform.mysql.ddl import Statement, plain_name
from cdc_platform.mysql.tokens import tokens


def key_at_stake(statement: Statement) -> tuple[str, str] | None:
    """(database, table) whose rows a unique index may tell apart since the statement, or does no more. None: it makes
    an index that isn't unique, and replaces none, or is another statement."""
    found = tokens(statement.sql)
    words = [t.text.upper() if t.kind == "word" else "" for t in found]
    if words[:1] not in (["CREATE"], ["DROP"]) or not {"INDEX", "ON"} <= {*words}:
        return None
    says = words[1 : words.index("INDEX")]
    if not all(says) or (words[0] == "CREATE" and {"UNIQUE", "REPLACE"}.isdisjoint(says)):
        return None
    at = words.index("ON") + 1
    names = [plain_name(t.text) for t in found[at : at + 3 : 2]]
    if found[at + 1 : at + 2] and found[at + 1].text == "." and len(names) > 1:
        return names[0], names[1]
    return (statement.db or "", names[0]) if names else None
