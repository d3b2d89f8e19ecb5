"""Foreign keys by which the server changes rows of its own accord: CASCADE, SET NULL and SET DEFAULT. InnoDB does it
below the binlog (MySQL before 9.6, MariaDB): rows of the table that has the key change without an event."""

import re
from collections.abc import Iterator

from cdc_platform.mysql.ddl import plain_name
from cdc_platform.mysql.tokens import NO_COLUMN, Token, tokens

_ACTION = re.compile(r"\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)\b")
_NO_COLUMN = NO_COLUMN | {"add", "modify", "change", "alter", "if", "not", "exists"}


def added(sql: str) -> list[tuple[str, str]]:
    """(name in lower case, what it does, e.g. `p_id: ON DELETE CASCADE`) of each such foreign key that a CREATE or
    ALTER TABLE makes. An empty name: the server makes one up."""
    found = []
    for definition in _definitions(sql):
        at = next((i for i, t in enumerate(definition) if _is(t, "REFERENCES")), None)
        if at is None:
            continue
        words = " ".join(t.text.upper() for t in definition[at:] if t.kind == "word")
        if actions := _ACTION.findall(words):
            name, columns = _of(definition[:at])
            found.append((name, ": ".join(filter(None, (columns, ", ".join(actions))))))
    return found


def dropped(sql: str) -> set[str]:
    """Names of foreign keys and constraints that an ALTER TABLE drops, in lower case."""
    names = set()
    for definition in _definitions(sql):
        words = [t.text.upper() if t.kind == "word" else "" for t in definition]
        for at, word in enumerate(words):
            foreign, constraint = words[at + 1 : at + 3] == ["FOREIGN", "KEY"], words[at + 1 : at + 2] == ["CONSTRAINT"]
            if word != "DROP" or not (foreign or constraint):
                continue
            rest = definition[at + (3 if foreign else 2) :]
            rest = rest[2:] if [t.text.upper() for t in rest[:2]] == ["IF", "EXISTS"] else rest
            names |= {plain_name(t.text).lower() for t in rest[:1]}
    return names


def _definitions(sql: str) -> Iterator[list[Token]]:
    """What a CREATE TABLE lists in its brackets; what an ALTER TABLE does, one after the other."""
    found = tokens(sql)
    base = 1 if found and _is(found[0], "CREATE") else 0
    depth, part = 0, []
    for token in found:
        if token.kind == "mark" and token.text in "()":
            depth += 1 if token.text == "(" else -1
        if depth >= base and token == Token("mark", ",") and depth == base:
            yield part
            part = []
        elif depth == base and token == Token("mark", "("):
            part = []
        else:
            part.append(token)
    yield part


def _is(token: Token, word: str) -> bool:
    return token.kind == "word" and token.text.upper() == word


def _of(definition: list[Token]) -> tuple[str, str]:
    """(constraint's name in lower case, columns) of what stands before REFERENCES; empty: not told."""
    words = [t.text.upper() if t.kind == "word" else "" for t in definition]
    name = ""
    if "CONSTRAINT" in words[:-1] and words[(at := words.index("CONSTRAINT")) + 1] != "FOREIGN":
        name = plain_name(definition[at + 1].text).lower()
    brackets = [i for i, t in enumerate(definition) if t == Token("mark", "(")]
    if "FOREIGN" in words and brackets:
        at = words.index("FOREIGN")
        opened = next((i for i in brackets if i > at), len(definition))
        if not name and opened == at + 3:  # MySQL takes the index's name for the key's
            name = plain_name(definition[at + 2].text).lower()
        return name, ", ".join(plain_name(t.text) for t in definition[opened:] if t.kind in ("word", "quoted"))
    verbs = [i for i, word in enumerate(words) if word in ("ADD", "MODIFY", "CHANGE")]
    own = definition[verbs[-1] :] if verbs else definition
    named = (plain_name(t.text) for t in own if t.kind == "quoted" or t.text.lower() not in _NO_COLUMN)
    return name, next(named, "")
