"""An ALTER TABLE as Debezium's parsers can do it, one clause after the other, where a server looks at all at once.

IF [NOT] EXISTS (MariaDB): a clause about a column that is there, or isn't, does nothing, and the statement is in the
binlog all the same (`mysql_alter_table`: "ALTER can become NOOP"). The parsers read an ADD that does nothing as one
that changes the column, and the others not at all.

Columns that swap names (MySQL manual, "ALTER TABLE": "RENAME COLUMN … can swap names")."""

from collections.abc import Collection, Iterator

from cdc_platform.mysql.ddl import plain_name
from cdc_platform.mysql.tokens import NO_COLUMN, Token, tokens

_CLAUSES = {
    "ADD": ("IF", "NOT", "EXISTS"),
    "MODIFY": ("IF", "EXISTS"),
    "CHANGE": ("IF", "EXISTS"),
    "RENAME": ("IF", "EXISTS"),
}
_KEY_ASKED = ["PRIMARY", "KEY", "IF", "NOT", "EXISTS"]
_NOTHING = "FORCE"
"""A clause that changes neither columns nor rows."""


def without_idle(sql: str, columns: Collection[str], *, keyed: bool) -> str:
    """The ALTER TABLE with the clauses that do something, without their IF [NOT] EXISTS. `columns`: the table's, before
    the statement, in lower case: the server looks no further (`handle_if_exists_options`). `keyed`: whether it has a
    PRIMARY KEY then."""
    found = tokens(sql, gaps=True)
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    if not plain or found[plain[0]].text.upper() != "ALTER":
        return sql
    texts = [t.text for t in found]
    came: set[str] = set()
    for clause in _clauses(found, plain):
        words = [found[i].text.upper() if found[i].kind == "word" else "" for i in clause]
        for at, verb in enumerate(words):
            if (said := _CLAUSES.get(verb)) is None:
                continue
            if (key := _key_asked(words, at)) is not None:
                _settle(texts, clause, at, (key + 2, key + 4), does_nothing=keyed)
                break
            asks = at + (2 if words[at + 1 : at + 2] == ["COLUMN"] else 1)
            behind = asks + len(said)
            if tuple(words[asks:behind]) != said or behind >= len(clause):
                break
            name = found[clause[behind]]
            if name.kind != "quoted" and name.text.lower() in NO_COLUMN:
                break
            column = plain_name(name.text).lower()
            there = column in columns or (verb == "ADD" and column in came)
            came |= {column} if verb == "ADD" else set()
            _settle(texts, clause, at, (asks, behind - 1), does_nothing=there is (verb == "ADD"))
            break
    return "".join(texts)


def _key_asked(words: list[str], at: int) -> int | None:
    """Where, in an ADD at `at` (perhaps of a CONSTRAINT with a name), a PRIMARY KEY IF NOT EXISTS stands."""
    if words[at] != "ADD":
        return None
    return next((i for i in range(at + 1, min(at + 4, len(words))) if words[i : i + 5] == _KEY_ASKED), None)


def _settle(texts: list[str], clause: list[int], at: int, asks: tuple[int, int], *, does_nothing: bool) -> None:
    """A clause from its verb, at `at`, on: away if it does nothing, else its IF [NOT] EXISTS from `asks` to `asks`."""
    if does_nothing:
        texts[clause[at]] = _NOTHING
        _blank(texts, clause[at] + 1, clause[-1])
    else:
        _blank(texts, clause[asks[0]], clause[asks[1]])


def _blank(texts: list[str], first: int, last: int) -> None:
    texts[first : last + 1] = [" "] * (last + 1 - first)


def _clauses(found: list[Token], plain: list[int]) -> Iterator[list[int]]:
    """Places of the tokens of each clause; the first begins with ALTER TABLE and the table's name."""
    depth, part = 0, []
    for at in plain:
        token = found[at]
        depth += (token == Token("mark", "(")) - (token == Token("mark", ")"))
        if depth == 0 and token.kind == "mark" and token.text in ",;":
            yield part
            part = []
        else:
            part.append(at)
    yield part


_MEANWHILE = "`__cdc_renamed_{}`"


def untangled(sql: str) -> str | None:
    """The ALTER TABLE with names of its own for renamed columns, until all of them are free. None: it also says behind
    which column one stands, and nothing tells which of the two that have had a name is meant."""
    found = tokens(sql, gaps=True)
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    if any(found[i].kind == "word" and found[i].text.upper() == "AFTER" for i in plain):
        return None
    texts, then = [t.text for t in found], []
    last = plain[-1]
    for clause in _clauses(found, plain):
        words = [found[i].text.upper() if found[i].kind == "word" else "" for i in clause]
        verb = next(
            (at for at, w in enumerate(words) if w == "CHANGE" or words[at : at + 2] == ["RENAME", "COLUMN"]), None
        )
        if clause:
            last = clause[-1]
        if verb is None:
            continue
        old = verb + (2 if words[verb + 1 : verb + 2] == ["COLUMN"] else 1)
        new = old + (1 if words[verb] == "CHANGE" else 2)  # RENAME COLUMN a TO b
        if new >= len(clause):
            return None
        meanwhile = _MEANWHILE.format(len(then))
        then.append(f", RENAME COLUMN {meanwhile} TO {texts[clause[new]]}")
        texts[clause[new]] = meanwhile
    texts[last] += "".join(then)
    return "".join(texts)
